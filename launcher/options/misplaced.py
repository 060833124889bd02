"""Finds options of the launcher after the script, whose own parser doesn't know them."""

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
"""Packages that don't read the command line themselves."""
HANDING_ON = {"getopt", "importlib", "runpy", "subprocess"}
"""Python's modules that pass arguments to code that isn't searched."""
READABLE = (sys.stdlib_module_names | WITHOUT_PARSER) - HANDING_ON
RUNNING = {"__import__", "exec", "execl", "execv", "execve", "execvp", "execvpe", "system"}
"""Functions that do so too."""
TRAINING_ARGUMENTS = ("training_args.py", "training_args_seq2seq.py")
"""Files of transformers with its parser's own arguments."""


def line(request: LaunchRequest, spellings: Collection[str]) -> str:
    """A warning of options in the wrong place; empty for none.

    Args:
        request: the launch.
        spellings: all spellings of the launcher's options.
    """
    strange = unknown(request, spellings)
    if not strange:
        return ""
    them = "it" if len(strange) == 1 else "them"
    return (
        f"{', '.join(strange)}: handed to {request.script}, which doesn't know {them}; "
        "safe-launch's own options must precede the script"
    )


def unknown(request: LaunchRequest, spellings: Collection[str]) -> tuple[str, ...]:
    """The script's arguments that are spelt like these and that it doesn't know.

    Empty where that isn't certain, because other code may read the arguments.
    """
    own = itertools.takewhile(lambda argument: argument != "--", request.arguments)
    names = dict.fromkeys(argument.partition("=")[0] for argument in own)
    alike = [name for name in names if name in spellings]
    words = _words(request) if alike else None
    if words is None:
        return ()
    return tuple(name for name in alike if not any(_is_named_by(name, word) for word in words))


def _is_named_by(option: str, word: str) -> bool:
    """Whether a word of a source file is the option's name, or begins with it."""
    if option.startswith("--"):
        option, word = option.lstrip("-"), word.lstrip("-")
    return word.replace("-", "_").startswith(option.replace("-", "_"))


def _words(request: LaunchRequest) -> set[str] | None:
    """All names and texts of the script's own files; None where other code may parse too.

    The user's files are followed recursively, installed packages aren't.
    """
    start = module_file(request.script) if request.is_module else script_file(request.script)
    if start is None or request.is_program or any("-packages" in part for part in start.parts):
        return None
    root = Path() if request.is_module else start.parent
    words: set[str] = set()
    files = [start]
    for path in files:  # the list grows meanwhile
        tree = tree_of(path)
        imported = None if tree is None or _passes_on(tree) else _own_files(tree, path, root)
        if tree is None or imported is None:
            return None
        words.update(_mentioned(tree))
        files += [package for package in dict.fromkeys(imported) if package not in files]
    if words & PARSERS:
        folder = next(package_folders("transformers"), Path())
        trees = [tree_of(folder / name) for name in TRAINING_ARGUMENTS]
        if None in trees:
            return None
        words.update(word for tree in trees if tree for word in _mentioned(tree))
    return words


def _mentioned(tree: ast.Module) -> Iterator[str]:
    """Texts, and names that are set, parameters, imported, or attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(names=names):
                yield from (alias.name for alias in names)


def _passes_on(tree: ast.Module) -> bool:
    """Whether a file runs code that isn't searched, or declares options with computed names."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in RUNNING:
                return True
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=names):
                if not all(isinstance(name, ast.Constant) for name in names):
                    return True
    return False


def _own_files(tree: ast.Module, path: Path, root: Path) -> list[Path] | None:
    """The user's files that a file imports; None where it imports code that isn't searched.

    Args:
        tree: the file's syntax tree.
        path: the file.
        root: the folder of the user's modules.
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
            files = [file for parameter in group for file in _files_of(parameter) if file.is_file()]
            if not files and package not in READABLE:
                return None
            found += files
    return found


def _files_of(stem: Path) -> tuple[Path, Path]:
    return stem.parent / f"{stem.name}.py", stem / "__init__.py"
