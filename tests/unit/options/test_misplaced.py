"""Launcher options after the script that the script doesn't accept are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.core.request import LaunchRequest
from safe_launch.options import misplaced, parser

SPELLINGS = parser.parser().spellings
PARSER = "import argparse\nparser = argparse.ArgumentParser()\n"
PARSED = "parser.parse_args()\n"
HF = "from transformers import HfArgumentParser, TrainingArguments\n"


def strangers(folder: Path, *arguments: str, **files: str) -> tuple[str, ...]:
    """Arguments that the launcher accepts and `train` doesn't; files by their stems."""
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
    """Only the script's own files could accept it, and none does."""
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
    """Other parsers, computed names and prefixes are no finding."""
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
    """Transformers' parser accepts them without a mention in the script."""
    text = f"{HF}HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    assert strangers(tmp_path, "--log_level", "info", "--nproc", "2", train=text) == ("--nproc",)


def test_letters(tmp_path: Path) -> None:
    """Short options must match exactly; every parser has one for help."""
    text = f"{PARSER}parser.add_argument('-t')\ntee = parser.parse_args().t\n"
    assert strangers(tmp_path, "-t", "3", "-r", "3", "-h", "--help", train=text) == ("-r",)
