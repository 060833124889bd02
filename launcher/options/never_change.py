"""Settings that no plan may change, with the source of each restriction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..core.errors import LaunchError
from ..core.nearest import near
from ..core.settings import Setting
from .configuration import Default

OPTION = "--never-change"
VARIABLE = "SAFE_LAUNCH_NEVER_CHANGE"
Kept = tuple[tuple[Setting, str], ...]
"""Settings, each with the source of its restriction."""


def kept(text: str, source: str = OPTION) -> Kept:
    """Parses names of settings, separated by commas.

    Raises:
        LaunchError: a setting is unknown.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in list(Setting):
            raise LaunchError(f"{source}: no setting `{name}`", near(name, list(Setting)))
    return tuple((Setting(name), source) for name in names)


def elsewhere(defaults: Iterable[Default], environment: Mapping[str, str]) -> Iterator[Kept]:
    """Settings from files and the variable, with their sources; all are valid."""
    key = OPTION.strip("-")
    for default in defaults:
        if default.key.strip("-").replace("_", "-") == key:
            for word in default.words:
                yield kept(word.partition("=")[2], f"{key} in {default.file}")
    yield kept(environment.get(VARIABLE, ""), f"${VARIABLE}")


def together(stated: Iterable[Kept]) -> Kept:
    """Every setting once, by the first source."""
    sources: dict[Setting, str] = {}
    for setting, source in (pair for pairs in stated for pair in pairs):
        sources.setdefault(setting, source)
    return tuple(sources.items())
