"""Trainings for real, and the losses that they are compared with."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.stacks import EXAMPLES, SCENARIOS, Stack
from support.warm_python import Training, warm

TRAINER = [
    "--max_steps=12",
    "--learning_rate=1e-2",
    "--logging_steps=1",
    "--report_to=none",
    "--use_cpu",
    "--disable_tqdm=True",
    "--save_strategy=no",
    "--output_dir=out",
]


REENTRANT = (
    "--gradient_checkpointing=True",
    '--gradient_checkpointing_kwargs={"use_reentrant": true}',
)


OTHER = (
    "--gradient_checkpointing=True",
    '--gradient_checkpointing_kwargs={"use_reentrant": false}',
)


FINETUNE = EXAMPLES / "finetune.py"


ALREADY_REDUCED = r"The parameter \S+ has already been reduced"


BARE_ASSERTION = r"assert len\(set\(p\.ds_id for p in .*\s+\S*\s*.*AssertionError"


READY_TWICE = r"Expected to mark a variable ready only once"


DUMMY_LOSS = r"Function SumBackward0 returned an invalid gradient at index 0 - got \[0\]"


SHAPE_ZERO = r"Recomputed values for the following tensors have different metadata"


@dataclass(frozen=True)
class Case:
    """A script that dies, and how it is corrected.

    Attributes:
        name: for the test's id.
        script: an ordinary training script.
        arguments: what makes it die on two ranks.
        reference: arguments of the same training in one process.
        dies: what its ranks print on their way out.
        change: the correction, as the launcher says it.
        entry: the known failure; None where the plan avoids it before any attempt.
        fails_on: stacks that have the failure; on the others the run must be left alone.
    """

    name: str
    script: Path
    arguments: tuple[str, ...]
    reference: tuple[str, ...]
    dies: str
    change: str
    entry: str | None
    fails_on: tuple[str, ...] = ("current", "older", "torch-2.6")

    @property
    def id(self) -> str:
        """Its name as a word."""
        return self.name.replace(" ", "-")


def trainer_case(
    name: str,
    script: Path,
    arguments: tuple[str, ...],
    own: tuple[str, ...],
    dies: str,
    change: str,
    entry: str | None,
    fails_on: tuple[str, ...] = ("current", "older", "torch-2.6"),
) -> Case:
    """A case on Hugging Face's Trainer: two ranks of 4 samples against one process of 8."""
    return Case(
        name,
        script,
        (*TRAINER, *own, "--per_device_train_batch_size=4", *arguments),
        (*TRAINER, *own, "--per_device_train_batch_size=8"),
        dies,
        change,
        entry,
        fails_on,
    )


def loop_case(
    name: str, script: str, arguments: tuple[str, ...], dies: str, change: str, entry: str | None
) -> Case:
    """A case with a loop of its own."""
    own = tuple(one for one in arguments if one == "--adapter_unused")
    path = SCENARIOS / script
    return Case(name, path, arguments, ("--single", *own), dies, change, entry)


TO_OTHER = "gradient_checkpointing: reentrant -> non_reentrant"


TO_REENTRANT = "gradient_checkpointing: non_reentrant -> reentrant"


TO_STAGE_2 = "zero_stage: 3 -> 2"


CASES = (
    trainer_case(
        "vision tower under ZeRO-2",
        FINETUNE,
        (f"--deepspeed={EXAMPLES / 'zero2.json'}", *REENTRANT),
        (),
        ALREADY_REDUCED,
        TO_OTHER,
        "zero2-gradient-reduced-twice",
    ),
    trainer_case(
        "vision tower under ZeRO-3",
        FINETUNE,
        (f"--deepspeed={SCENARIOS / 'zero3.json'}", *REENTRANT),
        (),
        BARE_ASSERTION,
        TO_OTHER,
        "zero3-parameter-reduced-twice",
    ),
    trainer_case(
        "DPO under ZeRO-2",
        SCENARIOS / "hf_dpo_vision.py",
        (f"--deepspeed={EXAMPLES / 'zero2.json'}", *REENTRANT),
        (),
        ALREADY_REDUCED,
        TO_OTHER,
        "zero2-gradient-reduced-twice",
    ),
    trainer_case(
        "LoRA under ZeRO-3",
        SCENARIOS / "hf_lora.py",
        (f"--deepspeed={SCENARIOS / 'zero3_lora.json'}", *OTHER),
        ("--use_lora=True",),
        SHAPE_ZERO,
        TO_REENTRANT,
        None,
        fails_on=("deepspeed-0.19.2", "older", "torch-2.6"),
    ),
    trainer_case(
        "LoRA under DDP",
        SCENARIOS / "hf_lora.py",
        REENTRANT,
        ("--use_lora=True",),
        READY_TWICE,
        TO_OTHER,
        None,
    ),
    loop_case(
        "block twice under ZeRO-2",
        "ds_block_twice.py",
        ("--deepspeed_config", str(SCENARIOS / "raw2.json")),
        ALREADY_REDUCED,
        TO_OTHER,
        "zero2-gradient-reduced-twice",
    ),
    trainer_case(
        "dummy loss on the Trainer",
        SCENARIOS / "hf_dummy_loss.py",
        (f"--deepspeed={SCENARIOS / 'zero3.json'}",),
        (),
        DUMMY_LOSS,
        TO_STAGE_2,
        "zero3-parameter-outside-forward",
    ),
    loop_case(
        "dummy loss under ZeRO-3",
        "ds_dummy_loss.py",
        ("--ds_config", str(SCENARIOS / "raw3.json")),
        DUMMY_LOSS,
        TO_STAGE_2,
        "zero3-parameter-outside-forward",
    ),
    loop_case(
        "dummy loss over an unused adapter",
        "ds_dummy_loss.py",
        ("--ds_config", str(SCENARIOS / "raw3.json"), "--adapter_unused"),
        "Cannot reduce scatter gradients whose size is not same as the params",
        TO_STAGE_2,
        "zero3-parameter-outside-forward",
    ),
    loop_case("adapters under DDP", "ddp_lora.py", (), READY_TWICE, TO_OTHER, None),
    loop_case(
        "unused head under DDP",
        "ddp_unused.py",
        (),
        "Expected to have finished reduction in the prior iteration",
        "find_unused_parameters: False -> True",
        "ddp-unused-parameters",
    ),
)

FIRST_FIVE = (
    "block twice under ZeRO-2",
    "LoRA under ZeRO-3",
    "dummy loss under ZeRO-3",
    "adapters under DDP",
)
"""The cases of the failures that safe-launch began with; the fifth is an allocator's."""


def dies_under_torchrun(stack: Stack, case: Case, folder: Path) -> None:
    """The case without us, at a port of its own; what a rank prints is apart from the other's."""
    options = ("--standalone", "--nproc-per-node=2", "--redirects=3", "--log-dir=plain")
    plain = stack.run("torchrun", *options, case.script, *case.arguments, cwd=folder)
    said = "".join(path.read_text() for path in sorted(folder.glob("plain/**/stderr.log")))
    assert plain.returncode != 0
    assert re.search(case.dies, said, re.DOTALL), said[-4000:] or plain.stderr


def dies_plainly(stack: Stack, case: Case, folder: Path) -> None:
    """The same in less time: without a launcher, in ranks that needn't import the frameworks."""
    own = (*case.arguments, f"--loss_file={folder / 'losses.json'}")
    ended = warm(stack).run(Training(str(case.script), own, 2, str(folder), grace=1))
    output = "".join(ended.outputs)
    assert any(ended.codes.values()), output[-4000:]
    assert re.search(case.dies, output, re.DOTALL), output[-4000:]


def trains_corrected(
    stack: Stack, case: Case, folder: Path, beside: Stack | None = None, **variables: str
) -> None:
    """With us it trains to the losses of a single process, of this stack or of another.

    Where blocks are recomputed otherwise, no attempt has to fail for it.
    """
    expected = reference(beside or stack, case.script, *case.reference)
    fails = (beside or stack).name in case.fails_on

    run = ("safe-launch", "--nproc=2", "--log-dir=runs", case.script, *case.arguments)
    ours, told = launched(stack, folder, *run, **variables)
    assert len(ours) == 12
    # The older Trainers round to four digits after the point.
    assert ours == pytest.approx(expected, rel=1e-4, abs=1.01e-4)
    assert (case.change in told) == fails
    is_told_before = case.change in (TO_OTHER, TO_REENTRANT)
    assert attempts(told) == (2 if fails and not is_told_before else 1)
    if fails and case.entry is not None:
        assert (f"[{case.entry}]" if is_told_before else f"({case.entry})") in told


def trains_at_once(stack: Stack, case: Case, folder: Path, **variables: str) -> None:
    """With what an earlier run has learnt: to the same losses in a single attempt."""
    expected = reference(stack, case.script, *case.reference)
    run = ("safe-launch", "--nproc=2", "--log-dir=runs", case.script, *case.arguments)
    ours, told = launched(stack, folder, *run, **variables)
    assert ours == pytest.approx(expected, rel=1e-4)
    assert case.change in told
    assert attempts(told) == 1


MEMORY = SCENARIOS / "hf_memory.py"
SMALL_HOST = """\
name: small-host
accelerator: cpu
accelerators: 1
cores: 2
host_memory_gib: {gib}
sources: [a test]
"""
"""A profile of a host with little memory, which no process is really held to."""


SHORT = [one for one in TRAINER if not one.startswith("--max_steps")]


def trains_smaller(
    stack: Stack,
    folder: Path,
    config: Path | None = None,
    room_mib: int = 360,
    **variables: str,
) -> None:
    """A process that may grow by so much: at most two relaunches, the same global batch.

    A micro batch of 16 makes it grow by 420 MiB, one of 8 by 220: what is between is far from both.
    Where lessons are kept, the second launch has no relaunch.
    """
    common = (*SHORT, "--max_steps=4", "--model_max_length=128")
    expected = reference(stack, MEMORY, *common, "--per_device_train_batch_size=32")
    options = ["--nproc=2", "--log-dir=runs"]
    own = [*common, "--per_device_train_batch_size=16", f"--room_mib={room_mib}"]
    if config is not None:
        options.append("--set=zero_stage=2")
        own.append(f"--deepspeed={config}")
    ours, told = launched(stack, folder, "safe-launch", *options, MEMORY, *own, **variables)
    assert "host-allocation-failed" in told
    assert 2 <= attempts(told) <= 3
    assert "of at most" in told
    assert "micro_batch: 16 -> " in told
    assert ours == pytest.approx(expected, rel=1e-4)
    if variables:
        ours, told = launched(stack, folder, "safe-launch", *options, MEMORY, *own, **variables)
        assert "micro_batch: 16 -> " in told
        assert (attempts(told), ours) == (1, pytest.approx(expected, rel=1e-4))


@functools.cache
def reference(stack: Stack, script: Path, *arguments: str) -> list[float]:
    """The losses of a single process."""
    return losses_of(stack, script, *arguments)


def losses_of(stack: Stack, script: Path, *arguments: str, ranks: int = 0) -> list[float]:
    """The losses of a training without a launcher; 0 ranks are a single process."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "losses.json"
        own = (*arguments, f"--loss_file={target}")
        ended = warm(stack).run(Training(str(script), own, ranks, folder))
        assert target.exists(), ended.outputs[0][-4000:]
        losses: list[float] = json.loads(target.read_text())
        return losses


def launched(
    stack: Stack, folder: Path, *command: str | Path, **variables: str
) -> tuple[list[float], str]:
    """The losses of a launch that succeeds, and what the launcher said."""
    target = folder / "losses.json"
    target.unlink(missing_ok=True)
    done = stack.run(*command, f"--loss_file={target}", cwd=folder, **variables)
    said = "\n".join(one for one in done.stderr.splitlines() if one.startswith("[safe-launch]"))
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(target.read_text()), said


def attempts(said: str) -> int:
    """The number of attempts in the launcher's summary."""
    return len(re.findall(r"^\[safe-launch\] attempt \d+: ", said, re.MULTILINE))


def foretold(stack: Stack, folder: Path, *arguments: str, within: float) -> None:
    """A first launch at micro batch 4 tells within this share what a second one needs at 12."""
    kept = {"SAFE_LAUNCH_LESSONS": str(folder / "lessons")}
    told = ""
    for batch in (4, 12):
        own = (MEMORY, *arguments, "--max_steps=4", f"--per_device_train_batch_size={batch}")
        command = ("safe-launch", "-v", "--nproc=2", f"--log-dir={batch}", *own)
        _, told = launched(stack, folder, *command, **kept)
    assert "a rank needed" in told
    assert "nothing is changed" in told
    (attempt,) = (folder / "12").glob("*/attempt-1")
    plan = json.loads((attempt / "plan.json").read_text())
    rows = json.loads((attempt / "progress-0.json").read_text())["rows"]
    held = max(row["peak"] for row in rows)
    components = plan["estimate"]["components"]
    assert sum(components.values()) - components["kept"] == pytest.approx(held, rel=within)


LATE = SCENARIOS / "hf_late.py"
COMMON = (
    *(option for option in TRAINER if not option.startswith(("--max_steps", "--save_strategy"))),
    "--max_steps=8",
    "--weight_decay=1.0",
)
SINGLE = (*COMMON, "--save_strategy=no", "--per_device_train_batch_size=8")
TWO = (*COMMON, "--save_strategy=steps", "--per_device_train_batch_size=4")


def dummy(folder: Path) -> tuple[str, ...]:
    """Arguments of a run at stage 3 that keeps no parameter after its module's forward pass."""
    config = json.loads((SCENARIOS / "zero3.json").read_text())
    config["zero_optimization"] |= {
        "stage3_max_reuse_distance": 0,
        "stage3_max_live_parameters": 0,
    }
    (folder / "zero3.json").write_text(json.dumps(config))
    return f"--deepspeed={folder / 'zero3.json'}", "--late=dummy", "--save_steps=2"
