"""Options of the launcher's that stand behind the script, whose own parser doesn't know them."""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from ..core.request import LaunchRequest
from ..workload.script.files import module_file, package_folders, script_file
from ..workload.script.script import PARSERS
from ..workload.script.user_files import tree_of

WITHOUT_PARSER = {
    *("PIL", "accelerate", "apex", "bitsandbytes", "cv2", "datasets", "deepspeed", "einops"),
    *("evaluate", "flash_attn", "huggingface_hub", "matplotlib", "numpy", "packaging", "pandas"),
    *("peft", "psutil", "requests", "safetensors", "scipy", "sentencepiece", "sklearn"),
    *("tensorboard", "timm", "tokenizers", "torch", "torch_npu", "torchaudio", "torchvision"),
    *("tqdm", "transformers", "typing_extensions", "wandb", "yaml"),
}
"""Packages that read no command line by themselves."""
HANDING_ON = {"getopt", "importlib", "runpy", "subprocess"}
"""Python's own modules by which arguments come to code that isn't looked at."""
READABLE = (sys.stdlib_module_names | WITHOUT_PARSER) - HANDING_ON
RUNNING = {"__import__", "exec", "execl", "execv", "execve", "execvp", "execvpe", "system"}
"""Functions that do the same."""
TRAINING_ARGUMENTS = ("training_args.py", "training_args_seq2seq.py")
"""Files of transformers' with the arguments that its parser takes beside the script's."""


def line(request: LaunchRequest, spellings: Collection[str]) -> str:
    """What to say of options in the wrong place; empty where there is nothing to say.

    Args:
        request: the launch.
        spellings: all that options of the launcher are spelt like.
    """
    strange = unknown(request, spellings)
    if not strange:
        return ""
    them = "it" if len(strange) == 1 else "them"
    return (
        f"{', '.join(strange)}: handed to {request.script}, which doesn't know {them}; "
        "safe-launch's own options stand before the script"
    )


def unknown(request: LaunchRequest, spellings: Collection[str]) -> tuple[str, ...]:
    """The script's arguments that are spelt so and that it doesn't know.

    None where that isn't sure, because what else reads the arguments isn't looked at.
    """
    own = itertools.takewhile(lambda one: one != "--", request.arguments)
    names = dict.fromkeys(one.partition("=")[0] for one in own)
    alike = [one for one in names if one in spellings]
    words = _words(request) if alike else None
    if words is None:
        return ()
    return tuple(one for one in alike if not any(_may_be(one, word) for word in words))


def _may_be(option: str, word: str) -> bool:
    """Whether a word of a source file is that option's name, or its beginning is."""
    if option.startswith("--"):
        option, word = option.lstrip("-"), word.lstrip("-")
    return word.replace("-", "_").startswith(option.replace("-", "_"))


def _words(request: LaunchRequest) -> set[str] | None:
    """All names and texts of the script's own files; None where they may not be the whole parser.

    Files of the user's are followed through all levels, installed packages aren't.
    """
    start = module_file(request.script) if request.is_module else script_file(request.script)
    if start is None or request.is_program or any("-packages" in one for one in start.parts):
        return None
    root = Path() if request.is_module else start.parent
    words: set[str] = set()
    files = [start]
    for path in files:  # which grows meanwhile
        tree = tree_of(path)
        imported = None if tree is None or _hands_on(tree) else _own_files(tree, path, root)
        if tree is None or imported is None:
            return None
        words.update(_mentioned(tree))
        files += [one for one in dict.fromkeys(imported) if one not in files]
    if words & PARSERS:
        folder = next(package_folders("transformers"), Path())
        trees = [tree_of(folder / one) for one in TRAINING_ARGUMENTS]
        if None in trees:
            return None
        words.update(word for tree in trees if tree for word in _mentioned(tree))
    return words


def _mentioned(tree: ast.Module) -> Iterator[str]:
    """Texts, and names of what is set, taken as an argument, imported, or an attribute."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(names=names):
                yield from (alias.name for alias in names)


def _hands_on(tree: ast.Module) -> bool:
    """Whether a file runs what isn't looked at, or declares options whose names it computes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in RUNNING:
                return True
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=names):
                if not all(isinstance(one, ast.Constant) for one in names):
                    return True
    return False


def _own_files(tree: ast.Module, path: Path, root: Path) -> list[Path] | None:
    """The user's files that a file imports; None where it imports what isn't looked at.

    Args:
        tree: of the file.
        path: the file.
        root: where modules of the user's are found.
    """
    found: list[Path] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                stems = [[root.joinpath(*alias.name.split("."))] for alias in names]
                packages = [alias.name.partition(".")[0] for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                above = path.absolute().parents
                folder = above[min(level, len(above)) - 1] if level else root
                stem = folder.joinpath(*(module or "").split("."))
                stems = [[stem, *(stem / alias.name for alias in names)]]
                packages = ["" if level else str(module).partition(".")[0]]
            case _:
                continue
        for group, package in zip(stems, packages, strict=True):
            files = [file for one in group for file in _files_of(one) if file.is_file()]
            if not files and package not in READABLE:
                return None
            found += files
    return found


def _files_of(stem: Path) -> tuple[Path, Path]:
    return stem.parent / f"{stem.name}.py", stem / "__init__.py"
