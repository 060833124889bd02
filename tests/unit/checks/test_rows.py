"""What the rows of a decoder's first batches show of its texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from safe_launch.checks import rows
from safe_launch.checks.finding import Finding
from safe_launch.checks.rows import Row
from support.tables import table

END, BEGIN, TURN = 2, 1, 7
PLAIN = Row(
    length=9,
    counted=6,
    spans=1,
    begin=BEGIN,
    before=20,
    first=21,
    last=END,
    second_last=22,
    final=1,
    ends=1,
    early_ends=0,
    restarts=0,
)
Look = Callable[[Sequence[Row]], Finding | None]


def texts(count: int = 24, **more: int) -> list[Row]:
    """Rows of different lengths and words."""
    words = range(30, 30 + count)
    made = [replace(PLAIN, length=5 + word % 7, first=word, second_last=word) for word in words]
    return [replace(row, **more) for row in made]


def unended() -> list[Row]:
    """Rows without any end."""
    return [replace(row, last=row.first, ends=0) for row in texts()]


def cut(count: int, length: int = 9, others: int = 5) -> list[Row]:
    """Rows of a length without labels, and others of different ones."""
    blank = replace(PLAIN, length=length, counted=0, spans=0, last=-1, final=0)
    return [blank] * count + [replace(PLAIN, length=others)] * (24 - count)


def packed(**more: int) -> list[Row]:
    """Rows of four texts each."""
    made = {"length": 60, "spans": 4, "restarts": 3, "ends": 4, **more}
    return [replace(row, **made) for row in texts()]


@table(
    ("look", "given", "words"),
    [
        (rows.endless, unended(), "none of the first 24 texts"),
        (rows.endless, unended()[:12], ""),  # too few to judge
        (rows.endless, [*unended()[1:], PLAIN], ""),
        (rows.endless, texts(), ""),
        (rows.endless, [replace(row, length=9) for row in unended()], ""),  # of equal lengths
        (rows.endless, [replace(row, counted=1) for row in unended()], ""),  # a class
        (rows.endless, [replace(row, last=5) for row in unended()], ""),  # another end
        (rows.endless, [replace(row, final=0) for row in unended()], ""),
        (rows.unanswered, cut(6), "6 of the first 24 have no label that counts, all of them cut"),
        (rows.unanswered, cut(6, 5, 9), "6 of the first 24 have no label that counts"),
        (rows.unanswered, cut(2), ""),
        (rows.unanswered, cut(24), ""),  # another check reports them
        (rows.unanswered, cut(6, 0), ""),  # empty rows fill a batch
        (rows.unanswered, cut(6)[:10], ""),
        (lambda given: rows.begun_answers(given, BEGIN), texts(first=BEGIN), "with the bos_token"),
        (lambda given: rows.begun_answers(given, None), texts(first=BEGIN), ""),
        (lambda given: rows.begun_answers(given, BEGIN), texts(first=BEGIN, before=-1), ""),
        (lambda given: rows.begun_answers(given, BEGIN), texts(), ""),
        (lambda given: rows.ended_prompts(given, {END}, BEGIN), texts(before=END), "the prompts"),
        (lambda given: rows.ended_prompts(given, {END}, None), texts(before=END), ""),
        (lambda given: rows.ended_prompts(given, {END}, BEGIN), texts(), ""),
        (
            lambda given: rows.ended_prompts(given, {END}, BEGIN),
            texts(before=END, early_ends=1),  # turns end so
            "",
        ),
        (rows.joined, packed(), "rows hold several prompts"),
        (rows.joined, packed(restarts=0), ""),  # turns of one dialogue
        (rows.joined, packed(spans=1), ""),
        (rows.joined, [replace(row, length=9 + n) for n, row in enumerate(packed())], ""),
        (lambda given: rows.unknown_rows(len(given), "<tool>"), texts(), "have <tool>, which"),
        (lambda given: rows.unknown_rows(len(given), "<tool>"), texts(2), ""),
    ],
)
def test_texts(look: Look, given: Sequence[Row], words: str) -> None:
    """Faults have a sentence; what is right, or can't be told, has none."""
    found = look(given)
    assert (found is not None) == bool(words)
    assert found is None or words in found.sentence
    assert found is None or not found.certain


def test_common_tokens() -> None:
    """Nearly all rows share it."""
    assert rows.common([TURN] * 19 + [3]) == TURN
    assert rows.common([TURN] * 5 + [3]) is None
    assert rows.common([-1] * 5) is None
    assert rows.common([]) is None
