"""If a node fails before it joins, all others end at once with its cause and code."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hosts import needs_hosts, network
from support.jobs import FAST, PORT, begin, ended, ending, options
from support.stacks import ROOT
from support.waiting import wait_for

pytestmark = needs_hosts
STAYS = ROOT / "tests" / "programs" / "stays.py"
USAGE, RETRY = 64, 75
FOR_HOURS = "--rdzv-conf=join_timeout=36000"
"""A join timeout longer than any test."""


@pytest.mark.parametrize("broken", [0, 1, 2])
@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (None, r"can't take part: .*train\.py"),
        ("def train(:\n", r"can't take part: .*train\.py.*1"),
    ],
    ids=["no script", "a syntax error"],
)
def test_a_node_whose_script_cant_run(
    tmp_path: Path, broken: int, text: str | None, cause: str
) -> None:
    """Node 0 reports it or gets the report; in any order all end with 64 and the reason."""
    names = ("alpha", "beta", "gamma")
    for place, name in enumerate(names):
        (tmp_path / name).mkdir()
        script = "import time; time.sleep(600)" if place != broken else text
        if script is not None:
            (tmp_path / name / "train.py").write_text(script)
    with network(*names) as hosts:
        launchers = []
        for rank, host in sorted(enumerate(hosts), key=lambda pair: pair[0] != broken):
            told = options(hosts, rank, "--nnodes=3", FOR_HOURS, *FAST)
            launchers.append(begin(host, tmp_path / host.name, *told, "train.py"))
        with ending(launchers):
            ended(launchers, USAGE)
            for one in launchers[1:]:
                assert one.says(rf"{names[broken]}.* {cause}"), one.said()


def test_an_elastic_job_goes_on_without_it(tmp_path: Path) -> None:
    """If fewer nodes suffice, the failed node is reported and the others train."""
    (tmp_path / "finish").touch()
    own = ("--nnodes=2:3", "--rdzv-conf=last_call_timeout=1")
    with network("alpha", "beta", "gamma") as hosts:
        broken = begin(hosts[2], tmp_path, *options(hosts, 2, *own), "none.py")
        head = begin(hosts[0], tmp_path, *options(hosts, 0, *own), STAYS, tmp_path, 0)
        with ending([broken, head]):
            text = r"refused a node: gamma can't take part: .*none\.py.*; the others continue"
            wait_for(lambda: head.says(text))
            other = begin(hosts[1], tmp_path, *options(hosts, 1, *own), STAYS, tmp_path, 0)
            with ending([other]):
                ended([head, other, broken], 0, 0, USAGE)


def test_nobody_is_waited_for_by_a_node_that_cant_start(tmp_path: Path) -> None:
    """It reports its failure for a limited time and ends with its own code."""
    with network("alpha", "beta") as hosts:
        own = ("--rdzv-conf=join_timeout=3",)
        alone = begin(hosts[1], tmp_path, *options(hosts, 1, *own), "none.py")
        with ending([alone]):
            ended([alone], USAGE)
            assert alone.says(rf"informing node 0 \(alpha:{PORT}\), until \d\d:\d\d:\d\d at most")


def test_two_nodes_that_are_both_node_0(tmp_path: Path) -> None:
    """The one at the wrong address is notified at once, and by whom."""
    with network("alpha", "beta") as hosts:
        (tmp_path / "beta").mkdir()
        first = begin(hosts[0], tmp_path, *options(hosts, 0, *FAST), STAYS, tmp_path, 0)
        with ending([first]):
            wait_for(lambda: first.says(r"waiting for rank 1, gives up at \d\d:\d\d"))
            second = begin(
                hosts[1], tmp_path / "beta", *options(hosts, 0, *FAST), STAYS, tmp_path, 0
            )
            with ending([second]):
                assert second.process.wait() == USAGE, second.said()
                assert second.says("beta says that it is node 0, and node 0 expects nodes 1 to 1")
            assert first.says("refused a node: beta says that it is node 0")
        third = begin(hosts[1], tmp_path, *options(hosts, 0, *FAST), STAYS, tmp_path, 0)
        with ending([third]):
            text = rf"beta is node 0, but the others look for it at alpha:{PORT}, which isn't an"
            wait_for(lambda: third.says(text))
