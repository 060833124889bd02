"""Odd inputs for every command: files of wrong kinds and contents, and words that nobody types."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import signal
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn
from unittest import mock

from safe_launch.cli import guarded
from safe_launch.commands import run_search
from safe_launch.options.parser import parser

SECONDS = 90.0
"""At most for any of these, on any machine; they take a tenth of a second, or some seconds where
transformers is imported for a model's shape, which has a limit of 60."""
LONG = "9" * 400
"""Digits of a number that fits nowhere; Python reads it."""
LONGER = "9" * 5000
"""Digits of a number that Python refuses to read."""
NOT_UTF8 = os.fsdecode(b"caf\xe9")
SCRIPT = (
    "import argparse\n"
    "from transformers import HfArgumentParser, TrainingArguments, Trainer\n"
    "HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
)
TRAINER = (
    *("--output_dir=out", "--per_device_train_batch_size=4", "--gradient_accumulation_steps=2"),
    *("--gradient_checkpointing", "--bf16", "--max_length=512"),
)
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}
DEEPSPEED = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "train_batch_size": 16,
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 1000},
}


class Raw(int):
    """A number that JSON gets as it is written."""

    text: str

    def __new__(cls, text: str) -> Raw:
        """Makes one of its text."""
        made = super().__new__(cls, 0)
        made.text = text
        return made

    def __repr__(self) -> str:
        return self.text


class HangError(BaseException):
    """It has taken too long; no launcher's handler of errors catches it."""


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code.
        said: what it printed on both streams.
        seconds: processor time that it took.
    """

    code: int
    said: str


def run(folder: Path, *words: str, encoding: str = "utf-8", **variables: str) -> Ended:
    """Runs a command in this process and a folder, as in a terminal of an encoding."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="") for _ in range(2)]
    streams[1].reconfigure(errors="backslashreplace")  # as stderr's are
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals() if number}
    plain = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    place = {"HOME": str(folder), "SAFE_LAUNCH_LESSONS": str(folder / "lessons")}
    signal.signal(signal.SIGALRM, _hangs)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with (
            contextlib.redirect_stdout(streams[0]),
            contextlib.redirect_stderr(streams[1]),
            mock.patch.dict(os.environ, {**plain, **place, **variables}, clear=True),
            contextlib.chdir(folder),
            mock.patch.object(run_search, "running_here", return_value=()),  # other tests' runs
        ):
            code = guarded(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except (Exception, HangError):
        code = 70
        streams[1].write(traceback.format_exc())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            if number not in (signal.SIGKILL, signal.SIGSTOP) and handler is not None:
                signal.signal(number, handler)
    for stream in streams:
        stream.flush()
    said = [stream.buffer.getvalue().decode(encoding) for stream in streams]  # type: ignore[attr-defined]
    return Ended(code, "".join(said))


def _hangs(_number: int, _frame: FrameType | None) -> NoReturn:
    raise HangError


Make = Callable[[Path], object]
"""Makes a file of a path."""


def _bytes(content: bytes) -> Make:
    return lambda path: path.write_bytes(content)


def _link(target: str) -> Make:
    return lambda path: path.symlink_to(target)


def _json(content: object) -> Make:
    return lambda path: path.write_text(json.dumps(content))


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join(f'*a{n - 1}' for _ in range(9))}]\n" for n in range(1, 10)
)
MAPPED_LAUGHS = "a0: &a0 {k0: x, k1: x}\n" + "".join(
    f"a{n}: &a{n} {{{', '.join(f'k{m}: *a{n - 1}' for m in range(9))}}}\n" for n in range(1, 10)
)


FILES: Mapping[str, Make] = {
    "a pipe": os.mkfifo,
    "an endless device": _link("/dev/zero"),
    "a device": _link("/dev/null"),
    "a folder": lambda path: path.mkdir(),
    "a link to nothing": _link("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "empty": _bytes(b""),
    "not UTF-8": _bytes(b"caf\xe9: caf\xe9\n"),
    "UTF-16": _bytes("a: 1\n".encode("utf-16")),
    "zeros": _bytes(bytes(5000)),
    "random": _bytes(bytes(range(256)) * 20),
    "YAML of many aliases": _bytes(LAUGHS.encode()),
    "YAML of many mappings": _bytes(MAPPED_LAUGHS.encode()),
    "cyclic YAML": _bytes(b"a: &a\n  b: *a\n  c: [*a]\nkey: &k [*k]\n"),
    "YAML that is a cycle": _bytes(b"&a [*a]\n"),
    "YAML with odd keys": _bytes(b"? [1, 2]\n: 3\nnull: 1\n1: 2\n2020-01-01: x\n"),
    "YAML with a tag": _bytes(b"a: !!python/object:os.system x\n"),
    "YAML of bad dates": _bytes(b"a: 2020-99-99\nb: 1e999\nc: .nan\n"),
    "a long number in YAML": _bytes(f"a: {LONG}\nb: {LONGER}\n".encode()),
    "nested lists": _bytes(b"[" * 100_000),
    "nested mappings": _bytes(b'{"a":' * 100_000),
    "a list": _json([1, "a", None, {}]),
    "a text": _json("text"),
    "a long number": _bytes(LONG.encode()),
    "a longer number": _bytes(LONGER.encode()),
    "not a number": _bytes(b'{"a": NaN, "b": Infinity, "c": 1e999}'),
    "half a surrogate": _bytes(b'{"a": "\\ud800", "\\udcff": 1}'),
    "names with line breaks": _bytes(b'{"a\\nb": "c\\nd", "": ""}'),
    "truncated JSON": _bytes(b'{"a": [1, 2'),
    "truncated gzip": lambda path: path.write_bytes(gzip.compress(b"step 1\n" * 9999)[:-20]),
}
"""Files by what is odd about them, whoever reads them."""


PLAN = ("plan", "--nproc=2", "--hardware=nvidia-a100-40gb")
ID = "20260101-000000-abcdef"
RUN = f"runs/train-{ID}"
KEPT: Mapping[str, Any] = json.loads(Path(__file__).with_name("kept_run.json").read_text())
"""The files of a run directory, by their paths in it."""


@dataclass(frozen=True)
class Place:
    """Where commands read a file.

    Attributes:
        path: of the file, below the folder where they are run.
        commands: those that read it.
        document: what would be right there, where that is JSON.
        variables: of the commands.
    """

    path: str
    commands: tuple[tuple[str, ...], ...]
    document: object = None
    variables: Mapping[str, str] = field(default_factory=dict)


def _plan(path: str, *words: str, document: object = None, **variables: str) -> Place:
    return Place(path, ((*PLAN, *words),), document, variables)


ON_RUNS = (
    ("status", "train", "--log-dir=runs"),
    ("status", "train", "--json", "--log-dir=runs"),
    ("status", "--stacks", "train", "--log-dir=runs"),
    ("status", "--log-dir=runs"),
    ("runs", "--log-dir=runs"),
    ("runs", "--json", "--log-dir=runs"),
    ("runs", "show", "train", "--log-dir=runs"),
    ("runs", "prune", "--keep=0", "--dry-run", "--log-dir=runs"),
    ("fix", "train", "--log-dir=runs"),
    ("fix", "train", "--json", "--log-dir=runs"),
    ("metrics", "train", "--log-dir=runs"),
    ("metrics", "--json", "train", "--log-dir=runs"),
    ("report", "-o", "page.html", "train", "--log-dir=runs"),
    ("diagnose", RUN),
)
LESSON = {
    "script": "train.py",
    "failure": "zero2-gradient-reduced-twice",
    "evidence": "RuntimeError",
    "run": "train-1",
    "date": "2026-01-01",
    "circumstances": "abc",
    "known": {"sequence_length": 512},
    "forbidden": [{"terms": {"zero_stage": [2]}, "summary": "it failed"}],
    "measured": [{"settings": {"micro_batch": 2}, "needed": 1000, "context": 1, "limit": 2000}],
}
LESSON_FILE = "lessons/train.py-abc-zero2-gradient-reduced-twice.json"
PLACES = (
    _plan("own.py", "own.py", "--size=4"),
    _plan("odd/__main__.py", "odd"),
    _plan("odd.py", "-m", "odd"),
    _plan("layers.py", "imports.py"),
    _plan(
        "arguments.json",
        "train.py",
        "arguments.json",
        document={"gradient_checkpointing": True, "max_length": 4},
    ),
    _plan("arguments.yaml", "train.py", "arguments.yaml"),
    _plan("arguments.txt", "train.py", "@arguments.txt"),
    _plan("train.args", "train.py"),
    _plan("own.yaml", "reads_yaml.py"),
    _plan("zero.json", "train.py", "--deepspeed=zero.json", document=DEEPSPEED),
    _plan(
        "fsdp.json",
        "train.py",
        "--fsdp=full_shard",
        "--fsdp_config=fsdp.json",
        document={"version": 2, "min_num_params": 1},
    ),
    _plan("model/config.json", "train.py", *TRAINER, "--model_name_or_path=model", document=LLAMA),
    _plan("model/model.safetensors", "train.py", *TRAINER, "--model_name_or_path=model"),
    _plan("model/model.safetensors.index.json", "train.py", *TRAINER, "--model_name_or_path=model"),
    _plan(
        "accelerate.yaml",
        "--accelerate-config=accelerate.yaml",
        "train.py",
        document={"distributed_type": "MULTI_GPU", "num_processes": 2, "num_machines": 1},
    ),
    _plan(
        "preset.yaml",
        "--preset=preset.yaml",
        "train.py",
        document={"zero_stage": 2, "micro_batch": 2},
    ),
    _plan("pyproject.toml", "train.py"),
    _plan(
        "config.yaml", "train.py", document={"max-restarts": 3}, SAFE_LAUNCH_CONFIG="config.yaml"
    ),
    _plan("hosts", "--hostfile=hosts", "--force-multi", "train.py"),
    _plan("site/own.md", "--catalogue=site", "train.py"),
    _plan("secret", "--secret-file=secret", "train.py"),
    _plan("hardware.yaml", "--hardware=hardware.yaml", "train.py"),
    Place(
        LESSON_FILE,
        (("lessons",), ("lessons", "show", "train"), ("lessons", "--json"), (*PLAN, "train.py")),
        LESSON,
    ),
    Place("log", (("diagnose", "log"), ("diagnose", "--json", "--", "log"))),
    Place("log.gz", (("diagnose", "log.gz"),)),
    Place("logs/rank-0.log", (("diagnose", "logs"),)),
    Place("site/own.md", (("diagnose", "--catalogue=site", "train.py"),)),
    *(Place(f"{RUN}/{path}", ON_RUNS, document) for path, document in KEPT.items()),
    Place(f"{RUN}/attempt-1/rank-0.log", ON_RUNS),
    Place(f"{RUN}/attempt-1/standings-1.json", ON_RUNS),
    Place(
        "train.py",
        (
            ("template", "slurm", "train.py"),
            ("template", "kubernetes", "--image=x", "train.py"),
            *ON_RUNS,
        ),
    ),
)


def prepared(folder: Path) -> None:
    """Makes what is right in a folder: scripts, and a run directory."""
    (folder / "train.py").write_text(SCRIPT)
    (folder / "imports.py").write_text("import layers\nimport argparse\n")
    (folder / "reads_yaml.py").write_text(
        "import yaml\nyaml.safe_load(open('own.yaml'))\n" + SCRIPT
    )
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(LLAMA))
    for path, document in KEPT.items():
        file = folder / RUN / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document))


def numbered(document: Any, number: object) -> Any:
    """A document in which every number is another."""
    if isinstance(document, dict):
        return {name: numbered(value, number) for name, value in document.items()}
    if isinstance(document, list):
        return [numbered(value, number) for value in document]
    is_number = isinstance(document, int | float) and not isinstance(document, bool)
    return number if is_number else document


NUMBERS: Mapping[str, object] = {
    "a long number": Raw(LONG),
    "a longer number": Raw(LONGER),
    "1e20": Raw("1e20"),
    "1e308": Raw("1e308"),
    "1e999": Raw("1e999"),
    "NaN": Raw("NaN"),
    "-1": -1,
    "0": 0,
    "2**63": 2**63,
}
"""Numbers that stand for every number of a document."""


def written(document: object) -> str:
    """A document as JSON, with its raw numbers as they are."""
    if isinstance(document, Raw):
        return document.text
    if isinstance(document, dict):
        members = (f"{json.dumps(name)}: {written(value)}" for name, value in document.items())
        return f"{{{', '.join(members)}}}"
    if isinstance(document, list):
        return f"[{', '.join(map(written, document))}]"
    return json.dumps(document)


WORDS = (
    *("", " ", "-1", "0", "1e20", LONG, LONGER, "nan", "inf", NOT_UTF8, "\u2028\u20ac", "a\nb"),
    *("x" * 5000, ".", "./", "/dev/zero", "json.tool", ".a", "a..b"),
)
"""Words that nobody types, for any command and any option."""
HOSTS = ("host", "include", "exclude", "num-", "num_", "ssh", "launcher", "venv")
"""Parts of options that might reach other hosts."""
FLAGS = (
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_length", "learning_rate"),
    *("deepspeed", "model_name_or_path", "lora_r", "fsdp", "fsdp_config", "optim", "bf16"),
)
OPTIONS = sorted(
    option.option_strings[-1]
    for option in parser()._actions
    if option.nargs is None and option.option_strings
    if not any(part in option.option_strings[-1] for part in HOSTS)
)


def command_lines(word: str) -> list[tuple[str, ...]]:
    """Every command and every option with a word."""
    on_a_model = (*PLAN, "train.py", *TRAINER, "--model_name_or_path=model")
    return [
        *(("plan", f"{option}={word}", "train.py") for option in OPTIONS),
        *((*on_a_model, f"--{flag}={word}") for flag in FLAGS),
        *(("plan", f"--set={name}={word}", "train.py") for name in ("zero_stage", "micro_batch")),
        *((name, word) for name in ("plan", "status", "fix", "metrics", "report", "catalogue")),
        *((name, word) for name in ("explain", "lessons", "template", "completion", "hardware")),
        *((*name, word) for name in (("plan", "-m"), ("runs", "list"), ("runs", "show"))),
        *((*name, word) for name in (("lessons", "show"), ("warm", "list"), ("wrap", "--nope"))),
        *(("runs", "prune", "--dry-run", f"--{name}={word}") for name in ("keep", "gib", "days")),
        ("status", f"--log-dir={word}"),
        ("diagnose", "train.py", word if word != "/dev/zero" else "train.py"),
        ("template", "slurm", f"--nodes={word}", "train.py"),
        ("template", "kubernetes", f"--image={word}", "train.py"),
    ]
