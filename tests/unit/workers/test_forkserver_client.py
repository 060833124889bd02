"""The launcher's side of the fork server, against a scripted server.

Such a server forks no process; the test writes its answers.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safe_launch.workers.forkserver.client import Server
from safe_launch.workers.forkserver.forking_process import TRANSITIONS, State

FAKE = """
import os, socket
from safe_launch.workers.forkserver.messages import *
start = Start.from_environment()
connection = socket.socket(fileno=start.connection)
def say(message, to=connection):
    send(to, message)
def workers(to=connection):
    while receive(to).remaining:
        pass
"""
FORK = "workers(); say(WorkersForked([11, 12], None))\n"
READY = "say(Readiness(None))\n"
COPY = (
    "order = receive(connection); say(Copied(5)); copy = socket.socket(fileno=order.connection)\n"
)
WAIT = "receive(connection)\n"
ENVIRONMENTS = {0: {"RANK": "0", "MODE": "a"}, 1: {"RANK": "1", "MODE": "a"}}
STREAMS = {0: (1, 2), 1: (1, 2)}
Begun = Callable[[str], Server]


@pytest.fixture
def begun() -> Iterator[Begun]:
    """Starts a server that runs this script."""
    servers: list[Server] = []

    def begin(text: str) -> Server:
        servers.append(Server("a-mark", (sys.executable, "-c", FAKE + text), {}, ("RANK",)))
        servers[-1].start()
        return servers[-1]

    yield begin
    for server in servers:
        server.end()


def test_every_state_may_end_and_can_be_reached() -> None:
    """From the first state; only the end may follow itself."""
    assert TRANSITIONS.keys() == set(State)
    assert all(State.NONE in following for following in TRANSITIONS.values())
    assert set().union(*TRANSITIONS.values()) == set(State)
    assert [state for state in State if state in TRANSITIONS[state]] == [State.NONE]


def test_what_isnt_allowed_is_our_own_mistake(begun: Begun) -> None:
    """Starting a server twice is an internal error."""
    server = begun(READY + WAIT)
    with pytest.raises(AssertionError, match="from importing to importing"):
        server.start()


def test_a_server_is_ready_when_it_has_imported(begun: Begun) -> None:
    """After its end no process or file is left."""
    server = begun(READY + WAIT)
    assert (server.state, len(server.pids)) == (State.IMPORTING, 1)
    server.prepare()
    assert (server.state, server.problem) == (State.READY, None)
    server.end()
    assert (server.state, server.pids) == (State.NONE, set())


def test_one_that_never_began_forks_nobody() -> None:
    """It can still be ended."""
    server = Server("a-mark", (), {})
    server.prepare()
    assert server.fork(ENVIRONMENTS, STREAMS) is None
    server.end()
    assert (server.state, server.problem) == (State.NONE, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("say(Readiness('an import has started 1 thread'))\n", "an import has started 1 thread"),
        ("", "the process that imports for the workers has ended"),
    ],
)
def test_one_that_cant_be_used_is_ended(begun: Begun, text: str, problem: str) -> None:
    """The reason is stored for the user."""
    server = begun(text)
    server.prepare()
    assert (server.state, server.problem) == (State.NONE, problem)
    assert server.fork(ENVIRONMENTS, STREAMS) is None
    assert server.problem == problem


def test_one_whose_import_reads_a_rank_begins_again_and_imports_nothing(begun: Begun) -> None:
    """Workers fork from it but import by themselves, with a note."""
    server = begun(
        "if start.does_import:\n"
        "    say(Unshared('ranked', f'reads {start.per_rank_variables[0]}, which')); os._exit(0)\n"
        + READY
        + FORK
    )
    before = server.pids
    server.prepare()
    assert (server.state, server.excluded_package) == (State.READY, "ranked")
    assert server.problem == "ranked reads RANK, which"
    assert server.pids != before
    assert server.fork(ENVIRONMENTS, STREAMS) is not None


def test_workers_come_by_local_rank(begun: Begun) -> None:
    """Waiting for the server first isn't required."""
    forked = begun(READY + FORK).fork(ENVIRONMENTS, STREAMS)
    assert forked is not None
    assert forked.pids() == {0: 11, 1: 12}


def test_the_stores_host_counts_among_the_processes(begun: Begun) -> None:
    """It must not be killed as a leftover."""
    server = begun(READY + "workers(); say(WorkersForked([11, 12], 99))\n" + WAIT)
    server.fork(ENVIRONMENTS, STREAMS)
    assert 99 in server.pids
    server.store_host = None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("workers()\n", "the process that imports for the workers has ended"),
        ("workers(); say(Readiness('it can\\'t fork workers'))\n", "it can't fork workers"),
    ],
)
def test_one_that_forks_nobody_is_ended(begun: Begun, text: str, problem: str) -> None:
    """Workers are then started as new processes."""
    server = begun(READY + text)
    assert server.fork(ENVIRONMENTS, STREAMS) is None
    assert (server.state, server.problem) == (State.NONE, problem)


def test_an_environment_that_imports_have_read_is_the_next_servers(begun: Begun) -> None:
    """It restarts with the variables common to all workers."""
    server = begun(
        READY + "if os.environ.get('MODE') != 'a':\n"
        "    workers(); say(EnvironmentDiffers(['MODE'])); receive(connection)\n" + FORK
    )
    before = server.pids
    assert server.fork(ENVIRONMENTS, STREAMS) is not None
    assert server.environment == {"MODE": "a"}
    assert (server.state, server.pids != before) == (State.READY, True)


def test_what_differs_between_workers_cant_be_an_imports(begun: Begun) -> None:
    """The differing variable is named."""
    server = begun(READY + "workers(); say(EnvironmentDiffers(['MODE', 'RANK']))\n" + WAIT)
    assert server.fork(ENVIRONMENTS, STREAMS) is None
    assert server.state == State.NONE
    assert server.problem == "an import reads RANK, which differs between ranks"


def test_a_copy_that_has_imported_more_forks_the_next_workers(begun: Begun) -> None:
    """The first report counts, so only one copy is made."""
    server = begun(
        READY + COPY + "say(Readiness(None), copy)\n"
        "workers(copy); say(WorkersForked([21, 22], None), copy)\n" + WAIT
    )
    server.prepare()
    server.extend({})
    assert server.state == State.COPY_IMPORTING
    assert 5 in server.pids
    server.extend({})
    forked = server.fork(ENVIRONMENTS, STREAMS)
    assert forked is not None
    assert forked.pids() == {0: 21, 1: 22}
    assert server.state == State.COPY_READY


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("say(Readiness('a later import changes signals'), copy)\n", "a later import changes"),
        ("copy.close()\n", "it takes too long"),
        (
            "say(Readiness(None), copy); workers(copy); say(EnvironmentDiffers(['MODE']), copy)\n",
            "its environment differs",
        ),
    ],
)
def test_where_the_copy_cant_the_server_itself_forks(begun: Begun, text: str, reason: str) -> None:
    """No second copy is made."""
    server = begun(READY + COPY + text + FORK + WAIT)
    server.prepare()
    server.extend({})
    forked = server.fork(ENVIRONMENTS, STREAMS)
    assert forked is not None
    assert forked.pids() == {0: 11, 1: 12}
    assert (server.state, len(server.pids)) == (State.COPY_REFUSED, 1)
    assert server.copy_refused is not None
    assert reason in server.copy_refused
    server.extend({})
    assert server.state == State.COPY_REFUSED


def test_where_no_copy_is_made_all_stays_as_it_is(begun: Begun) -> None:
    """An unresponsive server is left alone until workers are needed."""
    server = begun(READY + "receive(connection); os._exit(0)\n")
    server.prepare()
    server.extend({})
    assert (server.state, len(server.pids)) == (State.READY, 1)


WAITING = """
import os, socket, sys
from safe_launch.workers.forkserver.fork_workers import text_of
from safe_launch.workers.forkserver.messages import *
from safe_launch.workers.forkserver.warm_servers import WarmServer, clock, folder
server = WarmServer(folder(), sys.argv[1], os.getpid(), int(clock()) + 60)
listener = server.listen()
print(flush=True)
connection, _ = listener.accept()
order = receive(connection)
launch = Launch(**json.loads(text_of(order.launch)))
"""


@pytest.fixture
def kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """A kept server that runs this script and then waits."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    processes: list[subprocess.Popen[str]] = []

    def begin(text: str) -> subprocess.Popen[str]:
        text = f"{WAITING}{text}receive(connection); listener.accept()\n"
        command = [sys.executable, "-c", text, tmp_path.name]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert processes[-1].stdout is not None
        processes[-1].stdout.readline()
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def server_with(key: str) -> Server:
    """A server of a launch with --keep-warm; if started, it reports that it is unusable."""
    command = (sys.executable, "-c", FAKE + "say(Readiness('begun anew'))\n")
    return Server("a-mark", command, {"A": "1"}, ("RANK",), keep_seconds=60, warm_key=key)


def test_a_kept_server_is_taken_over(
    tmp_path: Path, kept: Callable[[str], subprocess.Popen[str]]
) -> None:
    """It gets a new server's settings and becomes ready like one."""
    process = kept(
        "is_right = (launch.environment['A'], launch.environment['SAFE_LAUNCH_RUN_ID'],\n"
        "    launch.folder, launch.per_rank_variables) == ('1', 'a-mark', os.getcwd(), ['RANK'])\n"
        "send(connection, Copied(os.getpid()) if is_right else Readiness('wrong'))\n"
        "send(connection, Readiness(None))\n"
    )
    server = server_with(tmp_path.name)
    server.begin()
    assert (server.state, server.pids) == (State.IMPORTING, {process.pid})
    server.prepare()
    assert (server.state, server.problem) == (State.READY, None)
    server.end()
    assert process.wait() == -9


def test_how_a_worker_ended_is_asked_of_its_parent(
    tmp_path: Path, kept: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Its parent is the adopted server; a missing answer counts as the worst end."""
    kept(
        "send(connection, Copied(os.getpid()))\nassert receive(connection) == AskEnd(1)\n"
        "send(connection, HasEnded(7))\nreceive(connection)\nos._exit(0)\n"
    )
    server = server_with(tmp_path.name)
    server.begin()
    assert server.exit_code(1) == 7
    assert server.exit_code(1) == -9
    child = subprocess.Popen(["sh", "-c", "exit 3"])
    assert server.exit_code(child.pid) == 3
    assert child.wait() == 3
    server.end()
    assert server.exit_code(1) == -9


def test_one_that_isnt_right_is_ended_and_another_begun(
    tmp_path: Path, kept: Callable[[str], subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is reported."""
    process = kept("send(connection, Readiness('a file has changed'))\n")
    server = server_with(tmp_path.name)
    server.begin()
    assert process.wait() == -9
    assert "imported anew: a file has changed" in capsys.readouterr().err
    server.prepare()
    assert server.problem == "begun anew"


def test_one_that_ends_while_it_looks_is_no_error(
    tmp_path: Path, kept: Callable[[str], subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A new one is started without a message."""
    kept("os._exit(0)\n")
    server = server_with(tmp_path.name)
    server.begin()
    server.prepare()
    assert server.problem == "begun anew"
    assert capsys.readouterr().err == ""


def test_what_is_left_takes_the_place_of_what_was(
    tmp_path: Path, kept: Callable[[str], subprocess.Popen[str]]
) -> None:
    """Only if it was kept; a server without a key keeps none."""
    earlier = kept("")
    for answer, is_left in (("Readiness('a reason')", False), ("Copied(1)", True)):
        server = server_with(tmp_path.name)
        left = f"order = receive(connection); say({answer})\n"
        server.command = (sys.executable, "-c", FAKE + READY + left)
        server.start()
        server.prepare()
        server.leave()
        assert (server.state, server.pids) == (State.NONE, set())
        if is_left:
            assert earlier.wait() == -9
        else:
            assert earlier.poll() is None
