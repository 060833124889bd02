"""Every command on one table of odd inputs: no internal error, no traceback, no hang."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.odd_inputs import (
    FILES,
    NUMBERS,
    PLACES,
    WORDS,
    Place,
    command_lines,
    numbered,
    prepared,
    run,
    written,
)

WAITS = ("a pipe",)
"""A log may be a pipe whose writer takes half a minute."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with valid files."""
    made = tmp_path_factory.mktemp("odd")
    prepared(made)
    return made


def holds(folder: Path, *words: str, encoding: str = "utf-8", **variables: str) -> None:
    """Runs a command, which may refuse its input but not fail."""
    ended = run(folder, *words, encoding=encoding, **variables)
    assert ended.code != 70, (words, ended.said)
    assert "safe-launch itself failed" not in ended.said


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place.path}: {place.commands[0][0]}")
def test_odd_files(tmp_path: Path, place: Place) -> None:
    """Each file argument may have any type and content."""
    prepared(tmp_path)
    file = tmp_path / place.path
    file.parent.mkdir(parents=True, exist_ok=True)
    makers = dict(FILES)
    if place.document is not None:
        for name, number in NUMBERS.items():
            text = written(numbered(place.document, number))
            makers[name] = lambda path, text=text: path.write_text(text)
    for kind, make in makers.items():
        if kind in WAITS and file.name in ("log", "log.gz"):
            continue
        if file.is_dir() and not file.is_symlink():
            file.rmdir()
        file.unlink(missing_ok=True)
        make(file)
        for words in place.commands:
            ended = run(tmp_path, *words, **place.variables)
            assert ended.code != 70, (kind, words, ended.said)


@pytest.mark.parametrize("word", WORDS, ids=lambda word: ascii(word)[:20])
def test_odd_words(folder: Path, word: str) -> None:
    """Any word in any position and option, on any terminal."""
    for words in command_lines(word):
        holds(folder, *words)
        if not word.isascii():
            holds(folder, *words, encoding="ascii")


@settings(max_examples=100)
@given(word=st.text(st.characters(exclude_characters="\0/"), max_size=40), place=st.integers(0))
def test_any_words(folder: Path, word: str, place: int) -> None:
    """The same for random words."""
    lines = command_lines(word)
    holds(folder, *lines[place % len(lines)], encoding="ascii")
