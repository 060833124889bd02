"""Recognizes version skews in error messages, with the history of names in packages."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path

from ..evidence.failure_record import FailureRecord, Frame, Raised
from .package_names import (
    MODEL_CODE,
    PYTHON,
    package_of_file,
    package_of_module,
    package_of_name,
)

FILE = Path(__file__).with_name("name_history.txt")
"""Results of scripts/name-history from archives on PyPI."""
MODULES = "."
"""The owner of modules' paths."""
SAME_NAMES = {"lightning": "pytorch_lightning"}
"""Packages with the names and versions of another."""
IMPORTED = re.compile(
    r"cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)"
    r"(?:'? \((?P<path>[^()]+)\)|'?\W*\Z|'?\.?(?=\s))"
)
UNPLACED = re.compile(r"cannot import name '(?P<name>\w+)'\W*\Z")
SUBMODULE = re.compile(r"No module named '(?P<module>\w+)\.(?P<name>[\w.]+)'\Z")
OF_MODULE = re.compile(r"module '?(?P<module>[\w.]+?)'? has no attribute '?(?P<name>\w+)'?")
UNSET = re.compile(r"no attribute '(\w+)'\. Did you mean: '_\1'\?")
"""The class has a property of this name whose value hasn't been set yet."""
OF_OBJECT = re.compile(
    r"(?:type object )?'(?P<class>\w+)'(?: object)? has no attribute '(?P<name>\w+)'"
)
CALLED = re.compile(
    r"(?:(?P<class>\w+)\.)?(?P<function>\w+)\(\) "
    r"(?:got an unexpected keyword argument '(?P<name>\w+)'"
    r"|missing \d+ required (?:positional|keyword-only) arguments?: '(?P<missing>\w+)'"
    r"|takes (?:from )?\d+ (?:to \d+ )?positional arguments? but \d+ were given)"
)
BUILT_IN = frozenset({name for kind in (str, list, dict) for name in vars(kind)})
"""Methods of Python's strings, lists and dictionaries."""
SPACES = frozenset({"google", "nvidia", "megatron"})
"""Packages in several distributions, of which parts may be missing."""
SHARED = {"Trainer": ("transformers", "pytorch_lightning")}
"""Packages by a class that each of them has."""
SERVERS = ("vllm", "sglang")
"""Packages with models of the same class names as transformers'."""
LAZY = frozenset({"__getattr__", "__getattribute__", "_get_module"})
"""Functions whose failure is their caller's."""
SUBCLASSED = re.compile(r"\w*Trainer\Z")
DECORATES = re.compile(r"\breturn \w+\(")
"""A decorator's line, which passes a call on."""
OF_ENGINE = re.compile(
    r"_?zero_gather_16bit_weights_on_model_save|zero_optimization\w*|_?zero3_consolidated_\w+"
    r"|module_state_dict|save_(?:16bit|fp16)_model|is_gradient_accumulation_boundary"
    r"|set_gradient_accumulation_boundary|gradient_accumulation_steps|get_global_grad_norm"
)
"""Methods of DeepSpeedEngine alone (deepspeed/runtime/engine.py)."""
NO_MODEL = re.compile(r"Engine|Config|Plugin|Accelerator|Arguments|Optimizer|Namespace|State")
"""Parts of names of classes that are no models."""
KIND = re.compile(r"[A-Z][a-z]+\Z")
"""The last word of a class's name, which classes of one kind share."""
METHOD = re.compile(r"(?P<class>[A-Z]\w*)\.\w+\(\)")
DISTINCT = re.compile(r"[A-Z]\w+[A-Z]\w+|_?\w+_\w+_\w+")
"""A name unlikely to be shared by two packages, or by unlike classes of one."""
OF_MODEL = re.compile(r"\w+(?:Config|Tokenizer(?:Fast)?|Processor|Cache|ForCausalLM|Model)\Z")


@dataclass(frozen=True, slots=True)
class History:
    """The two releases between which a package permanently added or removed a name.

    Attributes:
        has: a release with the name.
        lacks: a release without the name.
        is_gone: whether it was removed, so only older releases have it.
    """

    has: str
    lacks: str
    is_gone: bool


def history_of(
    package: str, name: str, owner: str = "", *, is_of_model: bool = False
) -> History | None:
    """When a package added or removed a name, if known.

    A class of which nothing is known inherits what all others of its kind have got or lost.

    Args:
        package: import name.
        name: name of a submodule, class, function, attribute or argument.
        owner: path of the module below the package (the package's name for itself), class, or
            function that lacks it; `CLASS()` for an argument of a class, `MODULES` for a module.
        is_of_model: whether a model's code asks, which was never made for a later release.
    """
    known = _histories(SAME_NAMES.get(package, package))
    method = METHOD.fullmatch(owner)
    owner = method["class"] if method else owner
    keys = (f"{owner}:{name}", f"{owner}():{name}")
    exact = next((known[key] for key in keys if key in known), None)
    kin = _of_kind(known, name, owner)
    if exact or kin is None:
        return exact or (known.get(name) if DISTINCT.fullmatch(name) or not method else None)
    whole = known.get(name, kin)
    if whole.is_gone is kin.is_gone:
        return kin
    gone = whole if whole.is_gone else kin
    return gone if is_of_model else None


def came_before(package: str, name: str, owner: str) -> bool:
    """Whether a module got a name before the history begins: others got it since, none lost it."""
    if owner != package and "." not in owner:
        return False  # maybe a function or class
    known = _histories(SAME_NAMES.get(package, package))
    changes = [known[key] for key in known if key.endswith(f":{name}")]
    is_whole = f"{MODULES}:{owner}" not in known and name not in known
    return is_whole and bool(changes) and not any(change.is_gone for change in changes)


def _of_kind(known: Mapping[str, History], name: str, owner: str) -> History | None:
    """The history of a name in the classes whose names end with the same word, if it's one."""
    if (kind := KIND.search(owner)) is None:
        return None
    found = {known[key] for key in known if key.endswith(f"{kind[0]}:{name}")}
    return found.pop() if len(found) == 1 else None


def owners_of(name: str) -> tuple[str, ...]:
    """Packages that added or removed a name."""
    return tuple(
        package
        for package, changes in _packages().items()
        if any(name in names for _, names in changes) and name in _histories(package)
    )


@cache
def _packages() -> Mapping[str, list[tuple[History, str]]]:
    """The changes of each package, with the names after each still as text."""
    changes: dict[str, list[tuple[History, str]]] = defaultdict(list)
    text = FILE.read_text(encoding="utf-8")
    for section in re.split(r"\n(?=\w)", text)[1:]:
        line, _, names = section.partition("\n")
        package, kind, before, after = line.split()
        is_gone = kind == "gone"
        has, lacks = (before, after) if is_gone else (after, before)
        changes[package].append((History(has, lacks, is_gone=is_gone), names))
    return changes


@cache
def _histories(package: str) -> Mapping[str, History]:
    """The histories of a package's names, `OWNER:NAME` for those of an owner."""
    histories: dict[str, History] = {}
    for history, names in _packages().get(package, ()):
        owner = ""
        for word in names.split():
            if word.endswith(":"):
                owner = word
            else:
                histories[owner + word] = history
    return histories


class Wanting(StrEnum):
    """The owner of the code that needs a missing name."""

    PACKAGE = "package"
    """Another package."""
    SAME = "itself"
    """The package itself: files of two versions are mixed."""
    SCRIPT = "script"
    """The user's script."""
    MODEL = "model"
    """Python files of a model."""


@dataclass(frozen=True, slots=True)
class Skew:
    """Code that needs a name missing in the installed version of a package.

    Attributes:
        kind: the owner of the code.
        wanting: import name of the package with the code; empty for a script.
        package: import name of the package without the name; `Python` for the standard library.
        name: the missing name, module, attribute or argument.
        owner: the module, class or function that lacks it, as in `history_of`; not compared.
    """

    kind: Wanting
    wanting: str
    package: str
    name: str
    owner: str = field(default="", compare=False)


def skew_of(record: FailureRecord, raised: Raised) -> Skew | None:
    """The skew that an exception of a record shows, if any.

    An exception without a known frame shows none, as the code's owner is unknown.
    """
    is_last = raised.message == record.message and raised.exception == record.exception
    frames = record.frames if is_last else (raised.frame,) if raised.frame else ()
    frames = tuple(frame for frame in frames if not frame.file.startswith("<frozen "))
    if not frames or raised.frame is None:
        return None
    match raised.exception.rpartition(".")[2]:
        case "ImportError" | "ModuleNotFoundError":
            return _of_import(raised.message, frames)
        case "AttributeError":
            return _of_attribute(raised.message, frames)
        case "TypeError":
            return _of_call(raised.message, frames)
    return None


def owner_in(match: re.Match[str]) -> str:
    """The module, class or function in a match of one of the messages above."""
    if match.re is SUBMODULE:
        return MODULES
    groups = match.groupdict()
    if module := groups.get("module"):
        return module.partition(".")[2] or module
    function = groups.get("function") or ""
    if not groups["class"] or not function:
        return groups["class"] or function
    return f"{groups['class']}{'' if function == '__init__' else '.' + function}()"


def package_of_class(kind: str, name: str, frames: Sequence[Frame]) -> str | None:
    """The package of a class or function that lacks a name.

    If several have such a class, it is the one in the traceback, else the one that got or lost the
    name.
    """
    if kind not in SHARED:
        return package_of_name(kind)
    ran = (package_of_file(frame.file) or "" for frame in reversed(frames))
    shown = (package for package in ran if SAME_NAMES.get(package, package) in SHARED[kind])
    known = (package for package in SHARED[kind] if history_of(package, name, f"{kind}()"))
    return next(shown, None) or next(known, None)


def _skew(frame: Frame, package: str, name: str, owner: str = "") -> Skew | None:
    """The skew between the code in a frame and a package."""
    wanting = package_of_file(frame.file)
    if wanting == PYTHON:
        return None
    kind = {None: Wanting.SCRIPT, package: Wanting.SAME, MODEL_CODE: Wanting.MODEL}
    return Skew(kind.get(wanting, Wanting.PACKAGE), wanting or "", package, name, owner)


def _of_import(message: str, frames: Sequence[Frame]) -> Skew | None:
    if match := IMPORTED.match(message):
        package = package_of_module(match["module"])
        if match["path"] and package != PYTHON:  # a user's file may have the name of a package
            owner = package_of_file(match["path"])
            package = owner if owner == match["module"].partition(".")[0] else None
    elif match := SUBMODULE.match(message):
        is_part = match["module"] in SPACES and "." not in match["name"]
        package = None if is_part else package_of_module(match["module"])
    if match is None or package is None:
        return None
    return _skew(frames[-1], package, match["name"], owner_in(match))


def _of_attribute(message: str, frames: Sequence[Frame]) -> Skew | None:
    callers = [frame for frame in frames if frame.function not in LAZY]
    if not callers or UNSET.search(message):
        return None
    if match := OF_MODULE.match(message):
        package = package_of_module(match["module"])
        skew = package and _skew(callers[-1], package, match["name"], owner_in(match))
        # Within a package, a circular import looks the same.
        return skew if skew and skew.kind is not Wanting.SAME else None
    if match := OF_OBJECT.match(message):
        if match["name"] in BUILT_IN:
            return None  # taken for a string, list or dictionary, in any version
        if OF_ENGINE.fullmatch(match["name"]) and not NO_MODEL.search(match["class"]):
            return None  # the bare model was handed over
        package = package_of_class(match["class"], match["name"], frames)
        caller = package_of_file(callers[-1].file)
        if caller == MODEL_CODE and OF_MODEL.match(match["class"]):
            package = "transformers"
        is_trainer = SUBCLASSED.match(match["class"]) and not match["name"].startswith("_")
        if package == caller and caller == "trl" and is_trainer:
            package = "transformers"
        skew = package and _skew(callers[-1], package, match["name"], owner_in(match))
        return skew if skew and skew.kind in (Wanting.PACKAGE, Wanting.MODEL) else None
    return None


def _of_call(message: str, frames: Sequence[Frame]) -> Skew | None:
    """The skew of a call; arguments passed on by the package itself are its caller's.

    But what it leaves out itself isn't.
    """
    if (match := CALLED.match(message)) is None:
        return None
    name = match["name"] or match["missing"] or f"{match['function']}()"
    package = package_of_class(match["class"] or match["function"], name, frames)
    ran = [package_of_file(frame.file) for frame in frames]
    direct = next((name for name in reversed(ran) if name not in ("torch", PYTHON)), None)
    if match["missing"] and package == direct:
        return None
    if package == "transformers":
        package = next((server for server in SERVERS if server in ran), package)
    if MODEL_CODE in ran and match["class"]:
        return Skew(Wanting.MODEL, MODEL_CODE, "transformers", name, owner_in(match))
    is_method = match["class"] and match["function"] != "__init__" and not match["missing"]
    if is_method and package_of_file(frames[-1].file) == package:
        return None  # its own method is overridden by a class elsewhere
    outside = [frame for frame in frames if package_of_file(frame.file) != package]
    named = [frame for frame in outside if "*args, **kwargs" not in frame.source]
    callers = named or [frame for frame in outside if not DECORATES.search(frame.source)]
    return _skew(callers[-1], package, name, owner_in(match)) if package and callers else None
