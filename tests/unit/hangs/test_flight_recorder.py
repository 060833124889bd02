"""The flight recorder's JSON in several torch versions, and invalid input."""

from __future__ import annotations

import json
import os
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safe_launch.commands.registry import run
from safe_launch.core.errors import Refused
from safe_launch.hangs import attribution, flight_recorder
from safe_launch.hangs.flight_recorder import DONE, collectives, latest, parsed
from safe_launch.hangs.report import HangKind
from safe_launch.hangs.standing import Collective
from support.stacks import TESTS

FIXTURES = TESTS / "fixtures" / "flight-recorder"
NCCL = {
    "version": "2.4",
    "pg_config": {"1": {"name": "1", "desc": "tensor", "ranks": "[0, 2]"}},
    "entries": [
        {
            "pg_id": 1,
            "process_group": ["1", "tensor"],
            "collective_seq_id": 9,
            "p2p_seq_id": 0,
            "profiling_name": "nccl:_all_gather_base",
            "input_sizes": [[8, 4]],
            "input_dtypes": ["BFloat16"],
            "state": "started",
            "retired": False,
            "is_p2p": False,
        },
        {
            "process_group": ["1", "tensor"],
            "collective_seq_id": 9,
            "p2p_seq_id": 3,
            "profiling_name": "nccl:send 0->1",
            "input_sizes": [[5]],
            "input_dtypes": ["Float"],
            "state": "completed",
            "retired": False,
            "is_p2p": True,
        },
    ],
}
"""Output of `dump_json` in torch 2.6 (torch/csrc/distributed/c10d/FlightRecorder.cpp)."""


def test_gloo_of_torch_2_13() -> None:
    """One entry a collective; `state` is always `scheduled`, so `retired` marks completion."""
    document = json.loads((FIXTURES / "torch-2.13-gloo.json").read_text())
    assert list(parsed(document)) == [
        Collective(5200, "all_reduce", ((8,),), ("Float",), "0 default_pg", is_retired=True),
        Collective(1, "all_gather", ((3, 2),), ("Float",), "1 mine", is_retired=True),
        Collective(5201, "barrier", (), (), "0 default_pg", is_retired=True),
        Collective(5202, "all_reduce", ((7,),), ("BFloat16",), "0 default_pg"),
    ]


def test_gloo_of_torch_2_6() -> None:
    """It records no gloo collectives."""
    assert list(parsed(json.loads((FIXTURES / "torch-2.6-gloo.json").read_text()))) == []


def test_nccl() -> None:
    """Groups have ranks, messages are numbered separately, and completed entries are done."""
    assert list(parsed(NCCL)) == [
        Collective(9, "_all_gather_base", ((8, 4),), ("BFloat16",), "1 tensor", ranks=(0, 2)),
        Collective(
            *(3, "send 0->1", ((5,),), ("Float",), "1 tensor"),
            is_retired=True,
            is_message=True,
            ranks=(0, 2),
        ),
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*NCCL, *NCCL["entries"][0]]),
            inner,
            max_size=4,  # type: ignore[index]
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_other_json(document: object) -> None:
    """No field is required."""
    assert all(isinstance(found, Collective) for found in parsed(document))


def test_what_is_long_done_is_left_out() -> None:
    """Each group separately; unfinished entries are kept."""
    early = Collective(1, "all_reduce", group="b")
    done = [
        Collective(number, "all_reduce", group="a", is_retired=True) for number in range(DONE + 3)
    ]
    other = Collective(1, "barrier", group="b", is_retired=True)
    assert latest(iter([early, other, *done])) == [early, other, *done[3:]]


@contextmanager
def server(folder: Path, answer: bytes, nccl: bytes | None = None) -> Iterator[None]:
    """A server that answers rank 0's questions with these bytes, and NCCL's with others."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "rank-0"))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    is_nccl = b"dump_nccl_trace_json" in connection.recv(4096)
                    connection.sendall(nccl if is_nccl and nccl is not None else answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def http(status: str, body: str) -> bytes:
    """An HTTP response."""
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\r\n{body}".encode()


NONE = http("404 Not Found", "no handler")


EMPTY = json.dumps({"version": "2.10", "pg_config": {}, "entries": []})


@pytest.mark.parametrize("gloo", [NONE, http("200 OK", EMPTY)], ids=["2.9", "2.10"])
def test_what_nccl_records(gloo: bytes, tmp_path: Path) -> None:
    """NCCL has its own recorder: since 2.10 torch also returns an empty one."""
    with server(tmp_path, gloo, http("200 OK", json.dumps(NCCL))):
        found = collectives(tmp_path, 0, 5.0)
    assert found == tuple(parsed(NCCL))


def test_what_gloo_records(tmp_path: Path) -> None:
    """Torch on CPUs has no NCCL recorder; the response body is read to its end."""
    gloo = (FIXTURES / "torch-2.13-gloo.json").read_text()
    with server(tmp_path, http("200 OK", gloo), NONE):
        found = collectives(tmp_path, 0, 5.0)
    assert found == tuple(parsed(json.loads(gloo)))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (http("404 Not Found", "no handler"), "this version of torch doesn't report them"),
        (http("200 OK", "{"), "Input data was truncated"),
        (b"", "torch's debug server there broke off"),
        (b"\0\xff", "torch's debug server there broke off"),
    ],
)
def test_what_a_server_may_say_as_well(tmp_path: Path, answer: bytes, why: str) -> None:
    """Errors are reported in words."""
    with server(tmp_path, answer):
        found = collectives(tmp_path, 0, 5.0)
    assert isinstance(found, Refused)
    assert found.sentence == f"its collectives aren't known: {why}"


def test_nobody_answers(tmp_path: Path) -> None:
    """A stopped process accepts, a dead one refuses, and most ranks have no server."""
    no_torch = "its collectives aren't known: it has no torch that reports them (2.8 or newer)"
    assert collectives(tmp_path, 0, 0.1) == Refused(no_torch)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "rank-0"))
        refused = collectives(tmp_path, 0, 0.1)
        assert isinstance(refused, Refused)
        assert "Connection refused" in refused.sentence
        listener.listen()
        silent = collectives(tmp_path, 0, 0.1)
        assert isinstance(silent, Refused)
        assert "doesn't answer" in silent.sentence


def entry(number: int, kind: str = "nccl:all_reduce", **changes: Any) -> dict[str, Any]:
    """An entry as torch 2.6 dumps it (torch/csrc/distributed/c10d/FlightRecorder.hpp)."""
    return {
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": kind,
        "time_created_ns": 1_700_000_000_000_000_000 + number,
        "input_sizes": [[12480]],
        "input_dtypes": ["Float"],
        "output_sizes": [[12480]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "retired": True,
        "timeout_ms": 600000,
        "is_p2p": False,
        "frames": [
            {"name": "all_reduce", "filename": "/site/site-packages/torch/c10d.py", "line": 9},
            {"name": "main", "filename": "/u/train.py", "line": 30},
            {"name": "<module>", "filename": "/u/train.py", "line": 40},
        ],
        **changes,
    }


def document(last: int, *, waits: bool, ranks: int = 3, **changes: Any) -> dict[str, Any]:
    """A rank's dump with a number of collectives."""
    entries = [entry(number) for number in range(1, last + 1)]
    if waits:
        entries[-1] |= {"state": "started", "retired": False, **changes}
    config = {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}
    return {
        "version": "2.4",
        "pg_config": {"0": config},
        "pg_status": {},
        "entries": entries,
        "nccl_comm_state": {},
    }


def written(folder: Path, rank: int, content: dict[str, Any], *, as_json: bool = False) -> Path:
    """A dump as NCCL's process group writes it, a pickle of protocol 2, or as JSON."""
    path = folder / f"nccl_trace_rank_{rank}"
    data = json.dumps(content).encode() if as_json else pickle.dumps(content, protocol=2)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("as_json", [True, False])
def test_who_did_not_come(as_json: bool, tmp_path: Path) -> None:
    """Rank 1 completed all its collectives; the others wait in the next."""
    for rank in (0, 2):
        written(tmp_path, rank, document(5, waits=True), as_json=as_json)
    written(tmp_path, 1, document(4, waits=False), as_json=as_json)
    standings = flight_recorder.standings(flight_recorder.find([str(tmp_path)]))
    assert not isinstance(standings, Refused)
    report = attribution.report_on(standings)
    assert (report.kind, report.culprits, report.waiting) == (HangKind.ABSENT, (1,), (0, 2))
    assert report.collective is not None
    assert (report.collective.number, report.collective.ranks) == (5, (0, 1, 2))
    assert [frame.function for frame in standings[0].frames] == ["<module>", "main", "all_reduce"]
    assert standings[0].own_files == ("/u/train.py",)
    assert standings[1].problem == "it was last seen at /u/train.py:30 in main"


def test_a_rank_without_a_dump_is_left_out(tmp_path: Path) -> None:
    """It may be in the same collective as the others."""
    for rank in (0, 2):
        written(tmp_path, rank, document(5, waits=True))
    standings = flight_recorder.standings(flight_recorder.find([str(tmp_path)]))
    assert not isinstance(standings, Refused)
    report = attribution.report_on(standings)
    assert report.standings[1].problem == "it has left no dump"
    assert (report.kind, report.culprits) == (HangKind.UNKNOWN, ())


def test_ranks_in_different_collectives(tmp_path: Path) -> None:
    """They are found for any launcher."""
    for rank in (0, 2):
        written(tmp_path, rank, document(5, waits=True))
    written(tmp_path, 1, document(5, waits=True, profiling_name="nccl:broadcast"))
    standings = flight_recorder.standings(flight_recorder.find([str(tmp_path)]))
    assert not isinstance(standings, Refused)
    report = attribution.report_on(standings)
    assert (report.kind, report.culprits) == (HangKind.DIVERGENT, (1,))


class Malicious:
    """An object whose pickle runs a command on loading."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def test_a_stranger_cannot_run_anything(tmp_path: Path) -> None:
    """Dumps with anything but containers are rejected."""
    marker = tmp_path / "marker"
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"entries": [Malicious(marker)]}, protocol=2))
    refused = flight_recorder.read(path)
    assert isinstance(refused, Refused)
    assert "system" in refused.sentence
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x80\x02entries garbage", "is no flight recorder's dump"),
        (b'{"entries": 3}', "it has no entries"),
        (b'{"entries": [', "can't be read"),
        (b"\x80\x02]q\x00.", "it has no entries"),
    ],
)
def test_what_is_no_dump_is_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    """The message names the file."""
    path = tmp_path / "fr_3"
    path.write_bytes(content)
    refused = flight_recorder.read(path)
    assert isinstance(refused, Refused)
    assert refused.sentence.startswith(str(path))
    assert reason in refused.sentence


def test_entries_of_any_shape_raise_nothing(tmp_path: Path) -> None:
    """Fields differ between torch versions."""
    odd: dict[str, Any] = {"pg_config": {}, "entries": [None, {}, {"frames": [1, {"line": "x"}]}]}
    written(tmp_path, 0, odd)
    standings = flight_recorder.standings(flight_recorder.find([str(tmp_path)]))
    assert not isinstance(standings, Refused)
    attribution.report_on(standings)


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit code and output of `safe-launch diagnose`."""
    code = run(["diagnose", *map(str, arguments)])
    return int(code), capsys.readouterr().out


def test_diagnose_reads_a_folder_of_dumps(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The culprit, then the positions, then the entry that explains it."""
    for rank in (0, 2):
        written(tmp_path, rank, document(5, waits=True))
    written(tmp_path, 1, document(4, waits=False))
    code, text = told(capsys, tmp_path)
    assert code == 1
    assert text.startswith(
        "rank 1 is missing: its last collective, which is done, was all_reduce 4 (12,480 floats); "
        "ranks 0, 2 wait in all_reduce 5 (12,480 floats)\n"
    )
    assert "rank 1: it was last seen at /u/train.py:30 in main" in text
    assert "safe-launch explain rank-absent-from-collective" in text
    found = json.loads(told(capsys, tmp_path, "--json")[1])
    assert (found["id"], found["hang"]["culprits"]) == ("rank-absent-from-collective", [1])


def test_diagnose_reads_dumps_beside_logs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Logs are read as before; dumps add the ranks' positions."""
    (tmp_path / "rank-0.log").write_text(
        "[rank0]:[E614 10:00:00.1 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, "
        "Timeout(ms)=600000) ran for 600088 milliseconds before timing out.\n"
    )
    for rank in (0, 2):
        written(tmp_path, rank, document(5, waits=True), as_json=True)
    written(tmp_path, 1, document(4, waits=False), as_json=True)
    code, text = told(capsys, tmp_path)
    assert code == 1
    assert text.startswith("rank 0: ")
    assert "safe-launch explain nccl-collective-timeout" in text
    assert "\nrank 1 is missing: " in text
    assert json.loads(told(capsys, tmp_path, "--json")[1])["hang"]["culprits"] == [1]
