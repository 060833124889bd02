"""Which scripts get their local rank, and launcher options that a script doesn't accept."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.core.request import LaunchRequest
from safe_launch.inner_launch import command_line
from safe_launch.options.parser import parsed, parser
from safe_launch.options.script_options import LOCAL_RANK, unknown, with_local_rank
from support.tables import table

ARGPARSE = "p = argparse.ArgumentParser()\n{}\np.parse_args()\n"
SCRIPTS = {
    ARGPARSE.format("p.add_argument('--local_rank', type=int)"): "--local_rank",
    ARGPARSE.format("p.add_argument('--local-rank', type=int)"): "--local-rank",
    ARGPARSE.format("p.add_argument('--local-rank', '--local_rank')"): "--local_rank",
    ARGPARSE.format("from own.flags import add; add(p)"): "--local_rank",
    ARGPARSE.format("p.add_argument('--rank')"): "",
    "p = argparse.ArgumentParser()\np.parse_known_args()": "--local_rank",
    "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()": "--local_rank",
    "TrlParser((ScriptArguments, SFTConfig)).parse_args_and_config()": "--local_rank",
    "import fire\ndef main(local_rank=-1, lr=1): ...\nfire.Fire(main)": "--local_rank",
    "import fire\ndef main(lr=1): ...\nfire.Fire(main)": "",
    "import typer\ndef main(local_rank: int = -1): ...\ntyper.run(main)": "--local-rank",
    "import typer\ndef main(lr: float = 1): ...\ntyper.run(main)": "",
    "import typer\ndef main(rank: int = typer.Option(-1, '--local_rank')): ...": "--local_rank",
    "import click\n@click.option('--local_rank')\ndef main(): ...": "--local_rank",
    "import click\n@click.option('--lr')\ndef main(): ...": "",
    ARGPARSE.format("local_rank = int(os.environ['LOCAL_RANK'])"): "",
    "print(sys.argv[1])": "",
    "[one for one in sys.argv if one.startswith('--local_rank=')]": "--local_rank",
    "from library.cli import main\nmain()": "--local_rank",
    "no python": "--local_rank",
}
"""The argument of each; deepspeed's launcher passes it to all, and some fail by it."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder with a module that declares the option."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").touch()
    own = "def add(p):\n    p.add_argument('--local_rank', type=int)\n"
    (tmp_path / "own" / "flags.py").write_text(own)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@table("text", SCRIPTS, name=lambda text: text)
def test_scripts_of_every_parser(text: str, folder: Path) -> None:
    """Each in the spelling that it accepts; none in torchrun's form."""
    (folder / "train.py").write_text(text)
    given = with_local_rank(parsed(["--num_gpus=2", "train.py", "a"]))
    spelling = SCRIPTS[text]
    assert given == ([f"{spelling}={LOCAL_RANK}", "a"] if spelling else ["a"])
    assert with_local_rank(parsed(["--nproc=2", "--quiet", "train.py", "a"])) == ["a"]


@pytest.mark.parametrize(
    "words",
    [
        ["--num_gpus=2", "--no_local_rank", "absent.py", "a"],
        ["--num_gpus=2", "absent.py", "--local_rank=7", "a"],
        ["--num_gpus=2", "absent.py", "--local-rank", "7", "a"],
        ["--nproc=2", "--log-level=debug", "absent.py", "a"],
    ],
)
def test_who_has_it_or_refuses_it(words: list[str]) -> None:
    """An explicit argument isn't repeated."""
    assert with_local_rank(parsed(words)) == words[words.index("absent.py") + 1 :]


@pytest.mark.parametrize(
    "form", [["--hostfile=h"], ["--include=a:0"], ["--bind_cores_to_rank"], ["--launcher=pdsh"]]
)
def test_every_option_of_deepspeed_makes_the_form(form: list[str]) -> None:
    """So does `wrap`; programs get the argument like scripts."""
    assert with_local_rank(parsed([*form, "absent.py"])) == [f"--local_rank={LOCAL_RANK}"]
    program = [*form, "--no_python", "absent"]
    assert with_local_rank(parsed(program)) == [f"--local_rank={LOCAL_RANK}"]
    assert with_local_rank(parsed(form)) == []
    wrapped = command_line("deepspeed", ["--fix=once"], ["absent.py", "a"])
    assert with_local_rank(parsed(wrapped))[1:] == ["a"]
    assert with_local_rank(parsed(command_line("torchrun", [], ["absent.py", "a"]))) == ["a"]


SPELLINGS = parser().spellings
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
    return unknown(request, SPELLINGS)


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
