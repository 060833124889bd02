"""Under which condition a line raised."""

from pathlib import Path

import pytest
from safe_launch.evidence.failure_record import FailureRecord, Frame, Raised
from safe_launch.report.raise_condition import condition_at, condition_texts

SOURCE = """
def check(args, names):
    if args.bf16 and not args.gpu:
        with args.x:
            raise ValueError(args)
    elif args.token == "hf_abcdefghijklmnopqrstuvwxyzabcdefgh":
        raise RuntimeError(
            "two"
        )
    else:
        raise KeyError("three")
    if names:
        def inner():
            raise TypeError("four")
        inner()
    with open("x") as file:
        raise OSError("five")
    if not names:
        names = 1
        raise OSError("six")
    elif not args:
        pass
    else:
        raise OSError("seven")
    if args.many:
        for name in names:
            raise OSError("eight")
if __name__ == "__main__":
    raise OSError("nine")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script with conditions."""
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return path


def _frame(path: Path, line: int, source: str | None = None) -> Frame:
    text = SOURCE.splitlines()[line - 1] if source is None else source
    return Frame(str(path), line, "check", text.strip())


def test_the_innermost_condition(script: Path) -> None:
    """That of an `else` is negated, with those before it."""
    assert condition_at(_frame(script, 5)) == "args.bf16 and (not args.gpu)"
    assert condition_at(_frame(script, 7)).startswith("args.token == ")
    last = condition_at(_frame(script, 11))
    assert last.startswith("not (args.bf16 and (not args.gpu)) and (not args.token == ")
    assert condition_at(_frame(script, 24)) == "names and args"


def test_no_condition(script: Path, tmp_path: Path) -> None:
    """Another function's, none, a loop's, a changed one, no `raise`, another text, no file."""
    for line in (14, 17, 20, 27, 29, 4):
        assert condition_at(_frame(script, line)) == ""
    assert condition_at(_frame(script, 5, "raise ValueError(other)")) == ""
    assert condition_at(_frame(script, 999, "x")) == ""
    assert condition_at(_frame(tmp_path / "none.py", 5)) == ""
    assert condition_at(_frame(tmp_path, 5)) == ""
    script.write_text(SOURCE + "\n)")
    assert condition_at(_frame(script, 5)) == ""


def test_the_text_has_its_place_and_no_secret(script: Path) -> None:
    """Only the last exception's counts."""
    frame = _frame(script, 7)
    record = FailureRecord(0, 1.0, "builtins.RuntimeError", "two", frames=(frame,))
    assert [*record.raised()] == [Raised("builtins.RuntimeError", "two", frame)]
    (text,) = condition_texts(record)
    assert text.startswith("`args.token == ")
    assert text.endswith("holds (line 7 of train.py)")
    assert "hf_abc" not in text
    assert condition_texts(FailureRecord(0, 1.0, message="killed")) == []
