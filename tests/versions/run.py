"""Tries combinations of versions, each in an environment of its own, and keeps what they show.

    python tests/versions/run.py [--keep] [--only CHECK] [NAME ...]
    python tests/versions/run.py --page

An environment is deleted after its run, unless it is to be kept. The page is written each time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from support.stacks import ROOT, Stack  # noqa: E402
from versions import page, record  # noqa: E402
from versions.checks import CHECKS, Check, result  # noqa: E402
from versions.table import COMBINATIONS, PACKAGES, Combination  # noqa: E402

TELLS = """
import json, platform, sys
from importlib.metadata import version
found = {name: version(name) for name in sys.argv[1:]}
print(json.dumps({"python": platform.python_version(), **found}))
"""


def interpreter_of(one: Combination) -> str | None:
    """The command of the combination's interpreter; None where there is none."""
    command = f"python{one.python}"
    found = shutil.which(command)
    works = (
        found and not subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode
    )
    return found if works else None


def install(one: Combination, python: str) -> Stack:
    """The combination's environment.

    Raises:
        CalledProcessError: it can't be made.
    """
    folder = ROOT / ".environments" / one.environment
    command = (ROOT / "scripts" / "environment", one.environment, *one.pinned)
    subprocess.run(command, env={**os.environ, "PYTHON": python}, check=True)
    return Stack(one.name, folder / "bin", folder / "extensions")


def tried(stack: Stack, checks: Mapping[str, Check]) -> record.Record:
    """Runs the checks one after the other; the record has the stack's name."""
    with tempfile.TemporaryDirectory() as folder:
        told = stack.run("python", "-c", TELLS, *PACKAGES, cwd=Path(folder))
        begun = time.monotonic()
        results = {}
        for name, check in checks.items():
            results[name] = result(check, stack, Path(folder, "work"))
            print(f"{stack.name}: {name}: {results[name]}", flush=True)
        seconds = round(time.monotonic() - begun)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return record.Record(stack.name, today, commit(), json.loads(told.stdout), results, seconds)


def commit() -> str:
    """safe-launch's commit; with `+` where what is launched has been changed since."""
    git = ("git", "-C", str(ROOT))
    number = subprocess.run(
        (*git, "rev-parse", "--short=12", "HEAD"), capture_output=True, text=True
    )
    changed = subprocess.run((*git, "diff", "--quiet", "HEAD", "--", "launcher", "examples"))
    return number.stdout.strip() + "+" * (changed.returncode != 0)


def main() -> None:
    """Does what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--page", action="store_true", help="write the page alone")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--only", choices=CHECKS, help="one check; nothing is recorded")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    known = {one.name: one for one in COMBINATIONS}
    if unknown := set(options.names) - known.keys():
        sys.exit(f"no {', '.join(unknown)}; there are {', '.join(known)}")
    for name in () if options.page else options.names or known:
        python = interpreter_of(known[name])
        if python is None:
            print(f"{name}: there is no python{known[name].python}: left out", file=sys.stderr)
            continue
        try:
            stack = install(known[name], python)
            chosen = {options.only: CHECKS[options.only]} if options.only else CHECKS
            found = tried(stack, chosen)
        except subprocess.CalledProcessError as error:  # the others are tried all the same
            print(f"{name}: {error}\n{error.stderr or ''}", file=sys.stderr)
            continue
        if not options.only:
            record.keep(found)
        if not options.keep:
            shutil.rmtree(stack.bin.parent)
    page.write()


if __name__ == "__main__":
    main()
