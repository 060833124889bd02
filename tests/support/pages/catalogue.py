"""The page of all known failures: coverage, an index by message, and a row for each entry."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from safe_launch.catalogue.entry import PROOFS, KnownFailure
from safe_launch.catalogue.regex import plain
from safe_launch.catalogue.search import CLASSES
from safe_launch.catalogue.signature import Signature

Version = tuple[int, ...]
VERSIONS = re.compile(
    r"\b(torch|torch_npu|deepspeed|transformers|accelerate|peft|trl|bitsandbytes|flash-attn|numpy)"
    r" (\d[\d.]*(?:(?:, | and )\d[\d.]*)*)"
)
"""A framework and its versions as a proof names them."""
HEAD = """\
# Known failures

Made from `presets/failures/` by `scripts/catalogue-docs`; a test checks that it is up to date.
`safe-launch catalogue WORDS` searches the same from the command line, `safe-launch explain ID`
prints an entry in full. How to add one:
[CONTRIBUTING.md](../../CONTRIBUTING.md#to-add-a-known-failure).
"""
FAILURES = "../../presets/failures"
NOTE = """\
An entry counts by the strongest of its proofs. *Reproduced*: somebody has provoked it with the real
frameworks; where there is a script, the tests do so again. *Read in source*: the raising line was
read in the versions that are named. *Reported*: users' logs show it.
"""


SILENT_HEAD = """\
# What trains wrongly without an error

Faults in releases of what trainings are made of: nothing is raised, and another loss is trained.
What to try if a loss is wrong: [the page on that](../../presets/topics/wrong-loss.md).
`scripts/catalogue-docs` makes this page of `docs/measured/silent.yaml`; a test holds that against
the catalogue.

*Reproduced*: it was run with the releases that are named, on CPUs, and compared. *Read in source*:
the lines were read on both sides of the change. *Raises*: it isn't silent. *Not told*: a launch
says nothing of it, and why. "Mended in" is the first release with the change.
"""
REPOSITORIES = {
    "DeepSpeed": "deepspeedai/DeepSpeed",
    "transformers": "huggingface/transformers",
    "trl": "huggingface/trl",
    "accelerate": "huggingface/accelerate",
    "peft": "huggingface/peft",
    "torch": "pytorch/pytorch",
}


def silent_page(groups: Sequence[Mapping[str, Any]]) -> str:
    """The page of what trains wrongly without an error, in Markdown.

    Args:
        groups: those of docs/measured/silent.yaml, a project each.
    """
    parts = [SILENT_HEAD]
    for group in groups:
        parts.append(f"## {group['in']}\n")
        address = f"https://github.com/{REPOSITORIES[group['in']]}/pull"
        rows = [
            [
                ", ".join(f"[{number}]({address}/{number})" for number in row["changes"]),
                row["mended"],
                row["happens"],
                "<br>".join(f"[{name}]({FAILURES}/{name}.md)" for name in row["entries"]),
                row["known"],
            ]
            for row in group["rows"]
        ]
        parts.append(_table(["change", "mended in", "what happens", "entry", "known"], rows))
    return "\n".join(parts)


def page(entries: Sequence[KnownFailure], scripts: Collection[str]) -> str:
    """The page in Markdown.

    Args:
        entries: the catalogue.
        scripts: ids of the entries that a script in tests/reproductions provokes.
    """
    parts = (
        HEAD,
        "## Coverage\n",
        NOTE,
        _coverage(entries, scripts),
        "## By framework\n",
        _frameworks(entries),
        _reproduced_with(entries),
        "## By message\n",
        "N stands for a number, … for anything, parentheses for what may be absent or a choice.\n",
        _messages(entries),
        "## Entries\n",
        _rows(entries, scripts),
    )
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, cells))} |\n" for cells in lines)


def _counts(entries: Sequence[KnownFailure]) -> list[int]:
    """The number of entries, in all and by proof."""
    proofs = [entry.confidence for entry in entries]
    return [len(entries), *(proofs.count(proof) for proof in PROOFS)]


def _coverage(entries: Sequence[KnownFailure], scripts: Collection[str]) -> str:
    """Entries by class and proof."""
    groups = [(kind.value, [entry for entry in entries if entry.kind is kind]) for kind in CLASSES]
    rows = [
        [f"{name}: {text}", *_counts(group), sum(entry.id in scripts for entry in group)]
        for (name, group), text in zip(groups, CLASSES.values(), strict=True)
        if group
    ]
    rows.append(["all", *_counts(entries), sum(entry.id in scripts for entry in entries)])
    return _table(["class", "entries", *PROOFS, "with a script"], rows)


def _frameworks(entries: Sequence[KnownFailure]) -> str:
    """Entries by the affected distribution and versions."""
    names = sorted({name for entry in entries for name in entry.when})
    rows: list[list[object]] = []
    for name in names:
        group = [entry for entry in entries if name in entry.when]
        ranges = sorted({entry.when[name] for entry in group})
        rows.append([name, *_counts(group), ", ".join(f"`{allowed}`" for allowed in ranges)])
    rows.append(["any", *_counts([entry for entry in entries if not entry.when]), "all"])
    return _table(["about", "entries", *PROOFS, "versions"], rows)


def _reproduced_with(entries: Sequence[KnownFailure]) -> str:
    """Entries by the versions that their proofs say they were reproduced with."""
    found: dict[tuple[str, Version], set[str]] = {}
    for entry in entries:
        for proof in entry.proof:
            if proof.startswith(PROOFS[0]):
                for name, versions in VERSIONS.findall(proof):
                    for text in re.findall(r"\d[\d.]*\d|\d", versions):
                        version = tuple(map(int, text.split(".")))
                        found.setdefault((name, version), set()).add(entry.id)
    rows = [
        [f"{name} {'.'.join(map(str, version))}", len(ids)]
        for (name, version), ids in sorted(found.items())
    ]
    return _table(["reproduced with", "entries"], rows)


def messages_of(signature: Signature) -> Iterator[tuple[str, str]]:
    """The messages that a signature matches, in plain words, and where they occur."""
    kind = signature.exception or ("exception" if signature.is_of_exception else "log")
    pattern = signature.message or signature.source or signature.log
    texts = () if pattern is None else plain(pattern.pattern)
    if texts:
        if signature.message is None and signature.source is not None:
            kind = f"{kind} raised at"
        yield from ((text, kind) for text in texts)
    elif signature.is_of_exception:
        file = "" if signature.file is None else f" in {signature.file}"
        yield f"no message{file}", kind


def _messages(entries: Sequence[KnownFailure]) -> str:
    """Every message with the entry that explains it, in alphabetical order."""
    found = {
        (text, kind, entry.id): entry
        for entry in entries
        for signature in entry.signatures
        for text, kind in messages_of(signature)
    }
    keys = sorted(found, key=lambda key: (key[0].lstrip("'\"`<>[(/…: ").lower(), key))
    rows = [[_code(text), kind, _link(found[text, kind, name])] for text, kind, name in keys]
    return _table(["message", "type", "entry"], rows)


def _rows(entries: Sequence[KnownFailure], scripts: Collection[str]) -> str:
    """A row for each entry."""
    rows = []
    for entry in entries:
        proofs = "; ".join(map(_escaped, entry.proof))
        if entry.id in scripts:
            proofs += f" ([script](../../tests/reproductions/{entry.id}.py))"
        kind = f"{entry.kind.value}, {entry.role.value}"
        versions = ", ".join(f"{name} `{allowed}`" for name, allowed in entry.when.items())
        rows.append([_link(entry), _escaped(entry.title), kind, versions or "all", proofs])
    return _table(["entry", "what it is", "class, role", "versions", "how it is known"], rows)


def _link(entry: KnownFailure) -> str:
    return f"[{entry.id}](../../presets/failures/{entry.id}.md)"


def _escaped(text: str) -> str:
    """Text escaped for a table."""
    for sign in "\\|*_<[":
        text = text.replace(sign, f"\\{sign}")
    return text


def _code(text: str) -> str:
    """Text as code, escaped for a table."""
    fence = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|")
