"""The watch over ranks that don't move, without processes: when it asks, reports and gives up."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from safe_launch.core.request import HangTimes
from safe_launch.evidence.failure_record import Frame
from safe_launch.hangs.report import HangKind, HangReport
from safe_launch.hangs.standing import Collective, Standing
from safe_launch.nodes.messages import Ask, Message, Standings
from safe_launch.nodes.peers import Peers
from safe_launch.progress.board import Phase, RankProgress
from safe_launch.workers import hang_watch
from safe_launch.workers.hang_watch import Asker, HangWatch, limit_of, quiet_of
from support.links import heard, linked
from support.waiting import wait_for

DONE = Collective(411, "all_reduce", is_retired=True)
OPEN = Collective(412, "all_reduce", ((12480,),), ("Float",))
WAITS = Standing(0, pid=1, step=5, window=2.0, collectives=(DONE, OPEN))
SLEEPS = Standing(
    1,
    pid=2,
    step=5,
    window=2.0,
    frames=(Frame("/home/me/train.py", 88, "collate", "time.sleep(9999)"),),
    own_files=("/home/me/train.py",),
    collectives=(DONE,),
)


@dataclass
class Scene:
    """A watch over two ranks, with a simulated clock.

    Attributes:
        watch: the watch under test.
        quiet: seconds since the ranks last moved.
        found: the ranks' positions when they are asked.
        asked: the number of inquiries.
        told: the reports to the user.
        notices: the lines to the user.
    """

    quiet: float = 0.0
    longest: float = 0.0
    found: tuple[Standing, ...] = (WAITS, SLEEPS)
    asked: int = 0
    told: list[HangReport] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    watch: HangWatch = field(init=False)

    def rows(self) -> tuple[RankProgress, ...]:
        """The board's rows."""
        return tuple(
            RankProgress(rank, rank + 1, 1, Phase.TRAINING, 5, self.quiet, 99.0, self.longest)
            for rank in range(2)
        )

    def answer(self, _rows: Sequence[RankProgress]) -> tuple[Standing, ...]:
        """The ranks' positions."""
        self.asked += 1
        return tuple(replace(standing, quiet=self.quiet) for standing in self.found)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock of the watch, in seconds."""
    now = [1000.0]
    monkeypatch.setattr(hang_watch.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def scene() -> Iterator[Callable[..., Scene]]:
    """Creates scenes and closes their resources."""
    askers = []

    def make(
        times: HangTimes | None = None,
        ranks: Sequence[range] = (range(2),),
        peers: Peers | None = None,
        **start: object,
    ) -> Scene:
        result = Scene(**start)  # type: ignore[arg-type]
        asker = Asker(result.answer)
        askers.append(asker)
        result.watch = HangWatch(
            times or HangTimes(),
            ranks,
            result.rows,
            asker,
            peers or Peers(),
            result.told.append,
            result.notices.append,
        )
        return result

    yield make
    for asker in askers:
        asker.close()


def passing(scene: Scene, clock: list[float], seconds: float, *, moves: bool = False) -> None:
    """Advances the clock with idle or moving ranks."""
    end = clock[0] + seconds
    while clock[0] < end:
        clock[0] += 1.0
        scene.quiet = 0.0 if moves else scene.quiet + 1.0
        before = scene.asked
        scene.watch.check({0, 1}, is_stopping=False)
        if scene.watch._deadline is not None and scene.asked + 1 > before:
            select.select([scene.watch.asker], [], [], 60)
            scene.watch.answered()


def test_it_asks_and_tells_once(scene: Callable[..., Scene], clock: list[float]) -> None:
    """After a minute by default; an equal report isn't repeated."""
    still = scene()
    passing(still, clock, 50)
    assert (still.asked, still.told) == (0, [])
    passing(still, clock, 20)
    assert still.asked == 1
    (report,) = still.told
    assert (report.kind, report.culprits) == (HangKind.ABSENT, (1,))
    passing(still, clock, 100)
    assert still.asked > 1
    assert len(still.told) == 1
    assert still.watch.proof is None


def test_movement_is_told_after_a_report_alone(
    scene: Callable[..., Scene], clock: list[float]
) -> None:
    """The next standstill is a new one."""
    still = scene()
    passing(still, clock, 30)
    passing(still, clock, 20, moves=True)
    assert still.notices == []
    passing(still, clock, 80)
    passing(still, clock, 20, moves=True)
    assert still.notices == ["the ranks move again"]
    passing(still, clock, 80)
    assert len(still.told) == 2


def test_a_rank_that_is_idle_for_long_is_proof(
    scene: Callable[..., Scene], clock: list[float]
) -> None:
    """After ten times the patience its record becomes the failure."""
    still = scene()
    passing(still, clock, 580)
    assert still.watch.proof is None
    passing(still, clock, 120)
    assert still.watch.proof is not None
    (record,) = still.watch.records()
    assert record.rank == 1
    assert record.frames[-1].line == 88


def test_a_busy_rank_is_told_late_and_never_ended(
    scene: Callable[..., Scene], clock: list[float]
) -> None:
    """The others' collective may time out, so it is reported."""
    still = scene(found=(WAITS, replace(SLEEPS, cpu=1.9, state="R")))
    passing(still, clock, 500)
    assert still.told == []
    passing(still, clock, 1000)
    assert [report.kind for report in still.told] == [HangKind.BUSY]
    assert still.watch.proof is None


def test_the_timeout_ends_whatever_is_known(
    scene: Callable[..., Scene], clock: list[float]
) -> None:
    """The user set it; the ranks are asked first."""
    still = scene(HangTimes(10.0, 30.0), found=(WAITS, replace(SLEEPS, cpu=1.9, state="R")))
    passing(still, clock, 28)
    assert still.watch.proof is None
    passing(still, clock, 12)
    assert still.watch.proof is not None
    assert len(still.told) == 1


def test_it_can_be_switched_off(scene: Callable[..., Scene], clock: list[float]) -> None:
    """It then has no timer, but answers requests."""
    still = scene(HangTimes(0.0))
    assert still.watch.pause() is None
    passing(still, clock, 500)
    assert still.asked == 0
    still.watch.ask_now()
    select.select([still.watch.asker], [], [], 60)
    still.watch.answered()
    still.watch.check({0, 1}, is_stopping=False)
    assert len(still.told) == 1


def test_a_person_gets_a_report_of_a_run_that_moves(
    scene: Callable[..., Scene], clock: list[float]
) -> None:
    """A requested report has no consequences."""
    still = scene()
    passing(still, clock, 10, moves=True)
    still.watch.ask_now()
    select.select([still.watch.asker], [], [], 60)
    still.watch.answered()
    still.watch.check({0, 1}, is_stopping=False)
    assert len(still.told) == 1
    passing(still, clock, 10, moves=True)
    assert still.notices == []


def test_before_the_first_step_an_idle_program_is_left_alone(
    scene: Callable[..., Scene], clock: list[float]
) -> None:
    """It may be a server."""
    idle = tuple(Standing(rank, pid=rank + 1, collectives=()) for rank in range(2))
    still = scene(found=idle)
    passing(still, clock, 2000)
    assert still.told == []
    assert still.watch.proof is None


def test_all_nodes_are_asked(scene: Callable[..., Scene], clock: list[float]) -> None:
    """An unresponsive node's launcher is named."""
    clock[0] += 0.0
    with linked() as (here, there), linked() as (mute, _):
        peers = Peers({1: here, 2: mute})
        still = scene(ranks=[range(2), range(2, 3), range(3, 4)], peers=peers, found=(WAITS,) * 2)
        still.quiet = 70.0
        clock[0] += 10.0
        still.watch.check({0, 1}, is_stopping=False)
        assert heard(there) == Ask()
        select.select([still.watch.asker], [], [], 60)
        still.watch.answered()
        there.send(Standings((replace(WAITS, rank=2, quiet=70.0),)))
        answers: list[Message] = []
        wait_for(lambda: answers.extend(peers.receive(1)) or answers)
        (answer,) = answers
        assert isinstance(answer, Standings)
        still.watch.hear(1, answer.standings)
        assert still.told == []
        clock[0] += 60.0
        still.watch.check({0, 1}, is_stopping=False)
        (report,) = still.told
        by_rank: Mapping[int, Standing] = {place.rank: place for place in report.standings}
        assert by_rank[2].host == here.peer
        assert "node 2" in by_rank[3].problem
        assert report.culprits == (3,)


def test_the_limit_grows_with_what_was_usual() -> None:
    """Up to ten times the patience, but below the run's timeout."""
    row = RankProgress(0, 1, 1, Phase.TRAINING, 5, 3.0, 9.0, 20.0)
    assert limit_of([row], HangTimes(60.0)) == 100.0
    assert limit_of([replace(row, longest_quiet=1.0)], HangTimes(60.0)) == 60.0
    assert limit_of([replace(row, longest_quiet=9999.0)], HangTimes(60.0)) == 600.0
    assert limit_of([row], HangTimes(60.0, 80.0)) == 80.0
    assert limit_of([], HangTimes(60.0)) == 60.0


def test_the_quiet_is_that_of_the_ranks_that_run() -> None:
    """After the last end it counts from there: other nodes may still run."""
    rows = [RankProgress(rank, 1, 1, Phase.TRAINING, 5, 10.0 * rank, 9.0, 2.0) for rank in range(3)]
    assert quiet_of(rows, {1, 2}) == 10.0
    assert quiet_of(rows, set()) == 0.0
    assert quiet_of([], set()) == 0.0


def test_ranks_that_have_failed_meanwhile_are_no_news(
    scene: Callable[..., Scene], clock: list[float]
) -> None:
    """They end before the answers are judged, so the failure is reported, not a hang."""
    still = scene()
    passing(still, clock, 59)
    clock[0] += 2
    still.quiet += 2
    still.watch.check({0, 1}, is_stopping=False)
    select.select([still.watch.asker], [], [], 60)
    still.watch.answered()
    still.watch.check({1}, is_stopping=True)
    assert (still.asked, still.told) == (1, [])
