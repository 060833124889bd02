"""Findings of all ranks are shown once and stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from safe_launch.checks import kept
from safe_launch.checks.between_attempts import encoded
from safe_launch.checks.between_ranks import Compared, Shared
from safe_launch.checks.finding import Check, Finding
from safe_launch.checks.resumed import Noted, Start
from safe_launch.core.errors import Refused
from safe_launch.core.request import CheckOptions
from safe_launch.evidence.failure_record import CHECK, OWN_CHANGE
from safe_launch.evidence.worker_messages import Found, Message, Skipped
from safe_launch.evidence.worker_receiver import Envelope
from safe_launch.nodes.messages import NodeCompared, NodeFound
from safe_launch.nodes.peers import Peers
from safe_launch.workers import check_watch
from safe_launch.workers.check_watch import CheckWatch
from safe_launch.workers.inbox import Inbox

CERTAIN = Finding(Check.TRAINED, certain=True, sentence="nothing is trained", step=3)
SEEN = Finding(Check.DATA, certain=False, sentence="the same batch")
WEIGHTS = Compared(Shared.WEIGHTS, "a b", "train.py:7#1", 1, ("v", "w"))


class World:
    """A watch over two ranks, and its messages."""

    def __init__(
        self,
        folder: Path,
        options: CheckOptions | None = None,
        peers: Any = None,
        replaced: Path | Refused | None = None,
    ) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.watch = CheckWatch(
            options or CheckOptions(),
            range(2),
            folder,
            cast("Peers", peers or Peers()),
            self.told.append,
            lambda: replaced,
        )

    def hear(self, rank: int, message: Message) -> None:
        """Delivers a worker's message."""
        self.inbox().hear_worker(Envelope(rank, message), cast("Any", None))

    def inbox(self, peers: object = None) -> Inbox:
        """The attempt's dispatch of messages, with the checks alone."""
        none = cast("Any", None)
        liveness = cast("Any", SimpleNamespace(hear=id))
        return Inbox(none, cast("Any", peers), none, none, liveness, none, self.watch)

    @property
    def kept(self) -> kept.Document:
        """The records in the attempt's folder."""
        return kept.read(self.folder)


def test_ranks_that_find_the_same(tmp_path: Path) -> None:
    """One line names both; a single rank is reported after a delay."""
    world = World(tmp_path)
    world.hear(1, Found(CERTAIN))
    world.watch.check()
    assert world.told == []
    pause = world.watch.pause()
    assert pause is not None
    assert 0 < pause <= check_watch.PATIENCE
    world.hear(0, Found(CERTAIN))
    world.watch.check()
    assert world.told == ["check trained: nothing is trained [step 3, ranks 0, 1]."]
    assert world.watch.pause() is None
    world.hear(1, Found(SEEN))
    world.watch.check(is_end=True)
    assert world.told[1:] == ["check data: the same batch (it may be meant) [rank 1]."]
    assert [each.ranks for each in world.kept.findings] == [(0, 1), (1,)]
    assert world.watch.records() == ()


def test_attempts_of_a_run_that_find_the_same(tmp_path: Path) -> None:
    """The second keeps it and prints only what is new."""
    worlds = []
    for attempt, found in (("attempt-1", (CERTAIN,)), ("attempt-2", (CERTAIN, SEEN))):
        (tmp_path / attempt).mkdir()
        worlds.append(World(tmp_path / attempt))
        for finding in found:
            worlds[-1].hear(0, Found(finding))
        worlds[-1].watch.check(is_end=True)
    assert [len(world.kept.findings) for world in worlds] == [1, 2]
    assert [len(world.told) for world in worlds] == [1, 1]
    assert worlds[1].told[0].startswith("check data: the same batch")


def test_replicas(tmp_path: Path) -> None:
    """Compared once all have reported; skipped steps and dead ranks don't block."""
    world = World(tmp_path)
    world.hear(0, WEIGHTS)
    assert world.watch.pause() is None
    later = Compared(Shared.WEIGHTS, "a c", WEIGHTS.place, 9, WEIGHTS.names)
    world.hear(1, later)
    world.hear(0, Compared(Shared.WEIGHTS, "a b", WEIGHTS.place, 9, WEIGHTS.names))
    world.watch.check()
    (said,) = world.told
    assert "1 of 2 sampled parameters after step 9, first w" in said


def test_what_never_becomes_whole_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest is dropped."""
    monkeypatch.setattr(check_watch, "MOST_COMPARED", 2)
    world = World(tmp_path)
    for step in range(4):
        world.hear(0, Compared(Shared.WEIGHTS, "a b", "", step, WEIGHTS.names))
    world.hear(1, Compared(Shared.WEIGHTS, "a c", "", 0, WEIGHTS.names))
    world.hear(1, Compared(Shared.WEIGHTS, "a c", "", 3, WEIGHTS.names))
    world.watch.check(is_end=True)
    assert len(world.told) == 1


def test_strict(tmp_path: Path) -> None:
    """The first certain finding becomes its rank's failure, with exit code 1."""
    world = World(tmp_path, CheckOptions("strict"))
    world.hear(1, Found(SEEN))
    assert world.watch.ending is None
    world.hear(1, Found(CERTAIN))
    (record,) = world.watch.records()
    assert (record.rank, record.exception, record.exit_code, record.step) == (1, CHECK, 1, 3)


@pytest.mark.parametrize("is_sound", [True, False])
def test_a_correction_that_trains_otherwise(tmp_path: Path, is_sound: bool) -> None:
    """It ends the attempt as our failure, unless the previous attempt had findings."""
    first, second = tmp_path / "1", tmp_path / "2"
    worlds = [World(first), World(second, replaced=first)]
    for folder, world, loss in zip((first, second), worlds, (1.5, 1.0), strict=True):
        folder.mkdir()
        for rank in range(2):
            if not (is_sound or folder is second):
                world.hear(rank, Found(CERTAIN))
            world.hear(rank, replace(WEIGHTS, step=0))
            for step, value in ((1, 2.0), (2, loss)):
                told = encoded(value, "r", [(4, 1), (8, 2)])
                world.hear(rank, Compared(Shared.STEP, told, "train.py:7", step))
        world.watch.check(is_end=True)
    assert worlds[0].watch.records() == ()
    last = worlds[1]
    if is_sound:
        (record,) = last.watch.records()
        assert (record.rank, record.exception, record.step) == (0, OWN_CHANGE, 2)
        assert "the loss is 1 instead of 1.5" in last.told[0]
    else:
        assert last.watch.records() == ()
        assert last.kept.skipped == {Check.OURS: ("the attempt before had findings itself",)}


def test_a_run_that_resumes(tmp_path: Path) -> None:
    """It is compared with an earlier run's notes; if there are none, its own are stored."""
    first = Start("a", (0.1, 0.2))
    saved = Noted("/last.pt", "train.py:9", first, None, 0.1, has_state=True)
    folders = [tmp_path / name / "attempt-1" for name in ("one", "two")]
    for folder in folders:
        folder.mkdir(parents=True)
    World(folders[0]).hear(0, saved)
    world = World(folders[1])
    world.hear(0, Noted("/last.pt", "train.py:3", first))
    world.hear(0, Noted("/best.pt", "train.py:3", first))
    world.watch.check(is_end=True)
    assert [line.partition(":")[0] for line in world.told] == ["check resumed"] * 2
    assert world.kept.skipped == {Check.RESUMED: ("no run has noted how /best.pt was saved",)}


def test_nothing_to_compare_a_change_with(tmp_path: Path) -> None:
    """The reason is stored."""
    world = World(tmp_path, replaced=Refused("it is the first"))
    for rank in range(2):
        world.hear(rank, Compared(Shared.STEP, "1.0 r", "train.py:7", 1))
    assert world.kept.skipped == {Check.OURS: ("it is the first",)}


def test_muted_and_skipped(tmp_path: Path) -> None:
    """Muted findings aren't reported for any rank; reasons for skips are stored once."""
    world = World(tmp_path, CheckOptions("on", ("trained",)))
    world.hear(0, Found(CERTAIN))
    for rank in range(2):
        world.hear(rank, Skipped(Check.SAVED, "unread"))
    world.watch.check(is_end=True)
    assert world.told == []
    assert world.kept.findings == ()
    assert world.kept.skipped == {Check.SAVED: ("unread",)}


def test_another_node(tmp_path: Path) -> None:
    """It forwards its workers' findings silently; node 0 reports all."""
    sent: list[Any] = []
    far = World(tmp_path, peers=SimpleNamespace(is_head=False, send=sent.append))
    far.hear(1, Found(CERTAIN))
    far.hear(1, WEIGHTS)
    far.watch.check(is_end=True)
    assert far.told == []
    assert sent == [NodeFound(1, CERTAIN), NodeCompared(1, WEIGHTS)]
    head = World(tmp_path)
    head.hear(0, Compared(Shared.WEIGHTS, "a c", WEIGHTS.place, 1, WEIGHTS.names))
    head.inbox(SimpleNamespace(receive=lambda _: sent)).hear_node(1)
    head.watch.check(is_end=True)
    assert len(head.told) == 2
