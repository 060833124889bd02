"""Finds files of scripts, modules and packages without importing anything."""

from __future__ import annotations

import ast
import io
import sys
import sysconfig
import tokenize
import zipfile
from pathlib import Path

from ...core.errors import LaunchError, reason_of
from ...system import regular_files
from . import not_python

STANDARD = sysconfig.get_path("stdlib")
"""Folder of the standard library."""


def module_file(name: str) -> Path | None:
    """The file of a module; None if it isn't on `sys.path`."""
    parts = name.split(".")
    if not all(parts) or any("/" in part or "\0" in part for part in parts):
        return None  # of no module
    stem = Path(*parts)
    for folder in ("", *sys.path):
        for path in (Path(folder, stem).with_suffix(".py"), Path(folder, stem, "__main__.py")):
            if path.is_file():
                return path
    return None


def is_installed(path: Path) -> bool:
    """Whether a file belongs to an installed package or Python, not to the user."""
    return any("-packages" in part for part in path.parts) or path.is_relative_to(STANDARD)


def script_file(script: str) -> Path | None:
    """The file of a script, or a folder's `__main__.py`; None for a zip archive."""
    path = Path(script)
    main = path / "__main__.py"
    if path.is_file() and zipfile.is_zipfile(path):
        return None
    return main if main.is_file() else path


def parsed(path: Path) -> ast.Module:
    """Parses a script.

    Raises:
        LaunchError: the file doesn't exist, can't be read or isn't Python.
    """
    refused = not_python.refusal_unread(path)
    if refused is not None:
        raise refused
    try:
        content = io.BytesIO(regular_files.read(path))
        encoding, _ = tokenize.detect_encoding(content.readline)
        content.seek(0)
        return ast.parse(io.TextIOWrapper(content, encoding).read(), filename=str(path))
    except FileNotFoundError:
        raise LaunchError(f"there is no script `{path}`", f"looked in {Path.cwd()}") from None
    except OSError as error:
        raise LaunchError.because(error, f"{path} can't be read") from error
    except (RecursionError, MemoryError) as error:  # raised by Python's parser
        problem = "it is nested too deeply"
        raise not_python.refusal_of_syntax(path, None, problem, "") from error
    except SyntaxError as error:
        line = (error.text or "").strip()
        hint = f"the line is: {line}" if line else ""
        raise not_python.refusal_of_syntax(path, error.lineno, error.msg, hint) from error
    except (UnicodeDecodeError, ValueError) as error:
        raise not_python.refusal_of_syntax(path, None, reason_of(error), "") from error
