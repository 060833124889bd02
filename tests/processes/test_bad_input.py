"""Refused launches: a message and exit code each, no traceback, no process left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.processes import environment, gone, launch


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no script is given"),
        (("absent.py",), "there is no script `absent.py`"),
        (("tmp",), "tmp is a folder, not a Python script"),
        (("broken.py",), "broken.py:2: syntax error: invalid syntax"),
        (("latin.py",), "latin.py: syntax error: invalid or missing encoding"),
        (("--nproc=0", "fine.py"), "--nproc 0: at least one worker is needed"),
        (("--nproc=-3", "fine.py"), "--nproc -3: at least one worker is needed"),
        (("--nproc=two", "fine.py"), "--nproc 'two' is neither a whole number nor"),
        (("--nproc=gpu", "fine.py"), "--nproc gpu: no accelerator was found on this host"),
        (("--nprok=2", "fine.py"), "unrecognized arguments: --nprok=2"),
        (("--fix=maybe", "fine.py"), "--fix: `maybe` is none of auto, once, suggest"),
        (("--shutdown-timeout=soon", "fine.py"), "--shutdown-timeout"),
        (("--shutdown-timeout=-1", "fine.py"), "a time can't be negative"),
        (("--catalogue=absent", "fine.py"), "--catalogue absent: no such folder"),
        (("--catalogue=mistaken", "fine.py"), "mistaken/wrong.md:4: unknown key `titel`"),
        (("fine.py", "--deepspeed", "absent.json"), "absent.json: no such DeepSpeed"),
        (("fine.py", "--deepspeed", "broken.json"), "broken.json:2: not JSON"),
        (("fine.py", "--deepspeed=twice.json"), "twice.json: the key `a` is given twice"),
        (("fine.py", "list.yaml"), "list.yaml:1: a mapping of arguments is expected"),
        (("fine.py", "absent.yaml"), "there is no file of arguments `absent.yaml`"),
        (("shell",), "shell is a shell script, not a Python script"),
        (("shell",), "safe-launch wrap -- bash shell"),
        (("notebook.ipynb",), "jupyter nbconvert --to script notebook.ipynb"),
        (("perl",), "safe-launch --no-python perl"),
        (("words.txt",), "words.txt was taken for the script"),
        (("-",), "save it to a file"),
        (("/dev/stdin",), "save it to a file"),
        (("-c", "print()"), "code on the command line can't be launched"),
        (("plna",), "there is no script `plna`, nor a command of that name"),
        (("plna",), "did you mean `plan`?"),
        (("--frobnicate", "fine.py"), "safe-launch --help lists the options"),
        (("explain", "zero2-gradient-reduced-twic"), "did you mean `zero2-gradient-reduced-twice`"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else None,
)
def test_what_cant_be_used(workshop: Path, arguments: tuple[str, ...], words: str) -> None:
    """The message has the setting, or file and line; the code is 64; no worker starts."""
    (workshop / "fine.py").write_text("open('started', 'w')\n")
    (workshop / "broken.py").write_text("x = 1\nif x = 2:\n    pass\n")
    (workshop / "latin.py").write_bytes(b"name = '\xe9'\n")
    (workshop / "shell").write_text("#!/usr/bin/env -S bash -e\npython fine.py --epochs 1\n")
    (workshop / "perl").write_text("#!/usr/bin/perl -w\nuse strict;\n")
    (workshop / "notebook.ipynb").write_text('{"cells": [], "nbformat": 4}\n')
    (workshop / "words.txt").write_text("what to do next\n")
    (workshop / "broken.json").write_text('{"a": 1,\n "b": }\n')
    (workshop / "twice.json").write_text('{"a": 1, "a": 2}\n')
    (workshop / "list.yaml").write_text("- 1\n- 2\n")
    (workshop / "mistaken").mkdir()
    front = "---\nid: wrong\nrole: initiating\ntitel: a word\n---\n"
    (workshop / "mistaken" / "wrong.md").write_text(front)
    done = launch(workshop, *arguments, ours=not arguments or arguments[0] != "explain")
    told = " ".join(done.stderr.replace("[safe-launch]", "").split())
    assert done.returncode == 64
    assert words in told
    assert "Traceback" not in done.stderr
    assert not (workshop / "started").exists()
    assert gone(workshop)


def test_any_file_that_is_python_runs(workshop: Path) -> None:
    """The file's name doesn't matter, as under torchrun."""
    (workshop / "train.txt").write_text("open('started', 'w')\n")
    assert launch(workshop, "train.txt").returncode == 0
    assert (workshop / "started").exists()


def test_an_argument_of_the_wrong_type_is_the_scripts_to_refuse(workshop: Path) -> None:
    """The plan only notes it; the script's message and exit code follow."""
    (workshop / "train.py").write_text(
        "import argparse\n"
        "# HfArgumentParser\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--per_device_train_batch_size', type=int)\n"
        "parser.parse_args()\n"
    )
    done = launch(workshop, "--nproc=2", "train.py", "--per_device_train_batch_size=four")
    assert done.returncode == 2
    assert "--per_device_train_batch_size: 'four' isn't a positive whole number" in done.stderr
    assert "invalid int value: 'four'" in done.stderr
    assert "relaunching" not in done.stderr


def test_a_run_directory_that_cant_be_made(workshop: Path) -> None:
    """A path below a file: exit code 73 before any worker starts, with advice."""
    (workshop / "file").touch()
    (workshop / "fine.py").write_text("open('started', 'w')\n")
    done = launch(workshop, "--log-dir=file/runs", "fine.py", ours=False)
    assert done.returncode == 73
    assert done.stderr.startswith("[safe-launch] error: the run directory can't be written: file/")
    assert "--log-dir" in done.stderr
    assert not (workshop / "started").exists()


@pytest.fixture
def small_disk(workshop: Path) -> Path:
    """A file system of 64 KiB."""
    disk = workshop / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_full_from_the_start(workshop: Path, small_disk: Path) -> None:
    """Exit code 73 and the reason, before any worker starts."""
    (small_disk / "ballast").write_bytes(b"x" * 64 * 1024)
    (workshop / "fine.py").write_text("open('started', 'w')\n")
    done = launch(workshop, f"--log-dir={small_disk}", "fine.py", ours=False)
    assert done.returncode == 73
    assert "No space left on device" in done.stderr
    assert not (workshop / "started").exists()


def test_a_disk_that_fills_up_on_the_way(workshop: Path, small_disk: Path) -> None:
    """The training finishes; the end of each rank's log is reported once."""
    (workshop / "talk.py").write_text("for _ in range(4000): print('y' * 99)\n")
    done = launch(workshop, f"--log-dir={small_disk}", "--nproc=2", "talk.py", ours=False)
    assert done.stdout.count("y" * 99) == 8000
    for rank in range(2):
        assert done.stderr.count(f"rank {rank}'s log isn't written any further") == 1
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_help_and_plan_import_no_torch(workshop: Path) -> None:
    """Quick commands import no heavy frameworks."""
    (workshop / "fine.py").write_text("pass\n")
    program = (
        "import sys\n"
        "from safe_launch.cli import guarded\n"
        "for line in (['--nproc=x', 'a.py'], ['plan', 'fine.py'], ['explain']):\n"
        "    guarded(line)\n"
        "try:\n"
        "    guarded(['--help'])\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'torch', 'transformers', 'deepspeed', 'numpy'} & sys.modules.keys()\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    done = subprocess.run(
        ["python", "-c", program],
        cwd=workshop,
        env=environment(workshop),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usage: safe-launch" in done.stdout
    assert "zero2-gradient-reduced-twice" in done.stdout


def test_json_with_a_launch(workshop: Path) -> None:
    """A launch prints no JSON, and reports that."""
    (workshop / "fine.py").write_text("print('trained')\n")
    done = launch(workshop, "--json", "--nproc=1", "fine.py")
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "--json has no effect here: a launch prints no document" in done.stderr
