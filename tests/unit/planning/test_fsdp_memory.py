"""FSDP2's memory and time against hand-made sums."""

from __future__ import annotations

from dataclasses import replace

import pytest
from safe_launch.core.choices import Framework
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Workload
from safe_launch.planning.estimates.estimate import Component, Ranks
from safe_launch.planning.estimates.fsdp_states import division_of
from safe_launch.planning.estimates.memory import estimate, states_of
from safe_launch.planning.estimates.model_sizes import ModelSizes, model_sizes_of
from safe_launch.planning.estimates.step_time import step_seconds
from support.models import HARDWARE, LORA, QWEN2_7B, model_of, workload_of

FSDP: dict[Name, Value] = {
    Fact.ENGINE: "fsdp",
    Fact.FSDP_VERSION: 2,
    Fact.FSDP_UNITS: "layers",
    Fact.LOADED_PRECISION: "fp32",
    Fact.SEQUENCE_LENGTH: 1024,
}
BF16: dict[Setting, Value] = {Setting.PRECISION: "bf16"}


def sizes_of(**changes: object) -> ModelSizes:
    """The sizes of Qwen2-7B under FSDP2."""
    sizes = model_sizes_of(replace(fsdp({}), **changes))  # type: ignore[arg-type]
    assert sizes is not None
    return sizes


def fsdp(facts: dict[Name, Value]) -> Workload:
    """The facts of a plain script's training of Qwen2-7B."""
    workload = workload_of(model_of(QWEN2_7B), {**FSDP, **facts})
    return replace(workload, framework=Framework.NONE)


def test_shards_gradients_and_states_are_divided_by_the_ranks() -> None:
    """A rank holds 4 P / 8 fp32 weights, 8 P / 8 AdamW states, 8 P / 8 at the step."""
    sizes = sizes_of()
    states = states_of(sizes, BF16, 8)
    part = sizes.plain / 8
    assert states.parameters == pytest.approx(4 * part, rel=1e-3)
    assert states.optimizer == pytest.approx(8 * part, rel=1e-3)
    assert states.at_step == pytest.approx(8 * part, rel=1e-3)  # with AdamW's temporaries


def test_offloaded_shards_lie_in_host_memory() -> None:
    """Weights, states and gradients, 16 P / 8, are on the host."""
    sizes = sizes_of()
    states = states_of(sizes, {**BF16, Setting.OFFLOAD: "optimizer_and_parameters"}, 8)
    assert (states.parameters, states.optimizer, states.at_step) == (0, 0, 0)
    assert states.host == pytest.approx(16 * sizes.plain / 8, rel=1e-3)


def test_rows_are_filled_up_to_the_ranks() -> None:
    """An adapter of 16 rows on 64 ranks is padded with 48 empty rows."""
    sizes = model_sizes_of(fsdp(LORA))
    assert sizes is not None
    narrow = [weight for weight in sizes.model.weights if ".lora_A" in weight.name]
    few, many = (division_of(sizes, world).all.reduced for world in (1, 64))
    filled = sum((64 - weight.shape[0]) * weight.total // weight.shape[0] for weight in narrow)
    assert filled > 0
    assert many - few == filled


def test_layers_stay_gathered_without_resharding() -> None:
    """At the loss a rank then has all weights; with resharding, the root and a layer."""
    sizes = sizes_of()
    parts = division_of(sizes, 8)
    whole = states_of(sizes, {**BF16, Setting.RESHARD_AFTER_FORWARD: False}, 8)
    assert whole.moments["loss"][Component.GATHERED] == 2 * parts.all.gathered
    resharded = states_of(sizes, BF16, 8)
    held = parts.root.gathered + parts.layer.gathered
    assert resharded.moments["loss"][Component.GATHERED] == 2 * held


@pytest.mark.parametrize(
    ("version", "embedding", "head"), [("1.13.0", False, False), ("1.14.0", True, True)]
)
def test_accelerate_makes_units_of_embedding_and_head(
    version: str, embedding: bool, head: bool
) -> None:
    """Since 1.14; earlier they belong to the root."""
    versions = {"accelerate": version}
    parts = division_of(sizes_of(framework=Framework.ACCELERATE, versions=versions), 8)
    assert parts.layers == QWEN2_7B["num_hidden_layers"]
    assert (parts.embedding.gathered > 0, parts.head.gathered > 0) == (embedding, head)


def test_accelerate_keeps_gradients_in_full_between_micro_batches() -> None:
    """2 Pt in the reduction's type; a plain script reduces each time: 4 Pt / 8."""
    two = {**BF16, Setting.ACCUMULATION: 2}
    sizes = sizes_of()
    plain = states_of(sizes, two, 8).moments["loss"][Component.GRADIENTS]
    accelerated = sizes_of(framework=Framework.ACCELERATE)
    kept = states_of(accelerated, two, 8).moments["loss"][Component.GRADIENTS]
    assert plain == pytest.approx(4 * sizes.trained / 8, rel=1e-3)
    assert kept == 2 * sizes.trained


@pytest.mark.parametrize(
    "facts",
    [
        {Fact.FSDP_VERSION: 1},
        {**LORA, Fact.QUANTIZATION_BITS: 4},
        {Fact.FROZEN_BESIDE: 1_000_000},
    ],
)
def test_what_is_not_modelled(facts: dict[Name, Value]) -> None:
    """FSDP1, quantized weights, and further models."""
    assert estimate(fsdp({}), BF16, HARDWARE, Ranks(8, 8)) is not None
    assert estimate(fsdp(facts), BF16, HARDWARE, Ranks(8, 8)) is None


def test_units_must_be_known() -> None:
    """Unknown units give no estimate."""
    facts = {fact: value for fact, value in FSDP.items() if fact is not Fact.FSDP_UNITS}
    assert model_sizes_of(workload_of(model_of(QWEN2_7B), facts)) is None


def test_resharding_takes_another_gathering() -> None:
    """A step without it is faster."""
    sizes = sizes_of()
    fast, slow = (
        step_seconds(sizes, {**BF16, Setting.RESHARD_AFTER_FORWARD: on}, HARDWARE, Ranks(16, 8))
        for on in (False, True)
    )
    assert fast < slow
