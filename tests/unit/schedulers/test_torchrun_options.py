"""torchrun's multi-node options: every form and every refusal."""

from __future__ import annotations

import pytest
from safe_launch.core.errors import LaunchError
from safe_launch.schedulers.reported import number, port
from safe_launch.schedulers.torchrun_options import (
    configuration,
    endpoint,
    node_range,
    refuse_backend,
    times,
    variables,
)


@pytest.mark.parametrize(("text", "nodes"), [("2", (2, 2)), ("1:4", (1, 4)), (" 3 ", (3, 3))])
def test_a_range_of_nodes(text: str, nodes: tuple[int, int]) -> None:
    """`N` or `MIN:MAX`."""
    assert node_range(text, "--nnodes") == nodes


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("node-0", ("node-0", None)),
        ("node-0:29400", ("node-0", 29400)),
        ("localhost:0", ("localhost", None)),
        ("[fe80::1]:29400", ("fe80::1", 29400)),
        ("[fe80::1]", ("fe80::1", None)),
        ("fe80::1", ("fe80::1", None)),
    ],
)
def test_an_endpoint(text: str, found: tuple[str, int | None]) -> None:
    """Port 0, which --standalone writes, counts as none; IPv6 with a port needs brackets."""
    assert endpoint(text, "--rdzv-endpoint") == found


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda: node_range("2:1", "--nnodes"), "--nnodes 2:1: MIN is greater than MAX"),
        (lambda: node_range("0", "--nnodes"), "--nnodes 0: at least one node is needed"),
        (lambda: node_range("all", "--nnodes"), "neither a number nor MIN:MAX"),
        (lambda: endpoint("http://a:1", "--rdzv-endpoint"), "HOST:PORT"),
        (lambda: refuse_backend("etcd-v2", "--rdzv-backend"), "etcd isn't needed"),
        (lambda: refuse_backend("redis", "--rdzv-backend"), "'redis' is unknown"),
        (lambda: configuration("timeout", "--rdzv-conf"), "timeout needs a value"),
        (lambda: configuration("timeout=-1", "--rdzv-conf"), "a number of seconds above 0"),
        (lambda: configuration("is_host=2", "--rdzv-conf"), "neither true nor false"),
        (lambda: configuration("store_type=file", "--rdzv-conf"), "meet over the network"),
        (lambda: number({"RANK": "x"}, "RANK"), "RANK 'x' isn't a whole number"),
        (lambda: number({"SIZE": "0"}, "SIZE", 1), "SIZE 0: it must be at least 1"),
        (lambda: port("65536", "MASTER_PORT"), "a port is between 1 and 65535"),
    ],
)
def test_what_has_no_meaning_is_refused(wrong, problem: str) -> None:  # type: ignore[no-untyped-def]
    """The error has the option's or variable's name."""
    with pytest.raises(LaunchError) as caught:
        wrong()
    assert problem in caught.value.problem


def test_variables_that_are_off_say_nothing() -> None:
    """An empty variable, and PET_STANDALONE=0."""
    environment = {"PET_NNODES": "2", "PET_RDZV_ID": "", "PET_STANDALONE": "False"}
    assert variables(environment) == {"nnodes": "2"}


@pytest.mark.parametrize(
    "text", ["'timeout=90,is_host=1'", "timeout='90', is_host=\"1\"", ' "timeout=90" , is_host=1,']
)
def test_quotes_around_settings(text: str) -> None:
    """A YAML file or a shell may leave quotes."""
    assert configuration(text, "--rdzv-conf") == {"timeout": "90", "is_host": "1"}


def test_times() -> None:
    """Torch's keep-alive has an interval and a count; our option precedes it."""
    conf = configuration("timeout=90, keep_alive_interval=2", "--rdzv-conf")
    found = times(conf, None)
    assert (found.join, found.last_call, found.silence) == (90.0, 30.0, 6.0)
    assert times(conf, 7.5).silence == 7.5
    assert times({"join_timeout": "5", "timeout": "9"}, None).join == 5.0
