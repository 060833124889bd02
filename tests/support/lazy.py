"""Frameworks for tests: each takes seconds to import, and every worker collects every test."""

from __future__ import annotations

import importlib
from typing import Any


class Lazy:
    """A module that is imported once something public of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks for some of whatever a test module holds
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)
