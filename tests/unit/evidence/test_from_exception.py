"""A failure record from a live exception."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from safe_launch.evidence import from_exception
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.evidence.observations import Observations
from safe_launch.report.explain_failure import user_frame
from support.lazy import Lazy

torch = Lazy("torch")


def caught(action: Any) -> BaseException:
    """The exception that an action raises."""
    try:
        action()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


class UnreadableError(Exception):
    """An exception whose message can't be read."""

    def __str__(self) -> str:
        """Fails."""
        raise RuntimeError


def test_the_whole_record() -> None:
    """The first record, and the one with all details of the exception and the guards."""

    def fails() -> None:
        try:
            {}["cause"]
        except KeyError:
            raise ValueError("of that") from None

    import torch as imported

    seen = Observations()
    seen.see(zero_stage=2)
    seen.count_steps(lambda: 7)
    error = caught(fails)
    first = from_exception.first_record(error, 3, 1.5, 1)
    assert first == FailureRecord(3, 1.5, "builtins.ValueError", exit_code=1)
    record = from_exception.full_record(error, first, seen)
    assert (record.rank, record.at, record.exit_code) == (3, 1.5, 1)
    assert (record.message, record.step, record.chain) == ("of that", 7, ())
    assert record.observed == {"zero_stage": 2}
    assert record.frames[-1].function == "fails"
    assert record.frames[-1].source == 'raise ValueError("of that") from None'
    assert record.traceback.endswith("ValueError: of that\n")
    assert record.memory == {}
    assert record.versions["torch"] == str(imported.__version__)
    assert __file__ in record.user_files


@pytest.mark.parametrize(
    ("source", "line", "text"),
    [
        ("x = 1\ny = undefined\n", 2, "y = undefined"),
        ("x = 1\ndef f(:\n    pass\n", 2, "def f(:"),
        ("if True:\nx = 1\n", 2, "x = 1"),
        ("import nothing_of_this_name\n", 1, "import nothing_of_this_name"),
        ("import json\n\njson.loads('{')\n", 3, "json.loads('{')"),
    ],
)
def test_a_file_whose_import_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, line: int, text: str
) -> None:
    """The module isn't loaded, yet its own line is recorded, not its importer's."""
    (tmp_path / "own_part.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    error = caught(lambda: importlib.import_module("own_part"))
    first = from_exception.first_record(error, 0, 1.0, 1)
    record = from_exception.full_record(error, first, Observations())
    frame = user_frame(record)
    assert frame is not None
    assert (Path(frame.file).name, frame.line, frame.source) == ("own_part.py", line, text)


def test_what_led_to_it() -> None:
    """Causes and contexts, nearest first, with whether one was being handled."""

    def fails() -> None:
        try:
            try:
                {}["first"]
            except KeyError as error:
                raise OSError("second") from error
        except OSError:
            raise ValueError("third")  # noqa: B904 - as scripts do

    chain = list(from_exception.chain(caught(fails)))
    assert [(one.exception, one.was_handled) for one in chain] == [
        ("builtins.OSError", True),
        ("builtins.KeyError", False),
    ]


def test_a_message_that_cannot_be_read() -> None:
    """The failure is still reported."""
    error = caught(lambda: (_ for _ in ()).throw(UnreadableError()))
    record = from_exception.full_record(
        error, from_exception.first_record(error, 0, 0.0, 1), Observations()
    )
    assert record.message == "<UnreadableError without a readable message>"


def test_the_memory_of_an_allocators_complaint() -> None:
    """The record includes the memory held before the model."""
    seen = Observations()
    seen.see_model(torch.nn.Linear(2, 2))
    error = MemoryError()
    assert from_exception.memory(error, seen.before_model)["before_model"] == seen.before_model
    assert "before_model" not in from_exception.memory(error, None)
    assert from_exception.memory(ValueError("x"), None) == {}


def model() -> tuple[Any, Observations]:
    """A partly frozen model that was observed."""
    network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 5))
    network[0].weight.requires_grad_(False)
    seen = Observations()
    seen.see_model(network)
    return network, seen


def test_parameters_by_identity() -> None:
    """A local variable of the innermost frames; a duplicate takes precedence."""
    network, seen = model()

    def held() -> None:
        parameter = network[1].bias
        raise ValueError(parameter.shape)

    def doubled() -> None:
        parameter = network[1].bias
        bucket = [network[0].bias, network[1].weight, network[1].weight]
        raise ValueError(parameter.shape, bucket)

    assert list(from_exception.parameters(caught(held), seen)) == ["1.bias"]
    assert list(from_exception.parameters(caught(doubled), seen)) == ["1.weight"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Parameter at index 1 has been marked as ready twice", ["1.weight"]),
        ("got [0] but expected shape compatible with [5, 3]", ["1.weight"]),
        ("nothing of that kind", []),
    ],
)
def test_parameters_by_what_is_printed(message: str, expected: list[str]) -> None:
    """DDP's index counts trained parameters; autograd prints a shape."""
    _network, seen = model()
    error = caught(lambda: (_ for _ in ()).throw(RuntimeError(message)))
    assert list(from_exception.parameters(error, seen)) == expected


class Exit(RuntimeError):  # noqa: N818 - as click has it
    """Click's, by its name."""

    __module__ = "click.exceptions"


@pytest.mark.parametrize(
    ("code", "handled", "cause"),
    [
        (1, KeyError("a column"), KeyError),
        (255, MemoryError(), MemoryError),
        (2, KeyError("an argument"), SystemExit),
        ("no such column", KeyError("a column"), SystemExit),
        (3, Exit(3), SystemExit),
        (130, KeyboardInterrupt(), SystemExit),
        (1, ExceptionGroup("of tasks", [ExceptionGroup("", [OSError()]), KeyError()]), OSError),
    ],
)
def test_a_script_that_leaves_for_an_exception(
    code: int | str, handled: BaseException, cause: type
) -> None:
    """The exception that it caught is the cause, unless the exit says more or isn't a failure."""

    def leaves() -> None:
        try:
            raise handled
        except BaseException:
            raise SystemExit(code)  # noqa: B904 - as scripts do

    assert type(from_exception.cause_of(caught(leaves))) is cause


def test_a_script_that_just_leaves() -> None:
    """Nothing else is the cause of an exit outside of a handler."""
    left = SystemExit(1)
    assert from_exception.cause_of(left) is left
