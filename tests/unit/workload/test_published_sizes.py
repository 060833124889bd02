"""Published measurements: consistent files, and other tools' rules restated correctly."""

import csv
import importlib.util
import json
import sys

import pytest
import yaml
from safe_launch.core.settings import name_of, parse_value
from safe_launch.workload.models.from_config import model_from_config
from support.stacks import ROOT
from support.tables import read_yaml, table

BENCHMARKS = ROOT / "benchmarks" / "memory"
PUBLISHED = BENCHMARKS / "published"


def load(name):
    """A module of benchmarks/, which isn't a package."""
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


sys.path.insert(0, str(BENCHMARKS))
estimators = load("estimators")
published = load("against_published")
MODELS = json.loads((PUBLISHED / "models.json").read_text())
STACKS = read_yaml(PUBLISHED / "stacks.yaml")
with (PUBLISHED / "measurements.csv").open() as file:
    ROWS = list(csv.DictReader(file))


def test_every_row_names_a_model_and_a_stack():
    """All references exist."""
    assert {row["model"] for row in ROWS} <= set(MODELS)
    assert {row["stack"] for row in ROWS} == set(STACKS)


def test_every_row_is_a_measurement_of_one_gpu():
    """Sizes are positive and below the capacity; the source is a file at a commit."""
    for row in ROWS:
        assert 0 < float(row["measured_gib"]) < 80, row
        assert int(row["seq_len"]) > 0
        assert int(row["micro_batch"]) > 0
        assert "/blob/" in row["url"] or "/pull/" in row["url"]
        assert row["held_out"] in ("", "true")
        assert row["kind"] in ("max_memory_reserved", "max_memory_allocated", "unknown")
        assert (row["lora_targets"] != "") == (row["method"] == "lora")


@table("stack", STACKS)
def test_stacks_speak_in_settings_and_facts(stack):
    """Each value has the type of a workload's fact or setting."""
    entry = STACKS[stack]
    for key, value in (entry["facts"] | entry["settings"]).items():
        parse_value(name_of(key), value)
    assert entry["evidence"]


def test_rows_speak_in_settings_and_facts_too():
    """Each value beside the stack's has the right type."""
    for row in ROWS:
        for word in row["facts"].split():
            name, raw = word.split("=")
            parse_value(name_of(name), yaml.safe_load(raw))


def test_19_of_20_estimates_are_within_their_error():
    """In each family, for one sample a batch or a known length; bounds hold."""
    rows = [row for row in published.read_rows() if row.known and not row.full]
    for family in published.Family:
        group = [row for row in rows if row.family is family]
        within = [abs(row.error(row.expected)) <= row.ours.error for row in group]
        assert sum(within) >= 0.95 * len(group), family
    assert sum(row.measured > row.ours.bound for row in rows) <= 0.03 * len(rows)


@table("name", MODELS)
def test_models_have_the_published_number_of_parameters(name):
    """Weights add up to the model card's number with the configuration's sizes."""
    entry = MODELS[name]
    model = model_from_config(entry["config"], published.weights_of(name), name)
    assert model is not None
    if "parameters" in entry:
        assert model.parameters == entry["parameters"]
    inside = [weight for weight in model.within(model.language) if len(weight.shape) == 2]
    assert any({model.language.hidden, model.language.ffn} <= set(one.shape) for one in inside) or (
        any({model.language.hidden, 2 * model.language.ffn} == set(one.shape) for one in inside)
    )


def test_deepspeed_rule_is_deepspeeds():
    """The table in DeepSpeed's docs/code-docs/source/memory.rst for t5-3b on 8 GPUs.

    Its number for stage 2 is from an older formula than the code's.
    """
    assert f"{estimators.zero_3_states(2851e6, 32e6, 8) / 2**30:.2f}" == "6.09"
    assert estimators.zero_2_states(8e9, 8) == 2 * 8e9 + 18e9


def run(**known):
    """A run of Llama-2-7B's shape with some values changed."""
    shape = {
        "parameters": 6_738_415_616,
        "hidden": 4096,
        "layers": 32,
        "heads": 32,
        "kv_heads": 32,
        "ffn": 11008,
        "gated": True,
        "vocabulary": 32000,
    }
    return estimators.Run(**{**shape, **known})


def test_accelerate_rule_is_accelerates():
    """The Space's report on zephyr-7b-alpha: 13.74 GB in 16 bit, 54.98 GB to train with Adam."""
    zephyr = run(parameters=round(13.744 * 2**30 / 2), pure_16_bit=True)
    assert estimators.accelerate(zephyr) / 2**30 == pytest.approx(54.98, abs=0.01)
    assert estimators.accelerate(run(full=False)) is None


def test_eleuthers_count_of_parameters():
    """The output in https://github.com/EleutherAI/cookbook/pull/37: 56.19 B."""
    shape = run(
        hidden=8192, layers=80, heads=64, kv_heads=64, ffn=3 * 8192, gated=False,
        vocabulary=152064, length=1024,
    )  # fmt: skip
    assert f"{estimators.calculator_parameters(shape) / 1e9:.2f}" == "56.19"


def test_tables_give_their_own_entries():
    """Unsloth: 7B needs 5 and 19 GB; LLaMA-Factory: QLoRA x/2, LoRA 2x, full 18x."""
    seven = {"parameters": 7 * 10**9}
    assert estimators.unsloth(run(**seven, full=False, bits=4)) == 5e9
    assert estimators.unsloth(run(**seven, full=False)) == 19e9
    assert estimators.llama_factory(run(**seven, full=False, bits=4)) == 3.5e9
    assert estimators.llama_factory(run(**seven, full=False)) == 14e9
    assert estimators.llama_factory(run(**seven)) == 126e9
