"""Metrics of real runs: at a port during the run, in files at the end."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from support.ports import free_port
from support.processes import PROGRAMS, begin, gone, launch
from support.waiting import LONG, wait_for

STEPS = PROGRAMS / "steps.py"


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Values by name and labels, in order, without the labels of run and host."""
    found = {}
    for family in text_string_to_metric_families(text) if text else ():
        for one in family.samples:
            labels = [one.labels[key] for key in sorted(one.labels) if key not in ("host", "run")]
            found[one.name, *labels] = one.value
    return found


def scraped(port: int, path: str = "/metrics") -> str:
    """A scraper's response; empty if refused."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LONG) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""


def test_a_port_while_the_run_goes_on(workshop: Path) -> None:
    """Each rank is listed; silent and wrong requests have no effect."""
    port = free_port()
    launcher = begin(workshop, "--nproc=2", f"--metrics=127.0.0.1:{port}", STEPS, workshop)
    phases = {("safe_launch_rank_phase", rank, "loading"): 1.0 for rank in "01"}
    wait_for(lambda: phases.items() <= samples(scraped(port)).items())
    found = samples(scraped(port))
    assert found["safe_launch_running", "steps.py"] == 1
    assert found["safe_launch_attempts_total", "steps.py"] == 1
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=LONG)
    again = launch(workshop, f"--metrics=127.0.0.1:{port}", STEPS, workshop)
    assert again.returncode == 64
    assert "nobody can listen there" in again.stderr
    with ExitStack() as silent:
        for _ in range(30):
            silent.enter_context(socket.create_connection(("127.0.0.1", port)))
        wait_for(lambda: bool(scraped(port)))  # each has two seconds
        (workshop / "finish").touch()
        _, told = launcher.communicate()
    assert launcher.returncode == 0, told
    assert gone(workshop)
    assert scraped(port) == ""


def test_files_at_the_end(workshop: Path) -> None:
    """Failures, counts and exit code; one JSON line for each snapshot."""
    run = (PROGRAMS / "fails.py", "0:raise", "1:0.1@wait")
    ready = workshop / "all"
    done = launch(
        *(workshop, "--nproc=2", "--max-restarts=1", "--metrics=run.prom", *run), READY=ready
    )
    assert done.returncode == 1
    text = (workshop / "run.prom").read_text()
    assert text.endswith("# EOF\n")
    found = samples(text)
    assert found["safe_launch_attempts_total", "fails.py"] == 2
    assert found["safe_launch_failures_total", "ValueError", "fails.py"] == 2
    assert found["safe_launch_exit_code", "fails.py"] == 1
    assert found["safe_launch_running", "fails.py"] == 0
    assert found["safe_launch_lost_seconds_total", "fails.py"] > 0
    launch(workshop, "--metrics=runs.jsonl", STEPS, workshop / "nowhere")
    lines = [json.loads(line) for line in (workshop / "runs.jsonl").read_text().splitlines()]
    assert lines[-1]["outcome"]["exit_code"] == 1
    assert lines[-1]["time"] >= lines[0]["time"]


def test_what_cant_be_written_changes_nothing(workshop: Path) -> None:
    """It is reported once; a missing folder before the start."""
    (workshop / "finish").touch()
    (workshop / "metrics").symlink_to("nowhere/metrics")
    done = launch(workshop, "--metrics=metrics", STEPS, workshop)
    assert done.returncode == 0
    assert done.stderr.count("metrics can't be written: No such file or directory") == 1
    refused = launch(workshop, "--metrics=gone/metrics", STEPS, workshop)
    assert refused.returncode == 64
    assert "gone/metrics: there is no such folder" in refused.stderr
    assert len([*(workshop / "runs").iterdir()]) == 1
