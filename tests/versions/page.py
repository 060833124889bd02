"""Writes docs/using/versions.md from the record."""

from __future__ import annotations

from safe_launch.core.private_names import INNER_LOOP, NAMES
from safe_launch.session.head import refusal_of
from support.stacks import ROOT
from versions.checks import CHECKS
from versions.record import Record, read
from versions.table import COMBINATIONS, PACKAGES

NEWEST = "newest"
"""The name of the record of the newest releases, which `scripts/upstream` writes."""
TARGET = ROOT / "docs" / "using" / "versions.md"
HEAD = """\
# Versions

What was run, and compared with torchrun, on two CPU ranks with gloo. Each row is an environment
with the releases that people combined in that month. `scripts/versions` repeats all of it, and
`scripts/versions 2024-06` a row; it writes this page, and what the runs have shown to
`docs/measured/versions.json`.
"""
WHAT = """\
- `example`: that of `scripts/demo`, ZeRO-2 with reentrant checkpointing. It dies under torchrun, is
  corrected, and then has the losses of torchrun with non-reentrant checkpointing. It is launched
  without `--use_cpu`, at which accelerate 0.31 leaves DeepSpeed out under either launcher.
- `loop`: a loop of one's own under DDP. Both ways to start workers have torchrun's losses, and no
  traceback is printed.
- `loop, LoRA`: the same with peft's adapters.
- `killed`: SIGKILL of one rank ends the other. The code is 137, and the rank is named; torchrun's
  code is 1.
- `Ctrl-C`: all ranks end, and no process is left. The code is 130.
- `names`: the private names of these packages that safe-launch uses
  (`launcher/core/private_names.py`) exist.
"""
UPSTREAM = """\
## The newest releases

`scripts/upstream` installs what pip has today, and tries more with it:

- `options`: each option of torchrun, deepspeed and `accelerate launch` is one of safe-launch's, or
  its refusal says what to write in its place
- `sweep`: cells of [the sweep](../measured/sweep.md), drawn by the commit, train as in the newest
  version that was measured
- `scripts`: scripts with the parsers and models of public repositories train as they are, or
  corrected. With a torch that the sweep hasn't measured, memory alone changes nothing before
  something fails, so that the test of what cannot fit fails there

{versions}; run on {date}:

{results}
"""

REFUSED = """\
## What is refused

An old torch, before anything is started, with exit code 64:

```
[safe-launch] error: {problem}
[safe-launch] hint: {hint}
```

No version of DeepSpeed, transformers, accelerate or peft is refused. Older ones than those above
haven't been tried; what is asked for is launched with them. Python has to be 3.11 or newer, or pip
doesn't install safe-launch.

## What a version may lack

These private names of other packages are used. If one is missing, the run continues if possible,
and a line has what doesn't work without it:

```
[safe-launch] {sentence}
```

| package | versions | name | without it |
|---|---|---|---|
"""
"""Its ending is the table's rows."""


def write() -> None:
    """Writes the page."""
    TARGET.write_text(page(list(read().values())), encoding="utf-8")


def page(records: list[Record]) -> str:
    """The page's text."""
    checks = [*CHECKS]
    columns = ["month", "Python", *PACKAGES, *checks]
    lines = [columns, ["---"] * len(columns), *(row(one, checks) for one in records)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    why = {one.name: f". {one.why}" for one in COMBINATIONS if one.why}
    when = "\n".join(
        f"- {one.name}: run on {one.date} with safe-launch {one.commit}, in {one.seconds} s"
        f"{why.get(one.name, '')}"
        for one in records
    )
    missing = [one.name for one in COMBINATIONS if one.name not in {one.name for one in records}]
    when += f"\n\nIn the table, but not run yet: {', '.join(missing)}." if missing else ""
    refusal = refusal_of("2.2.2")
    assert refusal is not None
    refused = REFUSED.format(
        problem=refusal.problem, hint=refusal.hint, sentence=INNER_LOOP.sentence
    )
    names = "\n".join(
        f"| {one.package} | {one.versions or 'all tried'} | `{one.module}.{one.path}` "
        f"| {one.without} |"
        for one in NAMES
    )
    upstream = "".join(of_newest(one) for one in records if one.name == NEWEST)
    return "\n".join((HEAD, table, "", WHAT, when, "", upstream + refused + names)) + "\n"


def of_newest(record: Record) -> str:
    """The section on the newest releases."""
    versions = ", ".join(f"{name} {record.versions[name]}" for name in PACKAGES)
    results = "\n".join(f"- `{name}`: {told}" for name, told in record.results.items())
    return UPSTREAM.format(versions=versions, date=record.date, results=results) + "\n"


def row(record: Record, checks: list[str]) -> list[str]:
    """A combination in the table."""
    versions = [record.versions[name] for name in ("python", *PACKAGES)]
    results = [record.results.get(name, "not run").replace("|", "&#124;") for name in checks]
    return [record.name, *versions, *results]
