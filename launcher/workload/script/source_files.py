"""The user's source files of a script, found by following its imports, and their words."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from ...core.request import LaunchRequest
from ...frameworks.framework import SourceWords
from ...frameworks.registry import OF_PACKAGE
from ...system import regular_files
from .files import is_installed, module_file, script_file, tree_of

WITHOUT_PARSER = {
    *("PIL", "accelerate", "apex", "bitsandbytes", "cv2", "datasets", "deepspeed", "einops"),
    *("evaluate", "flash_attn", "huggingface_hub", "matplotlib", "numpy", "packaging", "pandas"),
    *("peft", "psutil", "requests", "safetensors", "scipy", "sentencepiece", "sklearn"),
    *("tensorboard", "timm", "tokenizers", "torch", "torch_npu", "torchaudio", "torchvision"),
    *("tqdm", "transformers", "typing_extensions", "wandb", "yaml"),
}
"""Packages that don't read the command line."""
HANDING_ON = {"getopt", "importlib", "runpy", "subprocess"}
"""Standard modules that may pass arguments to unread code."""
READABLE = (sys.stdlib_module_names | WITHOUT_PARSER) - HANDING_ON
LIBRARIES = WITHOUT_PARSER | {"diffusers", "liger_kernel", *OF_PACKAGE}
"""Packages that never count as the user's, even if run from their repository."""
PROJECT_FILES = ("setup.py", "pyproject.toml")
"""Files that mark an installable project; its packages lie beside them or in `src`."""
MOST_FILES = 120
"""Maximum files to read: larger scripts are frameworks."""


@dataclass(frozen=True)
class SourceFile:
    """A user's source file."""

    path: Path
    tree: ast.Module

    def place(self, node: ast.expr | ast.stmt) -> str:
        """The location of a node, e.g. `train.py:41`."""
        return f"{self.path.name}:{node.lineno}"

    @cached_property
    def names(self) -> dict[str, tuple[str, str]]:
        """Module, with leading dots, and original name of each name imported."""
        return {
            alias.asname or alias.name: ("." * node.level + (node.module or ""), alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @cached_property
    def modules(self) -> dict[str, str]:
        """The modules imported by `import`, by their names in the file."""
        return {
            alias.asname or alias.name.partition(".")[0]: alias.name
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The script and the files that it imports, the script first.

    Attributes:
        files: the files that could be read.
        is_all: whether no other user code can affect the parsing of arguments.
    """

    files: tuple[SourceFile, ...]
    is_all: bool


def source_files(request: LaunchRequest) -> SourceFiles:
    """The script's files through all levels of imports, without installed packages."""
    find = module_file if request.is_module else script_file
    start = None if request.is_program else find(request.script)
    if start is None or not start.is_file() or is_installed(start):
        return SourceFiles((), is_all=False)
    roots = _roots(start, is_module=request.is_module)
    if b"sys.path." in regular_files.read(start):  # a sign that modules lie above it
        roots += start.absolute().parents[1:4]
    parsed: dict[Path, SourceFile] = {}
    files, is_all = [start], True
    for path in files:  # which grows meanwhile
        tree = tree_of(path) if len(parsed) < MOST_FILES else None
        if tree is None:
            is_all = False
            continue
        parsed[path] = SourceFile(path, tree)
        imported = _user_files(tree, path, roots)
        is_all = is_all and imported[1]
        files += [file for file in dict.fromkeys(imported[0]) if file not in files]
    return SourceFiles(tuple(parsed.values()), is_all)


def _roots(start: Path, *, is_module: bool) -> list[Path]:
    """Folders to search for the user's modules, most certain first.

    Folders on `sys.path` first, then the projects around the script, which are usually installed as
    editable.
    """
    above = list(start.absolute().parents)
    beside = [Path()] if is_module else [start.parent]
    paths = [Path(folder) for folder in os.environ.get("PYTHONPATH", "").split(":") if folder]
    projects = [
        folder for folder in above[:6] if any((folder / name).is_file() for name in PROJECT_FILES)
    ]
    package = next((each for each in above if not (each / "__init__.py").is_file()), above[-1])
    sources = [project / "src" for project in projects]
    folders = [*beside, *paths, Path(), package, *projects, *sources]
    return list({os.path.realpath(folder): folder for folder in reversed(folders)}.values())[::-1]


def _user_files(tree: ast.Module, path: Path, roots: Sequence[Path]) -> tuple[list[Path], bool]:
    """The user's files imported by a file, and whether it imports no unread code."""
    files: list[Path] = []
    is_all = True
    for folders, stems, package in _imported(tree, path, roots):
        group: list[Path] = []
        for folder in folders[:1] if package in LIBRARIES else folders:
            parts = [folder.joinpath(*stem.split(".")) for stem in stems]
            pairs = ((part.parent / f"{part.name}.py", part / "__init__.py") for part in parts)
            group = [file for pair in pairs for file in pair if file.is_file()]
            if group:
                break
        is_all = is_all and (bool(group) or package in READABLE)
        files += group
    return files, is_all


def _imported(
    tree: ast.Module, path: Path, roots: Sequence[Path]
) -> Iterator[tuple[Sequence[Path], list[str], str]]:
    """For each import: its roots, possible module names, and its package."""
    above = path.absolute().parents
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield roots, [alias.name], alias.name.partition(".")[0]
            case ast.ImportFrom(module=module, names=names, level=level):
                folders = [above[min(level, len(above)) - 1]] if level else roots
                head = module or ""
                inner = [f"{head}.{alias.name}".lstrip(".") for alias in names]
                yield folders, [head, *inner], "" if level else head.partition(".")[0]


def words_of(sources: SourceFiles) -> SourceWords:
    """Collects the words of all files of a script."""
    nodes = [node for file in sources.files for node in ast.walk(file.tree)]
    set_, assigned, named = (frozenset(chain(*map(of, nodes))) for of in (_set, _assigned, _named))
    return SourceWords(set_, assigned, named, sources.is_all)


def _set(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=word, ctx=ast.Store()) | ast.Attribute(attr=word, ctx=ast.Store()):
            yield word
        case ast.keyword(value=ast.Constant(value=None)):
            return  # which leaves it to the default
        case ast.keyword(arg=str(word)) | ast.arg(arg=word) | ast.Constant(value=str(word)):
            yield word


def _assigned(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(attr=word, ctx=ast.Store(), value=ast.Name(id=owner)):
            if owner.endswith(("args", "arguments")):
                yield word


def _named(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
            yield word
        case ast.keyword(arg=str(word)):
            yield word
        case ast.FunctionDef(name=word) | ast.ClassDef(name=word):
            yield word
        case ast.ImportFrom(module=str(word)):
            yield word
