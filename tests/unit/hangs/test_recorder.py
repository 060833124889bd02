"""The flight recorder's JSON in several torch versions, and invalid input."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safe_launch.core.errors import Refused
from safe_launch.hangs.recorder import DONE, collectives, latest, parsed
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
