"""An upgrade that changes a script's defaults is reported if it affects the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from safe_launch.catalogue.changed_defaults import changed_defaults
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Earlier
from safe_launch.guards.deepspeed_plugin import deepspeed_facts
from safe_launch.planning.plan import Plan
from safe_launch.planning.planner import planned
from safe_launch.session.launch_warnings import fault_warnings
from support.tables import table
from support.worlds import HARDWARE, REQUEST, world

ZERO: dict[Name, Value] = {
    Fact.ENGINE: "deepspeed",
    Setting.ZERO_STAGE: 1,
    Setting.PRECISION: "bf16",
    Fact.FP32_ACCUMULATION: False,
    Fact.CLIPS_BY_DEFAULT: False,
    Fact.OVERFLOW_BY_DEFAULT: False,
}
LOADED: dict[Name, Value] = {
    Fact.ENGINE: "ddp",
    Fact.DTYPE_BY_DEFAULT: True,
    Fact.LOADED_PRECISION: "bf16",
}
BEFORE = {"torch": "2.8.0", "deepspeed": "0.19.2", "transformers": "4.57.6"}
AFTER = {"torch": "2.13.0", "deepspeed": "0.19.8", "transformers": "5.24.0"}
CLIPS, CHECKS, LOADS = "gradient_clipping", "check_grad_overflow", "from_pretrained"


def told(
    values: Mapping[Name, Value],
    earlier: Mapping[str, str] | None = BEFORE,
    versions: Mapping[str, str] = AFTER,
) -> tuple[str, ...]:
    """The lines printed before the first step."""
    run = None if earlier is None else Earlier(earlier, "run train-1 on 2026-01-02")
    workload = replace(world(dict(values)), versions=MappingProxyType(dict(versions)), earlier=run)
    plan = planned(REQUEST, workload, HARDWARE, ())
    assert isinstance(plan, Plan)
    return fault_warnings(plan, ())


@table(
    ("values", "words"),
    [
        ({**ZERO, Fact.CLIPS_BY_DEFAULT: True}, [CLIPS]),
        ({**ZERO, Fact.OVERFLOW_BY_DEFAULT: True}, [CHECKS]),
        ({**ZERO, Fact.CLIPS_BY_DEFAULT: True, Fact.OVERFLOW_BY_DEFAULT: True}, [CLIPS, CHECKS]),
        (ZERO, []),
        ({**ZERO, Fact.OVERFLOW_BY_DEFAULT: True, Setting.PRECISION: "fp16"}, []),
        ({**ZERO, Fact.OVERFLOW_BY_DEFAULT: True, Setting.ZERO_STAGE: 3}, []),
        ({**ZERO, Fact.OVERFLOW_BY_DEFAULT: True, Fact.FP32_ACCUMULATION: True}, []),
        (LOADED, [LOADS]),
        ({**LOADED, Fact.DTYPE_BY_DEFAULT: False}, []),
        ({**LOADED, Fact.LOADED_PRECISION: "fp32"}, []),
        ({**LOADED, Fact.ENGINE: "deepspeed"}, []),
        ({Fact.ENGINE: "ddp"}, []),
    ],
)
def test_it_is_told_where_it_concerns_the_configuration(
    values: dict[Name, Value], words: list[str]
) -> None:
    """One line with both versions; none if the setting is stated or has no effect."""
    lines = told(values)
    assert len(lines) == len(words)
    for line, word in zip(lines, words, strict=True):
        assert word in line
        assert "\n" not in line
        assert "in run train-1 on 2026-01-02" in line


@pytest.mark.parametrize(
    ("earlier", "versions"),
    [
        (None, AFTER),
        (AFTER, AFTER),
        ({"torch": "2.8.0"}, AFTER),
        ({**AFTER, "torch": "2.8.0"}, AFTER),
        (BEFORE, {**AFTER, "deepspeed": "0.19.2"}),
        (AFTER, BEFORE),
        ({**BEFORE, "deepspeed": "of my own"}, AFTER),
    ],
    ids=["first run", "same", "unknown", "another", "not reached", "downgrade", "no number"],
)
def test_nothing_is_told_without_a_change(
    earlier: dict[str, str] | None, versions: dict[str, str]
) -> None:
    """Only an upgrade past the release with the change is reported."""
    assert told({**ZERO, Fact.CLIPS_BY_DEFAULT: True}, earlier, versions) == ()


def test_the_sentence() -> None:
    """The line has the old meaning, the new meaning and a way to keep the old one."""
    (line,) = told({**ZERO, Fact.CLIPS_BY_DEFAULT: True})
    assert line == (
        "deepspeed 0.19.8 (0.19.2 in run train-1 on 2026-01-02): before 0.19.3 gradients weren't "
        "clipped, now they are clipped to a norm of 1.0; "
        '"gradient_clipping": 0 in DeepSpeed\'s configuration trains as before'
    )


def test_what_a_configuration_leaves_to_the_default() -> None:
    """Both names of the bf16 section count."""
    bare = deepspeed_facts({"bf16": {"enabled": True}})
    assert (bare[Fact.CLIPS_BY_DEFAULT], bare[Fact.OVERFLOW_BY_DEFAULT]) == (True, True)
    stated = deepspeed_facts(
        {"gradient_clipping": "auto", "bfloat16": {"enabled": True, "check_grad_overflow": True}}
    )
    assert (stated[Fact.CLIPS_BY_DEFAULT], stated[Fact.OVERFLOW_BY_DEFAULT]) == (False, False)


def test_every_row_has_its_source() -> None:
    """Every condition requires that a setting was left to its default."""
    for default, conditions in changed_defaults():
        assert default.source
        assert any(str(term.name).endswith("_by_default") for term in conditions)
