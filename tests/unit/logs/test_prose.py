"""What a person writes: a message within a sentence, a title, an exit's code, words for a hang."""

from __future__ import annotations

import pytest
from safe_launch.logs.headline import headline
from safe_launch.logs.judgement import Verdict
from support.logs import STEPS, entry_of, judged
from support.tables import table

READY_ONCE = "Expected to mark a variable ready only once. This error is caused by"
"""A known message, without its exception's type."""


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (
            "our loop stops with 'Shelf' object has no attribute 'rows' after an epoch",
            "AttributeError",
            "'Shelf' object has no attribute 'rows'",
        ),
        (
            "# colab notebook ShelfError: the shelf is full\n\nany idea?",
            "ShelfError",
            "the shelf is full",
        ),
        (
            "colab T4 shelfkit ShelfError: the shelf is full",
            "ShelfError",
            "the shelf is full",
        ),
        (
            "with 4 cards each worker fails with `CUDA error: invalid device\nordinal` at once",
            "AcceleratorError",
            "CUDA error: invalid device ordinal",
        ),
    ],
)
def test_an_exception_in_somebodys_sentence(text: str, kind: str, said: str) -> None:
    """Named in a title, reported by its message alone, wrapped over two lines."""
    judgement = judged(text + "\n")
    assert judgement.root is not None
    record = judgement.root.finding.record
    assert (record.exception.rpartition(".")[2], record.message) == (kind, said)
    assert judgement.root.evidence.is_spoken


@pytest.mark.parametrize(
    "text",
    [
        f"With two adapters it ends, and the error was:\n\n{READY_ONCE}\none of the following\n",
        f"Training the critic I always get this: {READY_ONCE} ... what now?\n",
    ],
)
def test_a_known_message_within_a_text(text: str) -> None:
    """It needs no type and no line to itself if somebody's words announce it."""
    assert entry_of(judged(text)) == "ddp-parameter-ready-twice"


def test_a_line_that_somebody_calls_the_error() -> None:
    """What stands beside an exception elsewhere is enough, also in the form of a warning."""
    line = (
        "[W socket.cpp:601] [c10d] The IPv6 network addresses of (lab7, 53821) cannot be retrieved"
    )
    text = f"{line} (gai error: -3 - Temporary failure in name resolution)."
    start = "python -m torch.distributed.run --standalone train.py"
    asked = judged(f"{start}\nand I get these issues:\n\n{text}\n\nWhat does that mean?\n")
    assert entry_of(asked) == "master-address-unresolved"
    assert headline(asked).startswith("This machine's own name can't be looked up")
    assert judged(f"{start}\n{text}\n").root is None


@pytest.mark.parametrize(
    "text",
    [
        f"The page explains what {READY_ONCE} means and so on\n",
        "if the loader raises, it says 'Shelf' object has no attribute 'rows' will be skipped\n",
        f"# shelfkit ShelfError: the shelf is full\n{STEPS}"[2:],
    ],
)
def test_what_reports_nothing(text: str) -> None:
    """An explanation, a handled error, and a line before a training that goes on."""
    assert judged(text).root is None


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("I made my own sampler. But raise the ValueError: no shelf is open.", "ValueError", "no"),
        ("raise ValueError: no shelf. I wonder why.", "ValueError", "no shelf"),
        ("I wonder if you've encountered it (e.g., OSError: a shelf fell)", "OSError", "a shelf"),
        ("I was getting ZeroDivisionError (rows being 0).", "ZeroDivisionError", "rows being 0"),
    ],
)
def test_an_exception_that_a_sentence_names(text: str, kind: str, message: str) -> None:
    """With `raise` and a colon, which no code has, or with its message in brackets."""
    root = judged(text + "\n").root
    assert root is not None
    assert root.finding.record.exception == f"builtins.{kind}"
    assert root.finding.record.message.startswith(message)


@pytest.mark.parametrize(
    ("text", "number", "code"),
    [
        ("the script exits with return code -9 when I add a second card", 9, 137),
        ("# launcher ends: process 4711 got signal: 1\n" + STEPS, 1, 129),
        ("every worker dies with SIGSEGV before the first step", 11, 139),
        ("With it on, my run dies with a `Segmentation fault (core dumped)` error.", 11, 139),
        ("on Windows the process finished with exit code 3221225477", None, 3221225477),
    ],
)
def test_an_end_by_a_signal_in_words(text: str, number: int | None, code: int) -> None:
    """A negative code, a signal's number or name, a status of Windows; in a title, before steps."""
    judgement = judged(text + "\n")
    assert judgement.root is not None
    record = judgement.root.finding.record
    assert (record.signal, record.exit_code) == (number, code)


def test_an_exception_in_a_heading() -> None:
    """It is about the log below it, though that has steps."""
    judgement = judged(f"# torch.SignalException: Process 4711 got signal: 1\n\n{STEPS}")
    assert judgement.root is not None
    assert judgement.root.finding.record.exception == "torch.SignalException"


def test_a_loss_that_somebody_calls_nan() -> None:
    """It has the entry of a log whose last losses are NaN."""
    assert entry_of(judged("with fp16 the training loss is NaN from step 3 on\n")) == (
        "loss-not-a-number"
    )


@pytest.mark.parametrize(
    "text",
    [
        "With RANK=0 and WORLD_SIZE=2 the training is hanging",
        "it hangs in TCPStore",
        "The ranks never exit, and the job keeps its nodes",
        "the terminal didn't respond for an hour",
    ],
)
def test_words_for_a_hang(text: str) -> None:
    """They are the failure of a text that has no other."""
    judgement = judged(text + "\n")
    assert judgement.verdict is Verdict.UNKNOWN
    assert headline(judgement).startswith(text[:30])


def test_a_spawned_process_that_left() -> None:
    """Its report by torch's `spawn` names its exit code or signal, from which the advice comes."""
    said = "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with"
    for end, code in (("exit code 3221225620", 3221225620), ("signal SIGSEGV", 139)):
        judgement = judged(f"{said} {end}\n")
        assert judgement.root is not None
        record = judgement.root.finding.record
        assert (record.rank, record.exit_code) == (1, code)


@pytest.mark.parametrize(
    "text",
    [
        "Installing handlers for SIGTERM and SIGHUP",
        "Does the launcher send SIGKILL to hung ranks?",
        "rank 0: got signal 10, dumping stacks",
        "I see that the loss isn't NaN",
        "How can I detect if the loss becomes NaN?",
        "we skip batches with nan loss",
        "Error caught was: No module named 'shelfkit'\nloading data",
        "failed to import shelfkit: No module named 'shelfkit'\ntokenizing",
        "at first we got error: No module named 'shelfkit', solved by pip",
        "I found the fix: it crashed with signal 11 as the driver was old, solved now",
        "the progress bar is stuck but training continues",
    ],
)
def test_words_that_report_nothing(text: str) -> None:
    """Settings, questions, denials, what a program does without, and what is over."""
    assert judged(text + "\n").root is None


def test_a_stack_that_is_printed() -> None:
    """Without a traceback's header, within a log, or with a run that goes on after it."""
    stack = '  File "train.py", line 88, in <module>\n    main()\n'
    bar = "".join(f" {at}%|##  | {at}/100 [00:{at}<01:00, 1.00s/it]\n" for at in range(10, 30))
    for text in (
        f"{STEPS}WARNING slow\nStack (most recent call last):\n{stack}INFO loaded\n",
        f"{STEPS}Traceback (most recent call last):\n{stack}{bar}",
        f"Traceback (most recent call last):\n{stack}" + "INFO loading\n" * 3,
    ):
        assert judged(text).root is None


RAY = """\
Traceback (most recent call last):
  File "/w/main.py", line 19, in main
    ray.get(task.remote())
ray.exceptions.RayTaskError(AssertionError): ray::task() (pid=36, ip=10.0.0.7)
  File "/w/main.py", line 31, in task
    trainer.fit()
"""


@table(
    ("title", "says"),
    [
        ("only support gates of one width. Got 2 and 4", "AssertionError: only support gates of"),
        ("How must I call it, if the gate is not open?", "failed at `trainer.fit()`"),
        ("GRPO with 4 gates", "failed at `trainer.fit()`"),
        ("KeeperError when opening the second gate", "KeeperError: when opening the second gate"),
        ("'Gate' object has no attribute 'open'", "AttributeError: 'Gate' object has no attr"),
        ("'Gate' object has no attribute 'open' in the docs", "failed at `trainer.fit()`"),
        ("KeeperError handling in the docs", "failed at `trainer.fit()`"),
    ],
)
def test_a_title_above_a_cut_traceback(title: str, says: str) -> None:
    """It has the message if Ray's line has the type, or the type."""
    judgement = judged(f"{title}\n\nThis is what I run:\n{RAY}")
    assert says in headline(judgement)
    assert judgement.root is not None
    assert judgement.root.finding.record.frames[-1].source == "trainer.fit()"


def test_words_and_a_cut_traceback_of_other_ranks() -> None:
    """Each stays what it is: they aren't put together."""
    cut = 'Traceback (most recent call last):\n  File "train.py", line 40, in f\n    save()\n'
    judgement = judged(cut, "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    assert judgement.root is not None
    assert judgement.root.evidence.file == "1.log"
    assert judgement.root.finding.record.frames == ()
