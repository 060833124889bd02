"""The statements of a script's files by what they bind, define and call."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from .bindings import names_bound, parameters
from .statements import Function, Site
from .unguarded_calls import called


@dataclass(frozen=True, slots=True)
class SiteIndex:
    """Where names are bound, functions defined, and both called.

    Attributes:
        bound: by the function or file, and the name.
        defined: functions by name.
        calls: by the name of what is called.
        handed: calls with the bare name as an argument, by that name.
    """

    bound: dict[tuple[int, str], list[Site]] = field(default_factory=dict)
    defined: dict[str, list[Site]] = field(default_factory=dict)
    calls: dict[str, list[Site]] = field(default_factory=dict)
    handed: dict[str, list[Site]] = field(default_factory=dict)

    def callers_of(self, function: Function) -> list[Site]:
        """The calls that may be a function's; where there are none, what it is handed to.

        Nothing for one that a framework finds by itself, as an overridden method.
        """
        handed = [] if is_method(function) else self.handed.get(function.name, [])
        return self.calls_of(function) or handed

    def calls_of(self, function: Function) -> list[Site]:
        """The calls that may be a function's: of its bare name where there are any.

        Those in the function itself aren't among them, as `trainer.train()` in `train`, and none
        are of a special method, which Python calls.
        """
        if function.name.startswith("__") and function.name.endswith("__"):
            return []
        every = [
            site for site in self.calls.get(function.name, []) if function not in site.functions
        ]
        bare = [
            site
            for site in every
            if isinstance(site.node, ast.Call) and isinstance(site.node.func, ast.Name)
        ]
        return every if is_method(function) else bare or every


def is_method(function: Function) -> bool:
    """Whether a function's first argument is the object that it is called on."""
    return parameters(function)[:1] in (["self"], ["cls"])


def index(sites: Sequence[Site]) -> SiteIndex:
    """The statements and calls, by what they do."""
    made = SiteIndex()
    for site in sites:
        scope = id(site.functions[-1]) if site.functions else id(site.file)
        for name in names_bound(site.node):
            made.bound.setdefault((scope, name), []).append(site)
        if isinstance(site.node, ast.Call):
            made.calls.setdefault(called(site.node), []).append(site)
            for given in (*site.node.args, *(word.value for word in site.node.keywords)):
                if isinstance(given, ast.Name):
                    made.handed.setdefault(given.id, []).append(site)
        if isinstance(site.node, Function):
            made.defined.setdefault(site.node.name, []).append(site)
    return made
