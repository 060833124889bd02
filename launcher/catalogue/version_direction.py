"""Decides which of two incompatible packages to upgrade or downgrade."""

from __future__ import annotations

from ..evidence.failure_record import FailureRecord
from .name_history import History, history_of
from .package_names import pip_name
from .version_skew import Skew, Wanting
from .versions_seen import import_name, installed, versions_of


def direction(skew: Skew, record: FailureRecord) -> str:
    """The remedy for a version skew, as a sentence with its command.

    Declared requirements count first, then the name's history.
    """
    versions = versions_of(record)
    return (
        _by_requirement(skew, record)
        or _by_history(skew, versions.get(skew.package, ""))
        or _by_age(skew)
    )


def _by_requirement(skew: Skew, record: FailureRecord) -> str:
    """The remedy by requirements in the wanting package's metadata, if installed here."""
    from packaging.requirements import InvalidRequirement, Requirement

    here = installed(record)
    if skew.wanting not in here or skew.package not in here:
        return ""
    version = here[skew.package].version
    for text in here[skew.wanting].requires or ():
        try:
            needed = Requirement(text)
        except InvalidRequirement:
            continue
        is_meant = import_name(needed.name) == skew.package and needed.marker is None
        if is_meant and not needed.specifier.contains(version, prereleases=True):
            asks = (
                f"{skew.wanting} {here[skew.wanting].version} needs {needed.name}{needed.specifier}"
            )
            command = f'`pip install "{needed.name}{needed.specifier}"`'
            return f"{asks}, and {version} is installed: {command}."
    return ""


def _by_history(skew: Skew, version: str) -> str:
    """The remedy by releases with the name; empty if the known version contradicts them."""
    history = history_of(skew.package, skew.name, skew.owner)
    if history is None or (version and _is_there(history, version)):
        return ""
    package = pip_name(skew.package)
    wanting = pip_name(skew.wanting)
    if not history.is_gone:
        command = f'`pip install -U "{package}>={history.has}"`'
        return f"{package} {history.has} has it, {history.lacks} doesn't yet: {command}."
    is_package = skew.kind is Wanting.PACKAGE and skew.wanting
    newer = f" upgrade {wanting}, or downgrade {package}:" if is_package else ""
    older = f'`pip install "{package}<={history.has}"`'
    return f"{package} {history.has} still has it, {history.lacks} doesn't:{newer} {older}."


def _is_there(history: History, version: str) -> bool:
    """Whether a version should have the name, so its history isn't the reason."""
    from packaging.version import InvalidVersion, Version

    try:
        known = Version(version)
        if history.is_gone:
            return known < Version(history.lacks)
        return known >= Version(history.has)
    except InvalidVersion:
        return False


def _by_age(skew: Skew) -> str:
    """The likelier direction if no history is known.

    Packages declare minimum versions, rarely maximum ones, so the caller is too old.
    """
    package, wanting = pip_name(skew.package), pip_name(skew.wanting)
    if skew.kind is not Wanting.PACKAGE or not wanting:
        return (
            f"Install the version of {package} that the calling code's requirements name: an older"
            f" one if the name was removed, else the newest (`pip install -U {package}`)."
        )
    return (
        f"Upgrade {wanting}, or downgrade {package}: `pip install -U {wanting}`. If {package} is"
        f" the older of the two (`pip show {wanting} {package}`), it is {package} that must be"
        " newer."
    )
