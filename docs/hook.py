"""What the site has beside docs/: a page for each known failure, and the files that pages link to.

Pages link to each other and to files of the repository as they lie there, so that they can be read
in the repository as well. Here such a link is turned to where its target is in the site.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from mkdocs.structure.files import File, Files
from safe_launch.catalogue.regex import plain

ROOT = Path(__file__).resolve().parent.parent
FAILURES = "presets/failures/"
TOPICS = "presets/topics/"
PROJECT = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Adds the known failures, the project's own pages, and every file that a page links to."""
    entries = sorted((ROOT / FAILURES).glob("*.md"))
    for path in entries:
        files.append(File.generated(config, f"failures/{path.name}", content=failure_page(path)))
    for path in sorted((ROOT / TOPICS).glob("*.md")):
        files.append(File.generated(config, f"topics/{path.name}", abs_src_path=str(path)))
    for name in PROJECT:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    sources = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    for target in repository_files((*sources, *PROJECT)):
        file = File.generated(config, site_path(target), abs_src_path=str(ROOT / target))
        files.append(file)
    return files


def repository_files(pages: Iterable[str]) -> list[str]:
    """The files outside of the site's sources that pages link to, or a page among those files."""
    found: set[str] = set()
    left = list(pages)
    while left:
        for target in targets_of(left.pop()):
            is_outside = site_path(target).startswith("repository/") and (ROOT / target).is_file()
            if is_outside and target not in found:
                found.add(target)
                left += [target] * target.endswith(".md")
    return sorted(found)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links, which are as the repository has the files, to where the site has them."""
    source = repository_path(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def turned(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        return posixpath.relpath(site_path(target), here or ".")

    parts = CODE.split(markdown)
    # In a table's code GitHub wants \| for a bar, and Python's Markdown shows the backslash.
    parts[1::2] = [text if text[:3] == "```" else text.replace(r"\|", "|") for text in parts[1::2]]
    parts[::2] = [LINK.sub(turned, text) for text in parts[::2]]
    return "".join(parts)


def site_path(path: str) -> str:
    """Where a file of the repository is among the site's sources."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith(FAILURES):
        return f"failures/{path.removeprefix(FAILURES)}"
    if path.startswith(TOPICS):
        return f"topics/{path.removeprefix(TOPICS)}"
    return path if path in PROJECT else f"repository/{path}"


def repository_path(source: str) -> str:
    """The other way round."""
    for folder, origin in (("failures/", FAILURES), ("topics/", TOPICS), ("repository/", "")):
        if source.startswith(folder):
            return origin + source.removeprefix(folder)
    return source if source in PROJECT else f"docs/{source}"


@cache
def targets_of(source: str) -> frozenset[str]:
    """The repository's files that a page links to."""
    text = CODE.sub("", (ROOT / source).read_text(encoding="utf-8"))
    return frozenset(
        posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        for link in LINK.findall(text)
    )


def failure_page(path: Path) -> str:
    """An entry of the catalogue as a page: its title, its messages, its prose, how it is known."""
    _, front, prose = path.read_text(encoding="utf-8").split("---\n", 2)
    entry = yaml.safe_load(front)
    messages = [
        text
        for signature in entry.get("signatures", ())
        for key in ("message", "source", "log")
        if key in signature
        for text in plain(signature[key])
    ]
    versions = "; ".join(f"{name} {allowed}" for name, allowed in entry.get("when", {}).items())
    about = f"`{entry['id']}`, class {entry['class']}, {entry['role']}"
    parts = [f"# {entry['title']}", about + (f"; {versions}" if versions else ""), prose.strip()]
    if messages:
        parts.insert(2, "\n".join(["```", *messages, "```"]))
    for heading, key in (("How it is known", "proof"), ("Sources", "sources")):
        if entry.get(key):
            lines = [f"- <{text}>" if "://" in text else f"- {text}" for text in entry[key]]
            parts.append("\n".join([f"## {heading}", "", *lines]))
    return "\n\n".join(parts) + "\n"
