"""Recognizes two packages with incompatible versions, and the one to change."""

from __future__ import annotations

import re

from ...catalogue.package_names import (
    MODEL_CODE,
    PYTHON,
    checkout_of,
    package_of_file,
    package_of_name,
    pip_name,
)
from ...catalogue.variant import PASSED_ON
from ...catalogue.version_skew import (
    BUILT_IN,
    DISTINCT,
    LAZY,
    SPACES,
    SUBMODULE,
    Skew,
    Wanting,
    history_of,
    owners_of,
    package_of_class,
)
from ...catalogue.versions import direction, versions_of
from ...evidence.failure_record import Frame
from .shown_skew import shown_skew, step_of
from .step import Case, Step

ATTRIBUTE_OWNERS = (
    (re.compile(r"^_?ds_|^_?z3_|^zero_"), "deepspeed"),
    (re.compile(r"^_?fsdp_|^_fsdp"), "torch"),
    (re.compile(r"^_?hf_|^_?is_hf_|^_tp_plan|^_supports_|^_no_split"), "transformers"),
    (re.compile(r"^_?peft_|^_?lora_"), "peft"),
    (re.compile(r"^_?vllm_"), "vllm"),
    (re.compile(r"^_?megatron_|^_?mcore_"), "megatron"),
)
"""Prefixes of the attributes that packages set on other packages' objects."""
ATTRIBUTE = re.compile(
    r"^(?:module |type object )?'?(?P<type>[\w.]+)'?(?: object)? has no attribute '?(?P<name>\w+)'?"
)
ARGUMENT = re.compile(
    r"(?P<function>[\w.]+)\(\) (?:got an unexpected keyword argument|got multiple values for"
    r" (?:keyword )?argument"
    r"|missing \d+ required (?:positional|keyword-only) arguments?:|got some positional-only"
    r" arguments)"
    r" '(?P<name>\w+)'|(?P<counted>[\w.]+)\(\) takes (?:from )?\d+"
)
PRIVATE = re.compile(r"(?:^|\.)_[a-z]\w*$")
"""A function for its own package alone."""
SUPER = re.compile(r"super\((?:(?P<base>[A-Z]\w+), self)?\)\.__init__\([^()]*\)")
GENERATED = "unsloth_compiled_cache"
"""Folder of code that unsloth generates from trl's and keeps across upgrades."""
PLAIN = frozenset(
    {"NoneType", "str", "int", "float", "bool", "list", "dict", "tuple", "set", "Namespace"}
)
"""Built-in types: the fault is a value, not a version."""


def misfit(case: Case) -> Step | None:
    """Names the two packages and the remedy; None if the failure isn't about packages."""
    if (step := _of_base(case)) is not None:
        return step
    skew = shown_skew(case)
    if skew is not None:
        return step_of(case, skew)
    if any(GENERATED in frame.file for frame in case.frames[-1:]) and (
        ATTRIBUTE.match(case.message) or ARGUMENT.search(case.message)
    ):
        return Step(
            "Upgrade unsloth with all of its parts, and trl to the version that it names, and"
            f" delete the folder `{GENERATED}`: its code is of another version than what it uses."
        )
    is_of_call = ARGUMENT.search(case.message) is not None  # maybe of another process's error
    match "TypeError" if is_of_call else case.kind:
        case "AttributeError":
            return _of_object(case)
        case "TypeError":
            return _of_call(case)
        case "NameError":
            return _of_name(case)
        case "ModuleNotFoundError":
            return _of_part(case)
        case "KeyError":
            return _of_model_code(case)
    return None


def _of_model_code(case: Case) -> Step | None:
    """The code that came with a model reads what its configuration lacks."""
    frame = case.frame
    is_configuration = frame is not None and "/configuration_" in frame.file
    if frame is None or package_of_file(frame.file) != MODEL_CODE or not is_configuration:
        return None
    return _of_model(f"reads {case.message} of its configuration")


def _of_model(does: str) -> Step:
    return Step(
        "Install the transformers that the model's card or its `config.json`"
        " (`transformers_version`) names, or take the model's newest files: its own code"
        f" {does}, which isn't there with the installed release."
    )


def _of_base(case: Case) -> Step | None:
    """A project's class that calls its base class in a package, of another version's arguments."""
    call = SUPER.search(case.frame.source) if case.frame and case.is_users else None
    if call is None or (taken := ARGUMENT.search(case.message)) is None:
        return None
    qualified = (taken["function"] or taken["counted"]).partition(".__init__")[0]
    owner = package_of_name(qualified) or package_of_name(call["base"] or "")
    version = re.search(rf"(?:^|\s){owner}[\s:=]+v?(\d+\.\d[\w.]*)", case.around, re.MULTILINE)
    if owner is None or not (version or owner in map(package_of_file, _files(case))):
        return None
    shown = f", here {version[1]}" if version else ""
    return Step(
        f"Install the version of {owner} that this project names in its README or requirements:"
        f" `{call[0]}` calls a class of {owner}, which takes other arguments in the installed"
        f" version{shown}. Or adapt the call to it."
    )


def _files(case: Case) -> tuple[str, ...]:
    return tuple(frame.file for frame in case.frames)


def _callers(case: Case) -> tuple[str, ...]:
    """The packages on the stack, innermost first, without duplicates and the standard library."""
    names = (package_of_file(frame.file) for frame in reversed(_frames(case)))
    return tuple(dict.fromkeys(name for name in names if name not in (None, PYTHON)))


def _frames(case: Case) -> tuple[Frame, ...]:
    """The frames whose code names the attribute or argument."""
    return tuple(
        frame
        for frame in case.frames
        if frame.function not in LAZY and not PASSED_ON.search(frame.source)
    )


def _is_library(case: Case) -> bool:
    """Whether the last frame outside the standard library is in a package."""
    frames = [f for f in _frames(case) if package_of_file(f.file) != PYTHON]
    return bool(frames) and package_of_file(frames[-1].file) is not None


def _of_object(case: Case) -> Step | None:
    """A package's code reads an attribute that its object lacks."""
    match = ATTRIBUTE.match(case.message)
    if match is None or match["type"] in PLAIN:
        return None
    name, callers = match["name"], _callers(case)
    if case.is_users:
        return _of_project(case, match["type"], name)
    if name == "main_grad":
        return Step(
            "Turn the fusion of gradient accumulation off (`--no-gradient-accumulation-fusion`;"
            " ms-swift: `--no_gradient_accumulation_fusion true`), or upgrade the framework: the"
            " fused backward adds to a weight's `main_grad`, a buffer that Megatron's DDP gives to"
            " trained weights alone. Frozen ones, as LoRA's base, have none."
        )
    owner = next((package for words, package in ATTRIBUTE_OWNERS if words.search(name)), None)
    if owner is not None and owner not in match["type"].lower():
        others = [caller for caller in callers if caller not in (owner, "torch")]
        return _of_owner(case, owner, name, others[0] if others else "")
    if not _is_library(case):
        return None
    if callers[0] == MODEL_CODE:
        return None if name in BUILT_IN else _of_model(f"uses `{name}` of `{match['type']}`")
    wanting = callers[0]
    by_name = [package for package in owners_of(name) if package != wanting]
    by_name = [package for package in by_name if package in callers] or by_name
    if len(by_name) == 1 and DISTINCT.fullmatch(name):
        return step_of(case, Skew(Wanting.PACKAGE, wanting, by_name[0], name))
    made_by = package_of_name(match["type"])
    # torch, which the others are built on, is given what they make
    one = callers[1] if wanting == "torch" and callers[1:] else wanting
    if made_by not in (None, wanting) and name not in BUILT_IN:
        one = str(made_by)
    version = versions_of(case.record).get(one)
    before = f'`pip install "{pip_name(one)}<{version}"`' if version else "the one before it"
    clone = next((folder for f in reversed(case.frames) if (folder := checkout_of(f.file))), "")
    if clone and one == wanting:
        return Step(
            f"Update the clone in {clone} (`git pull`), and install the versions that its"
            f" requirements name: its code takes an object of type `{match['type']}` for one that"
            f" has `{name}`. What made the object may be newer or older than expected."
        )
    return Step(
        f"Upgrade {one} (`pip install -U {pip_name(one)}`), or, if it is the newest, take {before}."
        f" {wanting} takes an object of type `{match['type']}` for one that has `{name}`: what made"
        " the object may be newer or older than expected, or the wrong kind of object was handed"
        " over."
    )


def _of_project(case: Case, kind: str, name: str) -> Step | None:
    """A script reads an attribute that only some versions of a package's class have.

    The object's class is the package's, or a subclass in the project that the package calls.
    """
    package = package_of_class(kind, name, case.frames)
    if package is not None and history_of(package, name, kind):
        return step_of(case, Skew(Wanting.SCRIPT, "", package, name, kind))
    parts = [kind[at:] for at in range(1, len(kind)) if kind[at].isupper()]
    named = (package_of_name(part) for part in parts if len(part) > len("Trainer"))
    outward = (package_of_file(frame.file) for frame in reversed(case.frames))
    base = next(filter(None, (*named, *outward)), "torch")
    source = case.frame.source if case.frame else ""
    if base in ("torch", PYTHON, MODEL_CODE) or f"self.{name}" not in source:
        return None
    lost = history_of(base, name, kind, is_of_model=True)
    # like a model's code, a class was never made for a release that has the name elsewhere
    owner = kind if lost and lost.is_gone else ""
    if lost or history_of(base, name):
        mends = direction(Skew(Wanting.MODEL, "", base, name, owner), case.record)
        return Step(f"`{kind}` was written for another {base}: {mends}")
    return Step(
        f"Install the {base} that the project's requirements name, or update the project, unless"
        f" its own code is to set `{name}`: then set it before this line. `{kind}` reads it, and"
        f" the class of {base} that it derives from doesn't set it in the installed version."
    )


def _of_owner(case: Case, owner: str, name: str, other: str) -> Step:
    """A package lacks an attribute that it should have set itself."""
    version = versions_of(case.record).get(owner, "")
    has = f" (here {version})" if version else ""
    before = (
        f'`pip install "{pip_name(owner)}<{version}"`'
        if version
        else "the release before the installed one"
    )
    beside = f", or {other} doesn't fit to it" if other else ""
    made = f"this part was added or replaced after {owner} had prepared the model: make it before"
    fault = (
        f"it is a fault of this {owner}{has}{beside}: take {before}, else the newest (`pip install"
        f" -U {owner}`)"
    )
    is_hooked = case.frame is not None and case.frame.is_of("torch/nn/modules/module.py")
    first, second = (fault, made) if is_hooked else (made, fault)
    return Step(
        f"{owner} itself puts `{name}` on a model's parts, and here it is missing. Either {first};"
        f" or {second}."
    )


def _of_call(case: Case) -> Step | None:
    """A package's code calls a function with arguments that it doesn't accept."""
    match = ARGUMENT.search(case.message)
    if match is None or (case.frames and not _is_library(case)):
        return None
    function = match["function"] or match["counted"]
    name = f"`{match['name']}`" if match["name"] else "another number of arguments than it takes"
    how = f"without {name}, which it requires" if "missing" in case.message else f"with {name}"
    how += ", which it doesn't take" if match["name"] and "missing" not in case.message else ""
    if not case.frames:
        what = "the class" if function == "__init__" else f"`{function}`"
        return Step(
            f"Upgrade what has {what}, or take both it and what calls it in the versions that the"
            f" project's requirements name: it is called {how}, mostly as one is older than the"
            " other. If it is the project's own, or one of several that a setting chooses, change"
            " that."
        )
    wanting = _callers(case)[0]
    version = versions_of(case.record).get(wanting)
    if "missing" in case.message and package_of_name(function.partition(".")[0]) == wanting:
        before = f'`pip install "{pip_name(wanting)}<{version}"`' if version else "an older one"
        return Step(
            f"Try the {wanting} that the framework or the model names, mostly {before}: {wanting}"
            f" calls its own `{function}` {how}, so that one of the two may have been replaced by a"
            " framework, a kernel or the model's own code, which was written for another release."
        )
    this = f"{wanting} ({version})" if version else wanting
    if "missing" in case.message:
        change = f"Give {name} of `{function}` a default"
        newer = f"a newer {wanting} (`pip install -U {pip_name(wanting)}`)"
        ages = f"ake {newer}, or an older version of the package that has `{function}`"
    else:
        change = f"Change the parameters of `{function}`"
        change += " or add `**kwargs`" if match["name"] else ""
        ages = f"ake a newer version of the package that has `{function}`, or an older {wanting}"
    if PRIVATE.search(function):  # a library's helper, no callback
        return Step(f"T{ages}: {this} calls `{function}` {how}.")
    return Step(f"{change}, if it is the project's own; else t{ages}: {this} calls it {how}.")


def _of_part(case: Case) -> Step | None:
    """A module that several distributions provide."""
    match = SUBMODULE.match(case.message)
    if match is None or match["module"] not in SPACES:
        return None
    part = f"{match['module']}/{match['name'].partition('.')[0]}"
    return Step(
        f"Put the source folder that has `{part}` on PYTHONPATH (`export PYTHONPATH=FOLDER`), or"
        f" install the distribution that brings it: here is another part of {match['module']}."
    )


def _of_name(case: Case) -> Step | None:
    """A package's code, or a patched version of it, uses an unknown name."""
    match = re.match(r"name '(\w+)' is not defined", case.message)
    if match is None or case.is_users or not (callers := _callers(case)):
        return None
    name, package = match[1], callers[0]
    owner = package_of_name(name)
    if owner not in (None, package):
        return Step(
            f"Install {owner}, or the version of it that has `{name}`: `pip install"
            f" {pip_name(str(owner))}`. Where {owner} isn't found, this code leaves its import out"
            " and fails only here."
        )
    if package == MODEL_CODE:
        return Step(
            f"Install the optional package that has `{name}`: see the conditions around the imports"
            f" at the top of this file. The model's own code uses `{name}` without having imported"
            " it."
        )
    if name[0].isupper():
        return Step(
            f"See where the file imports `{name}`, mostly under a `try` or an `if`: the optional"
            " package that has it isn't installed, or is of another version. Otherwise upgrade"
            f" {package} and what patches it: `pip install -U {pip_name(package)}`."
        )
    return Step(
        f"Upgrade {package} and whatever patches it at run time, or downgrade either by one"
        f" release: `pip install -U {pip_name(package)}`. Code of {package} uses `{name}`,"
        " which isn't defined in this version."
    )
