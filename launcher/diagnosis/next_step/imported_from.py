"""Recognizes imports that find the wrong folder: a project's, or one in place of a package."""

from __future__ import annotations

import re

from ...catalogue.package_names import INSTALLED, PACKAGES, pip_name
from .step import Case, Step

MISSING = re.compile(r"^No module named '(?P<name>[A-Za-z]\w*)(?:\.[\w.]+)?'")
LACKS = re.compile(
    r"^(?P<partly>partially initialized )?module '(?P<module>\w+)' has no attribute '(?P<name>\w+)'"
)
NO_PACKAGE = re.compile(r"; '(?P<module>\w+)[\w.]*' is not a package$")
"""The end of Python's message if a module hides a package's parts."""
COMPILED = re.compile(r"^No module named '(\w+)(?:\.\w+)*\._C\w*'")
"""A package's compiled part that is missing."""
MAIN = {
    "accelerate": "Accelerator",
    "datasets": "load_dataset|load_from_disk|Dataset",
    "deepspeed": "initialize|init_distributed|add_config_arguments",
    "evaluate": "load",
    "mlflow": "start_run|log_metric|log_params|set_experiment",
    "numpy": "array|ndarray|zeros|float32",
    "peft": "get_peft_model|LoraConfig",
    "ray": "init|remote",
    "swanlab": "init",
    "tensorflow": "keras|constant",
    "torch": "cuda|nn|Tensor|tensor|device|distributed|optim|utils",
    "transformers": "AutoModel|AutoTokenizer|Trainer|TrainingArguments",
    "wandb": "init|log|login|finish|config|Settings|Api",
}
"""What every version of a package has."""


def own_module(case: Case) -> Step | None:
    """A project's package that its script, started as a file, doesn't find."""
    match = MISSING.search(case.message)
    if match is None or COMPILED.match(case.message):
        return None
    name = match["name"]
    for frame in reversed(case.frames):
        path = frame.file.replace("\\", "/")
        folders = path.split("/")[:-1]
        if INSTALLED.match(path) or name not in folders:
            continue
        place = len(folders) - 1 - folders[::-1].index(name)
        above = re.sub(r"\W|_", "", folders[place - 1]) if place else ""
        is_in_clone = above.lower() == name.replace("_", "").lower()
        if not is_in_clone and (name in PACKAGES or place == len(folders) - 1):
            continue
        clone = f"in {'/'.join(folders[:place])}" if is_in_clone else "in the project's clone"
        inside = "/".join(path.split("/")[place:])
        module = inside.removesuffix(".py").replace("/", ".")
        return Step(
            f"Install the project itself, `pip install -e .` {clone}, or start it there as a"
            f" module, `python -m {module}` (torchrun: `-m {module}`): `{name}` is the folder that"
            " the script lies in, and Python looks in a script's folder, not above it. A package"
            " of this name on PyPI would be another version, if not another project."
        )
    return None


def shadowed(case: Case) -> Step | None:
    """A folder or file of the script's that is imported in place of a package."""
    part = COMPILED.match(case.message)
    place = next((f.file for f in reversed(case.frames) if part and f"/{part[1]}/" in f.file), "")
    if part is not None and place and not INSTALLED.match(place):
        folder = place[: place.rindex(f"/{part[1]}/")] or "/"
        return Step(
            f"Start it in another folder, if {part[1]} is installed: {folder} has its source, which"
            " is imported in place of it, and isn't compiled. Else build it there (`pip install"
            " .`)."
        )
    hidden = NO_PACKAGE.search(case.message)
    match = hidden or LACKS.search(case.message)
    if match is None:
        return None
    module = match["module"]
    if hidden is None and not re.fullmatch(MAIN.get(module, ""), match["name"]):
        return None
    return Step(
        f"Rename the file or folder `{module}` that is imported in place of the package, mostly in"
        f" the folder of the start, or uninstall another package with a `{module}`: `python -c"
        f' "import {module}; print({module})"` there shows it. If it shows the package itself, that'
        f" is broken: `pip install --force-reinstall {pip_name(module)}`."
    )
