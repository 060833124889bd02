"""Command lines of other projects: what the readers find in them, and what would be planned."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from safe_launch.catalogue.entry import known_constraints
from safe_launch.catalogue.reader import Catalogue
from safe_launch.commands.training import training_of
from safe_launch.core.settings import Fact, Name, Setting
from safe_launch.core.workload import Workload
from safe_launch.options.parser import parsed
from safe_launch.planning.plan import NoPlan, Plan
from safe_launch.planning.planner import planned
from safe_launch.session.training import Training
from safe_launch.workload.models import from_folder

from .models import write_model

SHAPES = Path(__file__).resolve().parents[1] / "commands" / "models.yaml"
SHAPE = (
    *("hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads"),
    *("num_key_value_heads", "vocab_size"),
)
CHECKED: Mapping[str, Name] = {
    "S": Setting.ZERO_STAGE,
    "B": Setting.MICRO_BATCH,
    "A": Setting.ACCUMULATION,
    "L": Fact.SEQUENCE_LENGTH,
    "R": Fact.LORA_RANK,
    "T": Fact.LORA_TARGETS,
    "C": Setting.GRADIENT_CHECKPOINTING,
    "P": Setting.PRECISION,
    "O": Fact.OPTIMIZER,
}
"""Letters of `checked_by_hand`."""
ALL_LINEAR = ("all", "all-linear")
"""Words for all linear layers: LLaMA-Factory's and peft's."""


@dataclass(frozen=True)
class CommandLine:
    """A command line as its authors ran it.

    Attributes:
        words: options of the launcher, the script and its arguments.
        environment: variables in front of it.
        folder: where it is run.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path


def read(line: CommandLine, hardware: str) -> Workload:
    """What the readers find.

    Raises:
        LaunchError: they refuse it.
    """
    with _at(line):
        training = _training(line, hardware)
        return training.workload(training.request)


def plan(line: CommandLine, hardware: str) -> Plan | NoPlan:
    """What `safe-launch plan --hardware` would say.

    Raises:
        LaunchError: the command line, or a file that it names, can't be used.
    """
    with _at(line):
        training = _training(line, hardware)
        workload = training.workload(training.request)
        entries = Catalogue(training.site_entries, workload.versions).on_plans
        known = known_constraints(entries)
        return planned(training.request, workload, training.hardware, known)


def _training(line: CommandLine, hardware: str) -> Training:
    return training_of(parsed(["--hardware", hardware, *line.words]), is_launch=False)


@contextmanager
def _at(line: CommandLine) -> Iterator[None]:
    before = Path.cwd()
    with mock.patch.dict(os.environ, line.environment):
        os.chdir(line.folder)
        try:
            yield
        finally:
            os.chdir(before)


@functools.cache
def _shapes() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """The shipped shapes, as config.json says them."""
    found = []
    for pattern, raw in yaml.safe_load(SHAPES.read_text(encoding="utf-8"))["shapes"].items():
        config = {**dict(zip(SHAPE, raw.get("shape", ()), strict=False)), **raw}
        found.append((re.compile(pattern, re.IGNORECASE), config))
    return found


@contextmanager
def models_in(folder: Path, otherwise: str = "") -> Iterator[None]:
    """Models of known shapes are as if they were cached on this machine.

    Args:
        folder: gets a folder for each of them.
        otherwise: what tells the model where its name doesn't.
    """

    def cached(name: str, _environment: Mapping[str, str]) -> Path | None:
        for text in filter(None, (name, otherwise)):
            for number, (pattern, config) in enumerate(_shapes()):
                if pattern.search(text):
                    place = folder / str(number)
                    write_model(place, config)
                    return place
        return None

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(from_folder, "_cached", cached))
        yield


def verdict(key: str, checked: str, read: object) -> str:
    """Whether what was read is `right`, `unknown` or `wrong`."""
    if read is None:
        return "unknown"
    return "right" if _is_same(key, checked, str(read)) else "wrong"


def _is_same(key: str, checked: str, read: str) -> bool:
    if key == "L":
        terms = (
            re.sub(r"[a-z ]+(?=\+)", "", checked).replace("x", "*").rstrip("abcdeghijklmnopqrst ")
        )
        return int(read) == eval(terms, {"__builtins__": {}})
    if key == "T":
        if checked.endswith("names"):
            return len(read.split(",")) == int(checked.split()[0])
        wanted = set(re.split("[, ]", checked))
        found = {name.removesuffix("_proj") for name in read.split(",")}
        return found == wanted or (read == "all-linear" and checked in ALL_LINEAR)
    return re.match(rf"{re.escape(read)}\b|\S*/{re.escape(read)}\b", checked) is not None


def words_of(options: Sequence[object], script: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """A command line's words."""
    return (*map(str, options), script, *arguments)
