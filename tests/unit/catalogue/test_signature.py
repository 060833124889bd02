"""Signatures: the evidence that matches each, and the evidence that doesn't."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from safe_launch.catalogue.regex import LinearPatterns, PatternError, compiled
from safe_launch.catalogue.signature import Signature
from safe_launch.evidence.failure_record import FailureRecord, Frame, Raised

FRAME = Frame("/site-packages/deepspeed/engine.py", 7, "step", "self.reduce(gradient)")
CAUSE = Raised("builtins.KeyError", "lr", FRAME)
RECORD = FailureRecord(
    0,
    0.0,
    exception="builtins.RuntimeError",
    message="CUDA error:\n  out of memory",
    frames=(Frame("train.py", 3, "main", "loss.backward()"), FRAME),
    chain=(CAUSE,),
    log_tail=("NCCL WARN  unhandled", "last line"),
)
DEATH = FailureRecord(0, 0.0, signal=signal.SIGKILL, oom_kills=1, log_tail=("Killed",))


@pytest.mark.parametrize(
    ("signature", "depth"),
    [
        (Signature(exception="RuntimeError", message=compiled("error: out of")), 0),
        (Signature(exception="KeyError"), 1),
        (Signature(exception="ValueError"), None),
        (Signature(message=compiled("out of disk")), None),
        (Signature(file="deepspeed/engine.py", function="step"), 1),
        (Signature(file="deepspeed/zero.py"), None),
        (Signature(source=compiled(r"reduce\(gradient")), 1),
        (Signature(exception="RuntimeError", through=compiled(r"\.backward\(")), 0),
        (Signature(exception="RuntimeError", through=compiled(r"^\w+: .*reduce\(")), 0),
        (Signature(exception="RuntimeError", through=compiled(r"^backward: .*reduce\(")), None),
        (Signature(exception="RuntimeError", log=compiled("WARN unhandled")), 0),
        (Signature(exception="RuntimeError", log=compiled("another line")), None),
        (Signature(exception="RuntimeError", context=compiled("last")), 0),
        (Signature(exception="RuntimeError", context=compiled("first")), None),
        (Signature(exception="RuntimeError", finished=True), None),
        (Signature(exception="RuntimeError", finished=False), 0),
        (Signature(exception="RuntimeError", oom_kill=True), None),
    ],
)
def test_an_exception(signature: Signature, depth: int | None) -> None:
    """The deepest matching exception of the chain counts; runs of white space equal one space."""
    assert signature.depth(RECORD) == depth
    assert signature.matches(RECORD) == (depth is not None)


def test_a_path_of_windows() -> None:
    """Backslashes match like slashes."""
    frame = replace(FRAME, file="D:\\envs\\lib\\site-packages\\deepspeed\\engine.py")
    record = replace(RECORD, frames=(frame,), chain=())
    assert Signature(file="deepspeed/engine.py").matches(record)
    assert not Signature(file="zero/engine.py").matches(record)


@pytest.mark.parametrize(
    ("signature", "is_shown"),
    [
        (Signature(signal=signal.SIGKILL), True),
        (Signature(signal=signal.SIGSEGV), False),
        (Signature(oom_kill=True), True),
        (Signature(log=compiled("^Killed$")), True),
        (Signature(log=compiled("Aborted")), False),
        (Signature(log=compiled("Killed"), context=compiled("dmesg")), False),
    ],
)
def test_a_death(signature: Signature, is_shown: bool) -> None:
    """A signal, the out-of-memory killer or a log line matches."""
    assert signature.matches(DEATH) == is_shown


def test_a_line_beside_an_exception() -> None:
    """The line must be in the exception's message: the log around it may be another's."""
    line = Signature(log=compiled("NCCL WARN unhandled"))
    assert not line.matches(RECORD)
    assert line.matches(replace(RECORD, message="from C++:\nNCCL WARN unhandled"))


def test_the_users_own_code() -> None:
    """Exceptions raised by user code match a cluster's entries, but not a framework's."""
    own = Frame("train.py", 1, "main", "raise RuntimeError")
    record = replace(RECORD, frames=(own,), user_files=("train.py",), chain=())
    signature = Signature(message=compiled("out of memory"))
    assert not signature.matches(record)
    assert replace(signature, also_user_code=True).matches(record)


def test_more_parts_weigh_more() -> None:
    """Parts of an unknown frame don't count."""
    signature = Signature(exception="KeyError", file="engine.py", also_user_code=True)
    assert signature.weight(CAUSE) == 2
    assert signature.weight(replace(CAUSE, frame=None)) == 1


def test_patterns_in_one_pass() -> None:
    """All matching patterns are returned, even with half a surrogate pair in the text."""
    patterns = LinearPatterns(["a+b", "z", "é"])
    assert patterns.matching("xaab\udc80é") == ["a+b", "é"]
    with pytest.raises(PatternError, match=r"escape"):
        compiled(r"(a)\1").search("aa")
