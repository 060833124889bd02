"""The end of a script that was only asked, and its effect on the plan."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from safe_launch.commands import plan
from safe_launch.core.choices import Framework
from safe_launch.core.errors import ExitCode, LaunchError
from safe_launch.core.request import LaunchRequest
from safe_launch.core.script import Ending, ScriptAnswers
from safe_launch.core.settings import Fact, Setting
from safe_launch.core.workload import Known, Origin
from safe_launch.evidence.failure_record import FailureRecord, Frame
from safe_launch.evidence.worker_messages import Ask, Boundary, Failure, Finished, Message, Observed
from safe_launch.report import explain_answers
from safe_launch.session import asking
from support.worlds import HARDWARE, world

ARGUMENTS = Ask("k1", Boundary.TRAINING_ARGUMENTS, [], {"micro_batch": 2}, frame="train.py:7")
TRAINER = Ask("k2", Boundary.TRAINER, [], {"micro_batch": 4}, "transformers", frame="train.py:9")
FRAMES = (Frame("/s/train.py", 12, "load", "load()"), Frame("/p/torch.py", 3, "f", "f()"))


def raising(exception: str, message: str, code: int = 1) -> Failure:
    """The messages of a script that raises in a library, called in its line 12."""
    own = ("/s/train.py",)
    told = {"exception": exception, "message": message, "exit_code": code}
    return Failure(FailureRecord(0, 1.0, frames=FRAMES, user_files=own, **told))  # type: ignore[arg-type]


def ended(
    told: Iterable[Message], code: int | None, *, is_bare: bool = False
) -> tuple[Ending, str, str]:
    """The end of a script with these messages."""
    reports = asking.Reports()
    for message in told:
        reports.note(message)
    return asking._ending(reports, code, is_bare=is_bare)


END = "safe_launch.evidence.worker_messages.EndOfQueryError"
META = "Tensor.item() cannot be called on meta tensors"


@pytest.mark.parametrize(
    ("told", "code", "ending", "where"),
    [
        ([ARGUMENTS, TRAINER], None, Ending.WHOLE, "Trainer, train.py:9"),
        ([ARGUMENTS], None, Ending.LATE, "TrainingArguments, train.py:7"),
        ([], None, Ending.LATE, ""),
        ([ARGUMENTS, Finished()], 0, Ending.OVER, "TrainingArguments, train.py:7"),
        ([Finished()], None, Ending.OVER, ""),
        ([raising(END, "no weights")], 1, Ending.CUT, "/s/train.py:12"),
        ([raising("builtins.RuntimeError", META)], 1, Ending.CUT, "/s/train.py:12"),
        ([raising("builtins.ValueError", "boom")], 1, Ending.FAILED, "/s/train.py:12"),
        ([raising("builtins.ValueError", "boom")], None, Ending.FAILED, "/s/train.py:12"),
        ([ARGUMENTS], -11, Ending.FAILED, "TrainingArguments, train.py:7"),
        ([], 3, Ending.FAILED, ""),
    ],
)
def test_how_it_has_ended(
    told: list[Message], code: int | None, ending: Ending, where: str
) -> None:
    """Only the script's own exception or exit is a failure."""
    assert ended(told, code)[:2] == (ending, where)


def test_what_a_login_node_lacks_is_no_failure() -> None:
    """On hosts with devices the same message is the script's failure."""
    told = [raising("builtins.RuntimeError", "No CUDA GPUs are available")]
    assert ended(told, 1, is_bare=True)[0] is Ending.CUT
    assert ended(told, 1)[0] is Ending.FAILED


def test_why_names_line_and_exception() -> None:
    """One line; `sys.exit` is shown by its code."""
    _, _, why = ended([raising("builtins.ValueError", "boom\nmore")], 1)
    assert why == "/s/train.py:12: ValueError: boom"
    _, _, why = ended([raising("builtins.SystemExit", "2", 2)], 2)
    assert why == "/s/train.py:12: it left with exit code 2"
    assert "SIGSEGV" in ended([], -11)[2]


def test_later_words_hold() -> None:
    """The Trainer's values override its original arguments."""
    reports = asking.Reports()
    for message in (ARGUMENTS, TRAINER, Observed({"engine": "ddp"})):
        reports.note(message)
    found = world({}).informed(reports.statements("asked train.py"))
    assert found.known[Setting.MICRO_BATCH].value == 4
    assert found.known[Setting.MICRO_BATCH].source == "Trainer, train.py:9"
    assert found.known[Fact.ENGINE].source == "asked train.py"
    assert {known.origin for known in found.known.values()} == {Origin.OBSERVED}


def asked(ending: Ending, length: int = 512, **told: object) -> ScriptAnswers:
    """A script that was asked, with its samples' length."""
    known = (Fact.SEQUENCE_LENGTH, Known(length, Origin.OBSERVED, "Trainer"))
    return ScriptAnswers("train.py", ending, 2.0, statements=(known,), **told)  # type: ignore[arg-type]


@pytest.mark.parametrize(("length", "expected"), [(512, 1024), (2048, 2048)])
def test_a_stated_maximum_stays(length: int, expected: int) -> None:
    """Later samples may be longer than the first."""
    stated = world({Fact.SEQUENCE_LENGTH: 1024})
    found = plan._informed(stated, asked(Ending.WHOLE, length))
    assert found.value(Fact.SEQUENCE_LENGTH) == expected
    assert plan._informed(world({}), asked(Ending.WHOLE, 512)).value(Fact.SEQUENCE_LENGTH) == 512


def test_the_framework_is_the_scripts_word() -> None:
    """The running script overrides the imports in its source."""
    told = asked(Ending.WHOLE, framework=Framework.ACCELERATE)
    assert plan._informed(world({}), told).framework is Framework.ACCELERATE


def test_what_matters_comes_first() -> None:
    """A final verdict if all is known, else how far the script ran."""
    rows = [("plan", "as asked"), ("open", "micro_batch"), ("model", "none")]
    labels = [label for label, _ in plan._with_answers(rows, asked(Ending.WHOLE))]
    assert labels == ["plan", "asked", "model"]
    labels = [label for label, _ in plan._with_answers(rows, asked(Ending.CUT))]
    assert labels == ["asked", "plan", "open", "model"]
    assert plan._with_answers(rows, None) == rows


def test_files_and_missing_devices_are_told() -> None:
    """A few files by name, the others by count."""
    files = tuple(f"out/{number}" for number in range(8))
    rows = dict(explain_answers.rows(asked(Ending.WHOLE, written=files, lacking="h100-80gb")))
    assert "out/4 and 3 more" in rows["wrote"]
    assert "out/5" not in rows["wrote"]
    assert "h100-80gb" in rows["note"]


def test_a_program_cant_be_asked() -> None:
    """No guards run in a program."""
    request = LaunchRequest("train.sh", False, (), 2, "--nproc 2", is_program=True)
    with pytest.raises(LaunchError, match="program") as refused:
        asking.ask(request, HARDWARE, HARDWARE)
    assert refused.value.code is ExitCode.USAGE
