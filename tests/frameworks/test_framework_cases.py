"""Real frameworks by their own commands: healthy runs untouched, failures corrected.

Run by `scripts/frameworks`, which makes their environments first.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest
from frameworks.cases import ROOT, Case, Done
from frameworks.record import Record, versions_of, write
from frameworks.registry import CASES
from support.stacks import TESTS
from support.without_us import verdict

ON_CPU = {"PYTHONPATH": str(TESTS), "DS_ACCELERATOR": "cpu"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_untouched_where_healthy_and_corrected_where_not(case: Case, tmp_path: Path) -> None:
    """The same losses as under its own launcher; and what dies there trains to its end."""
    began = time.monotonic()
    if not case.bin.exists():
        pytest.fail(f"no environment {case.bin}: run scripts/environment {case.environment}")
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    made = case.run(prepared, "python", str(case.prepare), str(prepared), **ON_CPU)
    assert made.code == 0, made.output[-4000:]

    def run(name: str, *command: str, **variables: str) -> Done:
        folder = tmp_path / name
        shutil.copytree(prepared, folder)
        return case.run(folder, *command, **variables)

    expected = losses_without_us(case, run("healthy-own", *case.own, *case.healthy))
    assert len(set(expected)) >= 3, "it trains"

    ours = run("healthy-ours", *case.launched, *case.healthy)
    assert ours.code == 0, ours.output[-6000:]
    assert case.losses(ours) == pytest.approx(expected, rel=1e-6)
    assert said(ours, "change") == []
    assert attempts(ours) == 1

    failure = case.failure
    dead = run("failing-own", *case.own, *failure.arguments)
    assert dead.code
    assert re.search(failure.dies, dead.output, re.DOTALL), dead.output[-6000:]

    reference = expected
    if failure.reference is not None:
        variables = {**ON_CPU, **failure.alone} if failure.alone else {}
        other = run("reference", *case.own, *failure.reference, **variables)
        reference = losses_without_us(case, other)
    corrected = run("failing-ours", *case.launched, *failure.arguments)
    assert corrected.code == 0, corrected.output[-6000:]
    assert failure.change in corrected.output
    # Its title is there in any case; its id only where an attempt has died of it.
    assert title_of(failure.entry) in words(corrected)
    assert attempts(corrected) == failure.attempts
    losses = case.losses(corrected)[-len(reference) :]
    # The Trainer rounds to four digits after the point.
    assert losses == pytest.approx(reference, rel=1e-4, abs=1.01e-4)

    write(
        Record(
            case=case.name,
            versions=versions_of(case),
            healthy=expected,
            through_safe_launch=case.losses(ours),
            reference=reference,
            corrected=losses,
            attempts=attempts(corrected),
            seconds=round(time.monotonic() - began),
        )
    )


def losses_without_us(case: Case, done: Done) -> list[float]:
    """The losses of a run that has trained, whatever its own launcher made of gloo's end."""
    try:
        losses = case.losses(done)
    except (IndexError, OSError):  # it has left none
        losses = []
    judged = verdict(done.code, done.output, is_complete=bool(losses))
    assert judged.has_trained, f"{judged.value}: {done.output[-6000:]}"
    return losses


def said(done: Done, label: str) -> list[str]:
    """What the launcher has said under a label."""
    return re.findall(rf"^\[safe-launch\] {label} +(.*)$", done.output, re.MULTILINE)


def words(done: Done) -> str:
    """All that the launcher has said, as one line."""
    own = [line[14:] for line in done.output.splitlines() if line.startswith("[safe-launch] ")]
    return " ".join(" ".join(own).split())


def title_of(entry: str) -> str:
    """The title of a known failure."""
    text = (ROOT / "presets" / "failures" / f"{entry}.md").read_text(encoding="utf-8")
    found = re.search(r"^title: (.*)$", text, re.MULTILINE)
    assert found is not None
    return found.group(1)


def attempts(done: Done) -> int:
    """The number of attempts in the launcher's summary."""
    return len(re.findall(r"^\[safe-launch\] attempt \d+: ", done.output, re.MULTILINE))
