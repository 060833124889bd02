"""Laws of the memory model for every model and preset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Measured, Workload
from safe_launch.planning.estimates.estimate import Component, Estimate, Ranks
from safe_launch.planning.estimates.memory import calibrated_sizes, estimate
from support.models import GIB, HARDWARE, LORA, QWEN2_7B, model_of, workload_of


def estimated(workload: Workload, candidate: dict[Setting, Value], world: int = 8) -> Estimate:
    """A candidate's estimate in bf16."""
    found = estimate(
        workload,
        {Setting.PRECISION: "bf16", **candidate},
        HARDWARE,
        Ranks(world, min(world, HARDWARE.accelerators)),
    )
    assert found is not None
    return found


CONFIGS = some.builds(
    lambda heads, groups, layers, ffn, vocabulary, tied: {
        **QWEN2_7B,
        "hidden_size": 64 * heads * groups,
        "num_attention_heads": heads * groups,
        "num_key_value_heads": heads,
        "num_hidden_layers": layers,
        "intermediate_size": 128 * ffn,
        "vocab_size": 1000 * vocabulary,
        "tie_word_embeddings": tied,
    },
    heads=some.integers(1, 8),
    groups=some.integers(1, 4),
    layers=some.integers(1, 80),
    ffn=some.integers(1, 150),
    vocabulary=some.integers(1, 200),
    tied=some.booleans(),
)
CANDIDATES = some.fixed_dictionaries(
    {
        Setting.ZERO_STAGE: some.sampled_from([0, 1, 2, 3]),
        Setting.GRADIENT_CHECKPOINTING: some.sampled_from(["off", "reentrant", "non_reentrant"]),
        Setting.MICRO_BATCH: some.integers(1, 8),
        Setting.ACCUMULATION: some.sampled_from([1, 4]),
        Setting.OFFLOAD: some.just("none"),
    }
)
METHODS = some.sampled_from([{}, LORA, {**LORA, Fact.QUANTIZATION_BITS: 4}])


@given(config=CONFIGS, candidate=CANDIDATES, method=METHODS, world=some.sampled_from([1, 2, 8, 64]))
@settings(max_examples=60, deadline=None)
def test_more_devices_never_need_more(
    config: dict[str, Any], candidate: dict[Setting, Value], method: dict[Name, Value], world: int
) -> None:
    """The expected and maximum memory of each device."""
    workload = workload_of(model_of(config), method)
    few, many = (estimated(workload, candidate, size) for size in (world, world * 2))
    assert many.expected <= few.expected
    assert many.bound <= few.bound


@given(config=CONFIGS, candidate=CANDIDATES, method=METHODS)
@settings(max_examples=60, deadline=None)
def test_a_larger_batch_or_sequence_never_needs_less(
    config: dict[str, Any], candidate: dict[Setting, Value], method: dict[Name, Value]
) -> None:
    """Memory grows with the micro batch and the sequence length."""
    model = model_of(config)
    once = estimated(workload_of(model, method), candidate)
    twice = {**candidate, Setting.MICRO_BATCH: 2 * int(candidate[Setting.MICRO_BATCH])}
    assert estimated(workload_of(model, method), twice).expected >= once.expected
    longer = workload_of(model, {**method, Fact.SEQUENCE_LENGTH: 4096})
    assert estimated(longer, candidate).expected >= once.expected


@given(config=CONFIGS, candidate=CANDIDATES)
@settings(max_examples=60, deadline=None)
def test_adapters_never_need_more_than_all(
    config: dict[str, Any], candidate: dict[Setting, Value]
) -> None:
    """LoRA's states are below full fine-tuning's; 4-bit weights are below LoRA's."""
    model = model_of(config)
    whole: dict[Name, Value] = {Fact.PERSISTENCE_THRESHOLD: 0}
    full, lora, quantized = (
        estimated(workload_of(model, method), candidate)
        for method in (
            whole,
            {**whole, **LORA, Fact.LORA_RANK: 1},
            {**whole, **LORA, Fact.QUANTIZATION_BITS: 4, Fact.LORA_RANK: 1},
        )
    )
    for part in (Component.OPTIMIZER, Component.PARAMETERS):
        assert lora.peak.components[part] <= 1.1 * full.peak.components[part] + 2**20
        assert quantized.peak.components[part] <= lora.peak.components[part]


@given(config=CONFIGS, method=METHODS, micro=some.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_what_stays_never_grows_with_the_stage(
    config: dict[str, Any], method: dict[Name, Value], micro: int
) -> None:
    """ZeRO-3 partitions weights, master weights and optimizer states."""
    small = {Fact.PERSISTENCE_THRESHOLD: 0}
    workload = workload_of(model_of(config), {**method, **small})
    held = []
    for stage in (0, 1, 2, 3):
        one = estimated(workload, {Setting.ZERO_STAGE: stage, Setting.MICRO_BATCH: micro})
        parts = (Component.PARAMETERS, Component.OPTIMIZER)
        held.append(sum(one.peak.components[part] for part in parts))
    assert held == sorted(held, reverse=True)


@pytest.mark.parametrize(
    ("stage", "gib"),
    [
        # 2 P + 12 P / N at stage 2, 14 P / N at stage 3, P = 7,615,616,512, N = 8 (1910.02054).
        (2, (2 + 12 / 8) * 7_615_616_512 / GIB),
        (3, 14 / 8 * 7_615_616_512 / GIB),
    ],
)
def test_the_states_of_a_known_model(stage: int, gib: float) -> None:
    """ZeRO's formulas on Qwen2-7B; gradients are separate."""
    peak = estimated(workload_of(model_of(QWEN2_7B), {}), {Setting.ZERO_STAGE: stage}).peak
    states = peak.components[Component.PARAMETERS] + peak.components[Component.OPTIMIZER]
    assert states / GIB == pytest.approx(gib, rel=0.01)


def test_preferences_hold_two_sequences_and_a_reference() -> None:
    """Twice the tokens, and a copy of the weights unless adapters can be disabled."""
    model = model_of(QWEN2_7B)
    candidate = {Setting.ZERO_STAGE: 2, Setting.MICRO_BATCH: 1}
    plain = estimated(workload_of(model, {}), candidate).phases[0].components
    pairs = {Fact.OBJECTIVE: "preference", Fact.REFERENCE_MODEL: True}
    both = estimated(workload_of(model, pairs), candidate).phases[0].components
    assert both[Component.ACTIVATIONS] == 2 * plain[Component.ACTIVATIONS]
    copy = both[Component.PARAMETERS] - plain[Component.PARAMETERS]
    assert copy == 2 * model.parameters
    adapted = estimated(workload_of(model, {**pairs, **LORA}), candidate).phases[0].components
    assert adapted[Component.PARAMETERS] < 1.1 * plain[Component.PARAMETERS]


def test_what_is_unknown_is_said() -> None:
    """Without a length only states are estimated; without a model, none."""
    workload = workload_of(model_of(QWEN2_7B), {})
    known = {name: one for name, one in workload.known.items() if name != Fact.SEQUENCE_LENGTH}
    without = estimated(replace(workload, known=known), {Setting.ZERO_STAGE: 2})
    assert without.assumed == (
        "the length of a sequence isn't known: activations and logits aren't counted",
    )
    assert Component.LOGITS not in without.peak.components
    assert estimate(replace(workload, model=None), {}, HARDWARE, Ranks(8, 8)) is None


def test_a_failed_attempt_calibrates() -> None:
    """A plan that ran out of memory needs at least all of the memory it had."""
    candidate = {Setting.PRECISION: "bf16", Setting.ZERO_STAGE: 2, Setting.MICRO_BATCH: 4}
    workload = workload_of(model_of(QWEN2_7B), {})
    before = estimated(workload, candidate).peak.needed
    seen = Measured(candidate, needed=int(1.3 * before), context=2 * GIB, limit=GIB)
    after = replace(workload, measured=(seen,))
    assert estimated(after, candidate).peak.needed >= 1.299 * before
    job = calibrated_sizes(after, HARDWARE, Ranks(8, 8))
    assert job is not None
    assert (job.limit, job.context) == (GIB, 2 * GIB)
    smaller = {**candidate, Setting.MICRO_BATCH: 2}
    assert estimated(after, smaller).expected < estimated(after, candidate).expected


@pytest.mark.parametrize("share", [0.2, 0.8, 1.3, 3.0])
@pytest.mark.parametrize("context", [None, 2 * GIB])
def test_what_has_trained_needs_what_it_held(share: float, context: int | None) -> None:
    """Above or below the formulas; another batch's estimate is bounded."""
    candidate = {Setting.PRECISION: "bf16", Setting.ZERO_STAGE: 2, Setting.MICRO_BATCH: 4}
    workload = workload_of(model_of(QWEN2_7B), {})
    plain = estimated(workload, candidate)
    components = plain.peak.components
    stays = components[Component.PARAMETERS] + components[Component.OPTIMIZER]
    held = int(stays + (context or GIB) + share * (plain.peak.needed - stays))
    seen = Measured(candidate, held, context, 80 * GIB)
    after = replace(workload, trained=seen)
    assert estimated(after, candidate).peak.needed == pytest.approx(held, abs=16)
    assert estimated(after, candidate).error == plain.error
    larger = {**candidate, Setting.MICRO_BATCH: 8}
    more = estimated(workload, larger).peak.needed - plain.peak.needed
    grows = estimated(after, larger).peak.needed - held
    assert min(share / 2, 0.9) * more < grows < 2.1 * more


def test_what_has_trained_and_what_ran_out() -> None:
    """One needs what it held, the other more than was available."""
    small = {Setting.PRECISION: "bf16", Setting.ZERO_STAGE: 2, Setting.MICRO_BATCH: 1}
    large = {**small, Setting.MICRO_BATCH: 8}
    workload = workload_of(model_of(QWEN2_7B), {})
    held, limit = (estimated(workload, one).peak.needed for one in (small, large))
    after = replace(
        workload,
        trained=Measured(small, int(0.95 * held), None, limit),
        measured=(Measured(large, 0, None, limit),),
    )
    assert estimated(after, large).least > limit
    assert 0.95 * held <= estimated(after, small).peak.needed < limit
