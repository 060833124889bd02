"""Messages that no launcher sends are rejected or harmless."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from types import UnionType

import pytest
from hypothesis import given, settings
from msgspec import structs
from safe_launch.catalogue.entry import Finding, Role
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.checkpoints.checkpoint import Resume, Saves
from safe_launch.checkpoints.save_folders import local_folder
from safe_launch.checks import finding
from safe_launch.checks.between_ranks import Compared, Shared
from safe_launch.checks.finding import Check
from safe_launch.core.preset import decode, describe, encode
from safe_launch.core.request import LaunchRequest
from safe_launch.core.workload import Workload
from safe_launch.diagnosis.attempt import Attempt, Seen
from safe_launch.diagnosis.observed import with_seen
from safe_launch.diagnosis.root_cause import diagnose, spots_of
from safe_launch.evidence.failure_record import death_text
from safe_launch.hangs.standing import Standing
from safe_launch.machine.profiles import accelerator_of, environment_beside, profile_named
from safe_launch.nodes.compatibility import common_hardware, differences, in_rank_order, refusal
from safe_launch.nodes.connection import decoded, encoded
from safe_launch.nodes.joining import Join, Refusal
from safe_launch.nodes.messages import (
    Ended,
    Failing,
    FromHead,
    FromOthers,
    Message,
    NodeCompared,
    NodeFound,
    NodeObserved,
    Order,
    Pong,
    RunEnded,
    Standings,
    Stop,
)
from safe_launch.nodes.peers import Peers, abbreviated
from safe_launch.planning.search import as_asked
from safe_launch.progress.board import Phase, RankProgress
from safe_launch.report.explain_failure import model_text, unexplained_rows
from safe_launch.session import multi_node
from support.forged import ORDER, RUN, STARTED, Raw, raw
from support.fuzz.documents import mutated
from support.links import GPU, HARDWARE, HEAD, MESSAGES, RECORD, linked
from support.waiting import wait_for

ROW = RankProgress(2, 77, 1, Phase.TRAINING, 5, 0.1, 9.0, 0.3)
FORGED: list[tuple[Message, Raw, str]] = [
    (STARTED, {"run_id": "../../../escaped"}, "RunStarted.run_id: '../../../escaped'"),
    (STARTED, {"run_id": RUN + "\n"}, "RunStarted.run_id"),
    (STARTED, {"rank": 0}, "RunStarted.rank: 0 isn't from 1"),
    (STARTED, {"rank": 2}, "the rank is of one of the nodes"),
    (STARTED, {"nodes": 10**9}, "RunStarted.nodes"),
    (STARTED, {"devices": ["x" * 300]}, "RunStarted.devices"),
    (ORDER, {"run_id": "../x"}, "Order.run_id"),
    (ORDER, {"attempt": -1}, "Order.attempt: -1"),
    (ORDER, {"rank": 0}, "Order.rank: 0"),
    (ORDER, {"rank": 2}, "the rank is of one of the nodes"),
    (ORDER, {"workers": [1, 10_000_000]}, "Order.workers"),
    (ORDER, {"workers": [1, -3]}, "Order.workers"),
    (ORDER, {"port": 0}, "Order.port: 0 isn't from 1 to 65,535"),
    (ORDER, {"port": 65536}, "Order.port"),
    (ORDER, {"port": "29400"}, "Expected `int`, got `str` - at `$.port`"),
    (ORDER, {"preset": {"zero_stage": 4}}, "Order.preset"),
    (ORDER, {"preset": {"zero_stage": True}}, "Order.preset"),
    (ORDER, {"preset": {"offload": "/etc/passwd"}}, "Order.preset"),
    (ORDER, {"preset": {"PYTHONPATH": "x"}}, "Invalid enum value 'PYTHONPATH'"),
    (ORDER, {"overrides": {"micro_batch": 2}}, "enforced settings are in the plan"),
    (ORDER, {"resume": "0:/tmp/evil"}, "Expected `object | null`, got `str` - at `$.resume`"),
    (ORDER, {"resume": {"training": 0, "name": "../checkpoint-1"}}, "Order.resume.name"),
    (Stop(), {"signal": 9}, "Stop.signal: 9"),
    (Stop(), {"signal": 9999}, "Stop.signal: 9999"),
    (RunEnded(1), {"code": 256}, "RunEnded.code: 256"),
    (RunEnded(1), {"code": -1}, "RunEnded.code: -1"),
    (Refusal(64, "no"), {"code": 0}, "Refusal.code: 0"),
    (Refusal(64, "no"), {"code": 999}, "Refusal.code: 999"),
    (Ended(True), {}, "none of its messages: Invalid value 'Ended'"),
]
NODE_1 = replace(RECORD, rank=1)
FINDING = finding.Finding(Check.TRAINED, certain=True, sentence="nothing is trained")
FOUND = NodeFound(1, FINDING)
OF_WEIGHTS = Compared(Shared.WEIGHTS, "5c", "train.py:7", 1, ("a",))
COMPARED = NodeCompared(1, OF_WEIGHTS)
OF_A_FOLLOWER: list[tuple[Message, Raw, str]] = [
    (HEAD, {"never_changed": ["PYTHONPATH"]}, "Invalid enum value 'PYTHONPATH'"),
    (HEAD, {"never_changed": ["zero_stage"] * 2}, "Join.never_changed"),
    (Ended(True), {"signal": 9999}, "Ended.signal: 9999"),
    (Ended(True, (NODE_1,)), {}, "a success has no failures"),
    (Ended(False), {"now": float("inf")}, "Ended.now: inf"),
    (Failing((NODE_1,), 1.0), {"records": [replace(NODE_1, exit_code=256)]}, "exit_code: 256"),
    (Failing((NODE_1,), 1.0), {"records": [replace(NODE_1, rank=None)]}, "is a worker's"),
    (Failing((), 1.0), {"records": [replace(NODE_1, model={"peft": "x"})]}, "records.model"),
    (NodeObserved({}), {"observed": {"zero_stage": 7}}, "NodeObserved.observed"),
    (NodeObserved({}), {"observed": {"nothing": 7}}, "NodeObserved.observed"),
    (NodeObserved({}), {"model": {"config": {}, "weights": [1]}}, "NodeObserved.model"),
    (
        FOUND,
        {"finding": {"check": "all", "certain": True, "sentence": ""}},
        "Invalid enum value 'all'",
    ),
    (FOUND, {"rank": -1}, "NodeFound.rank: -1"),
    (FOUND, {"finding": replace(FINDING, sentence="x" * 5000)}, "finding.sentence"),
    (FOUND, {"finding": replace(FINDING, ranks=(1,))}, "a finding has no ranks"),
    (COMPARED, {"compared": replace(OF_WEIGHTS, names=("a",) * 300)}, "compared.names"),
    (COMPARED, {"compared": replace(OF_WEIGHTS, value="x" * 5000)}, "compared.value"),
    (Stop(), {}, "none of its messages: Invalid value 'Stop'"),
]


@pytest.mark.parametrize(
    ("allowed", "forged"), [(FromHead, FORGED), (FromOthers, OF_A_FOLLOWER)], ids=["head", "others"]
)
def test_what_is_no_message(allowed: UnionType, forged: list[tuple[Message, Raw, str]]) -> None:
    """Each is rejected with its own reason."""
    for message, changes, problem in forged:
        with pytest.raises(ValueError, match=re.escape(problem)):
            decoded(raw(message, **changes), allowed)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"run_id": "20260102-030405-6789ab"}, "an attempt of run 20260102-030405-6789ab"),
        ({"workers": [1, 4]}, "4 workers here, and this node announced 1"),
        ({"workers": [1, 1, 1]}, "node 1 of 3, and this is node 1 of 2"),
    ],
)
def test_an_order_for_somebody_else(changes: Raw, problem: str) -> None:
    """The order contradicts earlier messages to or from this node."""
    order = decoded(raw(ORDER, **changes), FromHead)
    assert isinstance(order, Order)
    found = multi_node.contradiction(order, STARTED, REQUEST)
    assert found is not None
    assert problem in found.sentence


def test_a_folder_to_go_on_from_is_a_nodes_own(tmp_path: Path) -> None:
    """It is the latest folder of this node's workers with the checkpoint."""
    first, second = (Saves(str(tmp_path / name)) for name in ("v0", "v1"))
    resume = Resume(0, "checkpoint-3")
    assert local_folder(resume, []) is None
    assert local_folder(resume, [replace(first, number=1)]) is None
    assert local_folder(resume, [first, second]) == tmp_path / "v1" / "checkpoint-3"
    (tmp_path / "v0" / "checkpoint-3").mkdir(parents=True)
    assert local_folder(resume, [first, second]) == tmp_path / "v0" / "checkpoint-3"
    (tmp_path / "v1" / "checkpoint-3").mkdir(parents=True)
    assert local_folder(resume, [first, second]) == tmp_path / "v1" / "checkpoint-3"


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
    """Accepted messages can be used for all that launchers use them for."""
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
    """Variables come from the node's profile and, by name, from shipped profiles."""
    own = replace(GPU, environment={"OWN": "1", "NCCL_IB_DISABLE": "0"})
    assert environment_beside(own, (GPU.name, "cpu-of-nobody", "../x")) == dict(own.environment)
    shipped = accelerator_of(profile_named("rtx-4090")).environment
    assert shipped["NCCL_P2P_DISABLE"] == "1"
    beside = environment_beside(own, (GPU.name, "rtx-4090"))
    assert beside == {**shipped, "OWN": "1", "NCCL_IB_DISABLE": "0"}


def test_files_that_another_node_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this node's training sources are opened: no pipes, no other files."""
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
    """No node's end message leaves a failed attempt without a cause."""
    with linked() as (near, far):
        peers = Peers({1: far})
        near.send(*told)
        while peers.awaited():
            peers.receive(1)
        assert peers.has_trouble
        assert (1 in peers.lost) == is_lost
        assert is_lost or [one.rank for one in peers.ended[1].records] == [RECORD.rank]
        assert is_lost or not peers.ended[1].is_success


@pytest.mark.parametrize(
    ("message", "is_own"),
    [
        (Failing((NODE_1,), 1.0), True),
        (Failing((NODE_1, replace(RECORD, rank=0)), 1.0), False),
        (Failing((replace(RECORD, rank=2),), 1.0), False),
        (Ended(False, (replace(RECORD, rank=0),), now=1.0), False),
        (Ended(True, standings=(Standing(0, pid=77),), now=1.0), False),
        (Ended(True, standings=(Standing(1, pid=77),), now=1.0), True),
        (Standings((Standing(2, pid=77),)), False),
        (Pong((ROW,)), False),
        (Pong((replace(ROW, rank=1),)), True),
    ],
)
def test_a_node_tells_of_its_own_ranks(message: Message, is_own: bool) -> None:
    """Messages about other nodes' ranks are ignored; only the sender itself is lost."""
    order = structs.replace(ORDER, workers=(1, 1, 1))
    with linked() as (one, head_of_one), linked() as (_two, head_of_two):
        peers = Peers({1: head_of_one, 2: head_of_two})
        peers.send_orders(order)
        one.send(message)
        told: list[Message] = []
        wait_for(lambda: told.extend(peers.receive(1)) or told or peers.lost)
        assert bool(told) == is_own
        assert (peers.lost.keys(), peers.failing.keys() <= {1}) == (set() if is_own else {1}, True)
        if not is_own:
            assert (peers.failing, peers.ended, peers.progress) == ({}, {}, {})
            assert "which isn't its own" in peers.lost[1][1]
