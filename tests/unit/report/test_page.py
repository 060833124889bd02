"""The HTML page of a run: its content for each kind of run, and what it hides."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from safe_launch.commands import registry, run_search
from safe_launch.core.errors import LaunchError
from safe_launch.progress import snapshot
from safe_launch.progress.board import Phase, RankProgress
from safe_launch.progress.snapshot import Snapshot
from safe_launch.report.page import document
from safe_launch.report.page.source_excerpt import excerpt
from safe_launch.system.kept_runs import recorded

GIB = 2**30
CHANGE = {
    "setting": "zero_stage",
    "old": 3,
    "new": 2,
    "source": "--deepspeed ds.json",
    "cause": {
        "kind": "known failure",
        "name": "some-failure",
        "summary": "it isn't gathered",
        "reference": "https://x/y",
    },
}
LOSS = "{{'loss': '{}', 'grad_norm': '1', 'learning_rate': '0.01', 'epoch': '{}'}}\n"
NOW = time.time() - 200


class RunFolder:
    """A run directory in a launch's format."""

    def __init__(self, root: Path, name: str = "train-1") -> None:
        self.path = root / name
        self.path.mkdir(parents=True)
        (self.path / "request.json").write_text("{}")
        with recorded(self.path, 0, "train.py --hub_token ***"):
            pass

    def attempt(self, number: int, **files: object) -> Path:
        """Adds an attempt with contents for some of its files."""
        folder = self.path / f"attempt-{number}"
        folder.mkdir()
        for name, value in files.items():
            (folder / f"{name.replace('_', '-')}.json").write_text(json.dumps(value))
        return folder

    def ends(self, code: int, **more: object) -> None:
        """Writes the outcome."""
        (self.path / "outcome.json").write_text(json.dumps({"exit_code": code, **more}))

    def page(self) -> str:
        """Renders the page of this run."""
        return document.page(run_search.past(self.path))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run without an attempt; other runs on this host are hidden."""
    monkeypatch.setattr(run_search, "running_here", lambda: iter(()))
    return RunFolder(tmp_path)


def failing(**record: Any) -> dict[str, Any]:
    """A rank's failure in the format of `failures.json`."""
    plain = {"rank": 1, "host": "node-b", "exception": "builtins.ValueError", "exit_code": 1}
    return {"record": {**plain, **record}, "entry": None, "role": "root cause"}


def corrected(run: RunFolder, script: Path) -> None:
    """The first attempt runs out of memory, the second trains."""
    script.write_text("def step():\n    before = 1\n    loss.backward()\n    return before\n")
    frame = {"file": str(script), "line": 3, "function": "step", "source": "loss.backward()"}
    message = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB"
    memory = {"allocated": 7 * GIB, "total": 8 * GIB}
    record = {"message": message, "frames": [frame], "traceback": "Trace <b>", "memory": memory}
    finding = {**failing(**record), "entry": "accelerator-out-of-memory"}
    estimate = {"components": {"parameters": GIB, "activations": 3 * GIB, "kept": 0}}
    first = run.attempt(
        1,
        failures={
            "findings": [finding, {**finding, "role": "the same"}],
            "rows": [("do", "use a smaller `micro_batch`"), ("why", "<b> is full")],
        },
        plan={"changes": [], "estimate": estimate},
        observed={"span": [NOW, NOW + 60]},
    )
    (first / "rank-0.log").write_text(LOSS.format(2.5, 0.1) + LOSS.format("nan", 0.2))
    second = run.attempt(
        2,
        plan={"changes": [CHANGE], "estimate": estimate},
        observed={"span": [NOW + 70, NOW + 200]},
    )
    (second / "rank-0.log").write_text(LOSS.format(2.25, 0.1) + LOSS.format(1.75, 0.2))
    snapshot.write_pace(second, [(NOW + 70 + 10 * n, 5 * n) for n in range(10)])
    times = {"quiet": 0.5, "in_phase": 9.0, "longest_quiet": 0.2, "whole": (0.25, 0.75)}
    rows = [
        RankProgress(rank, 7, 9, Phase.ENDED, 45, peak=(2 + rank) * GIB, **times)  # type: ignore[arg-type]
        for rank in range(2)
    ]
    # The date of the run, not of now: these tests run long after collection.
    seen = msgspec.json.encode(Snapshot(0, "node-a", NOW + 200, tuple(rows)))
    (second / "progress-0.json").write_bytes(seen)
    run.ends(0)


def test_a_corrected_run(run: RunFolder, tmp_path: Path) -> None:
    """The verdict, the curves, memory, the user's lines once, the plan and the ranks."""
    corrected(run, tmp_path / "train.py")
    page = run.page()
    assert (
        "It trained to the end in attempt 2 with zero_stage: 3 -&gt; 2, after the failure of "
        "rank 1 on node-b: ValueError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has "
        "a total capacity of 8 GiB (accelerator-out-of-memory)." in page
    )
    for figure in ("timeline", "curves", "memory"):
        assert f'<figure id="{figure}"><svg' in page.replace("\n", "")
    assert page.count("relaunched: attempt 2") == 2
    assert "observed" in page
    assert "activations" in page
    assert page.count("    3      loss.backward()") == 1
    assert "Trace &lt;b&gt;" in page
    assert "https://x/y" in page
    assert page.count("launched as asked") == 1
    assert "<td>0.5 s</td>" in page
    assert "<tr><th>do</th><td>use a smaller <code>micro_batch</code></td></tr>" in page
    assert "<tr><th>why</th><td>&lt;b&gt; is full</td></tr>" in page


def places(page: str) -> dict[str, float]:
    """The vertical place of each text in the plots."""
    found = re.findall(r"<text[^>]*?translate\([-\d.]+ ([-\d.]+)\)[^>]*>([^<]+)</text>", page)
    found += [
        (y, text) for y, text in re.findall(r'<text[^>]*? y="([-\d.]+)"[^>]*>([^<]+)</text>', page)
    ]
    return {text: float(y) for y, text in reversed(found)}


def test_the_legend_is_below_the_axis(run: RunFolder) -> None:
    """For any number of components and attempts."""
    kinds = ("parameters", "gradients", "optimizer", "activations", "logits", "workspace")
    plan = {"changes": [], "estimate": {"components": dict.fromkeys(kinds, GIB)}}
    only = run.attempt(1, plan=plan)
    (only / "rank-0.log").write_text(LOSS.format(2.5, 0.1))
    run.ends(0)
    found = places(run.page())
    assert all(found[kind] > found["GiB a rank"] + 6 for kind in kinds)


def test_no_memory_of_a_run_that_never_trained(run: RunFolder) -> None:
    """Predicted memory isn't shown as used."""
    plan = {"changes": [], "estimate": {"components": {"parameters": GIB}}}
    record = {"message": "no module `x`", "frames": []}
    run.attempt(1, failures={"findings": [failing(**record)]}, plan=plan)
    run.ends(1)
    assert '<figure id="memory">' not in run.page()


def test_code_in_a_text(run: RunFolder) -> None:
    """Backticks are removed, and text between them isn't markup."""
    cause = {**CHANGE["cause"], "summary": "`a<b>` isn't gathered"}  # type: ignore[dict-item]
    run.attempt(1, plan={"changes": [{**CHANGE, "cause": cause}]})
    run.ends(0)
    assert "<code>a&lt;b&gt;</code> isn&#39;t gathered" in run.page()


def test_frames_without_source(tmp_path: Path) -> None:
    """The innermost line with source is shown; the interpreter's frames have none."""
    own = {"file": str(tmp_path / "t.py"), "line": 3, "function": "step", "source": "import x"}
    frozen = {"file": "<frozen importlib._bootstrap>", "line": 9, "function": "f", "source": ""}
    assert excerpt([frozen]) is None
    found = excerpt([own, frozen])
    assert found is not None
    assert found.lines == ((3, "import x"),)


def test_the_curves_are_of_what_was_printed_and_counted(run: RunFolder, tmp_path: Path) -> None:
    """Finite losses, and steps between snapshots; snapshots without a step are skipped."""
    from safe_launch.report.page.past_attempt import read_attempt
    from safe_launch.report.page.plots import _speeds

    corrected(run, tmp_path / "train.py")
    first, second = (read_attempt(run.path / f"attempt-{number}", number, 1) for number in (1, 2))
    assert [(one.epoch, one.loss) for one in first.losses] == [(0.1, 2.5)]
    assert [one.loss for one in second.losses] == [2.25, 1.75]
    assert [speed for _, speed in _speeds(second)] == pytest.approx([0.5] * 10)
    assert second.observed_memory == {"held": 3 * GIB}
    slow = [(NOW + 10 * n, n // 4) for n in range(400)]
    third = run.attempt(3)
    snapshot.write_pace(third, slow)
    speeds = [speed for _, speed in _speeds(read_attempt(third, 3, 1))]
    assert len(speeds) > 30
    assert all(speed == pytest.approx(0.025, rel=0.4) for speed in speeds)


def test_the_file_has_changed_since(run: RunFolder, tmp_path: Path) -> None:
    """The old line is shown without the new file's text."""
    corrected(run, tmp_path / "train.py")
    (tmp_path / "train.py").write_text("secret = 1\n" * 9)
    page = run.page()
    assert "    3  loss.backward()" in page
    assert "secret = 1" not in page


def test_nothing_is_run_fetched_or_shown_that_mustnt(run: RunFolder) -> None:
    """Markup, secrets and escape sequences in logs; dollars aren't formulas."""
    message = "<script>alert(1)</script> https://me:geheim@host/x \x1b[31mred"
    run.attempt(1, failures={"findings": [failing(message=message)]}, observed={"span": [1.0, 9.0]})
    (launcher,) = run.path.glob("launcher-*.json")
    kept = msgspec.json.decode(launcher.read_bytes())
    launcher.write_bytes(msgspec.json.encode({**kept, "host": "a$\\frac<b>$"}))
    run.ends(1)
    page = run.page()
    assert "<script" not in page
    assert "geheim" not in page
    assert "\x1b" not in page
    assert "a$\\frac&lt;b&gt;$" in page
    assert "default-src 'none'" in page


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"findings": 3}', '{"findings": [{"record": 1}]}', '{"changes": [{}]}'],
)
def test_broken_files_tell_less(run: RunFolder, content: str) -> None:
    """The page is still rendered."""
    folder = run.attempt(1)
    for name in ("failures", "plan", "observed", "pace", "progress-0", "standings-1"):
        (folder / f"{name}.json").write_text(content)
    (run.path / "outcome.json").write_text(content)
    assert "<h1>train-1</h1>" in run.page()
    assert "its plan is missing, or can&#39;t be read" in run.page()


def test_a_run_without_anything(run: RunFolder) -> None:
    """It was stopped before its first attempt."""
    assert "Ranks" not in run.page()


def test_the_command(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The latest run, a named one or a folder; only a page may be overwritten."""
    corrected(run, tmp_path / "train.py")
    for arguments in ([f"--log-dir={tmp_path}"], ["train", f"--log-dir={tmp_path}"], [run.path]):
        assert registry.run(["report", *map(str, arguments)]) == 0
        assert capsys.readouterr().out == f"{run.path / 'report.html'}\n"
    RunFolder(tmp_path, "odd #1").ends(1)
    assert registry.run(["report", str(tmp_path)]) == 0
    index = (tmp_path / "index.html").read_text()
    assert 'href="odd%20%231/report.html"' in index
    assert (tmp_path / "odd #1" / "report.html").exists()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LaunchError, match=r"isn't a report"):
        registry.run(["report", str(run.path), "-o", str(tmp_path / "pipe")])
    mine = tmp_path / "notes.html"
    mine.write_text("mine")
    with pytest.raises(LaunchError, match=r"isn't a report"):
        registry.run(["report", str(run.path), "-o", str(mine)])
    assert mine.read_text() == "mine"
    with pytest.raises(LaunchError, match="can't be written"):
        registry.run(["report", str(run.path), "-o", str(tmp_path / "no" / "x.html")])


def test_without_the_libraries(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the packages to install."""
    monkeypatch.setattr(document, "find_spec", lambda name: None if name == "jinja2" else name)
    with pytest.raises(LaunchError, match="needs jinja2"):
        registry.run(["report", str(run.path)])
