"""Every reproduction fails with its known failure, and runs if the entry's advice is followed.

The frameworks are imported a few times for each stack; ranks are forked from there, so that each
case takes about its own time, and several run in parallel, as most only wait for each other.
Failures with a preset as remedy are corrected in a separate launch. The workers' messages are kept
in tests/records and judged by every later catalogue.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from safe_launch.catalogue.entry import Kind
from safe_launch.catalogue.reader import concerns, read_catalogue
from safe_launch.diagnosis.root_cause import diagnose
from safe_launch.evidence.failure_record import FailureRecord
from support import kept, passed, reproduce
from support.stacks import CURRENT, STACKS, Stack
from support.warm_python import Ended, WarmPython

ENTRIES = {entry.id: entry for entry in read_catalogue()}
SCRIPTS = reproduce.scripts()
SERVERS = 2
"""For each stack."""


Key = tuple[str, str, bool]
"""Stack, script, and whether it follows the advice."""


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Iterator[dict[Key, Future[Ended]]]:
    """The results of all requested cases; every thread has its own Python."""
    CURRENT.compile_adam()
    servers: list[WarmPython] = []
    own = threading.local()
    workers = {stack.name: ThreadPoolExecutor(SERVERS) for stack in STACKS}
    started: dict[Key, Future[Ended]] = {}

    def work(stack: Stack, script: reproduce.Script, is_advised: bool) -> Ended:
        if not hasattr(own, "server"):
            own.server = WarmPython(stack)
            servers.append(own.server)
        ended: Ended = own.server.run(script.training(is_advised=is_advised))
        return ended

    for item in request.session.items:
        if item.path == request.path and "results" in item.fixturenames:
            stack, script = item.callspec.params["stack"], item.callspec.params["script"]
            key = (stack.name, script.id, item.originalname == "test_the_advice_works")
            started[key] = workers[stack.name].submit(work, stack, script, key[2])
    yield started
    for worker in workers.values():
        worker.shutdown(cancel_futures=True)
    for server in servers:
        server.close()


CASES = [
    pytest.param(stack, script, id=f"{script.id}-{stack.name}")
    for script in SCRIPTS
    for stack in STACKS
    if stack.name in script.stacks
]
CURED = [
    pytest.param(stack, script, id=f"{script.id}-{stack.name}")
    for script in SCRIPTS
    for stack in STACKS
    if stack.name in script.stacks and ENTRIES[script.id].kind is Kind.PRESET
]


@pytest.mark.parametrize(("stack", "script"), CASES)
def test_it_fails_as_the_entry_says(
    stack: Stack,
    script: reproduce.Script,
    results: dict[Key, Future[Ended]],
    request: pytest.FixtureRequest,
) -> None:
    """The ranks' root cause is this entry, among those for these versions."""
    result = results[stack.name, script.id, False].result()
    records = msgspec.convert(result.records, list[FailureRecord])
    assert records, f"nothing failed: {result.outputs}"
    catalogue = [entry for entry in ENTRIES.values() if concerns(entry, result.versions)]
    root = diagnose(records, catalogue).root
    assert root.entry is not None, root.record
    assert root.entry.id == script.id
    if not passed.is_only_drawn(request.node):
        kept.write(script.id, stack.name, result)


@pytest.mark.parametrize(("stack", "script"), CASES)
def test_the_advice_works(
    stack: Stack, script: reproduce.Script, results: dict[Key, Future[Ended]]
) -> None:
    """If the script follows the entry, every rank runs to its end."""
    result = results[stack.name, script.id, True].result()
    assert result.completed == list(range(script.ranks)), result.outputs
    # gloo sometimes aborts at the exit of a process whose script has finished.
    assert set(result.codes.values()) <= {0, -signal.SIGABRT}, result.outputs


@pytest.mark.parametrize(("stack", "script"), CURED)
def test_the_launcher_cures_it(stack: Stack, script: reproduce.Script, tmp_path: Path) -> None:
    """If a preset helps, the launcher finds it, and the unmodified script finishes."""
    nproc = f"--nproc={script.ranks}"
    run = stack.run("safe-launch", nproc, "--log-dir=runs", script.path, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert re.search(r"^\S*\s+change +\S", run.stderr, re.MULTILINE), run.stderr
