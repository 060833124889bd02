"""The reason of a worker's end from its last output."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from safe_launch.diagnosis.root_cause import finding_of
from safe_launch.evidence.failure_record import HANG, FailureRecord, Frame, ToldBy
from safe_launch.evidence.from_exception import OURS
from safe_launch.logs.last_output import MOST, completed
from support.logs import CATALOGUE

NO_GRADIENT = "element 0 of tensors does not require grad and does not have a grad_fn"
TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
TRACEBACK = f"""\
Traceback (most recent call last):
  File "/home/ml/train.py", line 40, in main
    loss.backward()
  File "{OURS[0]}guards/step_times.py", line 87, in marked
    return function(*args, **kwargs)
  File "{TORCH}/_tensor.py", line 648, in backward
    torch.autograd.backward(
  File "{TORCH}/autograd/graph.py", line 823, in _engine_run_backward
    return Variable._execution_engine.run_backward(
RuntimeError: {NO_GRADIENT}"""
STEPS = "\n".join(f"{{'loss': {1 / (step + 2)}, 'epoch': {step}}}" for step in range(8))
LEFT = FailureRecord(3, 7.0, exit_code=1)


def told(record: FailureRecord, output: str) -> tuple[FailureRecord, str | None]:
    """The completed record of a worker with this output, and its entry."""
    record = replace(record, log_tail=tuple(output.splitlines()))
    (result,) = completed([record], CATALOGUE)
    entry = finding_of(result, CATALOGUE).entry
    return result, None if entry is None else entry.id


def left_by(exception: str) -> FailureRecord:
    """The record of a worker that ended with an exception."""
    frame = Frame("/home/ml/train.py", 9, "<module>", "sys.exit(code)")
    return replace(LEFT, exception=exception, frames=(frame,), traceback="its own")


@pytest.mark.parametrize(
    "record",
    [
        LEFT,
        replace(LEFT, exit_code=134, signal=signal.SIGABRT),
        left_by("builtins.SystemExit"),
        left_by("subprocess.CalledProcessError"),
        left_by("torch.multiprocessing.spawn.ProcessRaisedException"),
    ],
    ids=lambda record: record.exception or record.exit_code,
)
@pytest.mark.parametrize("after", ["", "\nwandb: Synced 4 files\nGoodbye.\n"])
def test_a_traceback_in_the_output(record: FailureRecord, after: str) -> None:
    """It gives exception, message, frames and user file; the rest is the record's."""
    result, name = told(record, f"step 1\n{TRACEBACK}{after}")
    assert name == "loss-without-gradient"
    assert (result.exception, result.message) == ("builtins.RuntimeError", NO_GRADIENT)
    assert [frame.function for frame in result.frames] == [
        *("main", "backward", "_engine_run_backward"),
    ]
    assert result.user_files == ("/home/ml/train.py",)
    assert (result.told_by, result.traceback) == (ToldBy.OUTPUT, "")
    assert (result.rank, result.at, result.exit_code) == (3, 7.0, record.exit_code)


def test_a_child_without_a_line_of_the_script() -> None:
    """The worker's own line, which started the child, is where."""
    output = 'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\n'
    record = replace(left_by("subprocess.CalledProcessError"), user_files=("/home/ml/train.py",))
    result, _ = told(record, f"{output}RuntimeError: bad token in line 12")
    assert [frame.file for frame in result.frames] == ["/home/ml/train.py", "<string>"]


@pytest.mark.parametrize(
    "line",
    [
        NO_GRADIENT,
        f"training failed: {NO_GRADIENT}",
        f"2026-01-02 03:04:05 ERROR train: {NO_GRADIENT}",
        f"RuntimeError('{NO_GRADIENT}')",
    ],
)
def test_a_message_alone(line: str) -> None:
    """The last lines have the message of exactly one known failure."""
    result, name = told(LEFT, f"step 1\n{line}\nbye\n\n")
    assert (name, result.message) == ("loss-without-gradient", NO_GRADIENT)
    assert result.told_by is ToldBy.LAST_LINE


@pytest.mark.parametrize(
    ("record", "output"),
    [
        (LEFT, ""),
        (LEFT, "step 1\nstep 2\nstopping early, as told"),
        (LEFT, "step 1\n{'loss': 1.2, 'epoch': 2}\n'a key'"),
        (LEFT, f"{TRACEBACK}\n{STEPS}\nleaving"),
        (LEFT, f"{NO_GRADIENT}\none\ntwo\nthree\n"),
        (replace(LEFT, exit_code=137, signal=signal.SIGKILL), TRACEBACK),
        (replace(LEFT, rank=None), TRACEBACK),
        (replace(LEFT, exception=HANG), TRACEBACK),
        (replace(LEFT, exception="builtins.ValueError", message="mine"), TRACEBACK),
    ],
    ids=[
        "silent",
        "unrelated",
        "no-phrase",
        "survived",
        "long-ago",
        "signal",
        "node",
        "hang",
        "own",
    ],
)
def test_what_stays_as_it_is(record: FailureRecord, output: str) -> None:
    """Survived exceptions don't count, and a worker's own report takes precedence."""
    record = replace(record, log_tail=tuple(output.splitlines()))
    assert completed([record], CATALOGUE) == (record,)


def test_an_unknown_exception_in_the_output() -> None:
    """The exception is named without advice."""
    text = 'Traceback (most recent call last):\n  File "/home/ml/train.py", line 4, in load\n'
    result, name = told(LEFT, text + '    raise ValueError("bad rows")\nValueError: bad rows')
    assert name is None
    assert (result.exception, result.message) == ("builtins.ValueError", "bad rows")


@pytest.mark.parametrize(
    ("code", "number", "name"),
    [
        (137, signal.SIGKILL, "worker-killed"),
        (247, signal.SIGKILL, "worker-killed"),
        (139, signal.SIGSEGV, "segfault"),
        (245, signal.SIGSEGV, "segfault"),
    ],
)
def test_a_childs_end_that_is_passed_on(code: int, number: int, name: str) -> None:
    """The exit code encodes a child's signal; an earlier exception isn't the cause."""
    record = replace(left_by("builtins.SystemExit"), exit_code=code)
    result, known = told(record, TRACEBACK)
    assert (known, result.signal, result.told_by) == (name, number, ToldBy.EXIT_CODE)
    assert result.exit_code == code


def test_only_the_earliest_are_read() -> None:
    """For thousands of ranks only the first few outputs are read."""
    records = [
        replace(LEFT, rank=rank, log_tail=tuple(TRACEBACK.splitlines())) for rank in range(40)
    ]
    found = completed(records, CATALOGUE)
    assert [record.told_by is ToldBy.OUTPUT for record in found] == [
        rank < MOST for rank in range(40)
    ]
