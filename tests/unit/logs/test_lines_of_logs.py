"""Parts of the log reader: prefixes, launchers' messages, collected events."""

from __future__ import annotations

import signal
import textwrap

import pytest
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.logs.attempts import ENOUGH, Evidence, PendingEvents, Progress, Reading
from safe_launch.logs.interleaved import keep_interleaved
from safe_launch.logs.launcher_messages import Death, death_of, is_users, reports_failed_workers
from safe_launch.logs.lines import FILLER, Line
from safe_launch.logs.plain import restored
from safe_launch.logs.prefixes import FilePrefixes, Stripped, common, stripped, unfolded
from safe_launch.logs.progress_signs import Written, reported_end
from safe_launch.logs.searches import loosened
from support.logs import judged


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ("plain", Stripped("plain")),
        ("[rank3]: boom", Stripped("boom", 3, "rank 3")),
        ("[default1]:boom", Stripped("boom", 1, "rank 1")),
        ("[1,2]<stderr>: boom", Stripped("boom", 2, "rank 2")),
        (" 3: boom", Stripped("boom", 3, "3")),
        ("2026-01-02T03:04:05.6Z boom", Stripped("boom")),
        ("\x1b[31mboom\x1b[0m", Stripped("boom")),
        ('{"log":"boom\\n","stream":"stderr"}', Stripped("boom")),
        ("  indented", Stripped("  indented")),
        ("KeyError: 'lr'", Stripped("KeyError: 'lr'")),
    ],
)
def test_known_prefixes(raw: str, line: Stripped) -> None:
    """Prefixes of torch, torchrun, MPI, Slurm, containers and terminals."""
    assert stripped(raw) == line


def test_a_prefix_that_all_lines_have() -> None:
    """Numbers may vary and a few lines may differ; a step is no prefix."""
    said = ("loading", "a batch", "waiting", "done")
    lines = [f"job-7 12:00:{second:02} | {said[second % 4]}" for second in range(20)]
    pattern = common("\n".join(lines).encode())
    assert pattern is not None
    assert pattern.sub("", "job-8 13:07:59 | boom", count=1) == "boom"
    assert common("\n".join(f"step {n}: loss" for n in range(20)).encode()) is None
    assert common(b"a | 1\na | 2") is None, "too few lines to tell"


def test_a_prefix_that_a_traceback_shows() -> None:
    """The text before its first line is a prefix of the others, with any numbers."""
    prefixes = FilePrefixes(b"")
    assert prefixes.stripped("(worker#1) boom").text == "(worker#1) boom"
    header = "Traceback (most recent call last):"
    assert prefixes.stripped(f"(worker#1) {header}").text == header
    assert prefixes.stripped("(worker#22) boom").text == "boom"
    assert prefixes.stripped("(other#1) boom").text == "(other#1) boom"


def test_a_folded_traceback() -> None:
    """A logger's single line is split into the original lines."""
    folded = r"Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 1"
    assert unfolded(folded)[1:] == ['  File "a.py", line 1', "KeyError: 1"]
    assert unfolded(r"a path\new") == [r"a path\new"]


@pytest.mark.parametrize(
    ("text", "death"),
    [
        ("failed (exitcode: -9) local_rank: 2 (pid: 7)", Death(1, 2, 137, signal.SIGKILL)),
        ("failed (exitcode: 1) local_rank: 0 (pid: 7)", Death(1, 0, 1, None)),
        ("  exitcode  : -11 (pid: 7)", Death(1, 5, 139, signal.SIGSEGV)),
        ("srun: error: n1: task 3: Out Of Memory", Death(1, 3, 137, signal.SIGKILL)),
        ("srun: error: n1: tasks 2-3: Exited with exit code 1", Death(1, 2, 1, None)),
        ("run.sh: line 3: 77 Killed python train.py", Death(1, None, 137, signal.SIGKILL)),
        ("run.sh: line 3: 77 Killed $RUN train.py --a", Death(1, None, 137, signal.SIGKILL)),
        ("run.sh: line 3: 77 Killed nvidia-smi dmon", None),
        ("command terminated with exit code 0", None),
        ("the exit code is 1", None),
    ],
)
def test_what_launchers_say_of_workers(text: str, death: Death | None) -> None:
    """Torchrun and its summary, srun, shells and containers; success is no death."""
    assert death_of(1, text, summary_rank=5) == death


def test_whose_exceptions_and_files() -> None:
    """A launcher's own exception is a consequence; installed files aren't the user's."""
    elastic = ("/site-packages/torch/distributed/elastic/multiprocessing/api.py",)
    assert reports_failed_workers("a.ChildFailedError", "", ())
    assert reports_failed_workers("SystemExit", "1", elastic)
    assert not reports_failed_workers("SystemExit", "1", ("train.py",))
    assert is_users("/home/me/train.py")
    assert not is_users("/usr/lib/python3.11/json/decoder.py")


def event(message: str, at: float = 1.0) -> Evidence:
    """An exception in a log."""
    return Evidence(FailureRecord(0, at, "builtins.KeyError", message), "a.log", ((1, message),))


def test_an_event_is_kept_once_until_there_is_progress() -> None:
    """It has the requested number of lines after it."""
    events, reading = PendingEvents(), Reading()
    assert events.add(event("lr"))
    assert not events.add(event("lr", at=2.0))
    events.follow("after")
    events.settle(2, reading)
    assert (len(events), reading.events) == (1, [])
    events.follow("more")
    events.settle(2, reading)
    assert [one.record.log_tail for one in reading.events] == [("after", "more")]
    assert not events.add(event("lr"))
    events.forget()
    assert events.add(event("lr"))


def test_progress() -> None:
    """A step counts once for all ranks until a failure; signs below a line are counted."""
    progress = Progress()
    assert progress.is_new("step 1")
    assert not progress.is_new("step 1")
    progress.forget_steps()
    assert progress.is_new("step 1")
    progress.add(10, 2)
    progress.add(20, 3)
    assert [progress.since(number) for number in (5, 10, 20)] == [5, 3, 0]


def test_what_a_training_survives_is_dropped() -> None:
    """Enough signs of progress in the same file prove it."""
    reading = Reading(events=[event("lr"), Evidence(event("lr").record, "b.log", ())])
    reading.went_on("a.log", ENOUGH - 1)
    assert [one.file for one in reading.events] == ["b.log", "a.log"]
    reading.went_on("a.log", 1)
    assert [one.file for one in reading.events] == ["b.log"]


def test_lines_of_two_ranks_are_kept_together() -> None:
    """Lines before and a few after are included."""
    reading = Reading()
    assert not keep_interleaved(reading, "a.log", Line(1, "all well", is_match=True), ())
    assert keep_interleaved(reading, "a.log", Line(2, "KKeeyyErErrroorr", is_match=True), ("x",))
    assert not keep_interleaved(reading, "a.log", Line(3, "''llrr", is_match=False), ())
    assert not keep_interleaved(reading, "a.log", Line(9, "far below", is_match=False), ())
    assert reading.shuffled == [("a.log", 2, "x\nKKeeyyErErrroorr\n''llrr")]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("step 3", "Training finished"), "Training finished"),
        (("Training finished", "ValueError: no"), None),
        (("epoch 1 done", ""), None),
    ],
)
def test_a_scripts_own_words(lines: tuple[str, ...], said: str | None) -> None:
    """They count at the end without a later error, and not for a part."""
    end = reported_end([Written("a.log", number, text) for number, text in enumerate(lines)])
    assert (None if end is None else end.text) == said


def test_the_indentation_of_a_long_traceback() -> None:
    """It is no prefix, though nearly all lines have it; that of an indented log is."""
    frames = "".join(f'  File "a.py", line {n}, in f\n    g({n})\n' for n in range(30))
    log = f"Traceback (most recent call last):\n{frames}KeyError: 'x'\n"
    for text in (log, textwrap.indent(log, "    ") + "\nwhat is this?\n"):
        root = judged(text).root
        assert root is not None
        assert len(root.finding.record.frames) == 30


def test_a_pattern_behind_prefixes() -> None:
    """Anchors are removed and spaces match any run; escapes and classes are kept."""
    assert loosened(r"^a b[ ^$]\$$") == r"a(?:[ \t]+)b[ ^$]\$"


def test_a_log_that_was_copied_by_hand() -> None:
    """Quotation marks are removed, wrapped lines joined, and numbers kept."""
    assert restored(b"> one\n> two\n") == (b"one\ntwo\n",)
    assert restored(b"one\ntwo\n") == (b"one\ntwo\n",)
    wide = "x" * 80
    wrapped = "\n".join([wide, "end 1", wide, "end 2", wide, "end 3"])
    joined = "\n".join(f"{wide}end {n}\n{FILLER}" for n in (1, 2, 3))
    assert restored(wrapped.encode()) == (joined.encode(), wrapped.encode())
    alike = "\n".join(
        [f"../aten/Loss.cu:106: block: [0,0,0], thread: [{n},0,0] failed." for n in (725, 726, 727)]
    )
    assert restored(f"{alike}\nTraceback (most recent call last):".encode()) == (
        f"{alike}\nTraceback (most recent call last):".encode(),
    )


def test_a_quoted_prefix() -> None:
    """A quotation mark before a rank's prefix belongs to neither."""
    assert stripped("`[rank3]: boom`") == Stripped("boom", 3, "rank 3")


def test_vllms_prefix() -> None:
    """Of all lines of a traceback, also of an exception without a message."""
    prefix = "(Worker_TP2 pid=9) ERROR 09-26 15:11:03 [multiproc_executor.py:654] "
    log = (
        f'{prefix}  File "a.py", line 9, in f\n{prefix}    assert device\n{prefix}AssertionError\n'
    )
    root = judged(log).root
    assert root is not None
    assert [frame.source for frame in root.finding.record.frames] == ["assert device"]
