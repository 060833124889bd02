"""Variants: the case that the evidence shows, and the values inserted in its advice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safe_launch.catalogue.advice import COMMAND, SENTENCE, Advice, advice, advised, cases
from safe_launch.catalogue.entry import KnownFailure
from safe_launch.catalogue.reader import read_catalogue, read_entry
from safe_launch.catalogue.regex import compiled
from safe_launch.catalogue.search import search
from safe_launch.catalogue.situation import Device, device_of, named_for
from safe_launch.catalogue.variant import LONGEST, Variant
from safe_launch.catalogue.version_skew import Wanting
from safe_launch.diagnosis.root_cause import finding_of
from safe_launch.evidence.failure_record import FailureRecord, Frame, Raised
from safe_launch.logs.searches import searches_for
from safe_launch.report.explain_failure import entry_text
from safe_launch.system.typed_files import DocumentError
from support.entries import GOOD
from support.logs import excerpts, judged
from support.stacks import TESTS
from support.tables import read_yaml, table

LONGEST_TITLE = 60
LONGEST_STEP = 170
"""Characters of a first sentence, not counting a command at its end."""
SITE = "/env/lib/python3.11/site-packages"
OURS = Frame("/job/train.py", 9, "main", "trainer = Trainer(model, size=4)")
THEIRS = Frame(f"{SITE}/trl/trainer/dpo.py", 90, "__init__", "super().__init__(size=size)")
WRAPPER = Frame(f"{SITE}/transformers/utils/deprecation.py", 7, "inner", "f(*args, **kwargs)")
RECORD = FailureRecord(
    0,
    0.0,
    "builtins.RuntimeError",
    "no room for\n  4.97 GiB in file 'a.bin'",
    chain=(Raised("builtins.KeyError", "'lr'"),),
    frames=(OURS, THEIRS),
    versions={"torch": "2.4.1"},
    log_tail=("started", "process 77 has  3 GiB"),
)


def variant(do: str = "Free {size}.", **parts: str) -> Variant:
    """A variant with these patterns."""
    return Variant(do, **{name: compiled(text) for name, text in parts.items()})  # type: ignore[arg-type]


def test_a_title_of_its_own() -> None:
    """The first variant that holds gives it; without one the entry's stands."""
    held = Variant("Free it.", title="No room for it", message=compiled("no room"))
    other = Variant("Wait.", title="It waits", message=compiled("waits"))
    plain = Variant("Free it.", message=compiled("no room"))
    entry = read_catalogue()[0]
    for variants, title in (((other, held), "No room for it"), ((plain, held), entry.subject)):
        assert replace(entry, variants=variants).subject_of(RECORD) == title


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (variant(message=r"for (?P<size>[\d.]+ GiB)"), "Free 4.97 GiB."),
        (variant(message=r"for (?P<size>[\d.]+ MiB)"), None),
        (variant("Set it.", message="^'lr'$"), "Set it."),
        (variant("Set it.", source=r"super\(\)"), "Set it."),
        (variant(log="process \\d+ has (?P<size>\\d+ GiB)"), "Free 3 GiB."),
        (variant("Is {a}, {b}.", log="(?P<a>start)", context="for (?P<b>.*) in"), None),
        (variant("Is {a}, {b}.", log="(?P<a>start)", context="(?P<b>4.97)"), "Is start, 4.97."),
        (Variant("Upgrade it.", wanted_by=Wanting.PACKAGE), None),
        # A group that didn't match inserts nothing.
        (variant(message=r"no room(?P<size> at all)?"), None),
        # Braces around anything but a name are JSON.
        (variant('Write {"a": {"b": 1}}.', message="room"), 'Write {"a": {"b": 1}}.'),
        (Variant("Set it.", exception="KeyError"), "Set it."),
        (Variant("Set it.", exception="ValueError"), None),
        (Variant("Set it.", file="trl/trainer/dpo.py", function="__init__"), "Set it."),
        (Variant("Set it.", file="trl/trainer/sft.py"), None),
        (Variant("Set it.", function="main"), None),
        (Variant("Upgrade it.", when={"torch": ">=2.4,<2.5"}), "Upgrade it."),
        (Variant("Upgrade it.", when={"torch": ">=2.5"}), None),
        (Variant("Upgrade it.", when={"peft": ">=0.1"}), None),
        (Variant("Look.", device=Device.CUDA), None),
    ],
)
def test_a_case_is_shown_or_not(case: Variant, expected: str | None) -> None:
    """The evidence must have every part and every inserted value."""
    assert case.advice(RECORD) == expected


def test_a_line_without_an_exception_is_a_message() -> None:
    """The watchdog's line is a failure record, too."""
    line = FailureRecord(3, 0.0, message="[Rank 3] timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE)")
    assert variant("Is {op}.", message=r"OpType=(?P<op>\w+)").advice(line) == "Is ALLREDUCE."
    assert Variant("Is it.", exception="RuntimeError").advice(line) is None


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ((), None),
        ((OURS,), None),
        ((OURS, THEIRS), "Upgrade trl."),
        ((OURS, WRAPPER), None),
        ((OURS, THEIRS, WRAPPER), "Upgrade trl."),
    ],
)
def test_whose_line_failed(frames: tuple[Frame, ...], expected: str | None) -> None:
    """A decorator's frame is skipped: it only calls the user's function."""
    own = variant("Upgrade {name}.", library="^(?P<name>trl|transformers)$")
    assert own.advice(replace(RECORD, frames=frames)) == expected


def test_who_wants_what_of_which_package() -> None:
    """The fields come from the analysis of version skew."""
    own = Variant("{wanting}, {package}, {name}", wanted_by=Wanting.PACKAGE)
    said = "Trainer.__init__() got an unexpected keyword argument 'tokenizer'"
    skewed = replace(RECORD, exception="builtins.TypeError", message=said, chain=())
    assert own.advice(skewed) == "trl, transformers, tokenizer"
    assert own.advice(replace(skewed, frames=(OURS,))) is None


def test_what_is_filled_in_is_short_clean_and_no_secret() -> None:
    """Inserted values come from a log, which may hold anything."""
    own = variant("Is {a}.", message="<(?P<a>.*)>")
    said = {
        "<\x1b[31mred\x1b[0m\u202e\tfish>": "Is red fish.",
        "<https://me:hunter22@hub/x>": "Is https://***@hub/x.",
        f"<{'x' * 999}>": f"Is {'x' * LONGEST}….",
        "<{b}\\1>": "Is {b}\\1.",
    }
    for message, expected in said.items():
        assert own.advice(replace(RECORD, message=message)) == expected


@pytest.mark.parametrize(
    ("message", "tail", "expected"),
    [
        ("NPU out of memory", ("CUDA_VISIBLE_DEVICES=0",), Device.NPU),
        ("HIP error: out of memory", (), Device.ROCM),
        ("CUDA error: out of memory", ("import torch_npu",), Device.CUDA),
        ("it failed", ("[W compiler_depend.ts] HCCL",), Device.NPU),
        ("it failed", ("input_size",), None),
    ],
)
def test_the_kind_of_accelerator(message: str, tail: tuple[str, ...], expected: str | None) -> None:
    """The failure's own words take precedence over the lines around it."""
    assert device_of(FailureRecord(0, 0.0, "E", message, log_tail=tail)) == expected


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (None, "See `nvidia-smi` (`npu-smi info`), `nvidia-smi -q`; CUDA_VISIBLE_DEVICES."),
        (Device.CUDA, "See `nvidia-smi` (`npu-smi info`), `nvidia-smi -q`; CUDA_VISIBLE_DEVICES."),
        (Device.NPU, "See `npu-smi info`, `nvidia-smi -q`; ASCEND_RT_VISIBLE_DEVICES."),
        (
            Device.ROCM,
            "See `rocm-smi` (`npu-smi info`), `nvidia-smi -q`; HIP_VISIBLE_DEVICES.",
        ),
    ],
)
def test_names_of_other_makers(device: Device | None, expected: str) -> None:
    """Tools and variables are renamed; a tool with options isn't."""
    text = "See `nvidia-smi` (`npu-smi info`), `nvidia-smi -q`; CUDA_VISIBLE_DEVICES."
    assert named_for(device, text) == expected


CATALOGUE = {entry.id: entry for entry in read_catalogue()}
CASES = read_yaml(TESTS / "unit/catalogue/variants.yaml")


def evidence(case: dict[str, Any]) -> FailureRecord:
    """A case's record: a line, or an exception and its origin, and surrounding lines."""
    frames = tuple(Frame(file, 1, function, source) for file, function, source in case["frames"])
    kind, _, message = case["said"].partition(": ")
    return FailureRecord(
        0,
        0.0,
        "" if case["is_line"] else f"builtins.{kind}",
        case["said"] if case["is_line"] else message,
        frames=frames,
        log_tail=tuple(case["tail"]),
    )


@table(
    "case",
    [{"frames": [], "tail": [], "is_line": False, **case} for case in CASES],
    name=lambda case: case["entry"],
    parts=2,
)
def test_what_each_case_is_told(case: dict[str, Any]) -> None:
    """The right entry matches, and its advice begins with the case's advice."""
    record = evidence(case)
    found = finding_of(record, tuple(CATALOGUE.values())).entry
    assert found is not None
    assert found.id == case["entry"]
    assert advice(found, record, frozenset()).text.startswith(case["do"].removesuffix("."))


def test_every_variant_is_shown() -> None:
    """Every variant is shown by a case or by an excerpt of its entry."""
    cases = [{"frames": [], "tail": [], "is_line": False, **case} for case in CASES]
    shown = [(CATALOGUE[case["entry"]], evidence(case)) for case in cases]
    shown += [
        (entry, root.finding.record)
        for entry in CATALOGUE.values()
        if entry.variants
        for log in excerpts(entry, "Seen as")
        if (root := judged(log).root)
    ]
    told = {
        next((id(each) for each in entry.variants if each.advice(record) is not None), 0)
        for entry, record in shown
    }
    every = [(entry.id, each) for entry in CATALOGUE.values() for each in entry.variants]
    assert [(name, each.do) for name, each in every if id(each) not in told] == []


VARIANTS = """\
variants:
  - message: 'for (?P<size>[\\d.]+ GiB)'
    do: >-
      Free
      {size}.
  - {log: 'process (?P<process>\\d+) has', do: 'End {process}.'}
  - {when: {torch: ">=2"}, device: npu, do: 'Wait.'}
when:"""


def with_variants(folder: Path, text: str = VARIANTS) -> Path:
    """An entry with these variants."""
    path = folder / "sample.md"
    path.write_text(GOOD.replace("when:", text, 1))
    return path


def test_the_first_that_holds_comes_instead_of_the_general(tmp_path: Path) -> None:
    """A matching variant replaces the general advice; without one, the general advice remains."""
    entry = read_entry(with_variants(tmp_path))
    assert advice(entry, RECORD, frozenset()) == Advice("Free 4.97 GiB.")
    other = replace(RECORD, message="no")
    assert advice(entry, other, frozenset()) == Advice("End 77.")
    assert advice(entry, replace(other, log_tail=()), frozenset()) == Advice("Something else.")


LONG = f"It is {'very ' * 40}long."


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("Go. Stay.",), Advice("Go. Stay.")),
        (("Take e.g. This. Or that.", ""), Advice("Take e.g. This. Or that.")),
        (
            ("Go away: `pip install -U torch`. Stay.", "Wait."),
            Advice("Go away.", "pip install -U torch", ("Wait.",), "Stay."),
        ),
        (
            (f"Go away, far away: `pip install -U torch`. {LONG}",),
            Advice("Go away, far away.", "pip install -U torch", (LONG,)),
        ),
        (("Go: `CUDA_HOME=/x A=1 make all`",), Advice("Go.", "CUDA_HOME=/x A=1 make all")),
        (("Set it: `a=1 b`. Wait.",), Advice("Set it: `a=1 b`. Wait.")),
        (("Call it: `init(timeout=3 * hour)`.",), Advice("Call it: `init(timeout=3 * hour)`.")),
        (
            (f"Go. {'It is long. ' * 20}",),
            Advice(
                "Go. " + " ".join(["It is long."] * 18),
                "",
                ("It is long. It is long.",),
            ),
        ),
        (
            ("“Go. Stay.” it said, twice. " + LONG,),
            Advice("“Go. Stay.” it said, twice.", "", (LONG,)),
        ),
        (
            (f'Search for "It failed. This is why". {LONG}',),
            Advice('Search for "It failed. This is why".', "", (LONG,)),
        ),
        (
            (f"{LONG} {LONG} Then this. {LONG}",),
            Advice(LONG, "", (LONG, f"Then this. {LONG}")),
        ),
        (("", " \n"), Advice()),
    ],
)
def test_the_step_comes_first(texts: tuple[str, ...], expected: Advice) -> None:
    """A line of sentences, the shell command on its own line, then the rest."""
    assert advised(*texts) == expected


@table("entry", read_catalogue(), name=lambda entry: entry.id)
def test_three_lines_are_enough(entry: KnownFailure) -> None:
    """Every case has a title and a short first sentence."""
    for title in (entry.subject, *(variant.title for variant in entry.variants)):
        assert len(title) <= LONGEST_TITLE, title
    texts = [variant.do for variant in entry.variants]
    texts += entry.sections["What to do"].split("\n\n")[:1]
    for text in texts:
        first = SENTENCE.findall(" ".join(text.split()))[0].rstrip()
        found = COMMAND.fullmatch(first)
        assert len(found["do"] if found else first) <= LONGEST_STEP, first


def test_a_page_has_all_cases(tmp_path: Path) -> None:
    """Cases are given in words, and the search finds them."""
    entry = read_entry(with_variants(tmp_path))
    assert list(cases(entry)) == [
        ("the message has `for <size>`", "Free <size>."),
        ("the log has `process <process> has`", "End <process>."),
        ("torch is >=2 and the accelerator is of kind npu", "Wait."),
    ]
    page = entry_text(entry)
    assert "\nIf the log has `process <process> has`:\nEnd <process>.\n" in page
    assert page.index("Something else.") < page.index("Free <size>.") < page.index("How it is")
    assert [hit.entry.id for hit in search("free process", (entry,))] == ["sample"]


def test_a_line_that_only_a_variant_needs_is_read(tmp_path: Path) -> None:
    """The line may be far from the failure; equal group names in two patterns don't collide."""
    entry = read_entry(with_variants(tmp_path))
    searches = searches_for((entry, entry, *read_catalogue()))
    assert searches.quiet.search(b"[rank0]: process 77 has 3 GiB")


@pytest.mark.parametrize(
    ("right", "wrong", "line", "problem", "hint"),
    [
        ("message:", "massage:", 9, "variants: unknown key `massage`", "`message`?"),
        ("{size}", "{sise}", 9, "variants: do: no pattern finds `sise`", "`size`?"),
        ("'End {process}.'", "''", 13, "variants: `do` is missing", ""),
        (", do: 'End {process}.'", "", 13, "variants: `do` is missing", ""),
        (
            "log: 'process (?P<process>\\d+) has', ",
            "",
            13,
            "variants: without a condition",
            "prose",
        ),
        ("(?P<process>", "(?P<process", 13, "variants: log: ", ""),
        ("log: 'process", "log: '|process", 13, "an empty line matches", ""),
        ("device: npu", "device: nqu", 14, "variants: device: `nqu`", "`npu`?"),
        ('">=2"', '"2 or so"', 14, "variants: `torch: 2 or so` isn't a version range", ">=0.14"),
        ('when: {torch: ">=2"}', "when: torch", 14, "variants: when: version ranges by", "torch"),
        ("'Wait.'", "7", 14, "variants: `do` is a text, put quotes around 7", ""),
        ("'Wait.'", "'{wait}'", 14, "do: no pattern finds `wait`", "(?P<wait>...)"),
    ],
)
def test_mistakes_are_named_with_file_line_and_cure(
    right: str, wrong: str, line: int, problem: str, hint: str, tmp_path: Path
) -> None:
    """The line is the variant's."""
    assert right in VARIANTS
    path = with_variants(tmp_path, VARIANTS.replace(right, wrong, 1))
    with pytest.raises(DocumentError) as caught:
        read_entry(path)
    assert caught.value.problem.startswith(f"{path}:{line}: ")
    assert problem in caught.value.problem
    assert hint in caught.value.problem + caught.value.hint
