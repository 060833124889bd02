"""Detecting in the first pass, at no cost to values, that a checkpointed block runs twice."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from safe_launch.core import preset
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Answer, Ask
from safe_launch.guards import checkpointing, settling
from safe_launch.guards.block_probe import identity
from support.lazy import Lazy

torch = Lazy("torch")
torchs = Lazy("torch.utils.checkpoint")

REENTRANT = "CheckpointFunctionBackward"


class Launcher:
    """Asks for the probe if `probes`, and then changes the checkpointing of such a block."""

    def __init__(self, *, probes: bool = True) -> None:
        self.probes = probes
        self.facts: list[bool | None] = []

    def __call__(self, question: Ask) -> Answer:
        """Returns the answer."""
        twice = question.facts.get("block_runs_twice")
        self.facts.append(None if twice is None else bool(twice))
        overrides = {"gradient_checkpointing": "non_reentrant"} if twice else {}
        return Answer(question.key, overrides, probes=self.probes and twice is None)


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resets settings that are made once a process."""
    monkeypatch.setattr(settling, "_settled", {})
    monkeypatch.setattr(settling, "_settled_replaced", {})
    monkeypatch.delenv(preset.OVERRIDES_VARIABLE, raising=False)


def guarded(launcher: Launcher) -> Callable[..., Any]:
    """Torch's guarded `checkpoint`."""
    observations.report_to(lambda _message: None, launcher)
    module: Any = ModuleType("torch.utils.checkpoint")
    module.checkpoint = torchs.checkpoint
    module.CheckpointFunction = torchs.CheckpointFunction
    checkpointing.install(module)
    return functools.partial(module.checkpoint, use_reentrant=True)


def block() -> Any:
    """A block with weights and with dropout, whose recomputation must draw the same numbers."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Tanh())


def inputs() -> Any:
    """An input that requires a gradient."""
    return torch.ones(2, 4, requires_grad=True)


def is_reentrant(output: Any) -> bool:
    """Whether an output was computed by reentrant checkpointing."""
    return type(output.grad_fn).__name__ == REENTRANT


def gradients(run: Callable[..., Any], layer: Any, times: int) -> list[Any]:
    """The gradients of a block's weights after several runs and one backward pass."""
    torch.manual_seed(1)
    total = sum(run(layer, inputs()).sum() for _ in range(times))
    total.backward()
    return [weight.grad.clone() for weight in layer.parameters()]


def test_a_block_that_runs_once() -> None:
    """Gradients are unchanged; after the first backward pass so is everything else."""
    launcher = Launcher()
    checkpoint = guarded(launcher)
    layer = block()
    first = checkpoint(layer, inputs())
    assert not is_reentrant(first)
    found = gradients(checkpoint, block(), 1)
    assert launcher.facts == [None, False]
    assert is_reentrant(checkpoint(layer, inputs()))
    asked = gradients(functools.partial(torchs.checkpoint, use_reentrant=True), block(), 1)
    assert all(map(torch.equal, found, asked))
    assert observations.observed["gradient_checkpointing"] == "reentrant"


def test_a_block_that_runs_twice() -> None:
    """The question comes in the second run, before backward; the graph is uniform."""
    launcher = Launcher()
    checkpoint = guarded(launcher)
    found = gradients(checkpoint, layer := block(), 2)
    assert launcher.facts == [None, True]
    plain = gradients(lambda layer, x: layer(x), block(), 2)
    assert all(map(torch.equal, found, plain))
    assert not is_reentrant(checkpoint(layer, inputs()))


def test_a_run_whose_graph_is_gone_does_not_count() -> None:
    """A first pass may only look at shapes."""
    launcher = Launcher()
    checkpoint = guarded(launcher)
    layer = block()
    for _ in range(3):
        checkpoint(layer, inputs())
    assert launcher.facts == [None]


def test_what_the_launcher_need_not_know() -> None:
    """Without a probe all blocks run as requested."""
    launcher = Launcher(probes=False)
    checkpoint = guarded(launcher)
    layer = block()
    assert all(is_reentrant(checkpoint(layer, inputs())) for _ in range(2))
    assert launcher.facts == [None]


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_only_what_reentrant_checkpointing_would_train() -> None:
    """It trains nothing without an input that requires a gradient."""
    launcher = Launcher()
    checkpoint = guarded(launcher)
    assert checkpoint(block(), torch.ones(2, 4)).grad_fn is None
    with torch.no_grad():
        checkpoint(block(), inputs())
    functools.partial(checkpoint, use_reentrant=False)(block(), inputs())
    assert launcher.facts == [None]  # from the inputs, which the launcher leaves unchanged


class Stack(torch.nn.Module):  # type: ignore[misc]
    """Layers called in unusual ways."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(2))

    def run(self, number: int, x: Any) -> Any:
        """Runs one of its layers."""
        return self.layers[number](x)


def ways(stack: Stack, number: int) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Common ways to checkpoint a layer."""
    layer = stack.layers[number]

    def closure(x: Any) -> Any:
        return layer(x)

    return [
        (layer, ()),
        (layer.forward, ()),
        (closure, ()),
        (lambda x: stack.run(number, x), ()),
        (lambda x, layer=layer: layer(x), ()),
        (functools.partial(layer, scale=1), ()),
        (functools.partial(stack.run, number), ()),
        (stack.run, (number,)),
        (lambda layer, x: layer(x), (layer,)),
    ]


@pytest.mark.parametrize("way", range(9))
def test_a_block_is_told_from_another(way: int) -> None:
    """Blocks are distinguished and recognized again."""
    stack = Stack()
    (first, *_), (again, *_), (other, *_) = (
        [identity(function, (*args, torch.ones(1)))]
        for function, args in (ways(stack, number)[way] for number in (0, 0, 1))
    )
    assert first is not None
    assert first == again
    assert first != other


def test_what_is_not_known() -> None:
    """A function may reach any layer by a global name; a frozen block loses no gradient."""
    assert identity(torch.nn.Linear(1, 1).requires_grad_(requires_grad=False), ()) is None
    assert identity(lambda x: x, (torch.ones(1), 3)) is None


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_trained_block_without_a_gradient() -> None:
    """Asked once if weights are trained and no input requires a gradient."""

    class Settles(Launcher):
        def __call__(self, question: Ask) -> Answer:
            is_frozen = bool(question.facts.get("checkpoint_input_frozen"))
            self.facts.append(is_frozen)
            settled = {"gradient_checkpointing": "non_reentrant"} if is_frozen else {}
            return Answer(question.key, settled)

    launcher, fixed = Settles(), torch.ones(2, 4)
    checkpoint = guarded(launcher)
    with torch.no_grad():
        checkpoint(block(), fixed)
    checkpoint(block().requires_grad_(False), fixed)
    checkpoint(block(), fixed, use_reentrant=False)
    assert not launcher.facts
    assert is_reentrant(checkpoint(block(), inputs()))
    trained = block()
    checkpoint(trained, fixed).sum().backward()
    assert trained[0].weight.grad is not None
    checkpoint(trained, fixed)
    assert launcher.facts == [False, True]
