"""Hostfiles and filters such as --include are read like deepspeed's."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from safe_launch.core.errors import LaunchError
from safe_launch.nodes.ssh import launch_on_hosts
from safe_launch.options import node_options
from safe_launch.options.hostfile import Host, filtered, first, hosts_of
from support.stacks import CURRENT

FILE = (
    "worker-0 slots=4\n# a comment\n\n  worker-1   slots=4  # the second\nuser@10.0.0.7 slots=2\n"
)
FILES = (
    FILE,
    "a slots=1",
    "a slots=2 max_slots=4\n\tb slots=3\n",
    "",
    "# nothing but a comment\n",
    "a slots=2\na slots=2\n",
    "a slots=2\nb\n",
    "a slots=two\n",
    "a:8\n",
    "slots=4\n",
)
SPECIFICATIONS = (
    "",
    "worker-0",
    "worker-1:0,2",
    "worker-1:2,0,2",
    "worker-0@worker-1:0,2",
    "worker-1@worker-0",
    "worker-1:1@worker-1:3",
    "worker-1@worker-1:3",
    "worker-0: 1",
    "worker-0:0,1,2,3@worker-1",
    "worker-0@worker-1@worker-1:0",
    "worker-2",
    "worker-2:0",
    "worker-0:4",
    "worker-0:",
    "worker-0:x",
    "worker-0:0-2",
    "worker-0:-1",
    "worker-0:0:1",
    "@",
    "worker-0@",
    ":0",
)
ORACLE = """
import json, logging, sys
from deepspeed.launcher import runner
logging.disable(logging.CRITICAL)
def tried(function, *arguments):
    try:
        return [[name, slots] for name, slots in function(*arguments).items()]
    except ValueError:
        return None
files, specifications, pool = json.loads(sys.argv[1])
print(json.dumps({
    "files": [tried(runner._parse_hostfile, one.splitlines(keepends=True)) for one in files],
    "include": [tried(runner.parse_inclusion_exclusion, pool, one, "") for one in specifications],
    "exclude": [tried(runner.parse_inclusion_exclusion, pool, "", one) for one in specifications],
}))
"""
POOL = {"worker-0": 4, "worker-1": 4}


@pytest.fixture(scope="module")
def deepspeed_says(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    """The installed deepspeed's result; None if it refuses."""
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "oracle.py").write_text(ORACLE)
    cases = json.dumps([FILES, SPECIFICATIONS, POOL])
    done = CURRENT.run("python", "oracle.py", cases, cwd=folder)
    assert done.returncode == 0, done.stderr
    answer: dict[str, list[object]] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_files_are_read_as_deepspeed_reads_them(
    deepspeed_says: dict[str, list[object]],
) -> None:
    """Names, numbers, order and errors are deepspeed's."""
    for text, expected in zip(FILES, deepspeed_says["files"], strict=True):
        try:
            found: object = [[one.name, len(one.slots)] for one in hosts_of(text, "hostfile")]
        except LaunchError:
            found = None
        assert expected == found, text


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_filters_are_deepspeeds(option: str, deepspeed_says: dict[str, list[object]]) -> None:
    """Hosts and slots are the same in the same order; an empty result is an error."""
    hosts = [Host(name, tuple(range(slots))) for name, slots in POOL.items()]
    for text, expected in zip(SPECIFICATIONS, deepspeed_says[option], strict=True):
        include, exclude = (text, "") if option == "include" else ("", text)
        try:
            found: object = [
                [one.name, list(one.slots)] for one in filtered(hosts, include, exclude)
            ]
        except LaunchError:
            found = None
        assert (expected or None) == found, text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a slots=2\n\na slots=1\n", "f:3: a is in line 1 already"),
        ("a slots=2\nb 8\n", "f:2: `b 8` isn't a host with its number of devices"),
        ("a slots=0\n", "f:1: `a slots=0` isn't a host with its number of devices"),
        ("-oProxyCommand=x slots=1\n", "f:1: `-oProxyCommand=x slots=1` isn't a host"),
        ("a slots=2x\n", "f:1: `a slots=2x` isn't a host"),
        ("#\n", "f names no host"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(text: str, problem: str) -> None:
    """A mistake is reported with file and line."""
    with pytest.raises(LaunchError) as caught:
        hosts_of(text, "f")
    assert caught.value.problem.startswith(problem)


@pytest.mark.parametrize(
    ("nodes", "slots", "expected"),
    [
        (None, None, "a:0,1 b:0,1,2,3"),
        (1, None, "a:0,1"),
        (None, 2, "a:0,1 b:0,1"),
        (2, 1, "a:0 b:0"),
        (3, None, "--num_nodes 3: there are 2 hosts"),
        (None, 3, "--num_gpus 3: a has slots=2"),
        (0, None, "--num_nodes 0: at least one is needed"),
    ],
)
def test_the_first_hosts_and_devices(nodes: int | None, slots: int | None, expected: str) -> None:
    """`--num_nodes` and `--num_gpus` take the first ones, up to the available number."""
    hosts = hosts_of("a slots=2\nb slots=4\n", "f")
    try:
        chosen = first(hosts, nodes, slots)
        found = " ".join(f"{one.name}:{','.join(map(str, one.slots))}" for one in chosen)
    except LaunchError as error:
        found = error.problem
    assert expected == found


def test_the_other_side_gets_what_it_cant_know() -> None:
    """Library and framework variables are passed; devices, placement and ranks aren't."""
    words = """NCCL_DEBUG=INFO PYTHONPATH=/p HF_TOKEN=s LD_LIBRARY_PATH=/l CUDA_HOME=/cuda
        HOME=/root RANK=0 MASTER_ADDR=x SLURM_JOB_ID=1
        CUDA_VISIBLE_DEVICES=1 TORCHELASTIC_RUN_ID=r"""
    here = dict(word.split("=") for word in words.split())
    expected = {"NCCL_DEBUG", "PYTHONPATH", "HF_TOKEN", "LD_LIBRARY_PATH", "CUDA_HOME"}
    assert expected == launch_on_hosts.exported(here).keys()


def test_the_file_of_variables() -> None:
    """One variable a line; values may have quotes, spaces and equals signs."""
    text = "A=1\n\n# no=thing\nexport B = two words\nC=\"x=y\"\nD='$HOME/d'\nnothing\nE=\n"
    expected = {"A": "1", "B": "two words", "C": "x=y", "D": "$HOME/d", "E": ""}
    assert expected == launch_on_hosts.parsed_variables(text)


def test_the_files_at_home_and_in_the_folder(tmp_path: Path) -> None:
    """The folder's file overrides the home's; DS_ENV_FILE names another."""
    home, folder = tmp_path / "home", tmp_path / "job"
    for place in (home, folder):
        place.mkdir()
        (place / ".deepspeed_env").touch()
    (home / "other").touch()
    expected = [home / ".deepspeed_env", folder / ".deepspeed_env"]
    assert expected == launch_on_hosts.variable_files({}, home, folder)
    assert [home / "other"] == launch_on_hosts.variable_files(
        {"DS_ENV_FILE": str(home / "other")}, home, folder
    )


def test_the_launchers_options_are_taken_apart() -> None:
    """Host options are removed; all others keep their order, also the script's."""
    from safe_launch.options.parser import parser

    line = [
        *("-H", "hosts", "--fix", "once", "--include=a@b:0", "--set", "zero_stage=2", "-m"),
        *("--master_port", "1", "--ssh-port=22", "--set", "precision=bf16"),
        *("--launcher_args=-i key", "train", "--include", "x", "-m", "--", "--hostfile"),
    ]
    own, command = parser().apart(line)
    expected = ["--fix", "once", "--set", "zero_stage=2", "-m", "--set", "precision=bf16"]
    assert expected == launch_on_hosts.without_hosts(own)
    assert command == ["train", "--include", "x", "-m", "--", "--hostfile"]


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (["10.0.0.1", "10.0.0.2"], "10.0.0.1"),
        (["127.0.0.1", "127.0.0.2"], "127.0.0.1"),
        (["fe00::1", "10.0.0.2"], "fe00::1"),
    ],
)
def test_the_first_hosts_address(addresses: list[str], expected: str) -> None:
    """It is the address of the ssh connection."""
    assert expected == launch_on_hosts.head_address(addresses)


def test_choosing_devices_twice_is_refused() -> None:
    """Slots other than the first contradict a variable that hides devices."""
    size = {"LOCAL_SIZE": "2"}
    assert launch_on_hosts.variables_here((0, 1), {"CUDA_VISIBLE_DEVICES": "4,5"}) == size
    both = {"CUDA_VISIBLE_DEVICES": "0,2", "ASCEND_RT_VISIBLE_DEVICES": "0,2", **size}
    assert both == launch_on_hosts.variables_here((0, 2), {})
    with pytest.raises(LaunchError, match="CUDA_VISIBLE_DEVICES=4,5 and the hosts' slots"):
        launch_on_hosts.variables_here((0, 2), {"CUDA_VISIBLE_DEVICES": "4,5"})


def test_every_option_has_both_spellings() -> None:
    """Deepspeed's underscores and torchrun's dashes."""
    parser = argparse.ArgumentParser()
    node_options.declare_hosts(parser)
    for action in parser._actions:
        for name in action.option_strings:
            other = f"--{name[2:].replace('_', '-')}"
            assert other in action.option_strings or not name.startswith("--")
