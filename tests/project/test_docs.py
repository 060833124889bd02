"""The documentation builds without warnings, and everything that pages name exists."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.catalogue.regex import plain
from support.stacks import CURRENT, ROOT
from support.tables import table
from versions import page as versions_page
from versions.record import read

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
ELSEWHERE = re.compile(r'<(?:link|script|img)[^>]+(?:href|src)="(https?:[^"]+)"')
NAMED = re.compile(r"(?<![\w/])docs/(?:\w+/)?[a-z-]+\.(?:md|svg)")
LINK = re.compile(r"\]\((?![a-z]+:)([^)\s]+)\)")
FOLDERS = ("benchmarks", "docs", "examples", "hardware", "launcher", "presets", "scripts", "tests")
REPOSITORY = tuple(f"{folder}/" for folder in FOLDERS)
"""Folders of the repository: a path in backquotes that begins so must exist."""


def anchors_of(page: Path) -> set[str]:
    """A page's headings as link anchors."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    words = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().strip().replace(" ", "-") for heading in words}


def paths_in(text: str) -> Iterator[str]:
    """Repository paths in backquotes, alone or in a command."""
    for code in CODE.findall(FENCED.sub("", text)):
        for word in re.split(r"[\s`,;()]+", code):
            if word.startswith(REPOSITORY) and not re.search(r"[<>*{}]|\.\.\.", word):
                yield word.partition(":")[0].rstrip(".")


@table("page", PAGES, name=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page: Path) -> None:
    """Links to files and headings, and paths in backquotes."""
    text = page.read_text(encoding="utf-8")
    for link in LINK.findall(CODE.sub("", FENCED.sub("", text))):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link
    for path in set(paths_in(text)):
        assert (ROOT / path).exists(), path


def test_pages_that_the_code_names_are_there() -> None:
    """Pages in comments, docstrings and cluster files."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path == ROOT / "tests" / "commands" / "lines.yaml":
                continue  # names other projects' pages
            if path.suffix in (".py", ".yaml", ".sbatch") and "logs" not in path.parts:
                for name in NAMED.findall(path.read_text(encoding="utf-8")):
                    assert (ROOT / name).exists(), f"{path}: {name}"


def test_the_page_of_versions_is_what_the_runs_have_shown() -> None:
    """`scripts/versions --page` writes it from the record, the names and the refusals."""
    text = versions_page.TARGET.read_text(encoding="utf-8")
    assert text == versions_page.page([*read().values()]), "run scripts/versions --page"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a dead link or anchor fails.

    Not with --quiet, which hides warnings and then doesn't count them.
    """
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [CURRENT.bin / "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_is_read_without_a_network(site: Path) -> None:
    """No page loads a font, a script or an image from elsewhere."""
    for page in [*site.glob("*.html"), *site.glob("using/*.html")]:
        assert ELSEWHERE.findall(page.read_text(encoding="utf-8")) == [], page


def test_the_search_finds_a_failure_by_its_message(site: Path) -> None:
    """Every entry has a page, and the search index has all of its messages."""
    index = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    texts: dict[str, str] = {}
    for section in index:
        page = section["location"].partition("#")[0]
        texts[page] = f"{texts.get(page, '')} {section['text']}"
    for path in sorted((ROOT / "presets" / "failures").glob("*.md")):
        entry = yaml.safe_load(path.read_text(encoding="utf-8").split("---\n")[1])
        text = " ".join(re.sub(r"<[^>]+>", " ", texts[f"failures/{path.stem}.html"]).split())
        for signature in entry.get("signatures", ()):
            for message in plain(signature["message"]) if "message" in signature else ():
                assert re.sub(r"<[^>]+>", " ", escaped(message)) in text, path.stem


def escaped(text: str) -> str:
    """The text as in the index: HTML escaped, white space collapsed."""
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, name)
    return " ".join(text.split())


def test_the_repository_has_one_place() -> None:
    """The README clones the URL in the package's metadata."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert f"git clone {urls['Repository']} " in (ROOT / "README.md").read_text()
    assert all(url.startswith(urls["Repository"]) for url in urls.values())


def test_the_readmes_excerpt_is_known() -> None:
    """Its excerpt of an entry matches the entry."""
    shown = (ROOT / "README.md").read_text()
    (entry,) = (one for one in read_catalogue() if one.id == "zero2-gradient-reduced-twice")
    told = " ".join(shown.replace("[safe-launch]", "").split())
    assert f"{entry.title} [{entry.id}]" in told
