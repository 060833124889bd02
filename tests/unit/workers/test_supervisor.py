"""The supervisor, with processes as workers and threads as other nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safe_launch.core.errors import ExitCode, LaunchError
from safe_launch.core.request import HangTimes, LaunchRequest, StopTimes, WorkerOptions
from safe_launch.core.settings import Value
from safe_launch.evidence.failure_record import FailureRecord
from safe_launch.evidence.worker_channel import Sender
from safe_launch.evidence.worker_messages import (
    Answer,
    Ask,
    Boundary,
    Failure,
    FailureBegun,
    Finished,
    Imports,
    Message,
    ModelShape,
    Observed,
    Reexecution,
    Remark,
    WentOn,
)
from safe_launch.evidence.worker_receiver import Receiver
from safe_launch.hangs.report import HangReport
from safe_launch.hangs.standing import Standing
from safe_launch.nodes.connection import Connection
from safe_launch.nodes.messages import (
    Ended,
    Failing,
    NodeAnswer,
    NodeAsk,
    NodeObserved,
    NodeWentOn,
    Ping,
    Signalled,
    Stop,
)
from safe_launch.nodes.messages import Message as NodeMessage
from safe_launch.nodes.peers import AttemptEnd, Peers
from safe_launch.progress.board import Board, RankProgress
from safe_launch.system import orphans, terminal
from safe_launch.system.signals import REPORT, STOPS, SignalWakeup
from safe_launch.workers import supervisor
from safe_launch.workers.check_watch import CheckWatch
from safe_launch.workers.environment import NodeContext
from safe_launch.workers.hang_watch import Asker, HangWatch
from safe_launch.workers.output import Output
from safe_launch.workers.progress_watch import ProgressWatch
from safe_launch.workers.supervisor import Supervisor
from safe_launch.workers.watch import Model, Watch
from support.links import LONG, RECORD, heard, linked

FOREVER = ("sleep", "600")
STUBBORN = ("sh", "-c", 'trap "" TERM INT; echo ready; while :; do sleep 600; done')
PATIENT = StopTimes(leave=LONG, interrupt=LONG, terminate=LONG)
IMPATIENT = StopTimes(leave=0.1, interrupt=0.1, terminate=0.1)


@dataclass
class Node:
    """A supervisor over real processes, with its messages.

    Attributes:
        supervisor: the supervisor under test.
        receiver: its end of the workers' channel.
        output: the workers' output.
        notices: messages to the user.
        imports: workers' messages about imports.
        reports: reports on ranks that don't move.
    """

    supervisor: Supervisor
    receiver: Receiver
    output: Output
    notices: list[str]
    imports: list[dict[str, Any]]
    reports: list[HangReport]

    def end(self) -> AttemptEnd:
        """Watches until the end and returns it."""
        self.supervisor.watch_all()
        return self.supervisor.end(0, self.output, ())

    def send(self, rank: int, *messages: Message) -> None:
        """Sends a worker's message."""
        sender = Sender(self.receiver.path, rank)
        for message in messages:
            sender.send(message)


def told(link: Connection) -> NodeMessage:
    """The next message to another node, without heartbeats."""
    while isinstance(message := heard(link), Ping):
        pass
    return message


def kill_group(pid: int) -> None:
    """Ends a worker and its descendants, if they still run."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


@dataclass
class FakeJudge:
    """Allows as set by the test, and gives every question the same answer."""

    allowed: Callable[[Mapping[str, Value], Model | None], bool] = lambda _observed, _model: True
    overrides: Mapping[str, Value] = field(default_factory=dict)
    questions: list[tuple[int, Ask]] = field(default_factory=list)
    silent: list[tuple[int, str]] = field(default_factory=list)
    seen: list[RankProgress] = field(default_factory=list)

    def replaced(self) -> None:
        """Returns no replacement."""

    def allows(self, observed: Mapping[str, Value], model: Model | None) -> bool:
        """Returns the test's value."""
        return self.allowed(observed, model)

    def answer(
        self, rank: int, question: Ask, _observed: Mapping[str, Value], _model: Model | None
    ) -> Answer | None:
        """Returns the same for all."""
        self.questions.append((rank, question))
        return Answer(question.key, self.overrides)

    def note_unanswered(self, rank: int, key: str) -> None:
        """Records the call."""
        self.silent.append((rank, key))

    def look(self, rows: Iterable[RankProgress]) -> None:
        """Records the call."""
        self.seen = list(rows)

    def pause(self) -> float | None:
        """Returns a pause after the first question."""
        return 0.01 if self.questions else None


@contextmanager
def node(
    folder: Path,
    *commands: tuple[str, ...],
    times: StopTimes = PATIENT,
    peers: Peers | None = None,
    judge: FakeJudge | None = None,
    forwarded: tuple[signal.Signals, ...] = (),
    fault: LaunchError | None = None,
) -> Iterator[Node]:
    """A supervisor with one worker for each command; the store's host, if any, ends at once."""
    request = LaunchRequest(
        "t.py",
        is_module=False,
        arguments=(),
        nproc=len(commands),
        nproc_source="test",
        worker_options=WorkerOptions(stop_times=times, forwarded=forwarded),
    )
    notices: list[str] = []
    imports: list[dict[str, Any]] = []
    with ExitStack() as stack:
        receiver = Receiver(folder)
        stack.callback(receiver.close)
        wakeup = stack.enter_context(SignalWakeup((*STOPS, REPORT, *forwarded)))
        processes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
            for command in commands
        ]
        for process, command in zip(processes, commands, strict=True):
            stack.callback(process.communicate)
            stack.callback(kill_group, process.pid)
            if command is STUBBORN:
                assert process.stdout is not None
                process.stdout.readline()
        store = subprocess.Popen(("true",)) if fault else None
        if store is not None:
            stack.callback(store.wait)
        server: Any = SimpleNamespace(
            store_host=store and store.pid,
            pids=set(),
            mark="no-run",
            store_failure=lambda: fault,
            exit_code=orphans.exit_code,
        )
        output = Output(folder, notices.append)
        output.open(range(len(commands)))
        for stream in output.streams:
            stack.callback(os.close, stream.reader)
            stack.callback(os.close, stream.writer)
        stack.callback(output.finish, lambda: True)
        reports: list[HangReport] = []
        peers = peers or Peers()
        decides = (judge or FakeJudge()) if peers.is_head else None
        watch = Watch(decides, notices.append, imports.append, reports.append)
        pids = {rank: process.pid for rank, process in enumerate(processes)}
        asker = Asker(lambda rows: tuple(Standing(row.rank) for row in rows))
        stack.callback(asker.close)
        board = Board(0, len(commands))
        stack.callback(board.close)
        hangs = HangWatch(
            HangTimes(), [range(len(commands))], board.rows, asker, peers, watch.hung, watch.notice
        )
        progress = ProgressWatch(0, folder, board.rows, peers, watch.notice, bool)
        checks = CheckWatch(
            *(request.worker_options.checks, range(len(commands)), folder),
            *(peers, watch.notice, lambda: None),
        )
        supervisor = Supervisor(
            *(
                pids,
                receiver,
                wakeup,
                NodeContext(request, server, {}),
                watch,
                peers,
                hangs,
                progress,
                checks,
            )
        )
        yield Node(supervisor, receiver, output, notices, imports, reports)


@contextmanager
def answering(answer: Callable[[], None]) -> Iterator[None]:
    """Another node, or a person, in a thread."""
    thread = threading.Thread(target=answer)
    thread.start()
    yield
    thread.join()


def test_all_finish(tmp_path: Path) -> None:
    """A death after the script's end is a success with a note."""
    with node(tmp_path, ("true",), ("sh", "-c", "kill -ABRT $$")) as local:
        local.send(1, Finished())
        ended = local.end().ended[0]
    assert ended.is_success
    assert ended.remarks == ("rank 1 was ended by SIGABRT after its script had finished",)
    assert ended.records == ()


def test_a_rank_has_only_to_exit_once_all_have_finished(tmp_path: Path) -> None:
    """Not while another rank or its own threads may run."""
    with node(tmp_path, FOREVER, FOREVER) as local:
        workers = local.supervisor.workers
        workers.finished.add(1)
        workers.exiting.add(1)
        assert workers.leaving() == set()
        workers.finished.add(0)
        assert workers.leaving() == {1}
        workers.note_exit(1, -signal.SIGKILL)
        workers.hung = {1: 300.0}
        assert workers.leaving() == set()
        assert workers.failed() == set()
        (remark,) = workers.remarks()
    assert remark == (
        "rank 1 had finished training and hung in native code as it exited: it was ended "
        "by the launcher after 300 s"
    )


def test_one_fails_without_a_word(tmp_path: Path) -> None:
    """The exit code becomes its record; the others are stopped without one."""
    with node(tmp_path, ("sh", "-c", "exit 7"), FOREVER) as local:
        end = local.end()
    (record,) = end.ended[0].records
    assert (record.rank, record.exit_code, record.signal) == (0, 7, None)
    assert not end.ended[0].is_success
    assert not end.is_superseded


def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    """The exit code is a shell's."""
    with node(tmp_path, ("sh", "-c", "kill -KILL $$")) as local:
        (record,) = local.end().ended[0].records
    assert (record.exit_code, record.signal) == (137, 9)


def test_a_record_stops_the_others(tmp_path: Path) -> None:
    """Even while the failed rank still runs; it gets time to exit by itself."""
    with node(tmp_path, FOREVER, FOREVER, times=StopTimes(0.0, LONG, LONG)) as local:
        begun = FailureRecord(1, 1.0, "builtins.ValueError", exit_code=1)
        local.send(1, FailureBegun(begun), Failure(FailureRecord(1, 1.0, "whole")))
        ended = local.end().ended[0]
    assert [record.exception for record in ended.records] == ["whole"]


def test_a_failure_without_its_record(tmp_path: Path) -> None:
    """The first message counts if the rank dies before its full record."""
    begun = FailureRecord(0, 1.0, "builtins.ValueError", exit_code=1)
    with node(tmp_path, ("sh", "-c", "exit 1")) as local:
        local.send(0, FailureBegun(begun))
        (record,) = local.end().ended[0].records
    assert (record.exception, record.at, record.exit_code) == ("builtins.ValueError", 1.0, 1)


def test_who_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """The kill is reported."""
    with node(tmp_path, STUBBORN, ("false",), times=IMPATIENT) as local:
        ended = local.end().ended[0]
    assert local.notices == ["rank 0 is still running after SIGTERM: sending SIGKILL"]
    assert [record.rank for record in ended.records] == [1]


def test_ctrl_c_goes_from_step_to_step(tmp_path: Path) -> None:
    """SIGINT, then SIGTERM, then SIGKILL."""
    with node(tmp_path, STUBBORN, times=IMPATIENT) as local:
        signal.raise_signal(signal.SIGINT)
        ended = local.end().ended[0]
    assert local.notices == [
        "SIGINT: stopping the workers",
        "rank 0 is still running after SIGINT: sending SIGTERM",
        "rank 0 is still running after SIGINT, SIGTERM: sending SIGKILL",
    ]
    assert ended.signal == signal.SIGINT
    assert ended.records == ()
    assert not ended.is_success


def test_a_repeated_stop_is_hastened(tmp_path: Path) -> None:
    """The remaining grace period is skipped."""
    with node(tmp_path, STUBBORN) as local:

        def press_again() -> None:
            for number in (signal.SIGINT, signal.SIGTERM):
                while number not in local.supervisor.stops.sent.get(0, set()):
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGINT)

        with answering(press_again):
            signal.raise_signal(signal.SIGINT)
            ended = local.end().ended[0]
    assert ended.signal == signal.SIGINT
    assert local.notices[-1].endswith("sending SIGKILL")


def test_two_terms_at_one_moment_are_one_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """timeout(1) sends both; a later one is a second stop."""
    monkeypatch.setattr(supervisor, "SAME", LONG)
    with node(tmp_path, STUBBORN, forwarded=(signal.SIGWINCH,)) as local:
        sent = local.supervisor.stops.sent

        def stop_again() -> None:
            while signal.SIGTERM not in sent.get(0, set()):
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGWINCH)
            while not any("SIGWINCH" in notice for notice in local.notices):
                time.sleep(0.001)
            assert sent[0] == {signal.SIGTERM}
            monkeypatch.setattr(supervisor, "SAME", -1.0)
            os.kill(os.getpid(), signal.SIGTERM)

        with answering(stop_again):
            signal.raise_signal(signal.SIGTERM)
            local.end()
        assert sent[0] == {signal.SIGTERM, signal.SIGKILL}


def test_a_forwarded_signal_stops_nobody(tmp_path: Path) -> None:
    """Workers with a handler get it; the others are named."""
    catches = ("sh", "-c", "trap 'exit 0' USR1; while :; do sleep 0.05; done")
    with node(tmp_path, catches, ("sleep", "0"), forwarded=(signal.SIGUSR1,)) as local:
        while not local.supervisor.stops.catches(0, signal.SIGUSR1):
            pass
        signal.raise_signal(signal.SIGUSR1)
        assert local.end().ended[0].is_success
    assert local.notices in (
        [],  # the worker had already ended
        ["SIGUSR1 isn't passed on: rank 1 has no handler for it"],
    )


def test_what_workers_see_supersedes(tmp_path: Path) -> None:
    """Before any failure; after the first step it doesn't."""
    judge = FakeJudge(lambda observed, _model: "zero_stage" not in observed)
    with node(tmp_path, FOREVER, judge=judge) as local:
        local.send(0, Observed({"micro_batch": 2}, 1), Observed({"zero_stage": 2}, 0))
        end = local.end()
    assert end.is_superseded
    assert end.observed == {"zero_stage": 2}
    assert end.ended[0].records == ()


QUESTION = Ask("k#1", Boundary.INITIALIZE, ["zero_stage"], {"zero_stage": 3}, frame="t.py:1")


def test_a_worker_is_answered(tmp_path: Path) -> None:
    """While its process runs; the judge then looks at the ranks' progress."""
    judge = FakeJudge(overrides={"zero_stage": 2})
    with node(tmp_path, FOREVER, judge=judge) as local:

        def ask() -> None:
            worker = Sender(local.receiver.path, 0)
            answers.append(worker.ask(QUESTION, LONG))
            while not judge.seen:
                time.sleep(0.01)
            worker.send(WentOn("other"))
            worker.send(Failure(RECORD))

        answers: list[Answer | None] = []
        with answering(ask):
            local.end()
    assert answers == [Answer("k#1", {"zero_stage": 2})]
    assert judge.questions == [(0, QUESTION)]
    assert judge.silent == [(0, "other")]
    assert [row.rank for row in judge.seen] == [0]


def test_node_0_answers_a_followers_worker(tmp_path: Path) -> None:
    """The follower forwards question and answer, and a missing answer."""
    with linked() as (near, far), node(tmp_path, FOREVER, peers=Peers({0: far})) as local:

        def ask() -> None:
            worker = Sender(local.receiver.path, 0)
            answers.append(worker.ask(QUESTION, LONG))
            worker.send(WentOn("other"))

        def answer() -> None:
            assert told(near) == NodeAsk(0, QUESTION)
            near.send(NodeAnswer(0, Answer("k#1", {"zero_stage": 2}, {"zero_stage": 3})))
            assert told(near) == NodeWentOn(0, "other")
            near.send(Stop())

        answers: list[Answer | None] = []
        with answering(ask), answering(answer):
            local.end()
    assert answers == [Answer("k#1", {"zero_stage": 2}, {"zero_stage": 3})]


def test_another_nodes_worker_is_answered(tmp_path: Path) -> None:
    """Node 0 answers, whatever its own workers do."""
    judge = FakeJudge(overrides={"zero_stage": 2})
    with linked() as (near, far):
        peers = Peers({1: far})
        with node(tmp_path, FOREVER, peers=peers, judge=judge) as local:

            def ask() -> None:
                near.send(NodeAsk(1, QUESTION), NodeWentOn(1, "other"))
                assert told(near) == NodeAnswer(1, Answer("k#1", {"zero_stage": 2}))
                near.send(Failing((RECORD,), 1.0))
                assert told(near) == Stop()
                near.send(Ended(is_success=False, records=(RECORD,), now=2.0))

            with answering(ask):
                local.end()
    assert judge.questions == [(1, QUESTION)]
    assert judge.silent == [(1, "other")]


def test_a_lost_store_is_raised(tmp_path: Path) -> None:
    """It is the launcher's error, not the workers'."""
    fault = LaunchError("the store has ended", code=ExitCode.INTERNAL)
    with node(tmp_path, FOREVER, fault=fault) as local:
        local.end()
        assert local.supervisor.fault is fault


def test_a_store_that_ends_after_the_workers_is_no_fault(tmp_path: Path) -> None:
    """It isn't needed any more."""
    with node(tmp_path, ("true",)) as local:
        local.end()
        assert local.supervisor.fault is None


def test_the_last_words_of_quick_workers_are_heard_at_once(tmp_path: Path) -> None:
    """They connected, reported and died before the supervisor's first look."""
    aborts = ("sh", "-c", "kill -ABRT $$")
    with node(tmp_path, aborts, aborts, aborts) as local:
        for rank in range(3):
            local.send(rank, Finished())
        assert local.end().ended[0].is_success


def test_the_first_model_that_is_told_stays(tmp_path: Path) -> None:
    """Every rank describes the same model, so the first message is enough."""
    first = ModelShape({"config": {"layers": 1}, "weights": []})
    with node(tmp_path, ("true",)) as local:
        local.send(0, first, ModelShape({"config": {"layers": 2}, "weights": []}))
        assert local.end().model == first.shape


def test_what_workers_tell_is_passed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imports to the fork server, missing names once; a re-execution under `--verbose`."""
    monkeypatch.setattr(terminal, "_verbose", True)
    with node(tmp_path, ("true",)) as local:
        local.send(0, Imports({"modules": ["torch"]}), Reexecution("HF_HOME"))
        for rank in (0, 1):
            local.send(rank, Remark("this torch has no gloo: nothing is reduced"))
        local.end()
    assert local.imports == [{"modules": ["torch"]}]
    assert local.notices == ["this torch has no gloo: nothing is reduced"]
    assert capsys.readouterr().err == (
        "[safe-launch] rank 0 was re-executed: the script sets HF_HOME after a preloaded module "
        "had read it\n"
    )


def test_another_nodes_failure_stops_this_node(tmp_path: Path) -> None:
    """Node 0 orders all to stop and waits for their ends."""
    with linked() as (near, far), node(tmp_path, FOREVER, peers=Peers({1: far})) as local:
        near.send(Failing((RECORD,), 1.0))

        def stop() -> None:
            assert told(near) == Stop()
            near.send(Ended(is_success=False, records=(RECORD,), now=2.0))

        with answering(stop):
            end = local.end()
    assert [record.rank for record in end.ended[1].records] == [RECORD.rank]
    assert end.ended[0].records == ()


def test_a_follower_reports_its_failure(tmp_path: Path) -> None:
    """It then waits for node 0's order to stop."""
    with linked() as (near, far), node(tmp_path, ("false",), peers=Peers({0: far})) as local:

        def stop() -> None:
            assert isinstance(told(near), Failing)
            near.send(Stop())

        with answering(stop):
            end = local.end()
    assert [record.rank for record in end.ended[0].records] == [0]
    assert not end.lost


def test_a_follower_reports_what_its_workers_see(tmp_path: Path) -> None:
    """Node 0 decides; the follower continues meanwhile."""
    with linked() as (near, far), node(tmp_path, FOREVER, peers=Peers({0: far})) as local:
        local.send(0, Observed({"zero_stage": 2}, None))

        def stop() -> None:
            assert told(near) == NodeObserved({"zero_stage": 2}, None)
            near.send(Stop())

        with answering(stop):
            assert not local.end().ended[0].is_success


def test_a_signal_elsewhere_interrupts_here(tmp_path: Path) -> None:
    """A second signal there starts the next step here."""
    with linked() as (near, far):
        near.send(Stop(signal.SIGINT), Stop(signal.SIGINT, again=True))
        with node(tmp_path, STUBBORN, peers=Peers({0: far}), times=IMPATIENT) as local:
            ended = local.end().ended[0]
    assert local.notices[0] == "SIGINT on another node: stopping the workers"
    assert ended.signal == signal.SIGINT


def test_a_followers_signal_is_told(tmp_path: Path) -> None:
    """Node 0 is notified and stops all other nodes."""
    with linked() as (near, far), node(tmp_path, FOREVER, peers=Peers({0: far})) as local:

        def stop() -> None:
            assert told(near) == Signalled(signal.SIGTERM)
            near.send(Stop(signal.SIGTERM))

        with answering(stop):
            signal.raise_signal(signal.SIGTERM)
            assert local.end().ended[0].signal == signal.SIGTERM


def test_a_node_that_does_not_answer_is_lost(tmp_path: Path) -> None:
    """After its timeout."""
    with linked() as (_, far):
        peers = Peers({1: far}, silence=0.0)
        with node(tmp_path, ("false",), peers=peers, times=IMPATIENT) as local:
            end = local.end()
    assert end.lost[1][1] == "node 1 (near) is lost: it no longer answers"


def test_a_report_on_demand(tmp_path: Path) -> None:
    """SIGQUIT asks for the ranks' positions and stops no process."""
    with node(tmp_path, FOREVER, FOREVER) as local:

        def look() -> None:
            os.kill(os.getpid(), REPORT)
            limit = time.monotonic() + LONG
            while not local.reports and time.monotonic() < limit:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)

        with answering(look):
            ended = local.end().ended[0]
        (report,) = local.reports
        assert [standing.rank for standing in report.standings] == [0, 1]
        assert ended.signal == signal.SIGTERM


def test_a_stopped_worker_ends_by_the_first_signal(tmp_path: Path) -> None:
    """It gets SIGCONT, so that it can handle SIGTERM."""
    with node(tmp_path, FOREVER, ("false",)) as local:
        os.kill(local.supervisor.workers.pids[0], signal.SIGSTOP)
        local.end()
        assert local.supervisor.workers.exits[0][0] == -signal.SIGTERM
