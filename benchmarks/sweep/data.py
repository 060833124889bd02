"""The results of all versions as one document, for planning and for the page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cells import cell_of, cells

LETTERS = {"equal": "=", "wrong": "x", "raises": "!", "hangs": "!", "dies": "!"}
"""The letters of `launcher/planning/proven.py`."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The results with one version of a library.

    Attributes:
        version: of the library.
        torch: the version of torch.
        results: by cell.
    """

    version: str
    torch: str
    results: Mapping[str, Mapping[str, Any]]


def read(folder: Path, library: str) -> list[Measured]:
    """The results of a library, the oldest version first."""
    found = []
    for path in folder.glob(f"{library}-*.jsonl"):
        versions = dict(re.findall(r"(deepspeed|torch)-([\d.]+\d)", path.name))
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        results = {line["cell"]: line for line in lines}
        found.append(Measured(versions[library], versions["torch"], results))
    return sorted(found, key=lambda each: numbers(each.version))


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a release."""
    return tuple(int(part) for part in version.split("."))


def document(every: Mapping[str, Iterable[Measured]]) -> dict[str, Any]:
    """The document of `presets/sweep.json`: cells by library, a letter for each version."""
    return {library: _part(library, list(measured)) for library, measured in every.items()}


def _part(library: str, measured: list[Measured]) -> dict[str, Any]:
    letters = {
        str(cell): "".join(
            LETTERS[one.results[str(cell)]["outcome"]] if str(cell) in one.results else "."
            for one in measured
        )
        for cell in cells(library)
    }
    return {
        "versions": [one.version for one in measured],
        "torch": [one.torch for one in measured],
        "cells": {key: text for key, text in letters.items() if text.strip(".")},
    }


def reason(result: Mapping[str, Any]) -> str:
    """Why a cell isn't equal."""
    if result["outcome"] != "wrong":
        return f"{result['outcome']}: {result['why']}"
    gradient = ", ".join(f"{value:.3g}" for value in result["gradient"])
    return f"gradient {gradient} times the right one; weights off by {max(result['weights']):.2g}"


def pattern(keys: Iterable[str]) -> str:
    """Cells in a few words: the values of each setting that occur."""
    found = [cell_of(key) for key in keys]
    names = ("accumulation", "precision", "checkpointing", "clipping", "model")
    parts = [dict.fromkeys(str(getattr(cell, name)) for cell in found) for name in names]
    return ", ".join("|".join(part) for part in parts)
