"""How a change of the catalogue changes plans: a matrix of nodes, workloads and versions.

    scripts/plan-diff [GIT-REF] [--catalogue FOLDER] [--workload NAME]

plans each case of tests/fixtures/plans/matrix.yaml under the catalogue of GIT-REF (HEAD) and under
the working tree's (or another FOLDER), and prints those that are planned otherwise, if any; with
--workload those of one job alone.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from safe_launch.catalogue.entry import KnownFailure, known_constraints
from safe_launch.catalogue.reader import concerns, read_catalogue
from safe_launch.core.choices import Framework
from safe_launch.core.errors import LaunchError
from safe_launch.core.hardware import Accelerator, Hardware
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import name_of, parse_value
from safe_launch.core.workload import Known, Origin, Workload
from safe_launch.machine.named_hardware import hardware_of
from safe_launch.machine.profiles import nodes
from safe_launch.planning.plan import NoPlan, Plan
from safe_launch.planning.search import resolve

from .models import model_of

ROOT = Path(__file__).resolve().parents[2]
MATRIX = ROOT / "tests" / "fixtures" / "plans" / "matrix.yaml"
ENTRIES = "presets/failures"
NOWHERE = Hardware(
    Accelerator("cpu", "cpu", 0, 0, frozenset(), 1e11, 1e10, 1e10, 1e9, 1e10), 0, 1, 0
)


@dataclass(frozen=True)
class Case:
    """One job on one node with one stack of versions."""

    workload: str
    stack: str
    node: str


@dataclass(frozen=True)
class Difference:
    """A case that is planned otherwise."""

    case: Case
    before: str
    after: str


def workloads(matrix: Mapping[str, Any]) -> Iterator[tuple[str, str, Workload]]:
    """Every workload of the matrix with every stack, by their names."""
    [(model_name, config)] = matrix["models"].items()
    model = replace(model_of(config), source=model_name)
    for name, own in matrix["workloads"].items():
        values = {name_of(key): value for key, value in {**matrix["defaults"], **own}.items()}
        known = {
            key: Known(parse_value(key, value), Origin.CONFIG, f"the matrix: {key.value}")
            for key, value in values.items()
        }
        for stack, versions in matrix["stacks"].items():
            yield (
                name,
                stack,
                Workload(
                    Framework.TRANSFORMERS,
                    MappingProxyType(known),
                    MappingProxyType({one: str(version) for one, version in versions.items()}),
                    model=model,
                ),
            )


def told(plan: Plan | NoPlan) -> str:
    """A plan in a line: what is chosen, and which known failures made it so."""
    if isinstance(plan, NoPlan):
        return "no plan"
    causes = dict.fromkeys(change.constraint.cause.name for change in plan.changes)
    because = f" (changed by {', '.join(one for one in causes if one)})" if any(causes) else ""
    return f"{plan.preset}{because}"


def differences(
    before: Sequence[KnownFailure],
    after: Sequence[KnownFailure],
    matrix: Mapping[str, Any] | None = None,
) -> list[Difference]:
    """The cases that are planned otherwise under the second catalogue."""
    matrix = yaml.safe_load(MATRIX.read_text()) if matrix is None else matrix
    machines = {one.name: hardware_of(one.name, NOWHERE) for one in nodes()}
    found = []
    for name, stack, workload in workloads(matrix):
        rules = [
            known_constraints(entry for entry in one if concerns(entry, workload.versions))
            for one in (before, after)
        ]
        if rules[0] == rules[1]:
            continue  # nothing that concerns these versions has changed
        for node, hardware in machines.items():
            request = LaunchRequest("train.py", False, (), hardware.accelerators, "the node")
            plans = [told(resolve(request, workload, hardware, one)) for one in rules]
            if plans[0] != plans[1]:
                found.append(Difference(Case(name, stack, node), *plans))
    return found


def catalogue_of(ref: str) -> tuple[KnownFailure, ...]:
    """The catalogue as it is in a commit.

    Raises:
        LaunchError: an entry there doesn't follow today's schema.
        CalledProcessError: there is no such commit, or no catalogue in it.
    """
    command = ["git", "archive", ref, ENTRIES]
    archive = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        return read_catalogue(Path(folder, ENTRIES))


def table(found: Sequence[Difference]) -> str:
    """The differences; cases of one workload that change alike are told together."""
    rows: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for one in found:
        stacks = rows.setdefault((one.case.workload, one.before, one.after), {})
        stacks.setdefault(one.case.stack, []).append(one.case.node)
    lines = []
    for (workload, before, after), stacks in rows.items():
        lines.append(workload)
        for machines in dict.fromkeys(map(tuple, stacks.values())):
            alike = [stack for stack, own in stacks.items() if tuple(own) == machines]
            lines.append(f"  on {', '.join(machines)} ({', '.join(alike)})")
        lines += [f"  - {before}", f"  + {after}"]
    return "\n".join(lines)


def main() -> int:
    """Compares two catalogues by their plans."""
    parser = argparse.ArgumentParser(prog="scripts/plan-diff", description=__doc__)
    parser.add_argument("ref", nargs="?", default="HEAD", metavar="GIT-REF")
    parser.add_argument("--catalogue", type=Path, default=ROOT / ENTRIES, metavar="FOLDER")
    matrix = yaml.safe_load(MATRIX.read_text())
    parser.add_argument("--workload", choices=matrix["workloads"], metavar="NAME")
    options = parser.parse_args()
    if options.workload:
        matrix["workloads"] = {options.workload: matrix["workloads"][options.workload]}
    try:
        found = differences(catalogue_of(options.ref), read_catalogue(options.catalogue), matrix)
    except subprocess.CalledProcessError as error:
        print(error.stderr.decode().strip(), file=sys.stderr)
        return 1
    except LaunchError as error:
        print(error.problem, error.hint, sep="\n", file=sys.stderr)
        return 1
    if found:
        print(table(found))
        count = len({(one.case.workload, one.case.stack) for one in found})
        print(f"{len(found)} plans of {count} workloads differ from {options.ref}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
