"""Inputs that aren't logs or never end are reported in bounded time and memory."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest
from safe_launch.core.errors import ExitCode, LaunchError
from safe_launch.logs import sources


def read(path: Path) -> bytes:
    """All of a log."""
    pieces = b""
    with sources.opened(str(path)) as source:
        while piece := source.read(500):
            pieces += piece
    return pieces


def refusal(path: Path | str) -> str:
    """The reason for rejecting a log."""
    with pytest.raises(LaunchError) as told:
        read(Path(path))
    assert told.value.code == ExitCode.USAGE
    return told.value.problem


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/random"])
def test_devices(path: str) -> None:
    """They never end."""
    assert refusal(path) == f"{path}: it can't be read: it is a device, and not a log"


def test_a_pipe_that_somebody_writes_to(tmp_path: Path) -> None:
    """`<(kubectl logs)` is read to its end, however slowly it comes."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            for _ in range(3):
                file.write(b"x" * 100_000)

    writer = threading.Thread(target=write)
    writer.start()
    assert read(pipe) == b"x" * 300_000
    writer.join()


def test_a_pipe_that_nobody_writes_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read doesn't block."""
    monkeypatch.setattr(sources, "SILENCE", 0.05)
    os.mkfifo(tmp_path / "pipe")
    assert "nobody has written to this pipe for 0.05 s" in refusal(tmp_path / "pipe")


def test_a_pipe_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading stops after a maximum number of bytes."""
    monkeypatch.setattr(sources, "PIPED", 1000)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    os.write(end, b"x" * 2000)
    assert "come from it: write them to a file" in refusal(pipe)
    os.close(end)


def test_what_unpacks_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A highly compressed log is read, beyond the bound if the file itself is large."""
    monkeypatch.setattr(sources, "UNPACKED", 10_000)
    log, bomb = tmp_path / "log.gz", tmp_path / "bomb.gz"
    log.write_bytes(gzip.compress(os.urandom(10_000).hex().encode()))
    bomb.write_bytes(gzip.compress(b"x" * 10_000_000))
    assert len(read(log)) == 20_000
    assert "100 times its size: unpack it" in refusal(bomb)


@pytest.mark.parametrize(
    ("cut", "rest", "said"), [(-2000, b"", "cut off"), (-8, bytes(8), "damaged")]
)
def test_a_packed_log_that_ends_badly(
    cut: int, rest: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The readable part is read, and the error is reported once."""
    whole = b"".join(b"step %d\n" % number for number in range(9999))
    log = tmp_path / "log.gz"
    log.write_bytes(gzip.compress(whole)[:cut] + rest)
    with sources.opened(str(log)) as source:
        found = b"".join(iter(lambda: source.read(1000), b""))
    assert whole.startswith(found[:9000])
    assert len(found) > 9000
    assert capsys.readouterr().err.count(f"is {said}: it is read up to there") == 1


def test_the_end_of_a_long_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole lines, and only for plain text files that are slow to read."""
    monkeypatch.setattr(sources, "LONG", 100)
    monkeypatch.setattr(sources, "END", 20)
    log = tmp_path / "a.log"
    log.write_text("x" * 120 + "\nfirst\nlast\n")
    assert sources.end_of(str(log)) == b"first\nlast\n"
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(log.read_bytes())
    recoded = tmp_path / "wide.log"
    recoded.write_text(log.read_text(), encoding="utf-16")
    short = tmp_path / "short.log"
    short.write_text("last\n")
    for path in (packed, recoded, short, tmp_path / "missing", tmp_path, sources.STDIN):
        assert sources.end_of(str(path)) == b""
