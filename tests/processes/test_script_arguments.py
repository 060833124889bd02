"""Arguments behind the script are the script's, whatever they look like."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from safe_launch.core.errors import LaunchError
from safe_launch.core.request import LaunchRequest
from safe_launch.options import misplaced, parser
from support.processes import LAUNCHER, PROGRAMS, environment, launch

BEHIND = (
    *("--in x", "--log 3", "--a 1", "--n 2", "--h", "-h", "--help", "--version", "-m x", "-mx"),
    *("--nnodes 2", "--nproc=2", "--no- 1", "-t3", "-1", "--", "-- --nproc 2", "a -- b", "- -q"),
    *("--autotuning run", "--set=1 --i", "--fix", "--tee", "plan", "--node-timeout soon"),
)
"""What argparse, the launcher's own options and torchrun would like to have a say in."""
FRONTS: dict[str, tuple[tuple[str, ...], str]] = {
    "nothing": ((), "train.py"),
    "options": (("--nproc", "2", "-t3", "--log_dir=logs", "-q"), "train.py"),
    "module": (("-qm",), "package.train"),
    "program": (("--no-python", "--launcher_args=-i key"), "bash"),
    "dashes": (("--fix", "once", "--"), "train.py"),
    "beginnings": (("--num_no", "-1", "--shutdown-t=3", "--no_py"), "train.py"),
}


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("behind", BEHIND)
def test_what_stands_behind_the_script(front: str, behind: str) -> None:
    """It has no say in how the launcher's own options are read, and is left as it is."""
    own, script = FRONTS[front]
    given = parser.parsed([*own, script, *behind.split()])
    assert (given.script, given.arguments) == (script, behind.split())
    alone = parser.parsed([*own, script])
    alone.arguments = given.arguments
    assert given == alone


def test_what_stands_before_it() -> None:
    """Values that look like a script are values; a value that is missing is missed there."""
    given = parser.parsed(["--role", "a.py", "-t", "3", "-H", "hosts", "train.py"])
    assert (given.role, str(given.hostfile), given.script) == ("a.py", "hosts", "train.py")
    for words, problem in (
        (["--tee", "--nproc", "2", "train.py"], "-t/--tee: expected one argument"),
        (["--tee"], "-t/--tee: expected one argument"),
        (["--nprok", "2", "train.py", "--in"], "unrecognized arguments: --nprok"),
        (["-x", "train.py"], "unrecognized arguments: -x"),
    ):
        with pytest.raises(LaunchError, match=problem):
            parser.parsed(words)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_they_reach_the_script(workshop: Path, method: str) -> None:
    """Through the launcher, the server that workers are forked from, and the worker's entry."""
    words = [word for one in BEHIND for word in one.split()]
    done = launch(workshop, "--nproc=1", "--start-method", method, PROGRAMS / "says.py", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads((workshop / "said-0").read_text())["argv"][1:] == words


@pytest.mark.parametrize("tool", ["torchrun", "deepspeed"])
def test_they_reach_it_below_a_tool(workshop: Path, tool: str) -> None:
    """The tool's own launcher would have refused some of them."""
    one = {"torchrun": "--nproc_per_node=1", "deepspeed": "--num_gpus=1"}[tool]
    words = ["--in", "x", "--n", "2", "--h", "--", "--nproc", "2"]
    command = [LAUNCHER, "wrap", "--", tool, one, str(PROGRAMS / "says.py"), *words]
    done = subprocess.run(
        command,
        cwd=workshop,
        env=environment(workshop),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((workshop / "said-0").read_text())["argv"][1:] == words


def test_a_template_leaves_them_alone(workshop: Path) -> None:
    """Its own options end at the script, or at `--` before ours."""
    for words in (["train.py", "--name", "mine", "--n", "2"], ["--", "--fix=once", "x.py", "--"]):
        done = launch(workshop, "template", "slurm", "--name", "job", *words, ours=False)
        assert f"training=(safe-launch {' '.join(words[words[0] == '--' :])})" in done.stdout


SPELLINGS = parser.parser().spellings
PARSER = "import argparse\nparser = argparse.ArgumentParser()\n"
PARSED = "parser.parse_args()\n"
HF = "from transformers import HfArgumentParser, TrainingArguments\n"


def strangers(folder: Path, *arguments: str, **files: str) -> tuple[str, ...]:
    """The arguments that `train` doesn't know and the launcher would; files by their stems."""
    for name, text in files.items():
        path = folder / f"{name.replace('__of__', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    request = LaunchRequest(str(folder / "train.py"), False, arguments, 1, "--nproc")
    return misplaced.unknown(request, SPELLINGS)


@pytest.mark.parametrize(
    "text",
    [
        "import torch\n",
        "import sys\nprint(sys.argv)\n",
        f"{PARSER}parser.add_argument('--epochs', '-e')\n{PARSED}",
        "import torch, transformers, deepspeed\nfrom datasets import load_dataset\n",
        f"{HF}HfArgumentParser(TrainingArguments)\n",
        f"import options\n{PARSED}",
    ],
)
def test_a_stranger_is_found(tmp_path: Path, text: str) -> None:
    """Where the script's own files are all that could know it, and don't."""
    found = strangers(
        *(tmp_path, "--epochs", "3", "--nproc", "2", "--nnodes=2", "--nproc", "--", "--tee"),
        train=text,
        options=f"{PARSER}from deep.inner import more\n",
        deep__of__inner="more = 1\n",
    )
    assert found == ("--nproc", "--nnodes")


@pytest.mark.parametrize(
    "text",
    [
        f"{PARSER}parser.add_argument('--nproc')\n{PARSED}",
        f"{PARSER}parser.add_argument('-n', '--nproc-per-host')\n{PARSED}",
        f"import options\n{PARSED}",
        f"from deep import options\n{PARSED}",
        f"{HF}class Own:\n    nproc: int = 1\nHfArgumentParser((Own, TrainingArguments))\n",
        f"{PARSER}for name in ('nproc',):\n    parser.add_argument('--' + name)\n{PARSED}",
        f"{PARSER}for name in open('names'):\n    parser.add_argument(name)\n{PARSED}",
        "import sys\nnproc = [one for one in sys.argv if one.startswith('--nproc=')]\n",
        "nproc = 1\nexec(open('configurator.py').read())\n",
        "exec(open('configurator.py').read())\n",
        "import subprocess, sys\nsubprocess.run(['other', *sys.argv[1:]])\n",
        "import fire\nfire.Fire()\n",
        "from swift.llm import sft_main\nsft_main()\n",
        "from trl import TrlParser\nTrlParser()\n",
        "import no_such_module\n",
        "from ...................................................... import far\n",
        "def broken(:\n",
    ],
)
def test_what_may_be_known_is_none(tmp_path: Path, text: str) -> None:
    """A parser elsewhere, a name that is computed, a beginning: nothing is said."""
    inner = "from . import inner\n"
    declared = f"{PARSER}parser.add_argument('--nproc')\n"
    found = strangers(
        *(tmp_path, "--nproc", "2"),
        train=text,
        options=inner,
        inner=declared,
        deep__of__options=inner,
        deep__of__inner=declared,
    )
    assert found == ()


def test_the_trainers_own_arguments_are_known(tmp_path: Path) -> None:
    """What transformers' parser takes without the script's naming it."""
    text = f"{HF}HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    assert strangers(tmp_path, "--log_level", "info", "--nproc", "2", train=text) == ("--nproc",)


def test_letters(tmp_path: Path) -> None:
    """They are looked for as they are; every parser has one for help."""
    text = f"{PARSER}parser.add_argument('-t')\ntee = parser.parse_args().t\n"
    assert strangers(tmp_path, "-t", "3", "-r", "3", "-h", "--help", train=text) == ("-r",)


@pytest.mark.parametrize("command", [(), ("plan",)], ids=["launch", "plan"])
def test_the_user_is_told_once(workshop: Path, command: tuple[str, ...]) -> None:
    """In one line that names the option and its place; the script gets it all the same."""
    (workshop / "train.py").write_text("import sys\nprint('got', sys.argv[1:])\n")
    done = launch(workshop, *command, "train.py", "--nproc", "2", ours=False)
    (told,) = [one for one in done.stderr.splitlines() if "precede the script" in one]
    assert told == (
        "[safe-launch] --nproc: handed to train.py, which doesn't know it; "
        "safe-launch's own options must precede the script"
    )
    if not command:
        assert done.stdout == "got ['--nproc', '2']\n"
    (workshop / "train.py").write_text("'--nproc'\n")
    done = launch(workshop, *command, "train.py", "--nproc", "2", ours=False)
    assert "precede the script" not in done.stderr
    assert done.returncode == 0
