"""Texts that resemble known failures: healthy logs and other errors."""

from __future__ import annotations

from safe_launch.logs.judgement import Judgement, Verdict
from support.logs import judged
from support.stacks import TESTS
from support.tables import read_yaml, table

TEXTS = read_yaml(TESTS / "near_misses.yaml")
STEP = "{{'loss': {loss}, 'grad_norm': 1.25, 'learning_rate': 2e-05, 'epoch': {epoch}}}\n"
ENDS_WELL = (
    "***** Running training *****\n"
    "  Num examples = 20,000\n"
    "{before}{text}{after}"
    "{{'train_runtime': 611.2, 'train_samples_per_second': 3.1, 'epoch': 3.0}}\n"
)
FAILS = "node7: train.py started, 2 ranks, 512 rows\n{text}"


def steps(first: int, last: int) -> str:
    """Log lines of a training that continues."""
    return "".join(
        STEP.format(loss=3 - number / 10, epoch=number / 10) for number in range(first, last)
    )


def names(judgement: Judgement) -> list[str]:
    """The entries found."""
    return [one.finding.entry.id for one in judgement.failures if one.finding.entry is not None]


def behind_ranks(text: str) -> str:
    """The text with torchrun's prefix of its first worker."""
    return "".join(f"[default0]:{line}" for line in text.splitlines(keepends=True))


@table("name", TEXTS["healthy"], parts=2)
def test_nothing_has_failed(name: str) -> None:
    """Alone, behind a launcher's prefix, and within a healthy log."""
    text = TEXTS["healthy"][name]
    for log in (text, behind_ranks(text)):
        judgement = judged(log)
        assert judgement.failures == ()
        assert judgement.verdict in (Verdict.UNFINISHED, Verdict.HEALTHY)
    for before, after in (("", steps(1, 30)), (steps(1, 30), "")):
        judgement = judged(ENDS_WELL.format(before=before, text=text, after=after))
        assert judgement.failures == ()
        assert judgement.verdict is Verdict.HEALTHY


@table("name", TEXTS["unknown"], parts=2)
def test_nobody_knows_it(name: str) -> None:
    """The exception ended the training and has no entry."""
    text = TEXTS["unknown"][name]
    for log in (text, behind_ranks(text), FAILS.format(text=text), steps(1, 30) + text):
        judgement = judged(log)
        assert names(judgement) == []
        assert judgement.verdict is Verdict.UNKNOWN


@table("name", TEXTS["healthy"])
def test_a_failure_is_found_among_them(name: str) -> None:
    """The text neither explains nor hides the real failure below it."""
    died = (
        "Traceback (most recent call last):\n"
        '  File "collate.py", line 8, in collate\n'
        '    return row["label"]\n'
        "KeyError: 'label'\n"
    )
    judgement = judged(TEXTS["healthy"][name] + steps(1, 3) + died)
    assert names(judgement) == []
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.root is not None
    assert judgement.root.finding.record.exception == "builtins.KeyError"


def test_there_are_many() -> None:
    """The collection must be large."""
    assert len(TEXTS["healthy"]) >= 60
    assert len(TEXTS["unknown"]) >= 40
