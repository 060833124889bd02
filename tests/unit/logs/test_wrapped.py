"""No known failure is lost by the text that people put around a pasted log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest
from safe_launch.catalogue.entry import KnownFailure
from safe_launch.commands.diagnose import read
from safe_launch.logs.judgement import Judgement, Verdict
from safe_launch.logs.verdict import decisive
from support.logs import CATALOGUE, STEPS, entry_of, excerpts, judged
from support.tables import table

Wrapper = Callable[[str], str]
STATES = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): (?!\w+Error\b)\S")
TYPOGRAPHIC = str.maketrans({"'": "\u2019", '"': "\u201d", " ": "\u00a0"})


def each(form: str) -> Wrapper:
    """Puts a text around every line."""
    return lambda text: "\n".join(
        form.format(line, n=n) for n, line in enumerate(text.rstrip("\n").split("\n"), 1)
    )


def whole(form: str) -> Wrapper:
    """Puts a text around the whole."""
    return lambda text: form.format(text.rstrip("\n"))


def after_name(form: str) -> Wrapper:
    """Changes the separator between an exception's name and message."""
    return lambda text: form.format(*text.split(": ", 1))


OF_TEXTS: dict[str, Wrapper] = {
    "quoted": each("> {}"),
    "quoted twice": each("> > {}"),
    "in a fence": whole("It ends so:\n```bash\n{}\n```\nAny help?"),
    "as code": whole("`{}`"),
    "lines as code": each("`{}`"),
    "bold": whole("**{}**"),
    "bold lines": each("**{}**"),
    "in quotes": whole('"{}"'),
    "lines in quotes": each("'{}'"),
    "a list": each("- {}"),
    "another list": each("\u2022 {}"),
    "numbered": each("{n}. {}"),
    "with line numbers": each("{n:6}\t{}"),
    "a table": each("| {} |"),
    "labelled": whole("Error: {}"),
    "labelled in Chinese": whole("\u62a5\u9519\uff1a{}"),
    "stamped": each("2024-05-01 10:00:{n:02} {}"),
    "stamped in brackets": each("[10:00:00] {}"),
    "of a journal": each("May  1 10:00:00 node-a python[4711]: {}"),
    "typographic": lambda text: text.translate(TYPOGRAPHIC),
    "indented": each("      {}"),
    "of a page": lambda text: text.replace("<", "&lt;").replace('"', "&quot;"),
}
OF_LINES: dict[str, Wrapper] = {
    "as code": whole("`{}`"),
    "bold code": whole("**`{}`**"),
    "in quotes": whole('"{}"'),
    "an item": whole("- {}"),
    "a heading": whole("### {}"),
    "a row of a table": whole("| error | {} | 3 |"),
    "labelled": whole("Error: {}"),
    "labelled in Chinese": whole("\u62a5\u9519\uff1a{}"),
    "in a sentence": whole("When I start the training I get {} when it saves."),
    "in a sentence in Chinese": whole("\u8fd0\u884c\u65f6\u62a5\u9519{}\uff0c\u600e\u4e48\u529e"),
    "of a person": whole("I tried two cards, which leads to {}"),
    "quoted in a sentence": whole('It fails with "{}" after an hour.'),
    "as code in a sentence": whole("i keep getting `{}` on two nodes"),
    "in parentheses": whole("it stops ({})"),
    "name as code": after_name("`{}`: {}"),
    "bold name": after_name("**{}:** {}"),
    "a wide colon": after_name("{}\uff1a{}"),
    "on the next line": after_name("{}:\n{}"),
    "on the line after the name": after_name("Exception has occurred: {}\n{}"),
    "stamped by another tool": whole("(main) 10:03 [train.log] {}"),
    "typographic": lambda text: text.translate(TYPOGRAPHIC),
}
EVERY = 10
"""Each excerpt is tried with every tenth wrapper, selected by its entry's name."""


def judged_as_pasted(text: str, folder: Path) -> Judgement:
    """The command's diagnosis of a text pasted into a file."""
    file = folder / "pasted.log"
    file.write_text(text + "\n", encoding="utf-8")
    return decisive(read([str(file)], CATALOGUE))


def wrappers(of: dict[str, Wrapper], place: int) -> Iterator[tuple[str, Wrapper]]:
    """The wrappers for an excerpt."""
    yield from [*of.items()][place % EVERY :: EVERY]


@table("place", range(len(CATALOGUE)), name=lambda place: CATALOGUE[place].id, parts=8)
def test_no_entry_is_lost_by_what_is_around_its_log(place: int, tmp_path: Path) -> None:
    """Around each line or around the whole."""
    entry: KnownFailure = CATALOGUE[place]
    for number, seen in enumerate(excerpts(entry, "Seen as"), crc32(entry.id.encode())):
        for name, wrapper in wrappers(OF_TEXTS, number):
            assert entry_of(judged_as_pasted(wrapper(seen), tmp_path)) == entry.id, (name, seen)


@table("place", range(len(CATALOGUE)), name=lambda place: CATALOGUE[place].id, parts=4)
def test_no_message_is_lost_by_what_is_around_it(place: int, tmp_path: Path) -> None:
    """A single log line within a person's sentence."""
    entry: KnownFailure = CATALOGUE[place]
    for number, seen in enumerate(excerpts(entry, "Seen as"), crc32(entry.id.encode())):
        line = next((one for one in seen.split("\n")[::-1] if STATES.match(one)), None)
        if line is None or entry_of(judged_as_pasted(line, tmp_path)) != entry.id:
            continue
        for name, wrapper in wrappers(OF_LINES, number):
            text = wrapper(line)
            assert entry_of(judged_as_pasted(text, tmp_path)) == entry.id, (name, text)


@pytest.mark.parametrize("wrapper", OF_LINES.values(), ids=OF_LINES)
def test_an_exception_that_nobody_knows_is_never_overlooked(
    wrapper: Wrapper, tmp_path: Path
) -> None:
    """Alone and below a training."""
    for before in ("", STEPS):
        text = before + wrapper("KeeperError: the door stands open")
        judgement = judged_as_pasted(text, tmp_path)
        assert judgement.verdict is Verdict.UNKNOWN
        assert judgement.root is not None
        record = judgement.root.finding.record
        assert record.exception == "builtins.KeeperError"
        assert record.message.startswith("the door stands open")


@pytest.mark.parametrize(
    "after",
    [
        "The sample will be skipped.",
        "falling back to the slow path",
        "But the training still goes on.",
        "\u4f46\u662f\u80fd\u6b63\u5e38\u8bad\u7ec3\u3002",
        "[ERROR:zoo] \U0001f446 It can't be read, and another piece of data will be selected.",
        "Retrying in 1s [Retry 1/5].",
    ],
)
def test_what_was_handled_is_not_the_root(after: str, tmp_path: Path) -> None:
    """The next line shows that it was; a launcher's failure report counts more."""
    raised = (
        'Traceback (most recent call last):\n  File "zoo.py", line 3, in feed\n'
        "    assert gate.is_open\nAssertionError: the door stands open\n\n"
    )
    judgement = judged_as_pasted(f"{raised}{after}\n", tmp_path)
    assert (judgement.verdict, judgement.root) == (Verdict.UNFINISHED, None)
    failed = "[launch.py:325:sigkill_handler] [...] exits with return code = 1"
    judgement = judged_as_pasted(f"{raised}{after}\n{failed}\n", tmp_path)
    assert judgement.root is not None
    assert judgement.root.finding.record.exception == "builtins.AssertionError"


EMPTY = (
    "size mismatch for base_model.model.layers.0.q_proj.lora_A.default.weight: copying a param "
    "with shape torch.Size([0]) from checkpoint, the shape in current model is torch.Size([8, 64])."
)
STARVED = "ValueError: num_samples should be a positive integer value, but got num_samples=0"


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        (EMPTY, "zero3-empty-weights-saved"),
        (f"{EMPTY}\nWhat is this?", "zero3-empty-weights-saved"),
        (STARVED.partition(": ")[2], "dataset-empty"),
        (f"...{STARVED[5:]}", "dataset-empty"),
        (STARVED.partition("ples ")[2], "dataset-empty"),
        (f"step 1/50 loss 3.0\n{STARVED[12:-20]}", "dataset-empty"),
        (f"It fails so\n\nError\n{STARVED.partition(': ')[2]}\nWhat can I do?", "dataset-empty"),
        (f"if you see {EMPTY}", None),
        (f"{EMPTY}\n{STEPS}", None),
        (f"WARNING: {EMPTY}", None),
    ],
)
def test_a_message_that_lacks_its_name_or_its_end(
    text: str, entry: str | None, tmp_path: Path
) -> None:
    """A text that starts or ends inside a message, but not one that mentions it."""
    assert entry_of(judged_as_pasted(text, tmp_path)) == entry


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("I use two cards and get this error:\nbackend not set\n", "backend not set"),
        (
            "\u53cc\u5361\u8bad\u7ec3\u62a5\u5982\u4e0b\u9519\u8bef\uff1a\nbackend not set\n",
            "backend not set",
        ),
        ("\u62a5\u9519\u4fe1\u606f\nbackend not set\n", "backend not set"),
        ("It works without errors:\nbackend not set\n", None),
        (f"I get this error:\nbackend not set\n{STEPS}", None),
        (f"{STEPS}Validation error\nmean over folds\n", None),
        ("Validation error:\n0.31 0.29\n", None),
        (
            "I see this error:\n[W socket.cpp:6] The addresses can't be retrieved\n",
            "[W socket.cpp:6] The addresses can't be retrieved",
        ),
        (
            f"\u8bad\u7ec3\u65f6\u51fa\u73b0\u95ee\u9898\uff1a{STARVED[12:]}\n\u600e\u4e48\u529e",
            STARVED[12:],
        ),
        ("I get this error:\n1. run it\n", None),
        ("I get this error:\n-----\nbackend not set\n-----\n", "backend not set"),
        (
            "The error is- 'DistributedDataParallel' object has no attribute 'config'.\nWhat?\n",
            "'DistributedDataParallel' object has no attribute 'config'",
        ),
        ("it fails: exits with return code = -7\n", "it fails: exits with return code = -7"),
        ("`KeyError: the door` when it opens. It is smaller than mine.\n", "the door"),
        ("I get this error:\n$ torchrun train.py\n", None),
        ("WARNING: an error:\nbackend not set\n", None),
    ],
)
def test_what_a_person_announces_as_an_error(
    text: str, message: str | None, tmp_path: Path
) -> None:
    """A message without its type, unless the run went on."""
    root = judged_as_pasted(text, tmp_path).root
    assert (None if root is None else root.finding.record.message) == message


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("(WorkerDict pid=804) LLVM ERROR: Failed to compute parent layout", "Abort"),
        (
            "[E s.cpp:7] The client socket has failed to connect to any network address of (6, 4).",
            "DistNetworkError",
        ),
    ],
)
def test_what_native_code_logs_as_its_end(line: str, kind: str, tmp_path: Path) -> None:
    """Without an exception's name."""
    root = judged_as_pasted(line, tmp_path).root
    assert root is not None
    assert root.finding.record.exception.rpartition(".")[2] == kind


CUT = """
traceback : Traceback (most recent call last):
    File "/zoo.py", line 3, in feed
      gate.open()
  KeeperError: the door stands open
"""
BEHEADED = """
zoo/gates.py", line 3, in feed
    gate.open()
KeeperError: the door stands open
"""
DEBUGGED = """
Exception has occurred: KeeperError       (note: full exception trace is shown but it is paused)
the door stands open
  File "/zoo.py", line 3, in feed
"""
NOTEBOOK = """
I am getting the following error:

File ~/env/lib/python3.8/site-packages/zoo/gates.py:123, in feed(gate, animals)
    118 import os
    122 if gate.is_open:
--> 123     raise KeeperError(
    124         "the door stands open, "
    125         "so close it."
    126     )
    127 feed_all()
"""
TRUNCATED = """
Traceback (most recent call last):
  File "/zoo.py", line 3, in feed
    raise KeeperError("the door stands open")
"""


@pytest.mark.parametrize(
    "text",
    [CUT, BEHEADED, DEBUGGED, NOTEBOOK, TRUNCATED],
    ids=["cut", "beheaded", "debugged", "notebook", "truncated"],
)
def test_a_traceback_as_people_cut_it(text: str, tmp_path: Path) -> None:
    """Its exception is found."""
    root = judged_as_pasted(text.lstrip(), tmp_path).root
    assert root is not None
    assert root.finding.record.message.startswith("the door stands open")


@table(
    ("line", "message"),
    [
        ("AttributeError: Shelf object has no attribute rows", "'Shelf' object has no attribute"),
        ("valueError: no shelf", "no shelf"),
        ("=====> ValueError: no shelf", "no shelf"),
        ("Value Error: no shelf", "no shelf"),
        ("ValueError: no shelf ^M 24%|\u2588\u2588| 36/152 [22:57<1:13]", "no shelf"),
    ],
)
def test_marks_that_a_page_or_a_terminal_has_lost(line: str, message: str) -> None:
    """Quotes that it takes for markup; a carriage return that is spelt out."""
    root = judged(line + "\n").root
    assert root is not None
    assert root.finding.record.message.startswith(message)
    assert "%" not in root.finding.record.message


def test_a_cut_message_whose_line_is_there() -> None:
    """The line that raises has the whole of it."""
    frame = 'File "/env/shelf.py", line 9, in put\n    raise ValueError('
    cut = f"Traceback (most recent call last):\n  {frame}'the shelf is full of books'\n"
    root = judged(f"{cut}ValueError: the shelf is f\n").root
    assert root is not None
    assert root.finding.record.message == "the shelf is full of books"
    other = judged(f"{cut}ValueError: the shelf has {{n}} rows\n").root
    assert other is not None
    assert other.finding.record.message == "the shelf has {n} rows"


def test_a_quoted_error_above_a_cut_traceback() -> None:
    """It has the entry of that message, or at least its words."""
    cut = 'Traceback (most recent call last):\n  File "/job/a.py", line 9, in f\n    start()\n'
    judgement = judged(f'On a cluster it fails with an error "no shelf is open". Why?\n\n{cut}')
    assert judgement.root is not None
    assert judgement.root.finding.record.message == "No shelf is open"
    assert judgement.root.finding.record.frames
