"""The commands that search or list the catalogue."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from safe_launch.catalogue.entry import Kind
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.catalogue.search import CLASSES, listing, search, topics
from safe_launch.cli import guarded
from safe_launch.core.errors import ExitCode
from support.stacks import CURRENT

CATALOGUE = read_catalogue()


Done = subprocess.CompletedProcess[str]


@pytest.fixture
def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Done]:
    """Runs `safe-launch` in this process, in the test's folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: Done(arguments, guarded(arguments), *capsys.readouterr())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Expected to mark a variable ready only once.", "ddp-parameter-ready-twice"),
        ("RuntimeError: Expected to mark a variable ready only once.", "ddp-parameter-ready-twice"),
        (
            "some line before\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "accelerator-out-of-memory",
        ),
        (
            (
                "[rank1]: AssertionError: The parameter 3 has already been reduced. "
                "Gradient computed twice for this partition. Multiple gradient reduction"
            ),
            "zero2-gradient-reduced-twice",
        ),
    ],
)
def test_a_message_finds_its_entry(text: str, expected: str) -> None:
    """A log's message is found with or without the exception's type."""
    hits = search(text, CATALOGUE)
    assert [one.entry.id for one in hits] == expected.split()
    assert hits[0].is_shown


def test_the_type_of_another_exception_is_none_of_it() -> None:
    """If the text names a type, the signature must have the same."""
    hits = search("KeyError: Expected to mark a variable ready only once.", CATALOGUE)
    assert not any(one.is_shown for one in hits)


def test_words_find_what_shares_the_most_of_them() -> None:
    """Without a signature, entries are ranked by shared words; stop words match none."""
    hits = search("zero3 dummy loss", CATALOGUE)
    assert hits[0].entry.id == "zero3-parameter-outside-forward"
    assert not hits[0].is_shown
    assert [one.shared for one in hits] == sorted((one.shared for one in hits), reverse=True)
    assert search("why is it the", CATALOGUE) == ()
    assert search("zxqv", CATALOGUE) == ()


def test_the_listing_has_every_entry_under_its_class() -> None:
    """Each class has a title, and each entry is listed once."""
    assert set(CLASSES) == set(Kind)
    lines = listing(CATALOGUE).splitlines()
    assert sorted(line.split()[0] for line in lines if line.startswith("  ")) == sorted(
        one.id for one in CATALOGUE
    )


def test_catalogue_and_explain_on_the_command_line(run: Callable[..., Done]) -> None:
    """Found, listed, as JSON, several at once, and a misspelt name."""
    words = ("catalogue", "Expected", "to mark a variable ready only once")
    found = subprocess.check_output([CURRENT.bin / "safe-launch", *words], text=True)
    assert found == run(*words).stdout
    assert found.split()[:2] == ["ddp-parameter-ready-twice", "preset"]
    listed = run("catalogue").stdout
    assert listed == run("explain").stdout
    (told,) = json.loads(run("catalogue", "--json", "CUDA out of memory").stdout)
    assert (told["id"], told["matched"]) == ("accelerator-out-of-memory", "signature")
    assert len(json.loads(run("catalogue", "--json").stdout)) == len(CATALOGUE)
    two = run("explain", "gloo-peer-lost", "numactl-missing").stdout
    assert two.startswith("gloo-peer-lost\n")
    assert "\nnumactl-missing\n===" in two
    (told,) = json.loads(run("explain", "--json", "numactl-missing").stdout)
    assert (told["id"], "numactl" in told["text"]) == ("numactl-missing", True)
    assert len(json.loads(run("explain", "--json").stdout)) == len(CATALOGUE)
    wrong = run("explain", "gloo-peer-lost", "numactl-mising")
    assert (wrong.returncode, wrong.stdout) == (ExitCode.USAGE, "")
    assert "did you mean `numactl-missing`?" in wrong.stderr


def test_a_page_leads_to_known_failures(run: Callable[..., Done]) -> None:
    """`explain` knows every name on it, and a terminal shows no links."""
    text = run("explain", "wrong-loss").stdout
    assert text.startswith("# It trains, and the loss is wrong\n")
    assert "](" not in text
    for path in topics().values():
        linked = re.findall(r"\[([^\]]+)\]\(\.\./failures/(.+?)\.md\)", path.read_text())
        assert [name for name, target in linked if name != target] == []
        assert {name for name, _ in linked} <= {one.id for one in CATALOGUE}


def test_a_page_for_programs(run: Callable[..., Done]) -> None:
    """Sections have their known failures; entries come in the requested order."""
    words = ("explain", "--json", "numactl-missing", "wrong-loss")
    entry, page = json.loads(run(*words).stdout)
    assert (entry["id"], page["id"]) == ("numactl-missing", "wrong-loss")
    text = run("explain", "wrong-loss").stdout
    assert page["text"] == text.rstrip("\n")
    assert page["title"] == text.splitlines()[0].removeprefix("# ")
    assert page["summary"].startswith("Nothing is raised")
    titles = [section["title"] for section in page["sections"]]
    assert titles == re.findall("^## (.+)$", text, re.MULTILINE)
    assert all(section["text"] and section["text"] in text for section in page["sections"])
    named = {name: section["title"] for section in page["sections"] for name in section["entries"]}
    assert named["zero-offload-drops-micro-batches"] == "It differs with the accumulation"
    assert named.keys() <= {one.id for one in CATALOGUE}


def test_a_clusters_own_entries_are_searched_too(tmp_path: Path, run: Callable[..., Done]) -> None:
    """`--catalogue FOLDER` works as at a launch; a missing folder is an error."""
    entry = (
        "---\nid: own\ntitle: ours\nrole: initiating\nclass: hardware\n"
        "signatures:\n  - {log: 'fabric manager sulks'}\n---\n"
        "## What happens\n\nIt sulks.\n\n## What to do\n\nWait.\n"
    )
    (tmp_path / "own.md").write_text(entry)
    found = run("catalogue", "--catalogue=.", "the fabric manager sulks again")
    assert found.stdout == "own  hardware  ours\n"
    assert run("explain", "--catalogue=.", "own").stdout.startswith("own\n===\nours")
    absent = run("catalogue", "--catalogue=nowhere", "x")
    assert (absent.returncode, absent.stdout) == (ExitCode.USAGE, "")
