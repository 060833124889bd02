"""Warnings that a text without a failure is about, and texts that only seem to be."""

from __future__ import annotations

from safe_launch.logs.headline import WARNED, headline
from safe_launch.logs.judgement import Verdict
from safe_launch.logs.mere_warnings import KNOWN, is_harmless
from safe_launch.logs.report import rows
from support.logs import STEPS, judged
from support.tables import table

CHECKPOINT = (
    "/env/torch/utils/checkpoint.py:31: UserWarning: None of the inputs have requires_grad=True."
    " Gradients will be None\n  warnings.warn(\n"
)
STRIDES = (
    "UserWarning: Grad strides do not match bucket view strides. This is not an error, but may"
    " impair performance.\ngrad.sizes() = [1, 9], strides() = [9, 1]\n  run_backward(\n"
)
TRACE = "Invalidate trace cache @ step 0 and module 740: cache has only 0 modules\n"
LATER = "train.py:8: FutureWarning: `open` is deprecated, use `unlock` instead\n  gate.open()\n"
THREADS = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n"
GATES = "gate.py:9: UserWarning: gates are painted in the default colour\n"


@table(
    ("log", "says"),
    [
        (CHECKPOINT, "harmless for frozen parts"),
        (f"The reward rises. Is this normal?\n{CHECKPOINT}", "harmless for frozen parts"),
        (f"{STRIDES}\nis this normal? how fix it?\n", "the values are right"),
        (f"请问这个正常吗\n```\n{STRIDES}```\n", "the values are right"),
        (f"There is this line:\n{LATER}", "a change in a later release"),
        (f"{THREADS}Can I ignore that?\n", "one CPU thread"),
        (f"What does this mean?\n{GATES}", "after which the program goes on"),
        (f"What does this mean?\n{GATES}{GATES}{STRIDES}", "the values are right"),
        (f"What does this mean?\n{CHECKPOINT}{STRIDES}", "the values are right"),
    ],
)
def test_a_text_about_a_warning(log: str, says: str) -> None:
    """The first line says that it's only a warning, and the next what it means."""
    judgement = judged(log)
    assert judgement.verdict is Verdict.UNFINISHED
    assert headline(judgement) == WARNED
    (name, text), (following, _) = rows(judgement, ())
    assert (name, following) == ("note", "next")
    assert says in text


@table(
    "log",
    [
        f"{STRIDES}{STEPS}",
        f"{STEPS[:200]}\n{TRACE}{STEPS[:200]}\n",
        f"The evaluation loss stays at 0.\n{TRACE}step 1/50 loss 2.95\nstep 2/50 loss 2.9\n",
        f"Gates: 4\n{TRACE}opened the second gate\n",
        f"{TRACE}The output is wrong, I see no reason.\n",
        f"[config] gates 4\n{TRACE}{{'train_runtime': 611.2}}\n",
    ],
)
def test_a_warning_beside_other_lines(log: str) -> None:
    """What a known one means is said, but it isn't all that the text has."""
    judgement = judged(log)
    assert judgement.verdict in (Verdict.UNFINISHED, Verdict.HEALTHY)
    assert headline(judgement) != WARNED
    assert "note" in dict(rows(judgement, ()))


@table(
    "log",
    [
        f"{CHECKPOINT}and then the second gate crashes\n",
        f"Training hangs after `{TRACE.strip()}`.\n",
        f"{TRACE}训练卡住\n",
        f"{STRIDES}the loss is nan\n",
        f"{CHECKPOINT}cannot open the second gate\n",
        f"{CHECKPOINT}Killed\n",
        THREADS,
        GATES,
        LATER,
        f"What is that?\n{THREADS}loading the gates\n",
        f"What is that?\n{LATER}loading the gates\n",
        "What is that?\nt.py:9: UserWarning: CUDA initialization: The driver is too old\n",
        "What is that?\nt.py:9: UserWarning: the sizes differ, which leads to incorrect results\n",
        "What is that?\nWARNING - the gates are painted\n",
        f"{STRIDES}{STEPS}" + "loading\n" * 40,
    ],
)
def test_what_is_no_mere_warning(log: str) -> None:
    """A person's words for a failure, a complaint, what may be grave, and what all logs have."""
    judgement = judged(log)
    assert judgement.warned is None
    assert headline(judgement) != WARNED


def test_an_exception_below_a_warning() -> None:
    """It is the failure."""
    log = f'{CHECKPOINT}Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'
    assert judged(f"{log}KeeperError: the gate is shut\n").verdict is Verdict.UNKNOWN
    assert judged(log).verdict is Verdict.UNKNOWN


def test_a_persons_line_is_not_the_last() -> None:
    """The row on the last line shows a program's."""
    shown = dict(rows(judged("opened the first gate\nWhat does it wait for?\n"), ()))
    assert shown["last"].endswith("opened the first gate")


def test_the_table() -> None:
    """It is short, and no line of it is a complaint."""
    assert len(KNOWN) <= 20
    assert is_harmless("E cuda_dnn.cc:9261] Unable to register cuDNN factory: Attempting")
    assert not is_harmless("Unable to register the second gate")
