"""`safe-launch diagnose --contribute`: what others may see of a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.cli import run
from safe_launch.commands.contribute import contribution
from safe_launch.commands.diagnose import read
from safe_launch.core.errors import LaunchError
from safe_launch.logs.verdict import decisive
from support.stacks import TESTS

LOG = """\
[rank0]: starting for alice@acme-research.com
[rank0]: Traceback (most recent call last):
[rank0]:   File "/home/alice/merger/train.py", line 40, in main
[rank0]:     model = load("/data/acme/merger/weights.pt")
[rank0]:   File "/home/alice/env/lib/python3.11/site-packages/frobnicator/cache.py", line 8, in load
[rank0]:     raise FrobnicationError(path, count)
[rank0]: frobnicator.errors.FrobnicationError: can't load /data/acme/merger/weights.pt: 31 of 32
"""
NAME = "frobnication-error-load"
CATALOGUE = read_catalogue()


def diagnosed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, output and messages of `diagnose`."""
    code = run(["diagnose", *map(str, arguments)])
    said = capsys.readouterr()
    return int(code), said.out, " ".join(said.err.replace("[safe-launch]", "").split())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of an unknown failure."""
    path = tmp_path / "own.log"
    path.write_text(LOG)
    return path


def test_an_unknown_failure(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Excerpt and entry are shown and written; with the entry both logs are known."""
    folder = tmp_path / "given"
    code, shown, told = diagnosed(capsys, log, "--contribute", folder)
    assert code == 2
    assert sorted(path.name for path in folder.iterdir()) == [f"{NAME}.log", f"{NAME}.md"]
    for path in folder.iterdir():
        text = path.read_text()
        assert text.strip() in shown
        assert "alice" not in text
        assert "acme" not in text
        assert "merger" not in text
    assert "the excerpt is diagnosed like the whole log" in told
    (entry,) = read_catalogue(folder)
    assert entry.id == NAME
    for path in (log, folder / f"{NAME}.log"):
        known = decisive(read([str(path)], (*CATALOGUE, entry)))
        assert known.root is not None
        assert known.root.finding.name == NAME


def test_nothing_is_overwritten(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second time the names have a number, and the entry's id as well."""
    folder = tmp_path / "given"
    for _ in range(2):
        diagnosed(capsys, log, "--contribute", folder)
    assert {path.stem for path in folder.iterdir()} == {NAME, f"{NAME}-2"}
    assert {entry.id for entry in read_catalogue(folder)} == {NAME, f"{NAME}-2"}


def test_without_a_folder_nothing_is_written(
    log: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of it is shown, and how it would be written."""
    monkeypatch.chdir(tmp_path)
    _, shown, told = diagnosed(capsys, log, "--contribute")
    assert f"{NAME}.md:" in shown
    assert "nothing is written: --contribute FOLDER writes it there" in told
    assert list(tmp_path.iterdir()) == [log]


def test_a_known_failure_gives_an_excerpt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For the corpus; there is an entry already."""
    known = TESTS / "logs" / "real-deepspeed-batch-sizes-disagree-deepspeed-deepspeed-0.19.8.log"
    code, _, told = diagnosed(capsys, known, "--contribute", tmp_path)
    assert code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["deepspeed-batch-sizes-disagree.log"]
    assert "no entry is proposed: the failure is known" in told
    assert diagnosed(capsys, *tmp_path.iterdir())[0] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [((), "the log shows no failure"), (("--json",), "can't go together")],
)
def test_what_is_refused(options: tuple[str, ...], words: str) -> None:
    """A healthy log, and two forms of output at once."""
    with pytest.raises(LaunchError, match=words):
        run(["diagnose", *options, str(TESTS / "logs" / "real-well-torchrun.log"), "--contribute"])


@pytest.mark.parametrize("name", ["unknown-*.log", "real-own-*.log"])
def test_unknown_failures_of_the_corpus(name: str) -> None:
    """Each excerpt says what its log says, and each entry is valid and knows its excerpt."""
    paths = sorted((TESTS / "logs").glob(name))
    assert len(paths) > 2
    for path in paths:
        found = decisive(read([str(path)], CATALOGUE))
        made = contribution(found, CATALOGUE, None)
        assert (path.name, made.is_same) == (path.name, True)
