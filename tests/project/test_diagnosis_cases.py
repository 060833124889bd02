"""The logs with known causes that diagnoses are scored by, and the score."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from support.benchmarks import benchmark_of

cases = benchmark_of("cases", "diagnosis")
ALL = list(cases.read())
KINDS = {"failure", "misleading", "healthy"}
DEVICES = {"nvidia", "ascend", "rocm", "cpu", "other"}


def test_each_case_can_be_judged() -> None:
    """The log hasn't the misleading text; no two cases share a thread."""
    wrong = []
    for case in ALL:
        is_healthy = case.kind == "healthy"
        valid = case.kind in KINDS and case.device in DEVICES and 2023 <= case.year <= 2026
        valid &= case.source.startswith("https://") and (case.root is None) is is_healthy
        valid &= bool(case.advice) is not is_healthy
        if not valid:
            wrong.append(case.name)
        wrong += [case.name for each in case.wrong if cases.found(each, cases.joined(case.log))]
    assert wrong == []
    sources = Counter(case.source for case in ALL)
    assert [source for source, count in sources.items() if count > 1] == []


def test_there_are_enough_and_both_halves_have_their_part() -> None:
    """A third is healthy or misleading."""
    assert len(ALL) >= 300
    assert sum(case.kind != "failure" for case in ALL) >= len(ALL) / 3
    halves = Counter(case.half for case in ALL)
    assert min(halves["open"], halves["test"]) > 0.4 * len(ALL)


def test_a_score() -> None:
    """Text after the third line names the root, but not at first sight; misleading text counts."""
    case = next(case for case in ALL if case.kind == "failure")
    case = replace(case, root="lack of x", advice=("add an x",), wrong=("reinstall",))

    def scored(*lines: str, failed: bool = True) -> tuple[bool, ...]:
        score = case.judged(cases.Answer(failed, "\n".join(lines), 0.0))
        return score.named, score.right, score.wrong, score.first_lines

    assert scored("it fails for lack", "of x", "Add an x") == (True, True, False, True)
    assert scored("it fails", "add an x", "", "a lack of x") == (True, True, False, False)
    assert scored("a lack of x", "add an x, then reinstall") == (True, False, True, False)
    assert scored("all is well", failed=False) == (False, False, True, False)
    healthy = replace(case, root=None, advice=(), kind="healthy")
    assert healthy.judged(cases.Answer(True, "a lack of x", 0.0)).accused
    assert not healthy.judged(cases.Answer(False, "it ended well", 0.0)).wrong
