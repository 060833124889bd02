"""Every catalogue entry follows the schema, and its logs are diagnosed correctly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.catalogue.entry import Kind, KnownFailure, constraints_of
from safe_launch.catalogue.reader import read_catalogue, read_entry
from safe_launch.core.settings import Fact, Setting
from safe_launch.core.workload import VERSIONED
from safe_launch.diagnosis.root_cause import finding_of
from safe_launch.evidence.failure_record import FailureRecord, Frame, Raised
from safe_launch.planning.search import candidates, forbidden_by
from safe_launch.system.typed_files import DocumentError
from support.entries import GOOD
from support.logs import CATALOGUE, entry_of, excerpts, judged
from support.tables import table
from support.worlds import TOLD, rules_under, world

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


@table("entry", CATALOGUE, name=lambda entry: entry.id, parts=4)
def test_logs_are_diagnosed_as_the_entry_says(entry: KnownFailure) -> None:
    """`Seen as` matches this entry alone; `Not to be confused with` doesn't match it."""
    for seen in excerpts(entry, "Seen as"):
        assert entry_of(judged(seen)) == entry.id, seen
    for near in excerpts(entry, "Not to be confused with"):
        assert entry_of(judged(near)) != entry.id, near
    # A silent failure leaves no log.
    assert bool(entry.signatures) == bool(excerpts(entry, "Seen as"))


GLOO = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] "
CLOSED = GLOO + (
    "Connection closed by peer [127.0.0.1]:20174. This is typically caused by a remote worker "
    "crashing. Check the logs of the remote worker before reporting an error. GLHF!"
)


@pytest.mark.parametrize(
    ("exception", "message", "expected"),
    [
        ("builtins.RuntimeError", CLOSED, "gloo-peer-lost"),
        (
            "builtins.RuntimeError",
            GLOO.replace("553", "537") + "Read error [127.0.0.1]:9: Connection reset by peer. This",
            "gloo-peer-lost",
        ),
        (
            "builtins.RuntimeError",
            "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 5000 ms\n Original exception: \n"
            + CLOSED,
            "gloo-peer-lost",
        ),
        (
            "torch.distributed.DistNetworkError",
            "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server",
            "store-connection-lost",
        ),
        (
            "torch.distributed.DistNetworkError",
            "failed to recv, got 0 bytes",
            "store-connection-lost",
        ),
        ("torch.distributed.DistNetworkError", "Broken pipe", "store-connection-lost"),
        ("builtins.RuntimeError", "Broken pipe", None),
        ("builtins.ConnectionResetError", "[Errno 104] Connection reset by peer", None),
        ("builtins.BrokenPipeError", "[Errno 32] Broken pipe", None),
        ("torch.distributed.DistNetworkError", "The client socket has timed out after 60s", None),
    ],
)
def test_a_lost_peer_is_told_from_a_lost_cause(
    exception: str, message: str, expected: str | None
) -> None:
    """Texts are from torch 2.13.0; the script's own sockets and timeouts don't match."""
    lost = FailureRecord(rank=0, at=0.0, exception=exception, message=message)
    assert [one.id for one in CATALOGUE if one.matches(lost)] == ([expected] if expected else [])


@table("entry", CATALOGUE, name=lambda entry: entry.id)
def test_versions_are_those_of_distributions_that_are_looked_up(entry: KnownFailure) -> None:
    """A range of any other distribution would never match."""
    assert set(entry.when) <= set(VERSIONED)


@table("entry", CATALOGUE, name=lambda entry: entry.id)
def test_no_entry_forbids_everything(entry: KnownFailure) -> None:
    """Some plan remains for every entry's facts and constraints."""
    rules = constraints_of(entry)
    for lattice in LATTICES:
        facts = {**lattice, **entry.proves}
        left = [
            one
            for one in candidates(world(facts))
            if not forbidden_by(one, world(facts), rules_under(rules))
        ]
        assert left != []


def test_a_good_entry_is_read(tmp_path: Path) -> None:
    """The entry from which the mistakes below are made is valid."""
    path = tmp_path / "sample.md"
    path.write_text(GOOD)
    assert read_entry(path).title == "a failure"


@table(
    ("right", "wrong", "line", "problem", "hint"),
    [
        ("title: a", "titel: a", 3, "unknown key `titel`", "did you mean `title`?"),
        ("title: a failure\n", "", 2, "`title` is missing", ""),
        ("id: sample", "id: other", 2, "id: `other` differs from the file's name", ""),
        ("role: initiating", "role: initial", 4, "role: `initial`", "did you mean `initiating`?"),
        ("class: preset", "class: presets", 5, "class: `presets`", "did you mean `preset`?"),
        ("class: preset", "class: [preset", 6, "not YAML", ""),
        ("class: preset", "class: preset\nclass: user", 6, "not YAML: found duplicate key", ""),
        ("{zero_stage: 2", "{zero_stag: 2", 10, "no setting or fact `zero_stag`", "`zero_stage`?"),
        ("zero_stage: 2", "zero_stage: two", 10, "zero_stage is a whole number, not 'two'", ""),
        ("zero_stage: 2", "zero_stage: []", 10, "forbids: no value for `zero_stage`", ""),
        (": reentrant", ": re-entrant", 10, "gradient_checkpointing is one of off, ree", ""),
        ("{zero_stage: 2, gradient_checkpointing: reentrant}", "{engine: ddp}", 10, "forbid e", ""),
        ("proves: {block_runs_twice: true}", "proves: {zero_stage: 1}", 9, "a setting, not a", ""),
        (
            "proves: {block_",
            "proves: {blok_",
            9,
            "proves: no setting or fact",
            "`block_runs_twice`",
        ),
        ("{block_runs_twice: true}", "{block_runs_twice: maybe}", 9, "is true or false", ""),
        ("_twice: true}", "_twice: [true, false]}", 9, "one value is expected", ""),
        ("'words of it'", "'words ( of it'", 6, "signatures: message: missing ): ", ""),
        ("message: 'words of it'", "massage: words", 6, "unknown key `massage`", "`message`?"),
        (", message: 'words of it'", "", 6, "an exception's type alone is no signature", ""),
        ("  - {exception: RuntimeError", "  - just words #", 6, "`signatures`", ""),
        ('">=0.14"', '"0.14 or so"', 8, "a version range", '">=0.14,<0.19.3"'),
        ('">=0.14"', "2.10", 8, "`when`: expected `str`, got `float`", "quotes"),
        ("## What happens", "## What happened", 16, "unknown heading", "`What happens`?"),
        ("## What to do", "## Seen a", 20, "unknown heading `Seen a`", "`Seen as`?"),
        ("## What to do\n\nSomething else.\n", "", 15, "no section `What to do`", ""),
        ("Something.\n", "", 15, "no section `What happens`", ""),
        ("---\nid", "id", 1, "front matter between two lines", ""),
        ("sources: []", "sources: none", 13, "`sources`", ""),
        ("proof: [reported]", "points_at: nowhere", 12, "no search `nowhere`", "parameter_reduc"),
    ],
)
def test_mistakes_are_named_with_file_line_and_cure(
    right: str, wrong: str, line: int, problem: str, hint: str, tmp_path: Path
) -> None:
    """Each mistake gives a message with a remedy."""
    path = tmp_path / "sample.md"
    assert right in GOOD
    path.write_text(GOOD.replace(right, wrong, 1))
    with pytest.raises(DocumentError) as caught:
        read_entry(path)
    assert caught.value.problem.startswith(f"{path}:{line}: ")
    assert problem in caught.value.problem
    assert hint in caught.value.hint


def test_a_log_tells_a_death_without_an_exception(tmp_path: Path) -> None:
    """A log line and its neighbours match a death, but not an exception."""
    path = tmp_path / "sample.md"
    whole = "{exception: RuntimeError, message: 'words of it'}"
    path.write_text(GOOD.replace(whole, "{log: '^Bus error, core', context: 'shared memory$'}"))
    entry = read_entry(path)
    tail = ("Bus  error,\tcore dumped", "out of shared memory")
    assert entry.matches(FailureRecord(0, 0.0, signal=7, log_tail=tail))
    assert not entry.matches(FailureRecord(0, 0.0, signal=7, log_tail=tail[:1]))
    assert not entry.matches(FailureRecord(0, 0.0, "builtins.OSError", "", log_tail=tail))


def test_a_signal_is_a_signature(tmp_path: Path) -> None:
    """A signal identifies the death of a worker that raised nothing."""
    path = tmp_path / "sample.md"
    path.write_text(
        GOOD.replace("{exception: RuntimeError, message: 'words of it'}", "{signal: SIGSEGV}")
    )
    entry = read_entry(path)
    assert entry.matches(FailureRecord(0, 0.0, signal=11))
    assert not entry.matches(FailureRecord(0, 0.0, signal=6))
    assert not entry.matches(FailureRecord(0, 0.0, "builtins.OSError", "", signal=11))


def test_the_cause_in_the_chain_counts() -> None:
    """The first exception explains the later ones; an unknown cause changes nothing."""
    ready = Raised("builtins.RuntimeError", "Expected to mark a variable ready only once.")
    other = Raised("builtins.KeyError", "'x'")
    outer = FailureRecord(0, 0.0, "builtins.ValueError", "could not train", chain=(other, ready))
    found = finding_of(outer, CATALOGUE).entry
    assert found is not None
    assert found.id == "ddp-parameter-ready-twice"
    assert finding_of(replace(outer, chain=(other,)), CATALOGUE).entry is None


@pytest.mark.parametrize(
    ("file", "function", "source", "expected"),
    [
        ("/site/deepspeed/zero/stage3.py", "reduce", "assert len(a) == 1", True),
        ("/site/deepspeed/zero/stage3.py", "reduce", "assert ready", False),
        ("/site/deepspeed/zero/stage3.py", "load", "assert len(a) == 1", False),
        ("/site/mine/stage3.py", "reduce", "assert len(a) == 1", False),
    ],
)
def test_every_part_of_a_signature_must_match(
    file: str, function: str, source: str, expected: bool, tmp_path: Path
) -> None:
    """File, function and source text are those of the innermost frame."""
    path = tmp_path / "sample.md"
    parts = "{file: zero/stage3.py, function: reduce, source: 'assert len'}"
    path.write_text(GOOD.replace("{exception: RuntimeError, message: 'words of it'}", parts))
    frames = (
        Frame("/u/zero/stage3.py", 1, "reduce", "assert len(x)"),
        Frame(file, 9, function, source),
    )
    record = FailureRecord(0, 0.0, "builtins.AssertionError", "", frames=frames)
    assert read_entry(path).matches(record) is expected


def test_patterns_are_taken_literally(tmp_path: Path) -> None:
    """`${` in a pattern isn't interpolated, and `off` needs no quotes."""
    path = tmp_path / "sample.md"
    text = GOOD.replace("'words of it'", "'cost: \\$\\{[0-9]+\\}'").replace("reentrant}", "off}")
    path.write_text(text)
    entry = read_entry(path)
    assert entry.matches(FailureRecord(0, 0.0, "builtins.RuntimeError", "cost: ${12}"))
    assert str(entry.forbids[0][1]) == "gradient_checkpointing=off"


def test_a_plan_reads_all_that_tells_on_it() -> None:
    """A plan reads only entries that forbid something or point at lines.

    Silent entries are included, unless a note or a worker's guard reports them.
    """
    expected = [one.id for one in CATALOGUE if one.forbids or one.tells or one.points_at]
    assert [entry.id for entry in read_catalogue(for_plan=True)] == expected
    silent = {entry.id for entry in CATALOGUE if entry.kind is Kind.SILENT}
    assert silent - set(expected) == TOLD & silent
