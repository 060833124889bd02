"""Odd input is reported like any other bad input, without a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.processes import launch, workshop

__all__ = ["workshop"]
DEEP = '{"a":' * 200_000 + "1" + "}" * 200_000
LISTS = "- " * 200_000 + "a"
LONG = "7" * 4301
USAGE = 64


@pytest.mark.parametrize("kind", ["json", "yaml"])
@pytest.mark.parametrize(
    "words",
    [
        ("--accelerate-config", "{file}", "train.py"),
        ("train.py", "--deepspeed", "{file}"),
        ("train.py", "{file}"),
        ("--hardware", "{file}", "train.py"),
        ("--preset", "{file}", "train.py"),
    ],
    ids=lambda words: words[0],
)
def test_deeply_nested_files(workshop: Path, words: tuple[str, ...], kind: str) -> None:
    """A parser's recursion limit isn't shown; in C it would end the process."""
    script = (
        "from transformers import HfArgumentParser, TrainingArguments\n"
        "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    )
    (workshop / "train.py").write_text(script)
    file = f"deep.{kind}"
    (workshop / file).write_text(DEEP if kind == "json" else LISTS)
    done = launch(workshop, "plan", *(word.format(file=file) for word in words), ours=False)
    assert done.returncode in (0, USAGE)  # Hjson reads the list as text
    assert "Traceback" not in done.stderr


def test_numbers_of_thousands_of_digits(workshop: Path) -> None:
    """In every place of a log with a number."""
    lines = [
        f"[rank{LONG}]: Traceback (most recent call last):",
        f'  File "/a/train.py", line {LONG}, in main',
        "    step()",
        "ValueError: boom",
        f"exitcode  : -{LONG} (pid: {LONG})",
        f"  rank      : {LONG} (local_rank: {LONG})",
        f"Sending process {LONG} closing signal SIGTERM",
        f"failed (exitcode: {LONG}) local_rank: {LONG} (pid: {LONG}) of binary: python",
        f"srun: error: n1: task {LONG}: Exited with exit code {LONG}",
    ]
    (workshop / "a.log").write_text("\n".join(lines))
    for text in ("\n".join(lines), *lines):
        (workshop / "a.log").write_text(f"{text}\n")
        done = launch(workshop, "diagnose", "a.log", ours=False)
        assert done.returncode in (1, 2, 3), (text[:40], done.stderr)


@pytest.mark.parametrize("descriptors", range(6, 34, 3))
def test_few_descriptors(workshop: Path, descriptors: int) -> None:
    """The limit is reported with advice, or it suffices."""
    (workshop / "train.py").write_text("")
    done = launch(
        workshop,
        f"--nofile={descriptors}",
        *("safe-launch", "--log-dir=runs", "--nproc=2", "train.py"),
        command="prlimit",
        ours=False,
    )
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert done.returncode == USAGE
        assert "ulimit -n" in done.stderr


ECHO = """
import os, sys
sys.stdout.flush()
with open("rank-" + os.environ["RANK"], "wb") as file:
    file.write(b"\\0".join(map(os.fsencode, [__file__, *sys.argv[1:]])))
if "die" in sys.argv:
    raise RuntimeError("boom \\udcff")
"""
BYTES = os.fsdecode(b"--name=\xff")
ASCII = {"LC_ALL": "C", "PYTHONUTF8": 0, "PYTHONCOERCECLOCALE": 0}


@pytest.mark.parametrize(
    ("name", "method", "locale"),
    [
        (b"train.py", "forkserver", ASCII),
        (b"new\nline.py", "forkserver", {}),
        (b"b\xff.py", "forkserver", {}),
        (b"fold\ner/b\xff.py", "spawn", ASCII),
    ],
)
def test_names_of_any_bytes(
    workshop: Path, name: bytes, method: str, locale: dict[str, object]
) -> None:
    """The script gets them unchanged; records, lists and pages are readable."""
    script = Path(os.fsdecode(name))
    (workshop / script.parent).mkdir(exist_ok=True)
    (workshop / script).write_text(ECHO)
    words = ("--log-dir=.", "--nproc=2", f"--start-method={method}", script, BYTES, "é", "die")
    done = launch(workshop, *words, ours=False, **locale)
    assert done.returncode == 1, done.stderr
    assert "safe-launch itself failed" not in done.stderr
    for written in [next(workshop.glob("rank-?")), *workshop.glob("rank-?")]:  # by each rank so far
        path, *given = written.read_bytes().split(b"\0")
        assert (path, given) == (bytes(workshop / script), [*map(os.fsencode, (BYTES, "é", "die"))])
    (run,) = workshop.glob("*-20*")
    assert run.name.isprintable()
    listed = launch(workshop, "runs", "--json", "--log-dir=.", ours=False, **locale)
    assert "boom" in json.loads(listed.stdout)["runs"][0]["attempts"][0]["failure"]
    for command in ("report", "status", "fix", "runs"):
        assert launch(workshop, command, "--log-dir=.", ours=False, **locale).returncode == 0
