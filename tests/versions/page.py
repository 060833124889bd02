"""Writes docs/using/versions.md from the record."""

from __future__ import annotations

from support.stacks import ROOT

from versions.record import Record, read
from versions.table import PACKAGES

TARGET = ROOT / "docs" / "using" / "versions.md"
HEAD = """\
# Versions

What was really run, beside torchrun, on two CPU ranks with gloo; `scripts/versions` repeats all of it,
`scripts/versions 2024-06` a row, and writes this page. Each row is an environment of its own, with what
people combined in that month.
"""
CHECKS = """\
- `example`: `scripts/demo`'s, ZeRO-2 with reentrant checkpointing, dies under torchrun, is corrected,
  and then has the losses of torchrun with the other kind of checkpointing;
- `Trainer, LoRA`: the same of adapters under DDP;
- `loop`, `loop, LoRA`: a loop of one's own under DDP, with peft's adapters too: torchrun's losses with
  both ways to start workers, and no traceback;
- `killed`: SIGKILL of one rank ends the other, the code is 137 and the rank is named; torchrun's is 1;
- `Ctrl-C`: all ranks end, the code is 130, no process is left.
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
