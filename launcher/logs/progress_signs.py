"""Recognizes output of a running and of a completed training, and what a job was doing at the end.

Final messages of a framework or a launcher count anywhere (`COMPLETIONS`). A script's messages may
concern only a part of the training, or come from a shell after a failure: they count only among
the last lines, without a step or an error after them (`reported_end`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..diagnosis.next_step.activities import Activity, activity_in

COMPLETIONS = (
    r"'train_runtime': |\"train_runtime\": |train_runtime +=|Training completed\. Do not forget"
    r"|`Trainer\.fit` stopped: `max_|Signaling Trainer to stop|End time of running main: "
    r"|(?:exits|exited) successfully|\[safe-launch\] exit code 0|worker group successfully finished"
    r"|Job '[^'\n\r]+' succeeded|\[after training is done\]|exiting program at iteration \d"
    r"|Final validation metrics: "
)
"""Lines of a framework or launcher at the end of training."""
FINISHED = (
    r"[Tt]raining (?:is |has )?(?:finished|done|[Cc]ompleted?)|(?:[Ff]inished|[Dd]one) training"
    r"|训练(?:已)?(?:完成|结束)"
)
"""Lines of a script at the end of training, or of a shell in any case."""
STEPS = (
    r"'loss': |\"loss\": |\b(?:avr_)?loss[=:]? ?\d"
    r"|\b(?:[Ss]tep|[Ee]poch|[Ii]ter(?:ation)?)[ =:#]{1,3}\d"
)
PROGRESS = rf"{STEPS}|(?:^|[\n\r]|\]:) *(?:Train: +)?\d+%\|[^|\n\r]{{0,200}}\| *\d+/\d+ \["
"""Lines of a running training; its progress bar has no name, or ms-swift's."""
COUNT = re.compile(
    r"(?:[Ss]tep|[Ee]poch|[Ii]ter(?:ation)?)['\"]?[ =:#]{1,3}(\d[\d.]*)|(\d+)/\d+ \["
)
"""The number that identifies signs of the same step on several ranks."""
SUMMARY = "wandb: "
"""A tracker's final summary, which isn't progress."""
NO_PROGRESS = re.compile(
    rf"{SUMMARY}|(?:\([\w.-]+\) )?\[?[\w.-]{{1,40}}@[\w.:~/ -]{{1,120}}\]?[$#] "
    r"|[^\s@]{1,200}\.(?:ckpt|pth?)\b"
)
"""Beginnings of lines that aren't progress: a summary, a shell's prompt, a file in a listing."""
ENDINGS = (
    r"\b(?:[Dd]one|[Ff]inished|[Cc]ompleted)\b[^\n\r]{0,40}\b(?:in|after|reached) \d"
    rf"|\b(?:[Ff]inished|[Cc]ompleted)\b[^\n\r]{{0,20}}\d (?:steps|epochs|iterations)\b|{FINISHED}"
)
"""Words of a custom loop at the end of the training or a part of it."""
MOST = 400
"""Last lines of a file to search for a script's messages."""

STEP = re.compile(STEPS)
IS_COMPLETE = re.compile(COMPLETIONS)
IS_FINISHED = re.compile(FINISHED)
IS_ENDING = re.compile(ENDINGS)
IS_PROGRESS = re.compile(PROGRESS)
OF_TOTAL = re.compile(
    r"\b(?:epoch|step|fold|iter(?:ation)?)s?\W{0,3}(\d+)\b(?:\s?(?:/|of)\s?(\d+))?", re.IGNORECASE
)
OF_MEGATRON = re.compile(r"\biteration +(\d+)/ +(\d+) \|")
"""Megatron's line of a step, which also counts skipped iterations."""
EVALUATES = re.compile(r"\W*(?:[Ee]valuat|[Vv]alidation\b)")
SAVED = re.compile(r"\b(?:saved|written|wrote|exported|uploaded|pushed)\b", re.IGNORECASE)
FINAL = re.compile(r"\bfinal\b", re.IGNORECASE)
UNIT = r"(?:steps|epochs|iterations|updates)"
OF_TRAINING = re.compile(
    rf"\b(?:\w*train(?:ing|er)?|\w*tuning|\d[\d,]* {UNIT})\b|{FINISHED}", re.IGNORECASE
)
WHOLE = re.compile(r"\b(?:run|job|experiment|script|everything|all)\b", re.IGNORECASE)
"""Words for the training as a whole."""
PART = re.compile(
    r"\b(?:epoch|step|iter|batch|round|stage|phase|fold|warm|eval|valid|test|load|download|token"
    r"|preproc|process|compil|build|index|map|generat|rollout|sampl|sav|checkpoint|init|not)(?!s\b)"
    r"|n't\b",
    re.IGNORECASE,
)
"""Words for phases that end many times, or before the training."""
OF_PART = re.compile(r" (?:(?:for|of|in|on) )?(?:epoch|step|stage|phase|fold|round)\b")
DONE = re.compile(rf"{FINISHED}|\b(?:done|finished|completed?|ended|succeeded)\b", re.IGNORECASE)
CLAUSE = re.compile(r"[,;|]|>> |\. | - |:(?! )")
LABEL = re.compile(r"\s*(?:\[[^\]]*\]\s*)*(?:[\w./-]+(?: \d+)?:)?\s*")
"""Prefixes of a message about the training that doesn't name it."""
AFTER_DONE = re.compile(
    r"[.!]+(?:\s|$)|\s*$|[:,;(]"
    r"| (?:in|after|at|successfully|all|training|the (?:training|run|job))\b"
    rf"| \d[\d,.]* {UNIT}\b| with (?:exit )?(?:code |status )?0\b"
)
EXIT = re.compile(
    r"\b(?:(?:exit|return)(?:ed|s)?(?: with)?(?: exit| return)?(?: code| status)?|exitcode|rc)"
    r"[ :=]+0(?![.\d])"
    r"|State[:=] ?COMPLETED|^\s*\d+(?:_\d+)?\s.*\bCOMPLETED\b|\b[Tt]raining time:? \d"
)
"""Lines of a shell, scheduler or script at the very end."""
DOUBT = re.compile(
    r"\b(?:unsuccessful(?:ly)?|\w*errors?|fail(?:ed|ures?|s)?|fatal|segfault|killed|abort(?:ed)?|traceback|cancell?ed"
    r"|terminated?|timed out|exceptions?|(?:code|status|rc)[ :=]+-?[1-9]\d*)\b",
    re.IGNORECASE,
)
WRAPPERS = re.compile(
    r"\b(?:[Tt]ask|[Cc]ommand|[Cc]ontainer|[Pp]rocess|[Bb]uild)\b[^,;|]{0,30}"
    r"\b(?:[Dd]one|[Ff]inished|[Cc]ompleted)\b"
)
"""An end of what runs a script, as a CI prints after a failure, too."""
HARMLESS = re.compile(r"[Ww]arn|WARN|[Ii]gnored")


@dataclass(frozen=True, slots=True)
class Written:
    """A line of a file."""

    file: str
    number: int
    text: str
    rank: int | None = None


def reported_end(lines: Sequence[Written]) -> Written | None:
    """The line that reports the end of training, in any words.

    Returns:
        None if no line does, or if a step or an error follows it.
    """
    has_trained = is_last = is_sure = False
    end: Written | None = None
    for line in lines:
        is_step = STEP.search(line.text) is not None
        counts = OF_TOTAL.findall(line.text)
        if is_step or counts:
            is_last = all(done == total for done, total in counts) and bool(counts)
            is_last &= PART.search(OF_TOTAL.sub("", line.text)) is None
            has_trained = True
        if whole := OF_MEGATRON.search(line.text):
            is_last = whole[1] == whole[2]
        if is_sure and EVALUATES.match(line.text):
            continue  # an evaluation after the end
        is_doubtful = DOUBT.search(line.text) and not HARMLESS.search(line.text)
        has_saved = SAVED.search(line.text) and (is_last or FINAL.search(line.text))
        if IS_COMPLETE.search(line.text):
            end, is_sure = line, True
        elif (is_step and not is_last) or (not is_sure and is_doubtful):
            end, is_sure = None, False
        elif has_saved or _ends(line.text, has_trained=has_trained):
            end = line
    return end


def _ends(text: str, *, has_trained: bool) -> bool:
    """Whether a line reports the end of the whole training, not of a part."""
    if has_trained and (match := EXIT.search(text)):
        return PART.search(CLAUSE.split(text[: match.start()])[-1]) is None
    for match in DONE.finditer(text):
        clause = CLAUSE.split(text[: match.start()])[-1]
        named = f"{clause}{text[match.start() :]}"
        is_of_training = OF_TRAINING.search(named) is not None
        is_of_all = WHOLE.search(clause) or LABEL.fullmatch(clause)
        if (
            (is_of_training or (has_trained and is_of_all))
            and not PART.search(clause)
            and not OF_PART.match(text, match.end())
            and AFTER_DONE.match(text, match.end())
        ):
            return True
    return False


TRAINING = Activity(STEP, "while the training goes on")


def last_activity(logs: Iterable[Sequence[Written]]) -> Activity | None:
    """The activity at the end of the logs, from the last line that shows one.

    Args:
        logs: the last lines of each file.

    Returns:
        None if no line shows one.
    """
    ends = (activity_in([line.text for line in lines], TRAINING) for lines in logs)
    return next(filter(None, ends), None)
