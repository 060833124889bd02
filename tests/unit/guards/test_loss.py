"""Whether a worker may report that the loss needs all logits."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.guards.batches import loss_of


def of_module(name: str, module: str, **members: Any) -> type:
    """A class with members, as if defined in a module."""
    for member in members.values():
        member.__module__ = module
    return type(name, (), {"__module__": module, **members})


def function() -> Callable[..., None]:
    """A method of no effect."""

    def method(*_: object) -> None:
        """Does nothing."""

    return method


def trainer(
    *,
    model: str = "LlamaForCausalLM",
    written_in: str = "transformers.models.llama.modeling_llama",
    forward_in: str = "transformers.models.llama.modeling_llama",
    compute_loss_in: str = "transformers.trainer",
    **more: Any,
) -> Any:
    """A Trainer and its model, as if from these modules."""
    forward, compute_loss = function(), function()
    kind = of_module(model, written_in, forward=forward)
    forward.__module__ = forward_in
    holder = of_module("Trainer", "train", compute_loss=compute_loss)()
    compute_loss.__module__ = compute_loss_in
    names = ("use_liger_kernel", "label_smoothing_factor")
    holder.args = SimpleNamespace(**{name: more.pop(name, None) for name in names})
    holder.model = kind()
    vars(holder).update(more)
    return holder


def loss_in(holder: Any) -> str | None:
    """The loss reported for a new Trainer."""
    own = getattr(holder, "compute_loss_func", None)
    return loss_of(holder, holder.model, holder.args, own)


def test_transformers_own_loss() -> None:
    """Peft's adapters around the model don't matter."""
    plain = trainer()
    assert loss_in(plain) == "cross_entropy"
    inner = plain.model
    plain.model = SimpleNamespace(get_base_model=lambda: inner)
    assert loss_in(plain) == "cross_entropy"


@pytest.mark.parametrize(
    "other",
    [
        {"model": "LlamaForSequenceClassification"},
        {"written_in": "modeling_own"},
        {"forward_in": "liger_kernel.transformers.model.llama"},
        {"compute_loss_in": "__main__"},
        {"use_liger_kernel": True},
        {"compute_loss_func": print},
        {"label_smoothing_factor": 0.1},
    ],
)
def test_a_loss_that_may_be_another(other: dict[str, Any]) -> None:
    """It isn't reported, so the smallest memory need is assumed."""
    assert loss_in(trainer(**other)) is None


def test_a_forward_of_one_model_alone() -> None:
    """The instance has a `forward` of its own."""
    patched = trainer()
    patched.model.forward = print
    assert loss_in(patched) is None
