"""Version ranges of distributions."""

from __future__ import annotations

from collections.abc import Mapping


def are_within(versions: Mapping[str, str], ranges: Mapping[str, str]) -> bool:
    """Whether every distribution of `ranges` has a version within its range.

    An unknown version is in no range.
    """
    from packaging.specifiers import SpecifierSet

    return all(
        name in versions and SpecifierSet(allowed, prereleases=True).contains(versions[name])
        for name, allowed in ranges.items()
    )
