"""Guards accept the arguments of any version of the wrapped function and pass on new ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from safe_launch.core import preset
from safe_launch.core.choices import Checkpointing
from safe_launch.core.settings import Setting, Value
from safe_launch.evidence.observations import observations
from safe_launch.guards import checkpointing, deepspeed
from support.lazy import Lazy

torch = Lazy("torch")
torchs = Lazy("torch.utils.checkpoint")

MODES = (None, *Checkpointing)
FORMS = (Checkpointing.REENTRANT, Checkpointing.NON_REENTRANT)


def enforce(patch: pytest.MonkeyPatch, setting: Setting, value: Value | None) -> None:
    """Makes the guards enforce a setting; None leaves it to the script."""
    overrides = {} if value is None else {setting: value}
    patch.setenv(preset.OVERRIDES_VARIABLE, preset.encode(overrides))


class Configured:
    """The result of torch's `checkpoint` called without a function."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.function, self.options = function, options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function."""
        return newer(self.function, *args, **self.options, **kwargs)


def newer(
    function: Any = None,
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    respect_saved_tensors_hooks: bool | None = None,
    **kwargs: Any,
) -> Any:
    """This version's `checkpoint` with 2.14's form; unknown arguments are still rejected."""
    if function is None and not args:
        assert not kwargs
        options = {
            "use_reentrant": use_reentrant,
            "preserve_rng_state": preserve_rng_state,
            "respect_saved_tensors_hooks": respect_saved_tensors_hooks,
        }
        return functools.partial(Configured, options=options)
    if use_reentrant and respect_saved_tensors_hooks is not None:
        raise ValueError("only supported when use_reentrant=False")
    return torchs.checkpoint(
        function,
        *args,
        use_reentrant=bool(use_reentrant),
        preserve_rng_state=preserve_rng_state,
        **kwargs,
    )


@pytest.fixture
def checkpoint() -> Callable[..., Any]:
    """Torch 2.14's `checkpoint` with the guard."""
    module: Any = ModuleType("torch.utils.checkpoint")
    module.checkpoint, module.CheckpointFunction = newer, torchs.CheckpointFunction
    checkpointing.install(module)
    wrapped: Callable[..., Any] = module.checkpoint
    return wrapped


def is_seen(mode: Checkpointing | None, own: Checkpointing) -> bool:
    """Whether the guard observed the settings in force."""
    expected = own if mode is None else mode
    found = observations.observed.get(Setting.GRADIENT_CHECKPOINTING)
    return found == (None if expected is Checkpointing.OFF else expected.value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("own", FORMS)
def test_a_decorator_makes_checkpointed_blocks(
    checkpoint: Callable[..., Any],
    own: Checkpointing,
    mode: Checkpointing | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a function; the preset at the time of the call counts."""

    class Block(torch.nn.Module):
        @checkpoint(use_reentrant=own is Checkpointing.REENTRANT, preserve_rng_state=False)
        def forward(self, x: Any) -> Any:
            """Doubles it."""
            return x * 2

    enforce(monkeypatch, Setting.GRADIENT_CHECKPOINTING, mode)
    x = torch.ones(2, requires_grad=True)
    Block()(x).sum().backward()
    assert x.grad.tolist() == [2, 2]
    assert Block.forward.__doc__ == "Doubles it."
    assert is_seen(mode, own)


@pytest.mark.parametrize("mode", MODES)
def test_an_option_that_one_form_alone_takes(
    checkpoint: Callable[..., Any], mode: Checkpointing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option belongs to the implementation and isn't passed to the block."""
    enforce(monkeypatch, Setting.GRADIENT_CHECKPOINTING, mode)
    x = torch.ones(2, requires_grad=True)
    block = functools.partial(checkpoint, use_reentrant=False, respect_saved_tensors_hooks=True)
    block(lambda x, scale: x * scale, x, scale=3).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert is_seen(mode, Checkpointing.NON_REENTRANT)


@pytest.mark.parametrize("mode", MODES)
def test_tensors_given_by_name_have_their_gradients(
    checkpoint: Callable[..., Any], mode: Checkpointing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two blocks share a tensor with a graph."""
    enforce(monkeypatch, Setting.GRADIENT_CHECKPOINTING, mode)
    x, weight = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    shared = weight.exp()
    for _ in range(2):
        x = checkpoint(lambda x, mask: x * mask, x, mask=shared, use_reentrant=False)
    x.sum().backward()
    assert weight.grad.tolist() == pytest.approx([2 * 2.718281828**2] * 2)


@pytest.fixture
def of_deepspeed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The installed DeepSpeed's `checkpoint` with the guard."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    from deepspeed.runtime.activation_checkpointing import checkpointing as module

    monkeypatch.setattr(module, "checkpoint", module.checkpoint)  # to be restored afterwards
    checkpointing.install(module)
    wrapped: Callable[..., Any] = module.checkpoint
    return wrapped


@pytest.mark.parametrize("mode", MODES)
def test_deepspeeds_takes_keywords(
    of_deepspeed: Callable[..., Any], mode: Checkpointing | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed 0.19.5 and later take keywords in both implementations."""
    enforce(monkeypatch, Setting.GRADIENT_CHECKPOINTING, mode)
    x, scale = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    of_deepspeed(lambda x, scale: x * scale * 3, x, scale=scale).sum().backward()
    assert [x.grad.tolist(), scale.grad.tolist()] == [[3, 3], [3, 3]]
    assert is_seen(mode, Checkpointing.REENTRANT)


class Init:
    """`deepspeed.zero.Init` with all arguments positional."""

    def __init__(self, module: Any, enabled: bool = True) -> None:
        self.given = (module, enabled)


def test_partitioning_that_is_asked_for_by_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below stage 3 it is disabled even if positional."""
    home: Any = ModuleType("deepspeed.runtime.zero.partition_parameters")
    home.Init = Init
    monkeypatch.setattr(Init, "__init__", Init.__init__)
    deepspeed.install(home)
    enforce(monkeypatch, Setting.ZERO_STAGE, 2)
    assert home.Init(None, True).given == (None, False)
    enforce(monkeypatch, Setting.ZERO_STAGE, None)
    assert home.Init(None, True).given == (None, True)
