"""What the checks see of shards, DeepSpeed's engines and compiled models, in one process."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.checks.finding import VARIABLE, Check, Finding
from safe_launch.evidence.observations import observations
from safe_launch.evidence.worker_messages import Found, Message
from safe_launch.guards import data_parallel
from safe_launch.guards.checks import (
    engines,
    evaluations,
    held_parameters,
    losses,
    saves,
    schedules,
    updates,
)
from safe_launch.guards.checks.accumulation import Clearing, Kept
from safe_launch.guards.checks.batches import Draws, Labels
from safe_launch.guards.checks.models import parameters_of
from safe_launch.guards.checks.optimizers import Watch
from safe_launch.guards.optimizer import steps
from support.lazy import Lazy

torch = Lazy("torch")

Told = Callable[[], list[Finding]]


@pytest.fixture(name="told")
def findings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """The findings of a rank of two."""
    messages: list[Message] = []
    observations.report_to(messages.append)
    monkeypatch.setenv(VARIABLE, ",".join(Check))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(saves, "_begun", {})
    monkeypatch.setattr(data_parallel, "others", weakref.WeakSet())
    yield lambda: [each.finding for each in messages if isinstance(each, Found)]
    schedules.schedules.optimizers.clear()


def net() -> Any:
    """A small model."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 2))


def shards(*models: Any) -> Any:
    """The last model, with stand-ins for FSDP2's shards."""
    for model in models:
        for param in model.parameters():
            param.to_local = param.detach
    return models[-1]


def watched(optimizer: Any) -> Any:
    """An optimizer watched as in a worker."""
    Watch(optimizer)
    return optimizer


@pytest.mark.parametrize(
    ("held", "divided", "names"),
    [
        ([0], [0, 1], ["1.weight"]),
        ([0, 1], [0, 1], []),
        ([1], [0, 1], []),  # a head alone
        ([0], [0], []),  # the rest is whole, or gathered
    ],
)
def test_shards_that_no_optimizer_has(
    told: Told, held: list[int], divided: list[int], names: list[str]
) -> None:
    """A forgotten head, if all of the model is divided."""
    model = net()
    shards(*(model[place] for place in divided))
    observations.see_model(model)
    params = [param for place in held for param in model[place].parameters()]
    optimizer = watched(torch.optim.SGD(params, lr=1e-3))
    for _ in range(4):
        model(torch.ones(3, 8)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert [found.parameter for found in told()] == names
    assert all("in no optimizer" in found.sentence for found in told())


def engine(model: Any, optimizer: Any, stage: int = 3) -> Any:
    """A stand-in for DeepSpeed's, three steps after it was made."""

    class Engine(SimpleNamespace):
        __hash__ = object.__hash__

    return Engine(
        module=model,
        basic_optimizer=optimizer,
        global_steps=3,
        skipped_steps=0,
        is_gradient_accumulation_boundary=lambda: True,
        zero_optimization_stage=lambda: stage,
    )


@pytest.mark.parametrize(
    ("held", "more", "names"),
    [([0], [], ["1.weight"]), ([0], [1], []), ([0, 1], [], []), ([1], [], [])],
)
def test_parameters_that_an_engine_was_not_given(
    told: Told, held: list[int], more: list[int], names: list[str]
) -> None:
    """The engine's groups are flat by then, and may have been added to before."""
    model = net()
    params = [param for place in held for param in model[place].parameters()]
    optimizer = watched(torch.optim.SGD(params, lr=1e-3))
    for place in more:
        optimizer.add_param_group({"params": list(model[place].parameters())})
    made = engine(model, optimizer)
    engines.made_with[made] = frozenset(map(id, parameters_of(optimizer)))
    optimizer.param_groups[0]["params"] = [torch.zeros(3, requires_grad=True)]
    model(torch.ones(3, 8)).pow(2).mean().backward()
    engines.EngineWatch().look(made)
    assert [found.parameter for found in told()] == names


@pytest.mark.parametrize(("size", "value", "is_told"), [(8, 0, True), (8, 1, False), (9, 0, False)])
def test_adapters_that_stay_zero_in_stage_3(
    told: Told, size: int, value: float, is_told: bool
) -> None:
    """By this rank's part, if it has no padding."""
    model = torch.nn.Linear(4, 4, bias=False)
    model.lora_B = torch.nn.Linear(4, 4, bias=False)
    model.lora_B.weight.data = torch.empty(0)
    model.lora_B.weight.ds_tensor = torch.full((size,), float(value))
    model.lora_B.weight.ds_numel = 16
    optimizer = watched(torch.optim.SGD(model.parameters(), lr=1e-3))
    updates.done[optimizer] = 3
    engines.EngineWatch().look(engine(model, optimizer))
    assert ["still zero" in found.sentence for found in told()] == [True] * is_told


@pytest.mark.parametrize(("factor", "is_told"), [(2, True), (1, False), (0.5, False)])
def test_losses_times_the_ranks_under_fsdp2(
    told: Told, monkeypatch: pytest.MonkeyPatch, factor: float, is_told: bool
) -> None:
    """What averages is named; a division may belong to a divisor that the script has set."""
    model = net()
    model.reshard = model.parameters
    monkeypatch.setattr(data_parallel, "others", weakref.WeakSet([model]))
    world_size = factor  # the name shows what it is multiplied by
    loss = torch.nn.functional.mse_loss(model(torch.ones(3, 8)), torch.ones(3, 2)) * world_size
    losses.Losses().look(loss)
    assert ["FSDP2 averages" in found.sentence for found in told()] == [True] * is_told


def test_the_outermost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is called, and its divided parts within it."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = net()
    monkeypatch.setattr(data_parallel, "others", weakref.WeakSet([model[0], model[1], model]))
    assert data_parallel.outermost() == [model]
    assert len(list(data_parallel.dividing())) == 3


def words_model() -> Any:
    """A model that gets labels."""

    class Words(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = torch.nn.Embedding(9, 8), torch.nn.Linear(8, 9)

        def forward(self, words: Any, labels: Any = None) -> Any:
            scores = self.head(self.embed(words)).flatten(0, 1)
            return scores if labels is None else scores.sum()

    return Words()


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("ignored", [True, False])
def test_labels_of_divided_models(
    told: Told, monkeypatch: pytest.MonkeyPatch, is_compiled: bool, ignored: bool
) -> None:
    """All ignored; a divided part gets none, and is no reason to stop looking."""
    model = words_model()
    monkeypatch.setattr(data_parallel, "others", weakref.WeakSet([model.head, model]))
    called = model
    if is_compiled:
        called = torch.compile(model, backend="eager")
        data_parallel._compiled[model] = weakref.ref(called)
    assert data_parallel.called(model) is called
    loader = torch.utils.data.DataLoader(torch.arange(40) % 9, 4)
    draws = Draws(Labels())
    draws.begun(loader, iter(loader))
    for words in loader:
        labels = torch.full((2, 2), -100) if ignored else words.view(2, 2)
        called(words.view(2, 2), labels=labels)
    assert [found.check for found in told()] == [Check.DATA] * ignored
    assert all("-100" in found.sentence for found in told())


def test_inputs_of_divided_and_compiled_models(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A divided part doesn't hide the tokens that its model got."""
    model = words_model()
    monkeypatch.setattr(data_parallel, "others", weakref.WeakSet([model.embed, model.head, model]))
    called = torch.compile(model, backend="eager")
    data_parallel._compiled[model] = weakref.ref(called)
    seen = losses.Losses()
    seen.watch()
    words = torch.tensor([[1, 2, 3, 4]])
    called(words)
    assert seen._inputs is not None
    assert seen._inputs.ids is words
    assert told() == []


@pytest.mark.parametrize("mode", [True, False])
def test_evaluations_of_compiled_models(
    told: Told, monkeypatch: pytest.MonkeyPatch, mode: bool
) -> None:
    """In training mode, dropout stays on."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    observations.see_model(model)
    monkeypatch.setattr(observations, "steps_of_all", lambda: 4)
    called = torch.compile(model, backend="eager").train(mode)
    data_parallel._compiled[model] = weakref.ref(called)
    looking = evaluations.Evaluations()
    with torch.no_grad():
        looking.begin()
        called(torch.ones(1, 4))
    assert ["evaluated in training mode" in found.sentence for found in told()] == [True] * mode


def shared_steps(model: Any, *, before: Callable[[Any, Any], object], passes: int = 1) -> None:
    """A loop with what `backward` and a watched optimizer call."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    found: list[Any] = [optimizer]
    kept = Kept(lambda: found)
    kept.restart()
    for _ in range(6):
        for _ in range(passes):
            before(optimizer, model)
            loss = model(torch.ones(3, 8)).pow(2).mean()
            if kept.is_open:
                kept.passing()
            loss.backward()
            if kept.is_open:
                kept.passed()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        if kept.is_open:
            kept.stepping(optimizer)
        optimizer.step()
    assert not kept.is_open


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("passes", [1, 2])
def test_gradients_of_shards_that_are_never_cleared(told: Told, passes: int, to_none: bool) -> None:
    """Clearing between a step and the next pass is seen, clipping isn't taken for it."""
    cleared = shards(net())
    observations.see_model(cleared)
    shared_steps(cleared, before=lambda one, _: one.zero_grad(set_to_none=to_none), passes=passes)
    whole = net()  # whose gradients are sampled
    shared_steps(whole, before=lambda *_: None)
    assert told() == []
    model = shards(net())
    shared_steps(model, before=lambda *_: None, passes=passes)
    (found,) = told()
    assert (found.check, found.certain) == (Check.GRADIENTS, True)
    assert "never cleared" in found.sentence


def test_gradients_of_copies_in_float32(told: Told) -> None:
    """A loop writes them in each step, and no pass adds to them."""
    model = net().bfloat16()
    observations.see_model(model)
    copies = [torch.nn.Parameter(param.detach().float()) for param in model.parameters()]
    optimizer = torch.optim.SGD(copies, lr=1e-3)
    kept = Kept(lambda: [optimizer])
    kept.restart()
    for _ in range(6):
        loss = model(torch.ones(3, 8, dtype=torch.bfloat16)).pow(2).mean()
        if kept.is_open:
            kept.passing()
        loss.backward()
        if kept.is_open:
            kept.passed()
        for master, param in zip(copies, model.parameters(), strict=True):
            master.grad = param.grad.float()
        if kept.is_open:
            kept.stepping(optimizer)
        optimizer.step()
        model.zero_grad()
    assert not kept.is_open
    assert told() == []


@pytest.mark.parametrize(("is_hidden", "is_told"), [(False, True), (True, False)])
def test_gradients_of_shards_that_are_cleared_early(
    told: Told, is_hidden: bool, is_told: bool
) -> None:
    """Not those that FSDP2 keeps elsewhere until the step's last pass."""
    model = shards(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    watch = SimpleNamespace(steps=0)
    clearing = Clearing(lambda: [(optimizer, watch)])
    for _ in range(4):
        for last in (False, True):
            optimizer.zero_grad()
            loss = model(torch.ones(3, 8)).pow(2).mean()
            if clearing.is_open:
                clearing.look()
            loss.backward()
            if is_hidden and not last:
                optimizer.zero_grad()
            clearing.after()
        optimizer.step()
        watch.steps += 1
    assert [found.check for found in told()] == [Check.GRADIENTS] * is_told


@pytest.mark.parametrize("is_equal", [True, False])
def test_divided_weights_that_are_to_be_tied(told: Told, is_equal: bool) -> None:
    """ZeRO stage 3 leaves each rank a part of each."""
    heads = [torch.nn.Linear(8, 4, bias=False) for _ in range(2)]
    for place, head in enumerate(heads):
        head.weight.ds_tensor = torch.arange(16.0) + place * (not is_equal)
        head.weight.ds_shape = (4, 8)
        head.weight.data = torch.empty(0)
    model = torch.nn.Sequential(*heads)
    model.config = SimpleNamespace(tie_word_embeddings=True)
    model.get_input_embeddings, model.get_output_embeddings = (lambda: heads[0]), lambda: heads[1]
    held_parameters.look_at_apart([model], "train.py:7")
    assert [found.where for found in told()] == ["train.py:7"] * is_equal
    assert all("1.weight" in found.sentence for found in told())


def test_a_step_that_makes_states_before_a_load(told: Told) -> None:
    """torch.distributed.checkpoint makes it, without gradients and at a rate of 0."""
    model = net()
    observations.see_model(model)
    optimizer = watched(torch.optim.AdamW(model.parameters(), lr=1e-3))
    seen = schedules.schedules.optimizers[optimizer]
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    steps.prepare(lambda: optimizer.step(), None, (), {})
    assert seen.steps == 0
    optimizer.step()
    assert seen.steps == 1
    assert told() == []
