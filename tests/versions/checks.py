"""What is tried on each combination of versions, beside torchrun; a check says what differed."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from support.stacks import EXAMPLES, ROOT, Stack
from support.trainings import ALREADY_REDUCED, FINETUNE, OTHER, REENTRANT, TRAINER
from support.without_us import verdict

LOOP = Path(__file__).resolve().parent / "loop.py"
PRESENT = LOOP.parent / "present.py"
OURS = ("safe-launch", "--nproc=2", "--log-dir=runs")
SPAWNED = (*OURS, "--start-method=spawn")
TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node=2")
SECONDS = 300
"""A launch that takes longer hangs."""
APART = 1e-4
"""How far losses may be apart, relative; the sum over ranks has no fixed order."""


class DifferenceError(Exception):
    """Something is otherwise than it should be; the message says what, in one line."""


@dataclass(frozen=True)
class Done:
    """A launch that has ended.

    Attributes:
        code: its exit code; None where it hung and was killed.
        said: what it has printed.
        losses: one for each step; empty where it hasn't written any.
        left: processes of it that are still there.
    """

    code: int | None
    said: str
    losses: Sequence[float]
    left: int


def launched(
    stack: Stack,
    folder: Path,
    command: Sequence[str | Path],
    interrupted_at: Sequence[str] = (),
) -> Done:
    """Runs a launch to its end; sends it a SIGINT once these files are there."""
    mark = uuid.uuid4().hex
    target = folder / "losses.json"
    target.unlink(missing_ok=True)
    process = subprocess.Popen(
        [str(stack.bin / str(command[0])), *map(str, command[1:])],
        cwd=folder,
        env={**stack.environment(), "VERSIONS_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # A shell's background has SIGINT ignored, which a launcher leaves so.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    if interrupted_at:
        while process.poll() is None and not all((folder / one).exists() for one in interrupted_at):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
    try:
        said, _ = process.communicate(timeout=SECONDS)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        said, code = "", None
    left = _left(mark)
    for one in left:
        one.kill()
    losses = json.loads(target.read_text()) if target.exists() else ()
    return Done(code, said, losses, len(left))


def _left(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("VERSIONS_MARK") == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def last_line(said: str) -> str:
    """The line that says most: a worker's last exception, else the last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\w(?<!ChildFailed)(Error|Exception): ", line)]
    return (errors or lines or ["nothing"])[-1][:200]


def trained(done: Done, name: str) -> Done:
    """A launch of ours that has trained to its end."""
    ended(done, 0, name)
    if not done.losses:
        raise DifferenceError(f"{name} leaves no losses: {last_line(done.said)}")
    return done


def reference_of(done: Done) -> Done:
    """A launch of torchrun's that has trained to its end, whatever it made of gloo's."""
    judged = verdict(done.code, done.said, is_complete=bool(done.losses))
    if not judged.has_trained:
        raise DifferenceError(f"torchrun: {judged.value}: {last_line(done.said)}")
    return done


def same(expected: Done, found: Done, name: str) -> None:
    """The losses are the same."""
    pairs = zip(expected.losses, found.losses, strict=True)
    apart = max(abs(one - other) / abs(one) for one, other in pairs)
    if apart > APART:
        raise DifferenceError(f"{name}: losses are {apart:.0e} apart")


def says(done: Done, words: str, name: str) -> None:
    """Words are in what was printed, as the launcher breaks its lines."""
    if words not in " ".join(done.said.replace("[safe-launch]", "").split()):
        raise DifferenceError(f"{name} doesn't say {words!r}, but {last_line(done.said)}")


def ended(done: Done, code: int, name: str) -> None:
    """A launch has ended with a code, and has left no process."""
    if done.code is None:
        raise DifferenceError(f"{name} hangs")
    if done.code != code:
        raise DifferenceError(f"{name} ends with {done.code}, not {code}: {last_line(done.said)}")
    if done.left:
        raise DifferenceError(f"{name} leaves {done.left} processes")


def corrected(
    stack: Stack, folder: Path, script: Path, own: Sequence[str], dies: str, change: str
) -> str:
    """A training that dies under torchrun; corrected it has the losses of one that doesn't."""
    common = (*own, "--per_device_train_batch_size=4", "--loss_file=losses.json")
    plain = launched(stack, folder, (*TORCHRUN, script, *common, *REENTRANT))
    fails = re.search(dies, plain.said, re.DOTALL) is not None
    if fails:
        plain = launched(stack, folder, (*TORCHRUN, script, *common, *OTHER))
    reference = reference_of(plain)
    ours = trained(launched(stack, folder, (*OURS, script, *common, *REENTRANT)), "safe-launch")
    same(reference, ours, "safe-launch")
    if fails:
        says(ours, change, "safe-launch")
    return "" if fails else "doesn't die under torchrun"


def example(stack: Stack, folder: Path) -> str:
    """The example of `scripts/demo`: ZeRO-2, reentrant checkpointing, a block that runs twice.

    Without `--use_cpu`, at which accelerate 0.31 leaves DeepSpeed out.
    """
    plain = (argument for argument in TRAINER if argument != "--use_cpu")
    own = (*plain, f"--deepspeed={EXAMPLES / 'zero2.json'}")
    change = "gradient_checkpointing: reentrant -> non_reentrant"
    return corrected(stack, folder, FINETUNE, own, ALREADY_REDUCED, change)


def loop(stack: Stack, folder: Path) -> str:
    """A loop of the user's own under DDP, with both ways to start workers."""
    return as_torchrun(stack, folder, (), {"safe-launch": OURS, "--start-method spawn": SPAWNED})


def lora_loop(stack: Stack, folder: Path) -> str:
    """The same with adapters of peft's."""
    return as_torchrun(stack, folder, ("--lora",), {"safe-launch": OURS})


def as_torchrun(
    stack: Stack, folder: Path, own: Sequence[str], ways: Mapping[str, Sequence[str]]
) -> str:
    """The loop trains as under torchrun, and nothing else is said."""
    script = (LOOP, *own, "--loss_file=losses.json")
    reference = reference_of(launched(stack, folder, (*TORCHRUN, *script)))
    for name, way in ways.items():
        ours = trained(launched(stack, folder, (*way, *script)), name)
        same(reference, ours, name)
        if "Traceback" in ours.said:
            raise DifferenceError(f"{name}: a traceback in a run that trains")
    return ""


def killed(stack: Stack, folder: Path) -> str:
    """SIGKILL of one rank in a step: the other is ended, the code is the rank's own."""
    script = (LOOP, "--is", "killed", ".")
    for name, way in (("safe-launch", OURS), ("--start-method spawn", SPAWNED)):
        done = launched(stack, folder, (*way, *script))
        ended(done, 128 + signal.SIGKILL, name)
        says(done, "rank 1 was ended by SIGKILL", name)
    ended(launched(stack, folder, (*TORCHRUN, *script)), 1, "torchrun")
    return ""


def interrupted(stack: Stack, folder: Path) -> str:
    """Ctrl-C in a training: all ranks end, with the code of that signal."""
    script, files = (LOOP, "--is", "waiting", "."), ("ready-0", "ready-1")
    for name, way, code in (
        ("safe-launch", OURS, 130),
        ("--start-method spawn", SPAWNED, 130),
        ("torchrun", TORCHRUN, 1),
    ):
        for file in files:
            (folder / file).unlink(missing_ok=True)
        ended(launched(stack, folder, (*way, *script), files), code, name)
    return ""


def names(stack: Stack, _folder: Path) -> str:
    """The private names that are used are in the versions that are said to have them."""
    done = stack.run("python", PRESENT, cwd=ROOT)
    if done.returncode:
        raise DifferenceError(last_line(done.stdout + done.stderr))
    return ""


Check = Callable[[Stack, Path], str]
"""Tries something in a folder; returns a remark, or raises DifferenceError."""
CHECKS: Mapping[str, Check] = {
    "example": example,
    "loop": loop,
    "loop, LoRA": lora_loop,
    "killed": killed,
    "Ctrl-C": interrupted,
    "names": names,
}
"""By the column's name."""


def result(check: Check, stack: Stack, folder: Path) -> str:
    """Runs a check: `ok`, maybe with a remark, or what differed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        remark = check(stack, folder)
    except DifferenceError as error:
        return str(error)
    return f"ok, {remark}" if remark else "ok"
