"""The list of guards."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

from safe_launch import guards
from safe_launch.guards.install import GUARDS


def test_every_guard_is_installed_once() -> None:
    """All modules with HOOKED are in the list, none twice, which would count everything twice."""
    names = (found.name for found in walk_packages(guards.__path__, f"{guards.__name__}."))
    every = [module for name in names if hasattr(module := import_module(name), "HOOKED")]
    assert sorted(guard.__name__ for guard in GUARDS) == sorted(one.__name__ for one in every)
