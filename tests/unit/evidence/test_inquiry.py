"""The names by which a worker is asked where it stands."""

from __future__ import annotations

from safe_launch.evidence import inquiry


def test_names_of_memory() -> None:
    """As /proc shows them; no other memory is taken for it."""
    assert inquiry.thread_of(f"/memfd:{inquiry.stack_of(412)} (deleted)") == 412
    assert inquiry.thread_of("/memfd:safe-launch-board (deleted)") is None
    assert inquiry.thread_of("/job/safe-launch-stack-412") is None
