"""Writes docs/using/versions.md from the record."""

from __future__ import annotations

from support.stacks import ROOT
from versions.record import Record, read
from versions.table import PACKAGES

TARGET = ROOT / "docs" / "using" / "versions.md"
HEAD = """\
# Versions

What was really run, beside torchrun, on two CPU ranks with gloo. Each row is an environment of its
own, with what people combined in that month. `scripts/versions` repeats all of it, and
`scripts/versions 2024-06` a row; it writes this page, and what the runs have shown to
`docs/measured/versions.json`.
"""
CHECKS = """\
- `example`: that of `scripts/demo`, ZeRO-2 with reentrant checkpointing. It dies under torchrun, is
  corrected, and then has the losses of torchrun with non-reentrant checkpointing.
- `loop`: a loop of one's own under DDP. Both ways to start workers have torchrun's losses, and no
  traceback is printed.
- `loop, LoRA`: the same with peft's adapters.
- `killed`: SIGKILL of one rank ends the other. The code is 137, and the rank is named; torchrun's
  code is 1.
- `Ctrl-C`: all ranks end, and no process is left. The code is 130.
- `names`: what safe-launch uses inside these packages though nobody promises it
  (`launcher/core/private_names.py`) is there.
"""


def write() -> None:
    """Writes the page."""
    TARGET.write_text(page(list(read().values())), encoding="utf-8")


def page(records: list[Record]) -> str:
    """The page's text."""
    checks = list(records[-1].results)
    columns = ["", "Python", *PACKAGES, *checks]
    lines = [columns, ["---"] * len(columns), *(row(one, checks) for one in records)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    when = "\n".join(
        f"- {one.name}: run on {one.date} with safe-launch {one.commit}, in {one.seconds} s"
        for one in records
    )
    return "\n".join((HEAD, table, "", CHECKS, when)) + "\n"


def row(record: Record, checks: list[str]) -> list[str]:
    """A combination in the table."""
    versions = [record.versions[name] for name in ("python", *PACKAGES)]
    results = [record.results.get(name, "not run").replace("|", "&#124;") for name in checks]
    return [record.name, *versions, *results]
