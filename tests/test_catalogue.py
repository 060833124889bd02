"""The catalogue: every entry follows the schema, and its logs are diagnosed as it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from safe_launch.catalogue import read_catalogue, read_entry
from safe_launch.diagnose import constraints_of
from safe_launch.documents import DocumentError
from safe_launch.failure import FailureRecord, Frame, KnownFailure
from safe_launch.resolve import candidates, forbidden_by
from safe_launch.settings import Fact, Setting
from test_resolve import world

CATALOGUE = read_catalogue()
LATTICES = (
    {
        Fact.ENGINE: "deepspeed",
        Setting.ZERO_STAGE: 3,
        Setting.GRADIENT_CHECKPOINTING: "reentrant",
        Setting.PRECISION: "bf16",
    },
    {
        Fact.ENGINE: "ddp",
        Setting.GRADIENT_CHECKPOINTING: "reentrant",
        Setting.STATIC_GRAPH: False,
        Setting.FIND_UNUSED_PARAMETERS: False,
    },
)


def record_of_traceback(text: str) -> FailureRecord:
    """The record that a traceback's text stands for: its last frame, exception and message."""
    lines = text.strip().splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("  File "))
    place = re.fullmatch(r'  File "(.+)", line (\d+), in (.+)', lines[last])
    assert place is not None
    rest = lines[last + 1 :]
    start = next(number for number, line in enumerate(rest) if not line.startswith("    "))
    source = " ".join(line.strip() for line in rest[:start])
    head, _, message = "\n".join(rest[start:]).partition(": ")
    frame = Frame(place[1], int(place[2]), place[3], source)
    name = head if "." in head else f"builtins.{head}"
    return FailureRecord(rank=0, at=0.0, exception=name, message=message, frames=(frame,))


def excerpts(entry: KnownFailure, heading: str) -> list[FailureRecord]:
    """The logs under a heading, as records."""
    blocks = re.findall(
        r"^```\n(.*?)^```", entry.sections.get(heading, ""), re.DOTALL | re.MULTILINE
    )
    return [record_of_traceback(block) for block in blocks]


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.id)
def test_logs_are_diagnosed_as_the_entry_says(entry: KnownFailure) -> None:
    """`Seen as` matches this entry and no other; `Not to be confused with` doesn't match it."""
    for seen in excerpts(entry, "Seen as"):
        assert [one.id for one in CATALOGUE if one.matches(seen)] == [entry.id]
    for near in excerpts(entry, "Not to be confused with"):
        assert not entry.matches(near)
    assert bool(entry.signatures) == bool(excerpts(entry, "Seen as"))


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.id)
def test_no_entry_forbids_everything(entry: KnownFailure) -> None:
    """Whatever an entry proves and forbids, somebody can still train."""
    rules = constraints_of(entry)
    for lattice in LATTICES:
        facts = {**lattice, **entry.proves}
        left = [
            one for one in candidates(world(facts)) if not forbidden_by(one, world(facts), rules)
        ]
        assert left != []


GOOD = """\
---
id: sample
title: a failure
role: initiating
class: preset
signatures:
  - {exception: RuntimeError, message: 'words of it'}
when: {deepspeed: ">=0.14"}
proves: {block_runs_twice: true}
forbids:
  - {zero_stage: 2, gradient_checkpointing: reentrant}
proof: [reported]
sources: []
---

## What happens

Something.

## What to do

Something else.
"""


def test_a_good_entry_is_read(tmp_path: Path) -> None:
    """The example that the mistakes below are made in."""
    path = tmp_path / "sample.md"
    path.write_text(GOOD)
    assert read_entry(path).title == "a failure"


@pytest.mark.parametrize(
    ("right", "wrong", "problem", "hint"),
    [
        ("title: a", "titel: a", "sample.md:3: unknown key `titel`", "did you mean `title`?"),
        ("title: a failure\n", "", "sample.md:2: `title` is missing", ""),
        ("id: sample", "id: other", "id `other` differs from the file's name", ""),
        ("role: initiating", "role: initial", "role: `initial`", "did you mean `initiating`?"),
        ("class: preset", "class: presets", "class: `presets`", "did you mean `preset`?"),
        ("class: preset", "class: [preset", "sample.md:6: not YAML", ""),
        (
            "{zero_stage: 2",
            "{zero_stag: 2",
            "sample.md:10: forbids: no setting",
            "`zero_stage`?",
        ),
        ("zero_stage: 2", "zero_stage: two", "zero_stage is a whole number, not 'two'", ""),
        (": reentrant", ": re-entrant", "gradient_checkpointing is one of off, reentrant,", ""),
        ("{zero_stage: 2, gradient_checkpointing: reentrant}", "{engine: ddp}", "forbid every", ""),
        ("proves: {block_runs_twice: true}", "proves: {zero_stage: 1}", "is a setting, not a", ""),
        ("{block_runs_twice: true}", "{block_runs_twice: maybe}", "is true or false", ""),
        ("'words of it'", "'words ( of it'", "sample.md:6: signatures: message: missing )", ""),
        ("message: 'words of it'", "massage: words", "unknown key `massage`", "`message`?"),
        (", message: 'words of it'", "", "an exception's type alone is no signature", ""),
        ('">=0.14"', '"0.14 or so"', "no version range", '">=0.14,<0.19.3"'),
        ("## What happens", "## What happened", "unknown heading", "`What happens`?"),
        ("## What to do\n\nSomething else.\n", "", "no section `What to do`", ""),
        ("---\nid", "id", "front matter between two lines", ""),
        ("sources: []", "sources: none", "sample.md:13: `sources`", ""),
        ("proof: [reported]", "points_at: nowhere", "no search `nowhere`", "parameter_reductions"),
    ],
)
def test_mistakes_are_named_with_file_line_and_cure(
    right: str, wrong: str, problem: str, hint: str, tmp_path: Path
) -> None:
    """Each mistake in an entry gives a message that a person can act on."""
    path = tmp_path / "sample.md"
    assert right in GOOD
    path.write_text(GOOD.replace(right, wrong, 1))
    with pytest.raises(DocumentError) as caught:
        read_entry(path)
    assert problem in caught.value.problem
    assert str(path) in caught.value.problem
    assert hint in caught.value.hint


def test_patterns_are_taken_literally(tmp_path: Path) -> None:
    """`${` in a pattern is no interpolation, and `off` may be written bare."""
    path = tmp_path / "sample.md"
    text = GOOD.replace("'words of it'", "'cost: \\$\\{[0-9]+\\}'").replace("reentrant}", "off}")
    path.write_text(text)
    entry = read_entry(path)
    assert entry.matches(FailureRecord(0, 0.0, "builtins.RuntimeError", "cost: ${12}"))
    assert str(entry.forbids[0][1]) == "gradient_checkpointing=off"
