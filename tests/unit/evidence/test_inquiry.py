"""The memory names that a worker is asked by."""

from __future__ import annotations

from safe_launch.evidence import inquiry


def test_names_of_memory() -> None:
    """The names are those in /proc; no other memory has them."""
    assert inquiry.thread_of(f"/memfd:{inquiry.stack_of(412)} (deleted)") == 412
    assert inquiry.thread_of("/memfd:safe-launch-board (deleted)") is None
    assert inquiry.thread_of("/job/safe-launch-stack-412") is None
