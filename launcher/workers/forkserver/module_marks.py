"""Marks of the objects in imported modules, by which two processes can compare them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple
from zlib import crc32

from ...core.private_names import DEFAULT_DEVICE
from ...workload.script.imports import is_installed

PACKAGE = str(Path(__file__).parents[2])
"""Prefix of safe-launch's files, which are neither installed modules nor the user's."""
DEPTH = 3
"""Levels of wrapped functions that are followed."""


class Mark(NamedTuple):
    """Identifies a function, class or flag that a module holds.

    Attributes:
        crc: checksum of the text that describes it.
        is_own: the module has defined it, not imported it.
    """

    crc: int
    is_own: bool = False


ABSENT = Mark(0)


def installed_modules() -> Iterator[tuple[str, ModuleType]]:
    """The imported modules of installed packages, by name.

    No `getattr` is used on them: a lazy module would import what is looked up.
    """
    for name, module in list(sys.modules.items()):
        if not issubclass(type(module), ModuleType):
            continue
        spec = vars(module).get("__spec__")
        if name == "__main__" or spec is None or spec.name != name or spec.origin is None:
            continue
        if is_installed(spec.origin) and not spec.origin.startswith(PACKAGE):
            yield name, module


def marks_of(module: ModuleType) -> dict[str, Mark]:
    """A mark of each function, class and flag by name, and of the module's file.

    Lazy modules, like those of transformers, have none.
    """
    path = str(vars(module).get("__file__"))
    marks = {"": Mark(checksum(path))}
    if type(module) is ModuleType:
        for name, value in list(vars(module).items()):
            if (text := _text(name, value, DEPTH)) is not None:
                is_own = text.startswith((f"{path}:", f"{module.__name__}."))
                marks[name] = Mark(checksum(text), is_own)
    return marks


def checksum(text: str) -> int:
    """A text's checksum."""
    return crc32(text.encode(errors="surrogateescape"))


def _text(name: str, value: Any, depth: int) -> str | None:
    """A text that changes if the function is replaced; includes the functions that it wraps."""
    kind = type(value)
    if kind is FunctionType:
        code = value.__code__
        cells = value.__closure__ or () if depth else ()
        inner = [_text("", content, depth - 1) for content in _contents(cells)]
        return f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}{list(filter(None, inner))}"
    if issubclass(kind, type) or kind is BuiltinFunctionType:
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value) if kind is bool and name.isupper() else None


def _contents(cells: Any) -> Iterator[Any]:
    for cell in cells:
        with suppress(ValueError):  # it is still empty
            yield cell.cell_contents


def replaced_by_user() -> str | None:
    """The name of an object in an installed package that the user's code has replaced."""
    for name, module in installed_modules():
        if "-packages" not in str(vars(module).get("__file__")):
            continue
        for attribute, value in list(vars(module).items()):
            if _is_users(value):
                return f"{name}.{attribute}"
            if issubclass(type(value), type) and value.__module__ == name:
                for inner, method in list(vars(value).items()):
                    if _is_users(method):
                        return f"{name}.{attribute}.{inner}"
    return None


def _is_users(value: Any) -> bool:
    """Whether the value is a function from one of the user's files."""
    if type(value) is not FunctionType:
        return False
    path = value.__code__.co_filename
    return not path.startswith("<") and not is_installed(path) and not path.startswith(PACKAGE)


def torch_defaults() -> str:
    """The type and device of new tensors; empty without torch."""
    torch, device = sys.modules.get("torch"), sys.modules.get(DEFAULT_DEVICE.module)
    if torch is None:
        return ""
    if device is None or DEFAULT_DEVICE.path in vars(device):  # torch's getter would import more
        current = vars(device or torch).get(DEFAULT_DEVICE.path)
    else:
        current = torch.get_default_device()
    return f"{torch.get_default_dtype()} {current}"
