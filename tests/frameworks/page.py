"""Writes docs/using/frameworks.md from the cases and from what their last runs have shown.

    python tests/frameworks/page.py write                 the page
    python tests/frameworks/page.py environments [NAME]   what these cases need
    python tests/frameworks/page.py standins [NAME]       those of them that need the NPUs' stand-in
    python tests/frameworks/page.py tests [NAME]          the cases, as pytest is asked for them

A NAME is a case's or the beginning of one: `ms-swift`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
sys.path.remove(str(FOLDER))  # its folders have the frameworks' own names

from frameworks.cases import ROOT, Case  # noqa: E402
from frameworks.record import Record, read  # noqa: E402
from frameworks.registry import CASES  # noqa: E402

TEST = (
    "tests/frameworks/test_framework_cases.py::test_untouched_where_healthy_and_corrected_where_not"
)
TARGET = ROOT / "docs" / "using" / "frameworks.md"
HEAD = """\
# Training frameworks

These frameworks were tried in the versions named, each by the command that its users type: on two
CPU ranks with gloo, with tiny random models. `scripts/frameworks` repeats all of it,
`scripts/frameworks {example}` a part; it makes the environments that it needs in
`.environments/`, and writes this page from what the runs have shown.

Each case is five runs. The healthy command under its own launcher and through safe-launch must have
the same losses, with nothing changed. Then arguments that are known to fail: under its own launcher
the training must fail; through safe-launch it must be corrected, train to its end, and have
the losses of a reference, the same training without that failure, within 1e-4 (relative).

Where the command begins with ASCEND_RT_VISIBLE_DEVICES, the ranks have simulated NPUs in the
host's memory and `hccl` ([what this shows](../design/devices.md)), and the reference is a single
process on the CPU.

Hugging Face's Trainer by itself and loops of one's own on DeepSpeed and DistributedDataParallel are
among the ordinary tests: `tests/scenarios/` by `tests/training/test_corrected_losses.py`, with
DeepSpeed 0.19.8 and transformers 5 as well as DeepSpeed 0.16.9 and transformers 4.57.1, a few of
them with torch 2.6.0 and transformers 4.51.3 too.
"""
TABLE = """\
| framework | case | command | healthy: losses | what fails | corrected | its losses |
|---|---|---|---|---|---|---|
"""


def chosen(names: Sequence[str]) -> list[Case]:
    """The cases that are meant; all where none is named."""
    found = [one for one in CASES if not names or any(one.name.startswith(name) for name in names)]
    if not found:
        known = ", ".join(one.name for one in CASES)
        sys.exit(f"no case {' '.join(names)}; there are: {known}")
    return found


def page() -> str:
    """The page's text."""
    records = {case.name: record for case in CASES if (record := read(case)) is not None}
    parts = [HEAD.format(example=CASES[0].framework.lower()), TABLE.rstrip()]
    parts[-1] += "".join(
        f"\n{row(case, records[case.name])}" for case in CASES if case.name in records
    )
    missing = [case.name for case in CASES if case.name not in records]
    if missing:
        parts.append(f"Not run yet: {', '.join(f'`{one}`' for one in missing)}.")
    parts.append("## Versions\n\n" + "\n".join(versions(records)))
    parts += [path.read_text().rstrip() for path in sorted(FOLDER.glob("*/use.md"))]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def row(case: Case, record: Record) -> str:
    """A case in the table."""
    failure = case.failure
    variables = [f"{name}={value}" for name, value in case.variables.items() if name != "HF_HOME"]
    if case.npus:
        variables.insert(0, f"ASCEND_RT_VISIBLE_DEVICES={','.join(map(str, range(case.npus)))}")
    when = "before the launch" if record.attempts == 1 else "in a second attempt"
    cells = (
        case.framework,
        f"`{case.name}`",
        f"`{shlex.join((*variables, *case.own))}`",
        f"{span(record.healthy)}; {apart(record.healthy, record.through_safe_launch)}",
        f"`{failure.entry}`",
        f"{failure.change}, {when}",
        f"{span(record.corrected)}; {apart(record.reference, record.corrected)}",
    )
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def span(losses: Sequence[float]) -> str:
    """The first loss and the last."""
    return f"{losses[0]:.5g} to {losses[-1]:.5g}"


def apart(expected: Sequence[float], found: Sequence[float]) -> str:
    """How far losses are from those expected, at most."""
    most = max(abs(one - other) / abs(one) for one, other in zip(expected, found, strict=True))
    return "the same" if most == 0 else f"{most:.0e} apart at most"


def versions(records: dict[str, Record]) -> list[str]:
    """What was installed, a line for each framework."""
    lines = dict[str, str]()
    for case in CASES:
        if case.name in records:
            told = ", ".join(f"{name} {one}" for name, one in records[case.name].versions.items())
            seconds = sum(
                records[one.name].seconds
                for one in CASES
                if one.framework == case.framework and one.name in records
            )
            lines[case.framework] = (
                f"- {case.framework}: {told} (`scripts/environment {case.environment}`; "
                f"its cases took {seconds} s)"
            )
    return list(lines.values())


def main() -> None:
    """Does what the first argument says."""
    what, *names = sys.argv[1:]
    if what == "write":
        TARGET.write_text(page(), encoding="utf-8")
    elif what == "environments":
        print(*sorted({case.environment for case in chosen(names)}))
    elif what == "standins":
        print(*sorted({case.environment for case in chosen(names) if case.npus}))
    elif what == "tests":
        print(*(f"{TEST}[{case.name}]" for case in chosen(names)))


if __name__ == "__main__":
    main()
