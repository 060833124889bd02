"""User lines that lose gradients under DeepSpeed are reported before the launch."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.core.choices import Framework
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.planning.search import as_asked
from safe_launch.session.launch_warnings import suspect_lines
from safe_launch.workload.script.line_searches import SEARCHES
from support.tables import table
from support.worlds import HARDWARE, world


def feared(script: Path, values: dict[Name, Value], search: str) -> list[str]:
    """The entries with this search that match a line of the script."""
    request = LaunchRequest(str(script), False, (), 2, "--nproc")
    plan = as_asked(request, world(values, Framework.NONE), HARDWARE)
    own = [one for one in read_catalogue() if one.points_at == search]
    return [one.entry.id for one in suspect_lines(plan, own)]


def lines_of(search: str, text: str) -> list[int]:
    """The lines of a text that a search finds."""
    return list(SEARCHES[search].find(ast.parse(text)))


LOOP = """\
import deepspeed
for batch in loader:
    for micro in batch:
        engine.backward(engine(micro))
    engine.step()
"""
BOUNDARY = LOOP.replace(
    "engine.backward", "engine.set_gradient_accumulation_boundary(last)\n        engine.backward"
)
ZERO1: dict[Name, Value] = {
    Fact.ENGINE: "deepspeed",
    Setting.ZERO_STAGE: 1,
    Setting.OFFLOAD: "none",
    Setting.ACCUMULATION: 1,
}
OFFLOADED = {**ZERO1, Setting.OFFLOAD: "optimizer"}


@table(
    ("text", "values", "expected"),
    [
        (LOOP, ZERO1, ["deepspeed-zero-last-backward"]),
        (LOOP, OFFLOADED, ["deepspeed-offload-last-backward"]),
        (LOOP, {**ZERO1, Setting.ZERO_STAGE: 3}, []),
        (LOOP, {**ZERO1, Setting.ZERO_STAGE: 0}, []),
        (BOUNDARY, ZERO1, []),
        (LOOP.replace("    engine.step", "        engine.step"), ZERO1, []),
        (LOOP.replace("import deepspeed", "import accelerate"), ZERO1, []),
    ],
)
def test_several_passes_before_a_step_are_feared_where_they_are_lost(
    text: str, values: dict[Name, Value], expected: list[str], tmp_path: Path
) -> None:
    """Not at accumulating stages, nor if the engine is given the boundary."""
    script = tmp_path / "train.py"
    script.write_text(text)
    assert feared(script, values, "several_backwards") == expected


@table(
    ("text", "lines"),
    [
        ("engine.backward(a)\nengine.backward(b)\nengine.step()", [1, 2]),
        ("for m in b: self.engine.backward(l)\nself.engine.step()", [1]),
        ("with x:\n    engine.backward(a)\n    engine.backward(b)\nengine.step()", [2, 3]),
        ("if x:\n    engine.backward(a)\nelse:\n    engine.backward(b)\nengine.step()", []),
        ("g.backward(a)\nd.backward(b)\ng.step()\nd.step()", []),
        ("engine.backward(a)\nengine.step()\nengine.backward(b)\nengine.step()", []),
        ("for m in b: loss.backward()\noptimizer.step()", []),
        ("for m in b: accelerator.backward(l)\naccelerator.step()", []),
        ("def evaluate():\n    for m in b: engine.backward(l)\n    engine.step()", []),
    ],
)
def test_passes_are_counted_up_to_the_step(text: str, lines: list[int]) -> None:
    """For each engine; one branch of a condition; each pass of a loop."""
    assert lines_of("several_backwards", text) == lines


@pytest.mark.parametrize(("accumulation", "count"), [(4, 1), (1, 0)])
def test_a_pipeline_is_feared_under_accumulation(
    accumulation: int, count: int, tmp_path: Path
) -> None:
    """With one micro batch its gradients are right."""
    script = tmp_path / "train.py"
    script.write_text(
        "import deepspeed\nnet = deepspeed.pipe.PipelineModule(layers, num_stages=2)\n"
    )
    values: dict[Name, Value] = {Fact.ENGINE: "deepspeed", Setting.ACCUMULATION: accumulation}
    assert len(feared(script, values, "pipeline_modules")) == count
