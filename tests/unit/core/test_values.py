"""The values of a launch: their types and their limits."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safe_launch.core.choices import Precision
from safe_launch.core.constraint import Cause, CauseKind, Constraint, Term
from safe_launch.core.errors import ExitCode, meaning
from safe_launch.core.hardware import common_device
from safe_launch.core.model import Weight, grouped
from safe_launch.core.output_routing import EVERY, Streams, which, words
from safe_launch.core.placement import Placement
from safe_launch.core.plain_json import plain
from safe_launch.core.quotation import cleaned, cleaned_json
from safe_launch.core.request import Limits
from safe_launch.core.settings import Fact, Setting, Value, parse_value, range_of
from safe_launch.core.workload import Known, Origin, Workload
from support.worlds import CPU, REQUEST, world

CAUSE = Cause(CauseKind.MEMORY, "memory", "needs more")


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        (Setting.ZERO_STAGE, 2, 2),
        (Setting.STATIC_GRAPH, True, True),
        (Setting.GRADIENT_CHECKPOINTING, False, "off"),
        (Setting.PRECISION, "bf16", "bf16"),
        (Fact.LORA_TARGETS, "q_proj", "q_proj"),
    ],
)
def test_a_value_is_parsed(name: Setting | Fact, raw: object, value: Value) -> None:
    """Values have YAML's types; YAML's bare `off` is False."""
    assert parse_value(name, raw) == value


@pytest.mark.parametrize(
    ("name", "raw", "problem"),
    [
        (Setting.ZERO_STAGE, True, "zero_stage is a whole number, not True"),
        (Setting.STATIC_GRAPH, 1, "static_graph is true or false, not 1"),
        (Setting.PRECISION, "int8", "precision is one of fp32, fp16, bf16, not 'int8'"),
        (Fact.LORA_TARGETS, 8, "lora_targets is a text, not 8"),
    ],
)
def test_another_type_is_refused(name: Setting | Fact, raw: object, problem: str) -> None:
    """The message names the allowed values."""
    with pytest.raises(ValueError, match="^" + problem):
        parse_value(name, raw)


def test_ranges() -> None:
    """DeepSpeed has four stages; a batch has at least one sample; a length may be 0."""
    assert range_of(Setting.ZERO_STAGE) == range(4)
    assert 0 not in range_of(Setting.MICRO_BATCH)
    assert 0 in range_of(Fact.SEQUENCE_LENGTH)


def test_the_unknown_is_never_forbidden() -> None:
    """A constraint applies only if all of its terms are known to hold."""
    stages = Term(Setting.ZERO_STAGE, frozenset({2, 3}))
    rule = Constraint((stages, Term(Fact.BLOCK_RUNS_TWICE, frozenset({True}))), CAUSE)
    assert str(stages) == "zero_stage=2|3"
    assert rule.forbids({Setting.ZERO_STAGE: 3, Fact.BLOCK_RUNS_TWICE: True})
    assert not rule.forbids({Setting.ZERO_STAGE: 3})
    assert not rule.forbids({Setting.ZERO_STAGE: 1, Fact.BLOCK_RUNS_TWICE: True})


def test_the_higher_origin_holds() -> None:
    """Between equal origins the later value wins, as with repeated flags."""
    name = Setting.ZERO_STAGE
    flag, config, last = (
        Known(stage, origin, "")
        for stage, origin in ((1, Origin.FLAG), (2, Origin.CONFIG), (3, Origin.FLAG))
    )
    assert Workload().informed([(name, flag), (name, config)]).value(name) == 1
    assert Workload().informed([(name, flag), (name, last)]).value(name) == 3


def test_what_is_pinned() -> None:
    """Flags and configurations are pinned; a default is only if a flag asks for it."""
    name = Setting.MICRO_BATCH
    default = Workload().informed([(name, Known(8, Origin.DEFAULT, ""))])
    assert not default.is_pinned(name)
    assert world({name: 8}).is_pinned(name)
    assert replace(default, wanted={name: Known(4, Origin.FLAG, "--set")}).is_pinned(name)
    assert default.micro_steps is None


def test_one_device_for_all() -> None:
    """The smallest capacity, the largest need, and the precisions that all support."""
    small = replace(CPU, memory=5, taken=1, bandwidth=9.0, restrictions=("no bf16",))
    large = replace(CPU, memory=7, taken=2, bandwidth=3.0, precisions=frozenset({Precision.FP32}))
    merged = common_device([large, small])
    assert (merged.memory, merged.taken, merged.bandwidth) == (5, 2, 3.0)
    assert merged.precisions == {Precision.FP32}
    assert merged.restrictions == ("no bf16",)


def test_equal_layers_are_one_weight() -> None:
    """A number between dots is a layer's; a number within a word isn't."""
    names = ("h.0.w1.weight", "h.1.w1.weight", "h.0.w2.weight")
    assert grouped((name, (2, 3), True) for name in names) == (
        Weight("h.*.w1.weight", (2, 3), 2),
        Weight("h.*.w2.weight", (2, 3), 1),
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [("lm_head.weight", "output"), ("wte.weight", "embedding"), ("h.*.mlp.up.weight", "linear")],
)
def test_kinds_of_weights(name: str, kind: str) -> None:
    """Every name that models use has exactly one kind."""
    weight = Weight(name, (2, 3))
    found = {"output": weight.is_output, "embedding": weight.is_embedding}
    assert {**found, "linear": weight.is_linear} == {
        each: each == kind for each in ("output", "embedding", "linear")
    }


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ExitCode.NO_PLAN, "no settings that are known to work are left"),
        (128 + 15, "stopped by SIGTERM"),
        (128 + 9, "a worker was ended by SIGKILL"),
        (3, "the failed worker's own"),
    ],
)
def test_what_an_exit_code_means(code: int, text: str) -> None:
    """The code is the launcher's, a signal's or the worker's."""
    assert meaning(code) == text


def test_control_sequences_are_taken_out() -> None:
    """They are removed throughout a document; line breaks and tabs are kept."""
    text = "\x1b[31mred\x1b[0m\n\ttext\x07 \u202eback"
    assert cleaned({text: [text, 1]}) == {"red\n\ttext back": ["red\n\ttext back", 1]}


@given(character=st.characters(max_codepoint=0x2100), is_ascii=st.booleans())
def test_control_characters_are_taken_out_of_json(character: str, *, is_ascii: bool) -> None:
    """Every spelling of the character is removed."""
    document = {"text": [f"a{character}b"]}
    text = json.dumps(document, ensure_ascii=is_ascii)
    assert cleaned_json(text.encode(errors="surrogatepass")) == cleaned(document)


def test_values_as_json() -> None:
    """Dataclasses, enums, sets and paths pass through json's encoder."""

    @dataclass(frozen=True)
    class Inner:
        path: Path
        kinds: frozenset[Precision]

    value = {"inner": Inner(Path("/a"), frozenset({Precision.BF16}))}
    assert json.dumps(value, default=plain) == '{"inner": {"path": "/a", "kinds": ["bf16"]}}'


def test_a_request_as_a_document() -> None:
    """Options of all groups are keys on one level, for compatibility."""
    found = replace(REQUEST, limits=Limits(max_restarts=3)).document()
    assert found["max_restarts"] == 3
    assert found["start_method"] == "forkserver"
    assert not {"limits", "worker_options"} & found.keys()


@pytest.mark.parametrize(
    ("placement", "text", "is_alone"),
    [(Placement(), "1", True), (Placement(nodes=4, least=2), "2:4", False)],
)
def test_the_range_of_nodes(placement: Placement, text: str, is_alone: bool) -> None:
    """The syntax is torchrun's."""
    assert (placement.range_text, placement.is_alone) == (text, is_alone)


@pytest.mark.parametrize(
    ("text", "streams"),
    [
        ("3", ((EVERY, 3),)),
        ("0", ()),
        ("0:1,2:3", ((0, 1), (2, 3))),
        ("4", None),
        ("0:4", None),
        ("0:1,", None),
    ],
)
def test_torchruns_streams(text: str, streams: tuple[tuple[int, int], ...] | None) -> None:
    """One number for all ranks or one for each; anything else is invalid."""
    assert which(text) == streams


def test_a_comma_in_a_word_is_doubled() -> None:
    """The escaping is torchrun's."""
    assert words("loss,a,,b,,") == ("loss", "a,b,")


def test_what_the_console_shows() -> None:
    """Teed streams, of the selected ranks alone; with only a log folder, none."""
    streams = Streams(redirected=((EVERY, 3),), teed=((1, 1),))
    assert [streams.is_shown(local, 1) for local in (0, 1)] == [False, True]
    assert not streams.is_shown(1, 2)
    assert streams.head(1, 9, "trainer") == "[trainer1]:"
    assert not replace(streams, shown=frozenset({0})).is_shown(1, 1)
    assert not replace(streams, folder=Path("logs")).is_shown(1, 1)
