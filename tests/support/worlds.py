"""Launches that are resolved in tests: hardware, requests, workloads, and the catalogue's rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

import safe_launch
from safe_launch.catalogue.entry import constraints_of
from safe_launch.catalogue.reader import concerns, read_catalogue
from safe_launch.core.choices import Framework, Precision
from safe_launch.core.constraint import Cause, CauseKind, Constraint, Term
from safe_launch.core.hardware import Accelerator, Hardware
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Known, Origin, Workload
from safe_launch.planning.estimates.estimate import ranks_of
from safe_launch.planning.search import Rules

REQUEST = LaunchRequest("train.py", False, (), 2, "--nproc 2")


CPU = Accelerator("cpu", "cpu", 0, 0, frozenset(Precision), 1e11, 2e10, 1e10, 1e9, 1e10)


HARDWARE = Hardware(CPU, 0, 2, 2**34)


CATALOGUE = read_catalogue()


SOURCES = (path.read_text() for path in Path(safe_launch.__path__[0]).rglob("*.py"))
TOLD = {name for text in SOURCES for name in re.findall("safe-launch explain ([a-z0-9-]+)", text)}
"""The entries that a sentence of the launcher's own refers to."""


CURRENT = {"torch": "2.13.0", "deepspeed": "0.19.8", "transformers": "5.23.0"}


OLDER = {"torch": "2.13.0", "deepspeed": "0.16.9", "transformers": "4.57.1"}


ENGINE, FROZEN = Fact.ENGINE, Fact.FROZEN_PARAMETERS


TWICE, OUTSIDE = Fact.BLOCK_RUNS_TWICE, Fact.PARAMETER_OUTSIDE_FORWARD


STAGE, MODE = Setting.ZERO_STAGE, Setting.GRADIENT_CHECKPOINTING


UNUSED, STATIC = Setting.FIND_UNUSED_PARAMETERS, Setting.STATIC_GRAPH


def world(values: dict[Name, Value], framework: Framework = Framework.TRANSFORMERS) -> Workload:
    """A workload of which these values are known from flags."""
    known = {name: Known(value, Origin.FLAG, f"--{name}") for name, value in values.items()}
    return Workload(framework, MappingProxyType(known))


def known_rules(versions: dict[str, str]) -> list[Constraint]:
    """All constraints of the shipped catalogue for the versions."""
    entries = [entry for entry in CATALOGUE if concerns(entry, versions)]
    return [one for entry in entries for one in constraints_of(entry)]


def rules_under(constraints: Sequence[Constraint]) -> Rules:
    """The constraints, and a machine that forbids nothing."""
    return Rules(tuple(constraints), HARDWARE, ranks_of(REQUEST, HARDWARE))


ZERO2 = {ENGINE: "deepspeed", STAGE: 2, MODE: "reentrant"}


ZERO3 = {ENGINE: "deepspeed", STAGE: 3, MODE: "reentrant"}


LORA3 = {ENGINE: "deepspeed", STAGE: 3, MODE: "non_reentrant", FROZEN: True}


LORA_DDP = {ENGINE: "ddp", MODE: "reentrant", UNUSED: True, STATIC: False, FROZEN: True}


def rule(**terms: Value) -> Constraint:
    """A constraint that forbids the settings together."""
    cause = Cause(CauseKind.KNOWN_FAILURE, "rule", "a rule of this test")
    return Constraint(
        tuple(Term(Setting(name), frozenset({value})) for name, value in terms.items()), cause
    )
