"""Finds a failure in what a person writes: a message within a sentence, a title, an exit's code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from ..catalogue.entry import Finding, KnownFailure, Role
from ..diagnosis.root_cause import finding_of
from ..evidence.failure_record import FailureRecord
from .attempts import Evidence, Reading
from .cut_tracebacks import cut_off
from .exception_lines import (
    ANY_UNTYPED,
    HANDLED,
    HAPPENS,
    MILD,
    OF_CODE,
    PROSE,
    SPOKEN,
    UNTYPED,
    message_of,
)
from .judgement import Failure
from .known_messages import by_message
from .launcher_messages import CHILD, exit_in_words
from .progress_signs import IS_PROGRESS, STEP, Written
from .untrained import LOST
from .without_exception import in_context

MOST_PROSE, MOST_SENTENCES, LONGEST_SENTENCE = 60, 10, 1000
"""Maximum lines of a text that is searched for prose, sentences of a line, characters of one."""
SHORTEST = 12
"""Characters of a message that show its line."""
QUOTED_CODE = '"' * 3
LOGGED = re.compile(
    r"\d\d:\d\d:\d\d|^FAILED \S+::|^E  |^\w+ = |\b(?:INFO|DEBUG|WARN\w*)\b|=.*=|^\W*\[|^ {4}|^\t"
)
"""Signs of a program's line."""
OF_PYTHON = {
    r"'?\b\w+' object has no attribute '\w+'": "AttributeError",
    r"module '[\w.]+' has no attribute '\w+'": "AttributeError",
    r"(?<!Error: )No module named (?:'[\w.]+'|[\w.]+$)": "ModuleNotFoundError",
    r"cannot import name '\w+' from '[\w.]+'": "ImportError",
    r"name '\w+' is not defined": "NameError",
    r"'\w+' object is not (?:callable|iterable|subscriptable)": "TypeError",
    r"(?:list|tuple|string) index out of range": "IndexError",
    r"(?:CUDA|HIP|NPU) out of memory": "torch.OutOfMemoryError",
    r"(?:[\w.]+\(\) )?got an unexpected keyword argument '\w+'": "TypeError",
    r"(?:Missing|Unexpected) key\(s\) in state_dict:? ['\"]\w": "RuntimeError",
    r"\[Errno 2\] No such file or directory: '[^']+'": "FileNotFoundError",
    r"(?:CUDA|HIP) error: [a-z]": "torch.AcceleratorError",
}
"""Messages that one type of exception has, as Python and torch word them."""
ANY_OF_PYTHON = re.compile("|".join(f"({pattern})" for pattern in OF_PYTHON))
_KINDS = tuple(OF_PYTHON.values())
ALONE = re.compile(r"(?: \(.*\))?[\s.!]*")
"""What may follow a message with which a sentence begins and ends."""
TITLE = "# "
OF_TITLE = re.compile(r"# |(?:# )?(?:[\w.-]+,? ){1,6}")
"""Words in a title before an exception's name."""
RAISES = re.compile(r"\b[Rr]aise(?=(?: an?| the)? $)")
NEAR = 80
"""Characters before a message in which a word reports it."""
NO_NUMBER = re.compile(
    r"\bloss(?:es)?\b[^.\d]{0,30}\bnan\b(?! (?:filter|check))|\bnan loss", re.IGNORECASE
)
OF_SOMEBODY = re.compile(
    r"\b(?:I|I'm|I've|we|[Mm]y|[Oo]ur|me|[Aa]nyone|[Pp]lease|[Tt]hanks|[Hh]i|[Hh]ello)\b"
    r"|[\u4e00-\u9fff]{4}|^#+ |^(?:When|While|After|During|If) (?:\S+ ){5}"
    r"|\b(?:fails|crashes|dies|hangs|throws) (?:with|at|on|in|when|after|during|right)\b"
    r"|\b(?:to reproduce|the (?:bug|issue)|expected behaviou?r|environment:)"
    r"|\b(?:fails|crashes|dies|hangs|throws|stops|errors out)\b.*(?:\b[a-z]{2,}\b ?){4}"
    r"|(?:\b[a-z]{2,}\b ?){4}.*\b(?:fails|crashes|dies|hangs|throws|stops|errors out)\b"
    r"|\b(?:errors?|fails|failed|crash\w*|got|dies|following)\b.*:\s*$"
)
"""Words of a person, not of a program."""
SETTLED = re.compile(
    r"\b(?:solved|fixed|resolved|works? (?:now|fine|again)|no longer|never|continu\w+|optional"
    r"|caught|using default|not installed|earlier run|workaround)\b|\bcan't load\b",
    re.IGNORECASE,
)
"""Words of what is over, or never was."""
ASKED = re.compile(
    r"\b(?:not|isn't|n't|detect|handl\w+|skip\w*|stop_on|stop-on|stop when|check(?:s|ing)? for)\b"
    r"|^(?:How|Does|Do|Is|Are|Can|Should|Which)\b",
    re.IGNORECASE,
)
"""Words that deny something, or only ask about it."""
ENDS = re.compile(rf"[`\"*]|\.?\s*$|{PROSE.pattern}")
"""The end of a message within a sentence."""
OF_SENTENCE = re.compile(r"(?:\b[a-z]{2,}\b ?){4}")
"""Words in a row, as a step's line doesn't have."""
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|[\u3002\uff0c\uff1b\uff01\uff1f]")
"""The end of a sentence, also a Chinese one's part."""


def in_prose(reading: Reading, catalogue: Sequence[KnownFailure]) -> Iterator[Failure]:
    """Failures that a person's sentences quote or name, if the text has no exception itself."""
    raised = (event for event in reading.events if event.record.exception)
    if reading.deaths or not all(_is_title(event, reading) for event in raised):
        return
    goes_on = cut_off(reading) is None and any(
        _is_step(line.text) or IS_PROGRESS.match(line.text)
        for lines in reading.last_lines.values()
        for line in lines
    )
    for file, last in reading.last_lines.items():
        if file in reading.ends:
            continue
        every = {line.number: line for line in (*last, *reading.first_lines.get(file, ()))}
        lines = [every[number] for number in sorted(every)]
        single, joined = _sentences(lines, goes_on=goes_on)
        looks = (
            *((line, _known) for line in (*single, *joined)),
            *((line, look) for look in (_typed, _lost, _exited) for line in (*joined, *single)),
        )
        for line, look in looks:
            if (finding := look(line, catalogue)) is not None:
                begun = finding.record.message[:SHORTEST]
                shown = next((one for one in lines if begun and begun in one.text), line)
                place = (shown.number, shown.text.strip())
                evidence = Evidence(finding.record, file, (place,), is_spoken=True)
                yield in_context(Failure(finding, evidence), reading)


def _is_title(event: Evidence, reading: Reading) -> bool:
    """Whether an exception stands in a heading above a log, whatever comes after it."""
    first = reading.first_lines.get(event.file, ())[:1]
    return any(line.text.startswith(TITLE) and line.number == event.lines[0][0] for line in first)


def _sentences(
    lines: Sequence[Written], *, goes_on: bool
) -> tuple[Sequence[Written], Sequence[Written]]:
    """The sentences in each line of a text's prose, and in its wrapped paragraphs.

    A text without a person's words has a title at most, as has one in which a training goes on.
    """
    if any(QUOTED_CODE in line.text for line in lines):
        return (), ()
    has_title = len(lines) == 1 or (len(lines) > 1 and lines[1].number > lines[0].number + 1)
    title = [line for line in lines[:1] if line.text.startswith(TITLE) or has_title]
    if goes_on:
        title = [line for line in title if line.text.startswith(TITLE)]
    texts = [line.text for line in (*lines, *_joined(lines))]
    is_persons = any(OF_SOMEBODY.search(text) for text in texts)
    written = lines if is_persons and not goes_on and len(lines) <= MOST_PROSE else title
    prose = [line for line in written if not LOGGED.search(line.text)]
    return [*_split(prose)], [*_split(_joined(prose))]


def _joined(lines: Sequence[Written]) -> Sequence[Written]:
    """The paragraphs of several lines, each with the line above that announces it."""
    runs = groupby(enumerate(lines), key=lambda pair: pair[1].number - pair[0])
    paragraphs = [[line for _, line in run] for _, run in runs]
    for above, below in pairwise(paragraphs):
        if above[-1].text.rstrip().endswith(":"):
            below.insert(0, above[-1])
    return [
        replace(part[0], text=" ".join(line.text.strip().lstrip("#> ") for line in part))
        for part in paragraphs
        if len(part) > 1
    ]


def _is_step(text: str) -> bool:
    """Whether a line is a training step's, and not a sentence about one."""
    return STEP.search(text) is not None and OF_SENTENCE.search(text) is None


def _split(lines: Iterable[Written]) -> Iterator[Written]:
    """The sentences of lines that may be about a failure."""
    for line in lines:
        for sentence in SENTENCE.split(line.text, MOST_SENTENCES):
            others = (MILD, HANDLED, SETTLED)
            is_other = _is_step(sentence) or any(words.search(sentence) for words in others)
            if len(sentence) <= LONGEST_SENTENCE and not is_other:
                yield replace(line, text=sentence.strip())


def _known(line: Written, catalogue: Sequence[KnownFailure]) -> Finding | None:
    """The known failure whose message a sentence has, without the exception's type."""
    if SPOKEN.search(line.text):
        return None
    record = FailureRecord(None, float(line.number))
    finding = by_message(line.text, catalogue, record, is_last=False, is_within=True)
    if finding is None:
        return None
    before, _, _ = line.text.partition(finding.record.message)
    return finding if _reports(before) else None


def _typed(line: Written, catalogue: Sequence[KnownFailure]) -> Finding | None:
    """The exception that a sentence names, or whose message it has."""
    spoken = SPOKEN.search(line.text)
    if spoken and (message := message_of(spoken)):
        before = line.text[: spoken.start()]
        if spoken["message"]:  # code would have a bracket
            before = RAISES.sub(r"\g<0>s", before)
        is_title = OF_TITLE.fullmatch(before) and not OF_CODE.search(before)
        is_other = spoken["kind"].rpartition(".")[2] in CHILD
        if is_other or not (is_title or _reports(before)):
            return None
        return _finding(line, spoken["kind"], message, catalogue)
    for pattern, kinds in ((ANY_OF_PYTHON, _KINDS), (ANY_UNTYPED, tuple(UNTYPED.values()))):
        match = pattern.search(line.text)
        is_alone = match and not match.start() and ALONE.fullmatch(line.text, match.end())
        if match and (is_alone or _reports(line.text[: match.start()])):
            kind = kinds[(match.lastindex or 1) - 1]
            message = line.text[match.start() :]
            end = ENDS.search(message)
            return _finding(line, kind, message[: end.start()] if end else message, catalogue)
    return None


def _reports(before: str) -> bool:
    """Whether the words before a message report it as an error."""
    near = before[-NEAR:].rstrip("`'\"*")
    return HAPPENS.search(near) is not None and OF_CODE.search(before) is None


def _finding(line: Written, kind: str, message: str, catalogue: Sequence[KnownFailure]) -> Finding:
    name = kind if "." in kind else f"builtins.{kind}"
    record = FailureRecord(None, float(line.number), exception=name, message=message)
    return finding_of(record, catalogue)


def _lost(line: Written, catalogue: Sequence[KnownFailure]) -> Finding | None:
    """The loss that a sentence calls no number."""
    if NO_NUMBER.search(line.text) is None or ASKED.search(line.text):
        return None
    return finding_of(
        FailureRecord(None, float(line.number), message=LOST.format(first=line.number)), catalogue
    )


def _exited(line: Written, catalogue: Sequence[KnownFailure]) -> Finding | None:
    """The end of a process by a signal, in somebody's words."""
    death = None if ASKED.search(line.text) else exit_in_words(line.number, line.text)
    if death is None:
        return None
    record = FailureRecord(
        None,
        float(line.number),
        exit_code=death.exit_code,
        signal=death.signal,
        message=line.text,
    )
    finding = finding_of(record, catalogue)
    return replace(finding, role=Role.INITIATING)
