"""How often a diagnosis is right: safe-launch and its rivals, on logs with known causes.

    python benchmarks/diagnosis/score.py [--half open|test] [--nvrx FOLDER] [--misses]
                                         [--results FILE] [CASE ...]

README.md explains the cases and the judging of answers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import tools
from cases import HALVES, HEALTHY, OPEN, Answer, Case, Score, read

COLUMNS = ("named", "right advice", "wrong", "first lines enough", "healthy accused", "seconds")
Judged = tuple[Case, Answer, Score]


def judge(tool: tools.Tool, cases: Sequence[Case]) -> list[Judged]:
    """A tool's answers; each log has the same, neutral file name."""
    result = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        for case in cases:
            log.write_text(case.log)
            answer = tool(log)
            result.append((case, answer, case.judged(answer)))
    return result


def share(found: Iterable[bool]) -> str:
    """A count of all, with its percentage."""
    all_of = list(found)
    count = sum(all_of)
    return f"{count} of {len(all_of)} ({100 * count / len(all_of):.0f} %)" if all_of else "none"


def row(judged: Sequence[Judged]) -> list[str]:
    """A tool's figures, in the order of the columns."""
    failed = [score for case, _, score in judged if case.kind != HEALTHY]
    healthy = [score for case, _, score in judged if case.kind == HEALTHY]
    seconds = [answer.seconds for _, answer, _ in judged]
    return [
        share(score.named for score in failed),
        share(score.right for score in failed),
        share(score.wrong for _, _, score in judged),
        share(score.first_lines for score in failed),
        share(score.accused for score in healthy),
        f"{statistics.median(seconds):.2f}" if seconds else "",
    ]


def misses(judged: Iterable[Judged]) -> None:
    """Shows wrong answers of the open half: the test half stays unseen."""
    for case, answer, score in judged:
        is_right = score.right and not score.wrong if case.root else not score.wrong
        if case.half == OPEN and not is_right:
            print(f"\n=== {case.name}: {json.dumps(asdict(score))}")
            print(f"cause:  {case.cause}\nremedy: {case.remedy}")
            print(
                f"root:   {case.root}\nadvice: {case.advice}\nwrong:  {case.wrong}\n{answer.text}"
            )


def main() -> None:
    """Prints a table for each half."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", type=Path)
    parser.add_argument("--half", choices=HALVES)
    parser.add_argument("--nvrx", type=Path, help="the folder src of its checkout")
    parser.add_argument("--misses", action="store_true", help="show answers that aren't right")
    parser.add_argument("--results", type=Path, help="where to write each case's score, as JSON")
    options = parser.parse_args()
    rivals: dict[str, tools.Tool] = {
        "safe-launch diagnose": tools.ours,
        "the last exception": tools.last_exception,
    }
    if options.nvrx:
        rivals["NVIDIA's restart agent, no model"] = tools.nvidia(options.nvrx)
    try:
        cases = list(read(options.cases))
    except (OSError, ValueError) as error:
        parser.error(str(error))
    scores: dict[str, dict[str, dict[str, bool]]] = {}
    for half in [options.half] if options.half else HALVES:
        print(f"\n{half} half\n| tool | {' | '.join(COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}")
        for name, tool in rivals.items():
            judged = judge(tool, [case for case in cases if case.half == half])
            print(f"| {name} | {' | '.join(row(judged))} |", flush=True)
            scores.setdefault(name, {}).update({c.name: asdict(s) for c, _, s in judged})
            if options.misses and tool is tools.ours:
                misses(judged)
    if options.results:
        options.results.write_text(json.dumps(scores, indent=0) + "\n")


if __name__ == "__main__":
    main()
