"""A Trainer's script gets its DeepSpeed configuration in the same form as from torchrun."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from support.stacks import CURRENT, SCENARIOS, Stack

SCRIPT = """\
import json, os, sys
import torch
from transformers import HfArgumentParser, TrainingArguments

args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
config = json.load(open(args.deepspeed))
told = {"path": args.deepspeed, "stage": config["zero_optimization"]["stage"]}
told |= {"is_zero3": "zero3" in args.deepspeed, "local_rank": args.local_rank}
with open(f"told-{os.environ['RANK']}", "w") as file:
    json.dump(told, file)
if torch.distributed.is_initialized():
    torch.distributed.barrier()  # gloo fails if a rank leaves while another still connects to it
    torch.distributed.destroy_process_group()
"""


def told(stack: Stack, folder: Path, *command: str) -> list[dict[str, object]]:
    """The configuration arguments of each of two ranks."""
    (folder / "train.py").write_text(SCRIPT)
    (folder / "configs").mkdir(exist_ok=True)
    shutil.copy(SCENARIOS / "zero3.json", folder / "configs")
    own = ("train.py", "--deepspeed=configs/zero3.json", "--output_dir=out", "--use_cpu=True")
    done = stack.run(*command, *own, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"told-{rank}").read_text()) for rank in range(2)]


def test_nothing_is_touched_where_nothing_changes(tmp_path: Path) -> None:
    """The arguments equal torchrun's: the path as given."""
    theirs = told(CURRENT, tmp_path, "torchrun", "--nproc-per-node=2")
    assert told(CURRENT, tmp_path, "safe-launch", "--nproc=2", "--log-dir=runs") == theirs
    assert theirs[0]["path"] == "configs/zero3.json"


def test_a_changed_file_is_given_by_its_path(tmp_path: Path) -> None:
    """A copy of the same name, complete before any rank opens it; the original stays."""
    options = ("safe-launch", "--nproc=2", "--log-dir=runs", "--set=zero_stage=2")
    for rank in told(CURRENT, tmp_path, *options):
        assert str(rank["path"]).endswith("/attempt-1/edited/configs/zero3.json")
        assert (rank["stage"], rank["is_zero3"]) == (2, True)
    own = json.loads((tmp_path / "configs" / "zero3.json").read_text())
    assert own["zero_optimization"]["stage"] == 3


def test_deepspeeds_form_gives_the_local_rank(tmp_path: Path, stack: Stack) -> None:
    """As from deepspeed's launcher, to any parser: here TrainingArguments."""
    theirs = told(stack, tmp_path, "deepspeed", "--num_gpus=2")
    assert told(stack, tmp_path, "safe-launch", "--num_gpus=2", "--log-dir=runs") == theirs
    assert [rank["local_rank"] for rank in theirs] == [0, 1]
