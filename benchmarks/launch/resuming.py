"""Measures which launch can resume from which checkpoints: `python benchmarks/launch/resuming.py`.

Every row trains a small model with Hugging Face's Trainer for six steps and saves after the third,
in one way; then resumes in another way, and compares the last three losses with those of an
uninterrupted run. Needs an environment with deepspeed, peft and transformers; prints the table of
docs/measured/resuming.md for its versions.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from safe_launch.checkpoints import save_folders, universal
from safe_launch.checkpoints.checkpoint import VARIABLE, Saves
from safe_launch.core.errors import Refused

ROOT = Path(__file__).resolve().parents[2]
STEPS, SAVED = 6, 3
NEAR = 5e-5
"""Relative difference of losses up to which they count as equal; 4.57 rounds them to 0.0001."""
NEAR_BF16 = 2**-8
"""The same for a loss in bf16: its last digit."""
DECAY = 1.0
"""Weight decay, strong enough to show if a parameter group gets another's."""


@dataclass(frozen=True)
class Way:
    """A way to train.

    Attributes:
        stage: of ZeRO under DeepSpeed; None for DDP.
        world: ranks.
        offload: whether DeepSpeed's Adam keeps the optimizer in host memory.
        lora: adapters on a frozen model.
        micro: samples of a rank's forward pass; the global batch is always 8.
        dtype: fp32 or bf16.
    """

    stage: int | None
    world: int = 2
    offload: bool = False
    lora: bool = False
    micro: int = 4
    dtype: str = "fp32"

    def __str__(self) -> str:
        engine = "DDP" if self.stage is None else f"stage {self.stage}"
        words = [engine, f"{self.world} rank{'s' if self.world > 1 else ''}"]
        words += ["offload"] if self.offload else []
        words += ["LoRA"] if self.lora else []
        words += [f"micro batch {self.micro}"] if self.micro != 4 else []
        words += [self.dtype] if self.dtype != "fp32" else []
        return ", ".join(words)


STAGES = (None, 0, 1, 2, 3)
PAIRS: tuple[tuple[Way, Way], ...] = (
    *((Way(3), Way(stage)) for stage in (2, 1)),
    *((Way(stage), Way(stage, world=1)) for stage in (2, 1)),
    (Way(3), Way(2, world=1)),
    (Way(2, world=1), Way(2)),
    (Way(3, lora=True), Way(2, lora=True)),
    (Way(2, lora=True), Way(2, lora=True, world=1)),
    (Way(3, offload=True), Way(2, offload=True)),
    (Way(3, offload=True), Way(2)),
    (Way(3), Way(2, offload=True)),
    (Way(3, dtype="bf16"), Way(2, dtype="bf16")),
    (Way(2), Way(3)),
    (Way(3), Way(3, world=1)),
    *((Way(stage), Way(stage)) for stage in STAGES),
    *((Way(stage), Way(stage, micro=2)) for stage in (2, 3, None)),
    (Way(1), Way(2)),
    (Way(2), Way(1)),
    *((Way(stage, lora=True), Way(stage, lora=True)) for stage in STAGES),
    *((Way(stage, offload=True), Way(stage, offload=True)) for stage in (2, 3)),
    *((Way(stage), Way(stage, offload=True)) for stage in (2, 3)),
    *((Way(stage, offload=True), Way(stage)) for stage in (2, 3)),
    *((Way(stage), Way(stage, world=1)) for stage in (None, 0)),
    *((Way(stage, dtype="bf16"), Way(stage, dtype="bf16")) for stage in (0, 1, 2, 3)),
    (Way(0, dtype="bf16"), Way(1, dtype="bf16")),
    (Way(1, dtype="bf16"), Way(2, dtype="bf16")),
    *((Way(old), Way(new)) for old in (None, 0, 1) for new in (None, 0, 2, 3) if old != new),
    *((Way(2), Way(new)) for new in (None, 0)),
    *((Way(3), Way(new)) for new in (None, 0)),
)


def train(way: Way, folder: Path, resume: Path | None = None) -> tuple[list[float], str]:
    """The losses of all steps, and the output."""
    script = "tests/scenarios/hf_lora.py" if way.lora else "examples/finetune.py"
    losses = folder / "losses.json"
    losses.unlink(missing_ok=True)
    arguments = [
        f"--max_steps={STEPS}",
        f"--per_device_train_batch_size={way.micro}",
        f"--gradient_accumulation_steps={8 // way.micro // way.world}",
        "--learning_rate=1e-2",
        f"--weight_decay={DECAY}",
        "--logging_steps=1",
        f"--save_steps={SAVED}",
        "--report_to=none",
        "--use_cpu",
        "--disable_tqdm=True",
        f"--output_dir={folder / 'out'}",
        f"--loss_file={losses}",
        *(["--use_lora=True"] if way.lora else []),
        *(["--bf16"] if way.dtype == "bf16" else []),
    ]
    if way.stage is not None:
        arguments.append(f"--deepspeed={config_of(way, folder)}")
    run = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={way.world}"]
    entry = ["-m", "safe_launch.worker", "script", str(ROOT / script)]
    extra = {} if resume is None else {VARIABLE: f"0:{resume}"}
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", **extra}
    done = subprocess.run(
        [*run, f"--master-port={free_port()}", *entry, *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(losses.read_text()) if losses.exists() else [], done.stdout + done.stderr


def free_port() -> int:
    """An unused port."""
    import socket

    with socket.socket() as one:
        one.bind(("localhost", 0))
        return int(one.getsockname()[1])


def config_of(way: Way, folder: Path) -> Path:
    """DeepSpeed's configuration without its fallbacks, which would hide differences."""
    zero: dict[str, object] = {
        "stage": way.stage,
        "overlap_comm": False,
        "stage3_gather_16bit_weights_on_model_save": True,
        "stage3_param_persistence_threshold": 0,
    }
    config: dict[str, object] = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "fp16": {"enabled": "auto"},
        "bf16": {"enabled": "auto"},
        "zero_optimization": zero,
    }
    if way.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    if way.lora:
        # Without this 0.16.9 refuses the Trainer's empty group of parameters.
        names = ("lr", "betas", "eps", "weight_decay")
        parameters = {**dict.fromkeys(names, "auto"), "torch_adam": True}
        config["optimizer"] = {"type": "AdamW", "params": parameters}
    path = folder / "deepspeed.json"
    path.write_text(json.dumps(config))
    return path


@functools.cache
def written(way: Way, base: Path) -> tuple[list[float], Path]:
    """An uninterrupted run's losses, and its folder."""
    folder = base / re.sub(r"\W+", "-", str(way))
    folder.mkdir()
    losses, said = train(way, folder)
    if len(losses) != STEPS:
        print(f"{way}: could not be trained at all: {reason(said)}")
    return losses, folder / "out"


def reason(said: str) -> str:
    """The last exception in an output."""
    found = re.findall(r"^(?:\[rank\d+\]: ?)?((?:[\w.]+\.)?\w*(?:Error|Exception)\b.*)", said, re.M)
    named = [one for one in found if "ChildFailedError" not in one]
    last = named[-1] if named else said.strip().splitlines()[-1]
    return re.sub(r"/\S*/(out/)?", "", last)[:120]


def verdict(losses: list[float], expected: list[float], said: str, near: float = NEAR) -> str:
    """The result of a resumed run."""
    if len(losses) != STEPS:
        return f"fails: `{reason(said)}`"
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses[SAVED:], expected[SAVED:], strict=True))
    same = losses[:SAVED] == expected[:SAVED]
    if not same:
        return "started anew"
    return f"same losses ({worst:.0e})" if worst <= near else f"**other losses** (by {worst:.1e})"


def measured(old: Way, new: Way, base: Path) -> tuple[str, str]:
    """The results of resuming directly and from the universal checkpoint."""
    expected, out = written(old, base)
    if len(expected) != STEPS:
        return "", ""
    cells = []
    for by_universal in (False, True):
        if by_universal and (not old.stage or not new.stage or old == new):
            cells.append("")
            continue
        with tempfile.TemporaryDirectory(dir=base) as made:
            folder = Path(made)
            shutil.copytree(out / f"checkpoint-{SAVED}", folder / "out" / f"checkpoint-{SAVED}")
            resume = folder / "out" / f"checkpoint-{SAVED}"
            if by_universal:
                newest, *_ = save_folders.find_all(Saves(str(folder / "out")), [old.world])
                converted = universal.convert(newest)
                if isinstance(converted, Refused):
                    cells.append(f"not converted: `{converted.sentence[:100]}`")
                    continue
                resume = converted
            losses, said = train(new, folder, resume)
            near = NEAR_BF16 if new.dtype == "bf16" else NEAR
            cells.append(verdict(losses, expected, said, near))
    return cells[0], cells[1]


def rows(base: Path, wanted: str) -> Iterator[str]:
    """The table's rows with the requested text."""
    for old, new in PAIRS:
        if wanted in f"{old} -> {new}":
            as_it_is, by_universal = measured(old, new, base)
            yield f"| {old} | {new} | {as_it_is} | {by_universal} |"


def main() -> None:
    """Prints the versions, then each row once measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows that contain this, e.g. 'LoRA'")
    options = parser.parse_args()
    names = ("deepspeed", "transformers", "peft", "torch")
    print(", ".join(f"{name} {version(name)}" for name in names), flush=True)
    with tempfile.TemporaryDirectory() as base:
        for row in rows(Path(base), options.only):
            print(row, flush=True)


if __name__ == "__main__":
    main()
