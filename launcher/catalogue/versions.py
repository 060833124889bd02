"""Versions in a failure's log, their ranges, and whether a newer or an older one mends a skew."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

from ..evidence.failure_record import FailureRecord
from .package_names import DISTRIBUTIONS, PACKAGES, checkout_of, package_of_file, pip_name
from .version_skew import METHOD, History, Skew, Wanting, came_before, history_of

IMPORTED_AS = {
    name.lower().replace("-", "_"): imported for imported, name in reversed(DISTRIBUTIONS.items())
} | {name: name for name in PACKAGES}
"""Import names, by distribution name in lower case."""
NAMES = "|".join(sorted((name.replace("_", "[-_]") for name in IMPORTED_AS), key=len, reverse=True))
NAMED = re.compile(
    rf"(?<![\w./-])(?P<name>{NAMES})(?:[\s:=,'\"`(]*(?:info|version|library)\b)*[\s:=,'\"`(v-]*"
    r"(?P<version>\d+\.\d+\.\d+(?:\.?(?:post|rc|dev|a|b)\d+)?)(?!\w|\.\d)",
    re.IGNORECASE,
)
"""A package followed by a version, as written by loggers, `pip list` and people."""
IN_PATH = re.compile(rf"/(?P<name>{NAMES})-(?P<version>\d+\.\d+(?:\.\d+)?)[^/]*/", re.IGNORECASE)
"""An egg's folder, or a source tree's with its version."""
LAYERS = ("torch", "pytorch_lightning", "accelerate", "transformers", "trl")
"""Packages whose classes others derive theirs from, each built on those before it."""
UNDERIVED = frozenset({"deepspeed", "vllm", "triton", "datasets", "tokenizers", "huggingface_hub"})
"""Packages whose classes derive from none of these but torch's."""
SITE = re.compile(r"(?P<site>.*/(?:site|dist)-packages)/")


def are_within(versions: Mapping[str, str], ranges: Mapping[str, str]) -> bool:
    """Whether every distribution of `ranges` has a version within its range.

    An unknown version is in no range.
    """
    from packaging.specifiers import SpecifierSet

    return all(
        name in versions and SpecifierSet(allowed, prereleases=True).contains(versions[name])
        for name, allowed in ranges.items()
    )


def versions_of(record: FailureRecord) -> Mapping[str, str]:
    """Known package versions, by import name.

    A worker's report counts most, then the installation in the traceback's folder (if on this
    machine), then the log.
    """
    texts = [*record.log_tail, record.message, *(frame.file for frame in record.frames)]
    in_log: dict[str, str] = {}
    for text in texts:
        for pattern in (IN_PATH, NAMED):
            for match in pattern.finditer(text):
                in_log[import_name(match["name"])] = match["version"]
    here = {import_name(name): dist.version for name, dist in installed(record).items()}
    versions = {import_name(name): version for name, version in record.versions.items()}
    return in_log | here | versions


def installed(record: FailureRecord) -> Mapping[str, Distribution]:
    """Known packages in the folder of the traceback's files; empty if it isn't here."""
    sites = {place["site"] for frame in record.frames if (place := SITE.match(frame.file))}
    distributions: dict[str, Distribution] = {}
    for site in sites:
        for info in sorted(Path(site).glob("*.dist-info")):
            name = import_name(info.name.partition("-")[0])
            if name in PACKAGES:
                distributions[name] = PathDistribution(info)
    return distributions


def import_name(distribution: str) -> str:
    """The import name of a distribution."""
    name = distribution.lower().replace("-", "_")
    return IMPORTED_AS.get(name, name)


def direction(skew: Skew, record: FailureRecord) -> str:
    """The remedy for a version skew, as a sentence with its command."""
    return known_direction(skew, record) or _of_clone(skew, record) or _by_age(skew)


def known_direction(skew: Skew, record: FailureRecord) -> str:
    """The remedy by declared requirements, else by the name's history; empty if unknown."""
    version = versions_of(record).get(skew.package, "")
    return _by_requirement(skew, record) or _by_history(skew, version)


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
    package, wanting = pip_name(skew.package), pip_name(skew.wanting)
    history = history_of(
        skew.package, skew.name, skew.owner, is_of_model=skew.kind is Wanting.MODEL
    )
    if history is None and came_before(skew.package, skew.name, skew.owner):
        return f"Newer releases have it: `pip install -U {package}`."
    if history is None or (version and _is_there(history, version)):
        return ""
    is_package = skew.kind is Wanting.PACKAGE and skew.wanting
    if not history.is_gone:
        command = f'`pip install -U "{package}>={history.has}"`'
        other = f" Or downgrade {wanting}." if is_package else ""
        return f"{package} {history.has} has it, {history.lacks} doesn't yet: {command}.{other}"
    # unknown, the installed one may be older than the name
    other, sign = (f"downgrade {package}", "<=") if version else (f"take that {package}", "==")
    newer = f" upgrade {wanting}, or {other}:" if is_package else ""
    older = f'`pip install "{package}{sign}{history.has}"`'
    if is_package and package == "torch":  # which the others were built for
        newer, older = f" upgrade {wanting}, or take that torch:", f"`pip install -U {wanting}`"
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


def _of_clone(skew: Skew, record: FailureRecord) -> str:
    """The direction if the caller is a clone, mostly newer than what was installed for it."""
    files = (frame.file for frame in record.frames if package_of_file(frame.file) == skew.wanting)
    if skew.kind is not Wanting.PACKAGE or not any(map(checkout_of, files)):
        return ""
    package = pip_name(skew.package)
    return (
        f"Install the {package} that this clone of {skew.wanting} names in its requirements or"
        f" guide, mostly a newer one (`pip install -U {package}`), or check out the release of"
        f" {skew.wanting} that was made for the installed {package}."
    )


def _by_age(skew: Skew) -> str:
    """The likelier direction if no history is known.

    Packages declare minimum versions, rarely maximum ones, so the caller is too old; but not the
    caller of a method that a class of a later package overrides.
    """
    package, wanting = pip_name(skew.package), pip_name(skew.wanting)
    if _is_overriding(skew):
        return (
            f"Upgrade {package}, or downgrade {wanting}: `pip install -U {package}`. Its class"
            f" overrides this method of {wanting}'s as another release had it, mostly an earlier"
            " one."
        )
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


def _is_overriding(skew: Skew) -> bool:
    """Whether a package calls a method of a class that another derives from its own."""
    is_class = skew.owner[:1].isupper() and not skew.owner.endswith("()")
    is_method = is_class or METHOD.fullmatch(skew.owner) is not None
    if not is_method or skew.wanting not in LAYERS:
        return False
    before = LAYERS[: LAYERS.index(skew.wanting) + 1]
    is_derived = skew.package not in UNDERIVED or skew.wanting == "torch"
    return is_derived and skew.package not in before
