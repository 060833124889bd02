"""Real launchers whose other end isn't one of ours: forged orders, forged joins, forged ends."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from msgspec import structs
from safe_launch.catalogue.entry import Finding, Role
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.checkpoints.checkpoint import Resume, Saves
from safe_launch.checkpoints.discovery import own_folder
from safe_launch.core.plain_json import plain
from safe_launch.core.preset import decode, describe, encode
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Setting
from safe_launch.core.workload import Workload
from safe_launch.diagnosis.attempt import Attempt, Seen
from safe_launch.diagnosis.observed import with_seen
from safe_launch.diagnosis.root_cause import diagnose
from safe_launch.diagnosis.user_lines import spots_of
from safe_launch.evidence.exit_reason import death_text
from safe_launch.machine.profiles import accelerator_of, environment_beside, profile_named
from safe_launch.nodes.compatibility import common_hardware, differences, in_rank_order, refusal
from safe_launch.nodes.connection import Connection, decoded, encoded
from safe_launch.nodes.messages import (
    Accepted,
    Ended,
    Failing,
    Join,
    Message,
    NodeObserved,
    Order,
    Refusal,
    RunEnded,
    RunStarted,
    Stop,
)
from safe_launch.nodes.peers import Peers, abbreviated
from safe_launch.planning.search import as_asked
from safe_launch.report.explain_failure import model_text, unexplained_rows
from support.fuzz.documents import mutated
from support.links import (
    GPU,
    HARDWARE,
    HEAD,
    MESSAGES,
    RECORD,
    call,
    end_of_link,
    framed,
    heard,
    linked,
    proven,
)
from support.ports import free_port
from support.stacks import CURRENT
from support.waiting import LONG, wait_for

RUN = "20260103-040506-789abc"
RETRY, USAGE = 75, 64
WORKS = "import os; open(f'ran-{os.environ[\"RANK\"]}', 'w').write(os.environ['MASTER_ADDR'])"
ORDER = Order(0, RUN, 1, (1, 1), 29_400, {Setting.ZERO_STAGE: 2}, {}, {})
STARTED = RunStarted(RUN, 1, 2)
Raw = Mapping[str, object]


def raw(message: Message, **changes: object) -> bytes:
    """A message as JSON, with other fields than its type allows."""
    content = json.loads(encoded(message))
    return json.dumps({**content, **changes}, default=plain).encode()


@dataclass
class Launched:
    """A launcher that runs, and all that it says.

    Attributes:
        process: the launcher.
        folder: where it runs.
    """

    process: subprocess.Popen[str]
    folder: Path
    said: str = field(default="")

    def ended(self) -> int:
        """Waits for its end; returns its exit code."""
        self.said = self.process.communicate()[0]
        print(self.said)
        assert "safe-launch itself failed" not in self.said
        return self.process.returncode

    def words(self) -> str:
        """What it has said until its end, as one line."""
        return " ".join(self.said.replace("[safe-launch]", "").split())


@contextmanager
def launched(folder: Path, rank: int, port: int, script: str) -> Iterator[Launched]:
    """A launcher of a job of two nodes on this host, in a folder of its own."""
    own = folder / f"node-{rank}"
    own.mkdir()
    (own / "train.py").write_text(script)
    given = {"nnodes": 2, "nproc": 1, "node-timeout": 30, "log-dir": "runs"}
    command = [CURRENT.bin / "safe-launch", f"--node-rank={rank}", "--master-addr=127.0.0.1"]
    command += [f"--master-port={port}", *(f"--{name}={value}" for name, value in given.items())]
    process = subprocess.Popen(
        [*map(str, command), "train.py"],
        cwd=own,
        env=CURRENT.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Launched(process, own)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def following(folder: Path, script: str = WORKS) -> Iterator[tuple[Launched, Connection]]:
    """Node 1 of a job, which has joined; the test is its node 0."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LONG)
        with launched(folder, 1, server.getsockname()[1], script) as follower:
            link = end_of_link(server.accept()[0], "node 1")
            try:
                assert isinstance(heard(link), Join)
                link.send(Accepted(2, 2))
                yield follower, link
            finally:
                link.close()


def end_of(link: Connection) -> Ended:
    """How the follower's workers ended; where one fails before, the others are to be stopped."""
    while not isinstance(message := heard(link), Ended):
        link.send(*([Stop()] if isinstance(message, Failing) else []))
    return message


def test_no_variable_of_an_order_reaches_a_worker(tmp_path: Path) -> None:
    """Of an order that brings PYTHONPATH, and an address, the worker finds nothing."""
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "sitecustomize.py").write_text(f"open({str(evil / 'ran')!r}, 'w')")
    with following(tmp_path) as (follower, link):
        forged = raw(ORDER, environment={"PYTHONPATH": str(evil)}, address="evil")
        link.socket.sendall(framed(encoded(STARTED), forged))
        assert end_of(link).is_success
        link.send(RunEnded(0, "done"))
        assert follower.ended() == 0
        assert (follower.folder / "ran-1").read_text() == "127.0.0.1"
        assert not (evil / "ran").exists()


FORGED: list[tuple[Message, Raw, str]] = [
    (STARTED, {"run_id": "../../../escaped"}, "RunStarted.run_id: '../../../escaped'"),
    (STARTED, {"run_id": RUN + "\n"}, "RunStarted.run_id"),
    (STARTED, {"rank": 0}, "RunStarted.rank: 0 isn't from 1"),
    (STARTED, {"rank": 2}, "the rank is of one of the nodes"),
    (STARTED, {"nodes": 10**9}, "RunStarted.nodes"),
    (STARTED, {"devices": ["x" * 300]}, "RunStarted.devices"),
    (ORDER, {"run_id": "20260102-030405-6789ab"}, "an attempt of run 20260102-030405-6789ab"),
    (ORDER, {"run_id": "../x"}, "Order.run_id"),
    (ORDER, {"attempt": -1}, "Order.attempt: -1"),
    (ORDER, {"rank": 0}, "Order.rank: 0"),
    (ORDER, {"rank": 2}, "the rank is of one of the nodes"),
    (ORDER, {"workers": [1, 10_000_000]}, "Order.workers"),
    (ORDER, {"workers": [1, -3]}, "Order.workers"),
    (ORDER, {"workers": [1, 4]}, "4 workers here, and this node has said that it starts 1"),
    (ORDER, {"workers": [1, 1, 1]}, "node 1 of 3, and this is node 1 of 2"),
    (ORDER, {"port": 0}, "Order.port: 0 isn't from 1 to 65,535"),
    (ORDER, {"port": 65536}, "Order.port"),
    (ORDER, {"port": "29400"}, "Expected `int`, got `str` - at `$.port`"),
    (ORDER, {"preset": {"zero_stage": 4}}, "Order.preset"),
    (ORDER, {"preset": {"zero_stage": True}}, "Order.preset"),
    (ORDER, {"preset": {"offload": "/etc/passwd"}}, "Order.preset"),
    (ORDER, {"preset": {"PYTHONPATH": "x"}}, "Invalid enum value 'PYTHONPATH'"),
    (ORDER, {"overrides": {"micro_batch": 2}}, "what is enforced is in the plan"),
    (ORDER, {"resume": "0:/tmp/evil"}, "Expected `object | null`, got `str` - at `$.resume`"),
    (ORDER, {"resume": {"training": 0, "name": "../checkpoint-1"}}, "Order.resume.name"),
    (ORDER, {"resume": {"training": 0, "name": "checkpoint-1"}}, "no worker here has said where"),
    (Stop(), {"signal": 9}, "Stop.signal: 9"),
    (Stop(), {"signal": 9999}, "Stop.signal: 9999"),
    (RunEnded(1), {"code": 256}, "RunEnded.code: 256"),
    (RunEnded(1), {"code": -1}, "RunEnded.code: -1"),
    (Refusal(64, "no"), {"code": 0}, "Refusal.code: 0"),
    (Refusal(64, "no"), {"code": 999}, "Refusal.code: 999"),
    (Ended(True), {}, "none of its messages: Invalid value 'Ended'"),
]


@pytest.mark.parametrize(
    ("message", "changes", "problem"),
    FORGED,
    ids=[f"{type(one).__name__}-{json.dumps(changes)}" for one, changes, _ in FORGED],
)
def test_what_a_follower_refuses(
    message: Message, changes: Raw, problem: str, tmp_path: Path
) -> None:
    """It starts no worker, and ends with what was wrong and from whom; node 0 is told too."""
    with following(tmp_path) as (follower, link):
        first = [] if isinstance(message, RunStarted) else [encoded(STARTED)]
        link.socket.sendall(framed(*first, raw(message, **changes)))
        told = heard(link)
        assert isinstance(told, Refusal)
        assert problem in told.problem
        assert follower.ended() == RETRY
        assert problem in follower.words()
        assert "127.0.0.1" in follower.words()
        assert not (follower.folder / "ran-1").exists()
        made = {one.relative_to(tmp_path).parts[0] for one in tmp_path.rglob("*")}
        assert made == {"node-1"}


def test_a_forged_message_ends_running_workers(tmp_path: Path) -> None:
    """What can't be while they run: they are stopped, and the follower ends."""
    with following(tmp_path, "import time; open('runs-now', 'w'); time.sleep(600)") as (one, link):
        link.send(STARTED, ORDER)
        wait_for((one.folder / "runs-now").exists)
        link.socket.sendall(framed(raw(Stop(), signal=9999)))
        assert one.ended() == RETRY
        assert "it sent what no launcher sends: Stop.signal: 9999" in one.words()


@pytest.mark.parametrize(
    ("script", "attempts", "code"),
    [
        ("import os; os._exit(7)", 1, 7),
        ("raise ValueError", 1, 1),
        ("import os; os.kill(os.getpid(), 11)", 1, 139),
        ("import atexit, os; atexit.register(os.kill, os.getpid(), 11)", 1, 0),
        ("import os; os._exit(7 * (os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'))", 2, 0),
        ("", 0, RETRY),
    ],
    ids=["exit", "raise", "signal", "after-the-end", "corrected", "never-started"],
)
def test_an_own_failure_is_no_success(
    script: str, attempts: int, code: int, tmp_path: Path
) -> None:
    """Whatever node 0 says at the end, what became of this node's last workers holds."""
    with following(tmp_path, script) as (follower, link):
        link.send(STARTED)
        for number in range(attempts):
            link.send(structs.replace(ORDER, attempt=number))
            last = end_of(link)
        assert attempts == 0 or last.is_success == (code == 0)
        link.send(RunEnded(0, "succeeded"))
        assert follower.ended() == code
        is_told = "says that the run has succeeded, but the workers" in follower.words()
        assert is_told == (code != 0)


def test_what_is_printed_drives_no_terminal(tmp_path: Path) -> None:
    """Escape sequences, carriage returns and turned writing are taken out of what node 0 says."""
    with following(tmp_path) as (follower, link):
        link.socket.sendall(
            framed(encoded(STARTED), raw(RunEnded(3), line="a\x1b[2Jb\rc\x9bd\u202ee\x07"))
        )
        assert follower.ended() == 3
        assert "node 0 ended the run: abcde exit code 3" in follower.words()


def come(port: int, process: subprocess.Popen[str]) -> Connection:
    """A connection to node 0, as soon as it listens, after the handshake."""
    while True:
        assert process.poll() is None
        with suppress(ConnectionRefusedError):
            link = call(port)
            proven(link)
            return link
        time.sleep(0.05)


def own_hello(folder: Path, name: str) -> Join:
    """What a launcher of this host says, read from one that has come."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LONG)
        with launched(folder / name, 1, server.getsockname()[1], WORKS):
            link = end_of_link(server.accept()[0], "node 1")
            hello = heard(link)
            link.close()
    assert isinstance(hello, Join)
    return hello


def device(hello: Join, **changes: object) -> Raw:
    """Its hardware with another accelerator."""
    whole = json.loads(json.dumps(hello.hardware, default=plain))
    return {"hardware": {**whole, "accelerator": {**whole["accelerator"], **changes}}}


def test_what_node_0_refuses(tmp_path: Path) -> None:
    """Hellos that can't be are told why, and node 0 waits on until the true one has come."""
    (tmp_path / "first").mkdir()
    hello = own_hello(tmp_path, "first")
    forged: list[tuple[Raw, str]] = [
        ({"nproc": -3}, "Join.nproc: -3 isn't from 1 to 4,096"),
        ({"nproc": 0}, "Join.nproc: 0"),
        ({"nproc": 10_000_000}, "Join.nproc: 10000000"),
        ({"rank": -1}, "Join.rank: -1"),
        ({"host": "9" * 5000}, "Join.host"),
        ({"host": "a\n[safe-launch] b"}, "Join.host"),
        ({"script": "train.py"}, "Join.script"),
        ({"nnodes": "many"}, "Join.nnodes"),
        (device(hello, environment={"PYTHONPATH": "evil"}), "variables don't cross a connection"),
        (device(hello, bandwidth=float("nan")), "Join.hardware.accelerator.bandwidth: nan"),
        (device(hello, compute=0), "Join.hardware.accelerator.compute: 0.0"),
        (device(hello, memory=-1), "Join.hardware.accelerator.memory: -1"),
        ({"hardware": None}, "Expected `object`, got `null` - at `$.hardware`"),
    ]
    port = free_port()
    with launched(tmp_path, 0, port, WORKS) as head:
        links = []
        for changes, problem in forged:
            links.append(come(port, head.process))
            links[-1].socket.sendall(framed(raw(hello, **changes)))
            told = heard(links[-1])
            assert isinstance(told, Refusal)
            assert problem in told.problem
        with launched(tmp_path, 1, port, WORKS) as other:
            assert other.ended() == 0
            assert head.ended() == 0
        for _, problem in forged:
            assert problem in head.words()
        for link in links:
            link.close()


NODE_1 = replace(RECORD, rank=1)
OF_A_FOLLOWER: list[tuple[Message, Raw, str]] = [
    (Ended(True), {"signal": 9999}, "Ended.signal: 9999"),
    (Ended(True, (NODE_1,)), {}, "a success has no failures"),
    (Ended(False), {"now": float("inf")}, "Ended.now: inf"),
    (Failing((NODE_1,), 1.0), {"records": [replace(NODE_1, exit_code=256)]}, "exit_code: 256"),
    (Failing((NODE_1,), 1.0), {"records": [replace(NODE_1, rank=None)]}, "it is a worker's"),
    (Failing((), 1.0), {"records": [replace(NODE_1, model={"peft": "x"})]}, "records.model"),
    (NodeObserved({}), {"observed": {"zero_stage": 7}}, "NodeObserved.observed"),
    (NodeObserved({}), {"observed": {"nothing": 7}}, "NodeObserved.observed"),
    (NodeObserved({}), {"model": {"config": {}, "weights": [1]}}, "NodeObserved.model"),
    (Stop(), {}, "none of its messages: Invalid value 'Stop'"),
]


@pytest.mark.parametrize(
    ("message", "changes", "problem"),
    OF_A_FOLLOWER,
    ids=[problem for _, _, problem in OF_A_FOLLOWER],
)
def test_a_rogue_follower_counts_as_lost(
    message: Message, changes: Raw, problem: str, tmp_path: Path
) -> None:
    """Node 0 stops its own workers and ends, with what was wrong and of which node."""
    (tmp_path / "first").mkdir()
    hello = own_hello(tmp_path, "first")
    port = free_port()
    script = "import time; open('runs-now', 'w'); time.sleep(600)"
    with launched(tmp_path, 0, port, script) as head:
        link = come(port, head.process)
        link.send(structs.replace(hello, host="beta"))
        while not isinstance(heard(link), Order):
            pass
        link.socket.sendall(framed(raw(message, **changes)))
        assert head.ended() == RETRY
        assert "node 1 (beta) is lost: it sent what no launcher sends" in head.words()
        assert problem in head.words()
        link.close()


SAVES = """
import os, sys
from pathlib import Path
from safe_launch.checkpoints.checkpoint import Saves
from safe_launch.evidence.worker_messages import SaveLocation
from safe_launch.evidence.worker_channel import VARIABLE, Sender
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sender = Sender(os.environ[VARIABLE], int(os.environ["RANK"]))
    sender.send(SaveLocation(Saves(str(Path("out").absolute()))))
    sys.exit(3)
Path("told").write_text(os.environ["SAFE_LAUNCH_RESUME"])
"""
"""Says where it saves, as a Trainer's worker does, and fails; then notes what it goes on from."""


def test_a_node_goes_on_from_its_own_folder(tmp_path: Path) -> None:
    """Node 0 names the checkpoint; where it lies this node's own workers have told."""
    with following(tmp_path, SAVES) as (follower, link):
        link.send(STARTED, ORDER)
        assert not end_of(link).is_success
        link.send(structs.replace(ORDER, attempt=1, resume=Resume(0, "checkpoint-3")))
        assert end_of(link).is_success
        link.send(RunEnded(0, "done"))
        assert follower.ended() == 0
        place = follower.folder / "out" / "checkpoint-3"
        assert (follower.folder / "told").read_text() == f"0:{place}"


def test_a_folder_to_go_on_from_is_a_nodes_own(tmp_path: Path) -> None:
    """It is found where the node's own workers have saved, the latest that has it."""
    first, second = (Saves(str(tmp_path / name)) for name in ("v0", "v1"))
    resume = Resume(0, "checkpoint-3")
    assert own_folder(resume, []) is None
    assert own_folder(resume, [replace(first, number=1)]) is None
    assert own_folder(resume, [first, second]) == tmp_path / "v1" / "checkpoint-3"
    (tmp_path / "v0" / "checkpoint-3").mkdir(parents=True)
    assert own_folder(resume, [first, second]) == tmp_path / "v0" / "checkpoint-3"
    (tmp_path / "v1" / "checkpoint-3").mkdir(parents=True)
    assert own_folder(resume, [first, second]) == tmp_path / "v1" / "checkpoint-3"


CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "tie_word_embeddings": False,
}
WEIGHTS = [["model.layers.*.self_attn.q_proj.weight", [64, 64], True, None, 2]]
SENT = [*MESSAGES, NodeObserved({"lora_rank": 8}, {"config": CONFIG, "weights": WEIGHTS})]
CATALOGUE = read_catalogue()
REQUEST = LaunchRequest("t.py", False, (), 1, "test")
ATTEMPT = Attempt(0, as_asked(REQUEST, Workload(), HARDWARE), Path())


@settings(max_examples=400, deadline=None)
@given(mutated(tuple(map(encoded, SENT))))
def test_a_mutated_message_is_refused_or_harmless(line: bytes) -> None:
    """What is accepted can be used for all that launchers use it for."""
    try:
        message = decoded(line, Message)
    except ValueError:
        return
    match message:
        case Join():
            if refusal(message, HEAD, 4) is None:
                assert common_hardware([HEAD, message]).accelerator.environment == {}
                assert len(differences([HEAD, message])) < 9
            assert sorted(in_rank_order([HEAD, message, message])) == [0, 1, 2]
        case Order():
            assert message.ranks.stop <= message.world
            assert decode(encode(message.preset)) == message.preset
            assert all(describe(one, value) for one, value in message.preset.items())
        case NodeObserved(observed=observed, model=model):
            assert with_seen(Workload(), ATTEMPT, Seen(observed, model)) is not None
        case Failing(records=records) | Ended(records=records):
            if records:
                diagnosis = diagnose(abbreviated(records), CATALOGUE)
                assert unexplained_rows(diagnosis, Path("log"))
                assert all(death_text(one) and model_text(one) for one in records)


def test_variables_of_other_nodes_devices() -> None:
    """They are a node's own profile's, and what the shipped ones say of the others, by name."""
    own = replace(GPU, environment={"OWN": "1", "NCCL_IB_DISABLE": "0"})
    assert environment_beside(own, (GPU.name, "cpu-of-nobody", "../x")) == dict(own.environment)
    shipped = accelerator_of(profile_named("rtx-4090")).environment
    assert shipped["NCCL_P2P_DISABLE"] == "1"
    beside = environment_beside(own, (GPU.name, "rtx-4090"))
    assert beside == {**shipped, "OWN": "1", "NCCL_IB_DISABLE": "0"}


def test_files_that_another_node_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only sources of this node's own training are opened: not a pipe, not what lies elsewhere."""
    line = "loss = sum(p.sum() for p in model.parameters()) * 0.0\n"
    (here := tmp_path / "here").mkdir()
    for path in (tmp_path / "secret.py", here / "train.py", here / "notes.txt"):
        path.write_text(line)
    os.mkfifo(here / "pipe.py")
    monkeypatch.chdir(here)
    (entry,) = [one for one in CATALOGUE if one.id == "zero3-parameter-outside-forward"]
    named = ("train.py", "pipe.py", "notes.txt", "../secret.py", "/dev/zero", "a\0b")
    files = tuple(str(here / one) for one in named)
    record = replace(RECORD, user_files=files, host="beta")
    found = spots_of(Finding(record, Role.INITIATING, entry), replace(REQUEST, script="train.py"))
    assert [one.file for one in found] == [str(here / "train.py")]


@pytest.mark.parametrize(
    ("told", "is_lost"),
    [
        ((Failing((RECORD,), 1.0), Ended(True)), False),
        ((Failing((RECORD,), 1.0), Ended(False)), False),
        ((Failing((), 1.0), Ended(True)), True),
        ((Ended(False),), True),
    ],
    ids=["then-success", "then-nothing", "without-a-cause", "nothing"],
)
def test_a_failure_that_was_told_stays_one(told: tuple[Message, ...], is_lost: bool) -> None:
    """What a node says of its end never leaves an attempt that failed without a cause."""
    with linked() as (near, far):
        peers = Peers({1: far})
        near.send(*told)
        while peers.awaited():
            peers.receive(1)
        assert peers.has_trouble
        assert (1 in peers.lost) == is_lost
        assert is_lost or [one.rank for one in peers.ended[1].records] == [RECORD.rank]
        assert is_lost or not peers.ended[1].is_success
