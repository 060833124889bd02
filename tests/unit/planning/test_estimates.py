"""Effects of single mechanisms on an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from safe_launch.core.choices import Attention
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Measured, Workload
from safe_launch.planning.estimates.activations import Types, layer_of
from safe_launch.planning.estimates.estimate import Component, Estimate, Phase, Ranks
from safe_launch.planning.estimates.logits import unfit_share
from safe_launch.planning.estimates.memory import ERRORS, Family, estimate
from support.models import GIB, HARDWARE, LORA, QWEN2_7B, model_of, workload_of

ALONE: Mapping[Name, Value] = {Fact.ENGINE: "ddp", Fact.LOADED_PRECISION: "bf16"}
MODEL = model_of(QWEN2_7B)
VISION = model_of(
    {
        **QWEN2_7B,
        "model_type": "qwen2_5_vl",
        "vision_config": {"hidden_size": 1280, "out_hidden_size": 3584, "depth": 32},
    }
)
SLICED = model_of(
    {
        **QWEN2_7B,
        "model_type": "minicpmv",
        "version": 2.6,
        "query_num": 64,
        "vision_config": {
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
            "image_size": 980,
            "patch_size": 14,
        },
    }
)


def workload_with(facts: Mapping[Name, Value], **versions: str) -> Workload:
    """A workload with these facts and versions of packages."""
    workload = workload_of(MODEL, dict(facts))
    return replace(workload, versions={**workload.versions, **versions})


def estimated(workload: Workload, world: int = 1, **settings: Value) -> Estimate:
    """The estimate of settings by name, in bf16."""
    candidate = {Setting(name): value for name, value in settings.items()}
    found = estimate(workload, {Setting.PRECISION: "bf16", **candidate}, HARDWARE, Ranks(world, 8))
    assert found is not None
    return found


def moment(found: Estimate, name: str) -> Phase:
    """One moment of a step."""
    return next(phase for phase in found.phases if phase.name == name)


def test_torchs_adamw_needs_temporaries_of_the_size_of_the_weights() -> None:
    """76 GiB were measured with it for 7.6 billion bf16 weights on one device."""
    facts = {**ALONE, Fact.OPTIMIZER: "adamw", Fact.FUSED_STEP: False}
    taken = moment(estimated(workload_with(facts)), "step").components[Component.STEP]
    assert taken == 2 * 2 * MODEL.parameters  # the gradients and the temporaries
    fused = estimated(workload_with({**facts, Fact.FUSED_STEP: True}))
    assert moment(fused, "step").components[Component.STEP] == 2 * MODEL.parameters


@pytest.mark.parametrize(
    ("versions", "is_fused"),
    [
        ({"transformers": "4.53.3", "torch": "2.8.0"}, False),
        ({"transformers": "4.54.0", "torch": "2.7.1"}, False),
        ({"transformers": "4.54.0", "torch": "2.8.0"}, True),
        ({"transformers": "5.0.0", "torch": "2.10.0"}, True),
        ({"torch": "2.10.0"}, False),
    ],
)
def test_transformers_default_is_fused_since_4_54(versions: dict[str, str], is_fused: bool) -> None:
    """With torch 2.8 and later."""
    step = moment(estimated(workload_with(ALONE, **versions)), "step")
    assert step.components[Component.STEP] == (2 if is_fused else 4) * MODEL.parameters


def test_deepspeed_seeks_overflows_in_a_copy_of_the_largest_gradient() -> None:
    """With many ranks the copy exceeds the step's own gradients."""
    facts = {Fact.ENGINE: "deepspeed"}
    step = moment(estimated(workload_with(facts), world=512, zero_stage=2), "step")
    part = MODEL.parameters / 512
    assert step.components[Component.STEP] == pytest.approx(2 * 544_997_376 + 11 * part, rel=0.01)


def test_bitsandbytes_kept_the_inputs_of_its_products() -> None:
    """Versions below 0.44 keep them."""
    facts = {**ALONE, **LORA, Fact.QUANTIZATION_BITS: 4, Fact.LORA_TARGETS: "q_proj"}
    held = [
        moment(estimated(workload_with(facts, bitsandbytes=version)), "loss")
        for version in ("0.43.1", "0.44.0")
    ]
    old, new = (phase.components[Component.ACTIVATIONS] for phase in held)
    # A layer's inputs of attention, of gate and up projection, and of the down projection.
    assert old - new == 28 * 2048 * 2 * (3584 + 3584 + 18944)


def test_calibrated_weights_are_the_language_models() -> None:
    """GPTQ leaves the tower in 16 bits; bitsandbytes doesn't, with more scales."""
    facts = {**ALONE, **LORA, Fact.QUANTIZATION_BITS: 4}
    taken = []
    for calibrated in (False, True):
        workload = workload_of(VISION, {**facts, Fact.CALIBRATED: calibrated})
        taken.append(estimated(workload).peak.components[Component.PARAMETERS])
    linear = [weight for weight in VISION.weights if weight.is_linear]
    tower = sum(weight.total for weight in linear if weight.name.startswith("visual."))
    language = sum(weight.total for weight in linear) - tower
    scales = language * (32 / 64 - 20 / 128) / 8
    assert taken[1] - taken[0] == pytest.approx(tower * (2 - 4.5 / 8) - scales, rel=0.01)


def test_fused_layers_save_less() -> None:
    """Liger fuses norms and the gated part, torch.compile others."""
    plain, fused = (
        moment(estimated(workload_with({**ALONE, Fact.FUSED_LAYERS: on})), "loss")
        for on in (False, True)
    )
    saved = [phase.components[Component.ACTIVATIONS] for phase in (plain, fused)]
    # A layer's fp32 copies of two norms, and one tensor of the feed-forward part.
    assert saved[0] - saved[1] == 28 * 2048 * (2 * 4 * 3584 + 2 * 18944)


def test_a_fused_loss_has_no_gradient_of_a_frozen_projection() -> None:
    """With adapters the projection is frozen."""
    fused = {**ALONE, Fact.LOSS: "fused"}
    full = moment(estimated(workload_with(fused)), "loss").components[Component.LOGITS]
    lora = moment(estimated(workload_with({**fused, **LORA})), "loss")
    head = 2 * 152064 * 3584
    assert full - lora.components[Component.LOGITS] == 2 * head
    newer = moment(estimated(workload_with(fused, liger_kernel="0.6.4")), "loss")
    assert newer.components[Component.LOGITS] - full == 2 * head


def test_scores_need_no_logits() -> None:
    """A reward model has neither logits nor their projection."""
    plain = estimated(workload_with({**ALONE, **LORA})).peak
    scores = estimated(workload_with({**ALONE, **LORA, Fact.OUTPUT: "scores"}))
    assert all(not phase.components.get(Component.LOGITS) for phase in scores.phases)
    parts = plain.components[Component.PARAMETERS], scores.peak.components[Component.PARAMETERS]
    assert parts[0] - parts[1] == 2 * 152064 * 3584


def test_other_models_count() -> None:
    """Frozen ones count by weights, trained ones by states too; stage 3 partitions them."""
    alone = moment(estimated(workload_with({}), world=4, zero_stage=3), "step")
    facts = {Fact.FROZEN_BESIDE: 4 * 10**9, Fact.TRAINED_BESIDE: 10**9}
    found = estimated(workload_with(facts), world=4, zero_stage=3)
    with_others = moment(found, "step")
    weights = with_others.components[Component.PARAMETERS] - alone.components[Component.PARAMETERS]
    assert weights == 2 * (4 * 10**9 + 10**9) / 4
    states = with_others.components[Component.OPTIMIZER] - alone.components[Component.OPTIMIZER]
    assert states == 12 * 10**9 / 4
    gathered = moment(found, "generation").components[Component.GATHERED]
    assert gathered == 2 * (MODEL.parameters + 10**9)


def test_packed_pairs_share_a_sequence() -> None:
    """Both texts of a pair share one length."""
    facts = {**ALONE, Fact.OBJECTIVE: "preference"}
    pair, packed = (
        moment(estimated(workload_with({**facts, Fact.PACKED: on})), "loss").components
        for on in (False, True)
    )
    assert pair[Component.LOGITS] == 2 * packed[Component.LOGITS]
    assert pair[Component.ACTIVATIONS] == 2 * packed[Component.ACTIVATIONS]


def test_preferences_take_logarithms_row_by_row() -> None:
    """In the logits' type since trl 0.15; distillation has two models' logits."""
    loss = [
        moment(estimated(workload_with({**ALONE, **facts}, trl=trl)), "loss")
        for facts, trl in (
            ({Fact.OBJECTIVE: "supervised"}, "0.15.0"),
            ({Fact.OBJECTIVE: "preference"}, "0.14.0"),
            ({Fact.OBJECTIVE: "preference"}, "0.15.0"),
            ({Fact.OBJECTIVE: "preference", Fact.ENGINE: "deepspeed"}, "0.15.0"),
            ({Fact.OBJECTIVE: "distillation"}, "0.15.0"),
        )
    ]
    taken = [phase.components[Component.LOGITS] / (152064 * 2048) for phase in loss]
    assert taken == [12, 2 * 12, 2 * 12, 2 * 6, 2 * 12]


@pytest.mark.parametrize(
    ("transformers", "bytes_each", "kept"),
    [("4.44.0", 12, 6), ("4.45.2", 12, 6), ("4.46.0", 14, 4), ("4.48.3", 14, 4), ("4.49.0", 12, 2)],
)
def test_shifted_logits(transformers: str, bytes_each: int, kept: int) -> None:
    """Some versions copy the logits to shift them, which fragments memory."""
    workload = workload_with(ALONE, transformers=transformers)
    loss = moment(estimated(workload), "loss").components
    assert loss[Component.LOGITS] / (152064 * 2048) == bytes_each
    assert unfit_share(workload) * bytes_each == pytest.approx(kept)


@pytest.mark.parametrize(
    ("engine", "transformers", "each"),
    [("deepspeed", "4.48.0", 8), ("deepspeed", "4.49.0", 12), ("ddp", "4.48.0", 14)],
)
def test_gpt2_takes_the_loss_of_16_bit_logits(engine: str, transformers: str, each: int) -> None:
    """Before transformers 4.49, if autocast doesn't make them fp32."""
    workload = workload_with({**ALONE, Fact.ENGINE: engine}, transformers=transformers)
    model = replace(MODEL, model_type="gpt2")
    loss = moment(estimated(replace(workload, model=model)), "loss").components
    assert loss[Component.LOGITS] / (152064 * 2048) == each


@pytest.mark.parametrize(("size", "each"), [(2, 1), (4, 5)])
def test_dropout_leaves_masks(size: int, each: int) -> None:
    """For two outputs of a layer and the probabilities, which fp32 keeps twice."""
    stack = replace(MODEL.language, drops_hidden=True, drops_attention=True)
    weights, types = tuple(MODEL.within(stack)), Types(size, size, size)
    plain, dropped = (
        layer_of(one, weights, types, Attention.EAGER, 64) for one in (MODEL.language, stack)
    )
    assert dropped.saved - plain.saved == 2 * stack.hidden + each * stack.heads * 64


def test_towers_attend_within_an_image() -> None:
    """MiniCPM-V's has no fused kernel without flash attention; copies count too."""
    facts = {Fact.VISION_TRAINED: True, Fact.ATTENTION: "sdpa"}
    eager = moment(estimated(workload_of(SLICED, facts), zero_stage=2), "loss").components
    flash = {**facts, Fact.ATTENTION: "flash_attention_2"}
    fused = moment(estimated(workload_of(SLICED, flash), zero_stage=2), "loss").components
    scores = 16 * 1024 * 10 * 1024  # ten slices of 1024 patches, 16 heads
    per_layer = (eager[Component.VISION] - fused[Component.VISION]) / 27
    assert 5 * scores < per_layer < 7 * scores
    saved = {**LORA, Fact.LORA_SAVED: "vpm", **facts}
    adapted = moment(estimated(workload_of(SLICED, saved), zero_stage=2), "loss").components
    assert adapted[Component.VISION] == eager[Component.VISION]


def test_what_is_kept_never_exceeds_the_room() -> None:
    """Caches are freed before memory runs out, so they refuse no plan."""
    facts = {**ALONE, **LORA, Fact.LENGTHS_VARY: True, Fact.EXPANDABLE_SEGMENTS: False}
    room = HARDWARE.accelerator.memory - HARDWARE.in_use
    for micro_batch in (1, 4, 8, 16):
        found = estimated(workload_with(facts), micro_batch=micro_batch)
        needed = found.peak.needed
        assert found.expected == max(needed, min(found.expected, room))
        assert found.bound >= found.expected
        emptied = estimated(
            workload_with({**facts, Fact.CACHE_EMPTIED: True}), micro_batch=micro_batch
        )
        assert emptied.expected == emptied.peak.needed == needed


def test_what_is_kept_never_exceeds_what_a_rank_could_get() -> None:
    """An attempt that ran out of memory gives the limit."""
    facts = {**ALONE, **LORA, Fact.LENGTHS_VARY: True, Fact.EXPANDABLE_SEGMENTS: False}
    settings = {Setting.MICRO_BATCH: 8, Setting.PRECISION: "bf16"}
    limit = 60 * GIB
    seen = Measured(settings, needed=61 * GIB, context=GIB, limit=limit)
    workload = replace(workload_with(facts), measured=(seen,))
    found = estimated(workload, micro_batch=1)
    assert found.peak.needed < found.expected <= limit
    assert found.bound <= limit + GIB


def test_what_is_held_does_not_shrink_in_a_step() -> None:
    """All moments have the same total: the allocator keeps the rest."""
    found = estimated(workload_with({Fact.ENGINE: "deepspeed"}), world=8, zero_stage=2)
    assert all(one.total == other.total for one, other in pairwise(found.phases))
    assert found.peak.needed == max(phase.needed for phase in found.phases)


@pytest.mark.parametrize(
    ("facts", "family"),
    [
        ({}, Family.FULL),
        (LORA, Family.LORA),
        ({**LORA, Fact.QUANTIZATION_BITS: 4}, Family.QUANTIZED),
        ({**LORA, Fact.OBJECTIVE: "preference"}, Family.PREFERENCE),
        ({Fact.FROZEN_BESIDE: 10**9}, Family.PREFERENCE),
    ],
)
def test_an_estimate_has_the_error_of_its_family(facts: dict[Name, Value], family: Family) -> None:
    """The error is relative to the expected value."""
    assert estimated(workload_with(facts), zero_stage=2).error == ERRORS[family]
    tower = workload_of(VISION, {**LORA, Fact.QUANTIZATION_BITS: 4})
    assert estimated(tower, zero_stage=2).error == ERRORS[Family.VISION]


def test_a_step_on_one_device_is_as_measured() -> None:
    """ms-swift's examples/train/full/train.sh has 76 GiB, without the context."""
    facts = {**ALONE, Fact.OPTIMIZER: "adamw", Fact.FUSED_STEP: False}
    states = moment(estimated(workload_with(facts), micro_batch=1), "step")
    kinds = (Component.PARAMETERS, Component.OPTIMIZER, Component.STEP)
    assert sum(states.components[kind] for kind in kinds) / GIB == pytest.approx(71, abs=0.5)
