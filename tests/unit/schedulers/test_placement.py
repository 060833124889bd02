"""A launcher's place by Slurm, MPI, Kubernetes, torchrun's options and PET_* variables."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace

import pytest
from safe_launch.core.errors import ExitCode, LaunchError
from safe_launch.core.placement import PORT, JoinTimes, Placement
from safe_launch.options.request_of import option_of, shows_all_devices, workers_of
from safe_launch.schedulers.read_placement import SCHEDULERS, placement_of
from safe_launch.schedulers.slurm import FIRST_PORT, PORTS, devices, hosts, port_of, tasks_on
from safe_launch.schedulers.this_host import Here, owns

HERE = Here("n2", lambda: "n2.cluster", has_terminal=False, owns=lambda host: host == "n2")

JOB = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NNODES": "2",
    "SLURM_NTASKS": "2",
    "SLURM_TASKS_PER_NODE": "1(x2)",
}
BATCH = {**JOB, "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
BATCH["SLURM_GPUS_ON_NODE"] = "4"
STEP = {
    **JOB,
    "SLURM_STEP_ID": "0",
    "SLURM_STEPID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.99",
    "SLURM_GPUS_ON_NODE": "4",
}
"""The variables of the second of two tasks, one a node (Slurm 22.05)."""
TASKS = {
    **STEP,
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_STEP_TASKS_PER_NODE": "8(x2)",
    "SLURM_TASKS_PER_NODE": "8(x2)",
    "SLURM_PROCID": "11",
    "SLURM_LOCALID": "3",
    "SLURM_GPUS_ON_NODE": "8",
}
"""`srun --ntasks-per-node=8` on two nodes: the fourth task of the second."""
MPI = {
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "PMIX_NAMESPACE": "prterun-n1-3402@1",
}
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "JOB_COMPLETION_INDEX": "1"}
IN_POD = replace(HERE, name="tune-1", full_name=lambda: "tune-1.tune-svc.ml.svc.cluster.local")
PYTORCH_JOB = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "MASTER_ADDR": "tune-master-0",
    "MASTER_PORT": "23456",
    "WORLD_SIZE": "3",
    "RANK": "2",
}
TRAIN_JOB = {
    **POD,
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "auto",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "tune-node-0-0.tune",
    "PET_MASTER_PORT": "29500",
}
VOLCANO = {
    "VC_TASK_INDEX": "1",
    "VK_TASK_INDEX": "1",
    "VC_WORKER_HOSTS": "j-worker-0.j,j-worker-1.j",
    "VC_WORKER_NUM": "2",
}


def place(
    environment: Mapping[str, str],
    here: Here = HERE,
    is_launch: bool = True,
    silence: float | None = None,
    **given: str,
) -> Placement:
    """The placement for an environment and options."""
    return placement_of(given, silence, environment, here, is_launch=is_launch)


def refused(environment: Mapping[str, str], here: Here = HERE, **given: str) -> str:
    """The error and the advice of a refused launch."""
    with pytest.raises(LaunchError) as caught:
        place(environment, here, **given)
    assert caught.value.code is ExitCode.USAGE
    return f"{caught.value.problem} | {caught.value.hint}"


def where(placement: Placement) -> tuple[int, int | None, str]:
    """The three facts that every multi-node launch needs."""
    return placement.nodes, placement.rank, placement.address


def test_without_anything_a_launcher_is_alone() -> None:
    """There are no notes and no rows."""
    assert place({}) == Placement()
    assert place({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}) == Placement()
    assert place(POD, IN_POD).is_alone
    told = dict(place(POD, IN_POD).sources)["note"]
    assert told.endswith("trains alone: the number of nodes isn't given")


@pytest.mark.parametrize(
    ("given", "how"),
    [
        ({"node_rank": "1"}, "node 1 (--node-rank), but the number of nodes isn't given"),
        ({"node_rank": "1", "nnodes": "1"}, "node 1 (--node-rank), but there is 1 (--nnodes)"),
    ],
)
def test_a_rank_without_other_nodes(given: dict[str, str], how: str) -> None:
    """Every node would train alone."""
    with pytest.raises(LaunchError) as refused:
        place({}, **given)
    assert how in refused.value.problem
    with pytest.raises(LaunchError):
        place({"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "h0"})
    assert place({}, node_rank="0").is_alone


def test_a_rank_that_contradicts_the_pods_index() -> None:
    """Both are named, with advice if the index has another meaning."""
    with pytest.raises(LaunchError) as refused:
        place(POD, IN_POD, nnodes="2", node_rank="0")
    assert refused.value.problem == (
        "--node-rank 0, but to Kubernetes this is node 1 (JOB_COMPLETION_INDEX)"
    )
    assert "unset JOB_COMPLETION_INDEX" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n1", "n1"),
        ("n[1-3,07-10],gpu-a[01-02]-x", "n1 n2 n3 n07 n08 n09 n10 gpu-a01-x gpu-a02-x"),
        ("n[1-2]-[3-4]", "n1-3 n1-4 n2-3 n2-4"),
        ("n[008-011]", "n008 n009 n010 n011"),
        ("n[9-11]", "n9 n10 n11"),
        ("n[5]", "n5"),
        ("n[1,3,5-6]b,login", "n1b n3b n5b n6b login"),
        ("a.b-c_d,e", "a.b-c_d e"),
        ("n[1-2],", "n1 n2"),
        ("", ""),
    ],
)
def test_a_list_of_hosts_is_expanded(text: str, expected: str) -> None:
    """Leading zeros are kept; brackets may be anywhere and repeated."""
    assert list(hosts(text)) == expected.split()


@pytest.mark.parametrize("text", ["n[1-3", "n1]", "n[1-[2-3]]", "n[3-1]", "n[a-b]", "n[]"])
def test_a_broken_list_of_hosts_is_an_error(text: str) -> None:
    """Invalid lists aren't guessed."""
    with pytest.raises(ValueError, match=r"bracket|range"):
        list(hosts(text))
    assert "Slurm" in refused({**STEP, "SLURM_STEP_NODELIST": text})


def test_slurms_other_short_forms() -> None:
    """Tasks by node, and generic resources with and without a type."""
    assert [tasks_on("2(x3),1", node) for node in range(5)] == [2, 2, 2, 1, None]
    assert tasks_on("8", 0) == 8
    with pytest.raises(ValueError, match="tasks"):
        tasks_on("2(3)", 0)
    found = {
        "4": 4,
        "a100:4": 4,
        "gpu:a100:2,gpu:v100:1": 3,
        "gpu:a100:4(S:0-1)": 4,
        "gres/npu:8": 8,
        "gres/gpu=2": 2,
        "cpu=4,gres/gpu:a100=2": 2,
        "cpu=4": None,
        "shard:20": None,
        "": None,
    }
    assert {text: devices(text) for text in found} == found


def test_under_srun_nothing_need_be_given() -> None:
    """One task a node: the step's first host, not the node that called srun."""
    found = place(STEP)
    assert where(found) == (2, 1, "n1")
    assert (found.least, found.job, found.nproc, found.beside) == (2, "4711.0", 4, 1)
    assert found.port == port_of(4711, 0)
    assert dict(found.sources) == {
        "nodes": "2, this is node 1 (SLURM_NNODES, SLURM_NODEID)",
        "node 0": f"n1:{found.port} (SLURM_STEP_NODELIST, from SLURM_JOB_ID and SLURM_STEP_ID)",
        "job": "4711.0 (SLURM_JOB_ID, SLURM_STEP_ID)",
    }


def test_neighbouring_jobs_and_steps_have_ports_of_their_own() -> None:
    """Jobs or steps on a host mustn't collide, nor use ephemeral ports."""
    ports = [port_of(job, step) for job in range(9990, 10_010) for step in range(4)]
    assert len(set(ports)) == len(ports)
    assert min(ports) >= FIRST_PORT
    assert max(ports) < FIRST_PORT + PORTS == 32768


def test_a_requeued_job_is_another_job() -> None:
    """It mustn't meet leftovers of its former run."""
    again = place({**STEP, "SLURM_RESTART_COUNT": "1"})
    assert again.job == "4711.0.1"
    assert "SLURM_RESTART_COUNT" in dict(again.sources)["job"]


def test_a_task_for_every_worker_runs_one() -> None:
    """`srun --ntasks-per-node=8`: sixteen launchers, eight of them on this host."""
    found = place(TASKS)
    assert where(found) == (16, 11, "n1")
    assert (found.local, found.beside, found.nproc) == (3, 8, 1)
    assert workers_of(None, "a100", 8, 32, found)[0] == 1
    assert workers_of("1", "a100", 8, 32, found)[0] == 1
    with pytest.raises(LaunchError, match=r"--nproc 8 asks for 8.*8 launchers on this host"):
        workers_of("8", "a100", 8, 32, found)


def test_whose_devices_a_task_sees() -> None:
    """Slurm binds each task to a device or shows it the node's."""
    task = place(TASKS)
    assert shows_all_devices(task, 1, 8)
    assert shows_all_devices(task, 1, 0), "without devices the local rank counts over the host"
    assert not shows_all_devices(task, 1, 1)
    assert shows_all_devices(place(STEP), 4, 4)


def test_tasks_with_several_devices_each() -> None:
    """`--ntasks-per-node=2 --gpus-per-task=4`: one worker for each of the task's devices."""
    own = {"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
    assert place({**TASKS, **own, "SLURM_PROCID": "3", "SLURM_GPUS_PER_TASK": "4"}).nproc == 4


def test_a_step_of_one_node_is_alone() -> None:
    """`srun -N1` in a job of two nodes."""
    one = {"SLURM_NNODES": "1", "SLURM_NTASKS": "1", "SLURM_STEP_NUM_NODES": "1"}
    found = place({**STEP, **one, "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_NODELIST": "n1"})
    assert found.is_alone
    assert (found.nproc, found.sources) == (4, ())


def test_a_batch_script_must_use_srun() -> None:
    """One launcher can't train on two nodes, unless one node is requested."""
    assert "srun --ntasks-per-node=1" in refused(BATCH)
    assert "SLURM_NNODES" in refused(JOB)
    assert place(BATCH, standalone="1").is_alone
    assert place({**BATCH, "SLURM_NNODES": "1", "SLURM_NTASKS": "8"}).is_alone
    planned = place(BATCH, is_launch=False)
    assert (planned.nodes, planned.nproc) == (2, 4)


def test_a_step_that_sbatch_has_inherited_is_none() -> None:
    """`sbatch` in a task passes its variables to the new job."""
    old = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}
    assert "start it with srun" in refused({**BATCH, **old})


@pytest.mark.parametrize("step", ["4294967290", "4294967291"])
def test_steps_that_arent_sruns(step: str) -> None:
    """In some versions salloc's shell and the batch script are steps."""
    assert "start it with srun" in refused({**STEP, "SLURM_STEP_ID": step})


def test_a_person_in_a_shell_of_sruns() -> None:
    """`srun -n4 --pty bash`: a step of four tasks, but one launcher."""
    shell = {**TASKS, "SLURM_PTY_PORT": "41177", "SLURM_NNODES": "1", "SLURM_STEP_NUM_NODES": "1"}
    assert place(shell, replace(HERE, has_terminal=True)).is_alone
    assert not place(shell).is_alone, "srun hands the variable on to the jobs of that shell"


def test_a_heterogeneous_job_needs_words() -> None:
    """Each of its components numbers its nodes from 0."""
    parts = {**STEP, "SLURM_HET_SIZE": "2"}
    assert "SLURM_HET_SIZE" in refused(parts)
    found = place(parts, nnodes="2", node_rank="1", master_addr="n1")
    assert where(found) == (2, 1, "n1")


def test_slurms_devices_bound_the_workers() -> None:
    """Without a cgroup more are visible; with a broken device fewer are."""
    found = place(STEP)
    assert workers_of(None, "a100", 8, 64, found) == (4, "SLURM_GPUS_ON_NODE; 8 found")
    assert workers_of(None, "a100", 4, 64, found) == (4, "SLURM_GPUS_ON_NODE")
    assert workers_of(None, "a100", 3, 64, found)[0] == 3
    assert workers_of(None, "cpu", 0, 64, found) == (4, "SLURM_GPUS_ON_NODE; none found")
    assert workers_of("2", "a100", 8, 64, found) == (2, "--nproc 2")
    for name, value in (
        ("SLURM_STEP_GPUS", "0,1"),
        ("SLURM_GPUS_PER_NODE", "a100:2"),
        ("SLURM_TRES_PER_TASK", "cpu=8,gres/npu:2"),
    ):
        other = {key: one for key, one in STEP.items() if key != "SLURM_GPUS_ON_NODE"}
        assert (place({**other, name: value}).nproc, name) == (2, name)


def test_workers_by_torchruns_variable() -> None:
    """--nproc precedes PET_NPROC_PER_NODE, which precedes the scheduler's devices."""
    pet = {"PET_NPROC_PER_NODE": "3"}
    asked, option = option_of(None, pet)
    assert workers_of(asked, "a100", 8, 64, place(STEP), option) == (3, "PET_NPROC_PER_NODE 3")
    assert option_of("2", pet) == ("2", "--nproc")
    assert option_of(None, {"PET_NPROC_PER_NODE": ""}) == (None, "--nproc")
    with pytest.raises(LaunchError, match="PET_NPROC_PER_NODE 'many'"):
        workers_of("many", "a100", 8, 64, Placement(), "PET_NPROC_PER_NODE")
    with pytest.raises(LaunchError, match="PET_NPROC_PER_NODE 3 asks for 3 of each launcher"):
        workers_of(asked, "a100", 8, 64, place(TASKS), option)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"nnodes": "4"}, "--nnodes 4, but Slurm has started 2 nodes (SLURM_NNODES)"),
        ({"nnodes": "1"}, "--nnodes 1, but Slurm has started 2 nodes (SLURM_NNODES)"),
        ({"nnodes": "3:4"}, "--nnodes 3:4, but Slurm has started 2 nodes"),
        ({"node_rank": "0"}, "--node-rank 0, but to Slurm this is node 1 (SLURM_NODEID)"),
    ],
)
def test_options_that_contradict_the_scheduler(given: dict[str, str], problem: str) -> None:
    """The error has both names and values; torchrun's variables count as well."""
    assert problem in refused(STEP, **given)
    [(name, value)] = given.items()
    by_variable = problem.replace(f"--{name.replace('_', '-')}", f"PET_{name.upper()}")
    assert by_variable in refused({**STEP, f"PET_{name.upper()}": value})


def test_options_beside_the_scheduler() -> None:
    """Torchrun's scripts keep working; a range contains the scheduler's count."""
    found = place(
        STEP, nnodes="2", rdzv_backend="c10d", rdzv_endpoint="n1-ib0:29400", rdzv_id="mine"
    )
    assert where(found) == (2, 1, "n1-ib0")
    assert (found.port, found.job) == (29400, "mine")
    ranged = place(STEP, nnodes="1:4")
    assert (ranged.least, ranged.nodes) == (1, 2)
    assert dict(ranged.sources)["nodes"] == "1 to 2, this is node 1 (--nnodes, SLURM_NODEID)"
    assert "16 launchers, several on a host (SLURM_NTASKS)" in refused(TASKS, nnodes="2")


def test_the_options_alone() -> None:
    """Torchrun's static rendezvous."""
    found = place({}, nnodes="2", node_rank="1", master_addr="10.0.0.1", master_port="29600")
    assert where(found) == (2, 1, "10.0.0.1")
    assert (found.port, found.least, found.job) == (29600, 2, "")
    assert dict(found.sources) == {
        "nodes": "2, this is node 1 (--nnodes, --node-rank)",
        "node 0": "10.0.0.1:29600 (--master-addr, --master-port)",
    }
    assert place({}, nnodes="1", node_rank="0", master_addr="n9").is_alone
    assert place({}, nnodes="2", node_rank="0").is_head, "node 0 needs no address"
    assert "--master-addr" in refused({}, nnodes="2")
    assert place({}, is_launch=False, nnodes="2").rank is None
    assert "this is node 2 (--node-rank), but there are 2" in refused(
        {}, nnodes="2", node_rank="2", master_addr="n1"
    )


def test_the_endpoints_host_is_node_0() -> None:
    """c10d without ranks: the host with the endpoint's address numbers the others."""
    assert place({}, nnodes="2", rdzv_endpoint="n2").rank == 0
    other = place({}, nnodes="2:4", rdzv_backend="c10d", rdzv_endpoint="n1:29400")
    assert (other.rank, other.least, other.nodes) == (None, 2, 4)
    assert dict(other.sources)["nodes"] == "2 to 4, numbered as they join (--nnodes)"
    told = place({}, nnodes="2", rdzv_endpoint="n1", rdzv_conf="is_host=true")
    assert told.rank == 0
    assert place({}, nnodes="2", rdzv_endpoint="n2", rdzv_conf="is_host=0").rank is None
    assert place({}, nnodes="2", rdzv_endpoint="n1", local_addr="n1").rank == 0


def test_several_launchers_on_one_host() -> None:
    """Without a rank or `is_host`, the first launcher is node 0."""
    by_address = place({}, nnodes="2", rdzv_endpoint="n2:29400")
    assert (by_address.rank, by_address.may_join) == (0, True)
    for stated in ({"node_rank": "0"}, {"rdzv_conf": "is_host=1"}):
        assert not place({}, nnodes="2", rdzv_endpoint="n2:29400", **stated).may_join


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rdzv_backend": "c10d"}, ("localhost", 29400, 0, True)),
        ({"rdzv_backend": "c10d", "master_port": "7"}, ("localhost", 7, 0, True)),
        ({"rdzv_backend": "c10d", "rdzv_conf": "is_host=0"}, ("localhost", 29400, None, False)),
        ({"node_rank": "1"}, ("127.0.0.1", 29500, 1, False)),
        ({"node_rank": "1", "master_port": "7"}, ("127.0.0.1", 7, 1, False)),
        ({"rdzv_backend": "c10d", "master_addr": "n1"}, ("n1", 29500, None, False)),
    ],
)
def test_torchruns_default_address(
    given: dict[str, str], expected: tuple[str, int, int | None, bool]
) -> None:
    """This host at the backend's port, also by torchrun's variables."""
    pet = {f"PET_{name.upper()}": value for name, value in given.items()}
    for found in (place({}, nnodes="2", **given), place({**pet, "PET_NNODES": "2"})):
        assert (found.address, found.port, found.rank, found.may_join) == expected


def test_a_scheduler_holds_before_torchruns_default_address() -> None:
    """The default is for launchers started by hand."""
    assert place(STEP, rdzv_backend="c10d").address == "n1"


def test_unknown_settings_of_the_rendezvous_are_noted() -> None:
    """Torchrun ignores them, too; the note suggests the right name."""
    found = place({}, nnodes="2", master_addr="n1", rdzv_conf="join_timout=3,tier=gold")
    note = "--rdzv-conf: join_timout, tier has no effect: torch has no such setting"
    assert dict(found.sources)["note"] == f"{note}; did you mean `join_timeout`?"
    assert dict(place({}, rdzv_conf="tier=gold").sources)["note"]
    known = "use_libuv=0,protocol=https,rank=0,read_timeout=60,ssl_cert=a,is_host=1,store_type=tcp"
    assert "note" not in dict(place({}, rdzv_conf=known).sources)


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [
        ("n1", "n1", PORT),
        ("n1:29400", "n1", 29400),
        ("n1.cluster:1", "n1.cluster", 1),
        ("[fd00::1]:29400", "fd00::1", 29400),
        ("[fd00::1]", "fd00::1", PORT),
        ("fd00::1", "fd00::1", PORT),
        ("[fe80::1%eth0]:7", "fe80::1%eth0", 7),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
        ("localhost:0", "localhost", PORT),
    ],
)
def test_endpoints(text: str, address: str, port: int) -> None:
    """A host name, an IPv4 or an IPv6 address, each with and without a port."""
    found = place({}, nnodes="2", node_rank="1", rdzv_endpoint=text)
    assert (found.address, found.port) == (address, port)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nnodes": "two"}, "--nnodes 'two' is neither a number nor MIN:MAX"),
        ({"nnodes": "0"}, "at least one node"),
        ({"nnodes": "4:2"}, "MIN is greater than MAX"),
        ({"nnodes": "2:"}, "neither"),
        ({"nnodes": "-1"}, "neither"),
        ({"node_rank": "-1"}, "--node-rank '-1' isn't a whole number"),
        ({"master_port": "0"}, "between 1 and 65535"),
        ({"master_port": "x"}, "--master-port 'x' isn't a whole number"),
        ({"rdzv_endpoint": "n1:99999"}, "--rdzv-endpoint 99999: a port is between"),
        ({"rdzv_endpoint": "n1:"}, "a whole number"),
        ({"rdzv_endpoint": "http://n1"}, "not of the form"),
        ({"rdzv_endpoint": "n1:2:3"}, "not of the form"),
        ({"rdzv_endpoint": "[n1]:29400"}, "not of the form"),
        ({"rdzv_backend": "etcd-v2"}, "etcd isn't needed"),
        ({"rdzv_backend": "c10"}, "did you mean `c10d`"),
        ({"rdzv_conf": "join_timeout"}, "join_timeout needs a value"),
        ({"rdzv_conf": "join_timeout=soon"}, "a number of seconds above 0"),
        ({"rdzv_conf": "is_host=perhaps"}, "neither true nor false"),
        ({"rdzv_conf": "store_type=file"}, "over the network"),
    ],
)
def test_values_without_a_meaning(given: dict[str, str], words: str) -> None:
    """One line names the option, or the variable that set it."""
    full = {"nnodes": "2", "master_addr": "n1", **given}
    assert words in refused({}, **full)
    [(name, value)] = given.items()
    variable = f"PET_{name.upper()}"
    assert variable in refused({"PET_NNODES": "2", "PET_MASTER_ADDR": "n1", variable: value})


def test_times() -> None:
    """The settings that apply; --node-timeout precedes them."""
    assert place({}, rdzv_conf="close_timeout=9,read_timeout=9").times == JoinTimes()
    found = place({}, rdzv_conf="join_timeout=60, last_call_timeout=5,keep_alive_interval=2")
    assert found.times == JoinTimes(join=60.0, last_call=5.0, silence=6.0)
    assert place({}, rdzv_conf="timeout=40").times.join == 40.0
    assert place({}, silence=7.0, rdzv_conf="keep_alive_interval=2").times.silence == 7.0
    both = place({"PET_RDZV_CONF": "join_timeout=60,last_call_timeout=5"}, rdzv_conf="timeout=9")
    assert both.times.join == 60.0


def test_an_option_holds_before_its_variable() -> None:
    """As in torchrun; the plan lists unused variables."""
    pet = {"PET_NNODES": "4", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "n1"}
    found = place(pet, nnodes="2")
    assert where(found) == (2, 1, "n1")
    assert dict(found.sources)["nodes"] == (
        "2, this is node 1 (--nnodes; PET_NNODES isn't used, PET_NODE_RANK)"
    )
    assert place({**pet, "PET_STANDALONE": "1"}).is_alone
    assert not place({**pet, "PET_STANDALONE": "0"}).is_alone
    assert not place({**pet, "PET_STANDALONE": ""}).is_alone
    both = place({}, nnodes="2", node_rank="1", rdzv_endpoint="a:1", master_addr="b")
    assert "--rdzv-endpoint; not --master-addr b" in dict(both.sources)["node 0"]


def test_a_training_by_itself_whatever_the_scheduler_says() -> None:
    """--standalone: each launcher trains alone on its devices."""
    assert place(STEP, standalone="1", nnodes="4") == Placement(
        nproc=4, nproc_source="SLURM_GPUS_ON_NODE"
    )
    task = place(TASKS, standalone="1")
    assert (task.nodes, task.nproc, task.beside) == (1, 1, 8)


def test_under_mpirun() -> None:
    """MPI doesn't publish rank 0's host; on a single host it isn't needed."""
    found = place({**MPI, "MASTER_ADDR": "n1"})
    assert where(found) == (2, 1, "n1")
    assert (found.port, found.job, found.nproc) == (PORT, "prterun-n1-3402@1", None)
    assert "--master-addr" in refused(MPI)
    assert where(place(MPI, master_addr="n7")) == (2, 1, "n7")
    local = {**MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    one = place(local)
    assert where(one) == (2, 1, "127.0.0.1")
    assert (one.local, one.beside, one.nproc) == (1, 2, 1)
    assert "--nnodes 3, but Open MPI has started 2" in refused(local, nnodes="3")


def test_under_hydra_and_under_mpirun_in_a_slurm_job() -> None:
    """Mpirun's daemons are Slurm tasks; Slurm's PMI alone isn't mpirun."""
    hydra = {"PMI_SIZE": "2", "PMI_RANK": "1", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
    assert where(place({**hydra, "MASTER_ADDR": "n1"})) == (2, 1, "n1")
    assert place({**STEP, **MPI, "OMPI_COMM_WORLD_SIZE": "3", "MASTER_ADDR": "n1"}).nodes == 3
    assert place({**STEP, "PMI_SIZE": "2", "PMI_RANK": "1"}).job == "4711.0"


def test_an_indexed_job() -> None:
    """The manifest has the count; the rest follows from the pod's index and name."""
    found = place({**POD, "PET_NNODES": "2"}, IN_POD)
    assert where(found) == (2, 1, "tune-0.tune-svc")
    assert found.job == "tune"
    assert where(place(POD, IN_POD, nnodes="2")) == (2, 1, "tune-0.tune-svc")
    lonely = replace(IN_POD, full_name=lambda: "tune-1")
    assert "subdomain" in refused(POD, lonely, nnodes="2")
    head = {**POD, "JOB_COMPLETION_INDEX": "0"}
    assert place(head, replace(IN_POD, name="tune-0"), nnodes="2").is_head


def test_a_job_set() -> None:
    """Pods are named <set>-<job>-<number>-<index> in the set's subdomain."""
    pod = replace(HERE, name="s-w-0-1", full_name=lambda: "s-w-0-1.s.ml.svc.cluster.local")
    assert where(place(POD, pod, nnodes="2")) == (2, 1, "s-w-0-0.s")


def test_kubeflow() -> None:
    """TrainJob sets torchrun's variables, PyTorchJob torch's, which count pods."""
    found = place(TRAIN_JOB, IN_POD)
    assert where(found) == (2, 1, "tune-node-0-0.tune")
    assert dict(found.sources)["node 0"].endswith(":29500 (PET_MASTER_ADDR, PET_MASTER_PORT)")
    old = place(PYTORCH_JOB)
    assert where(old) == (3, 2, "tune-master-0")
    assert old.port == 23456
    elastic = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "PET_NNODES": "1:3"}
    elastic |= {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "tune-worker-0:23456"}
    worker = place(elastic, replace(HERE, owns=lambda host: host == "tune-worker-0"))
    assert (worker.rank, worker.least, worker.nodes) == (0, 1, 3)
    newer = {**PYTORCH_JOB, "WORLD_SIZE": "16", "PET_NNODES": "2", "PET_NODE_RANK": "1"}
    newer["PET_MASTER_ADDR"] = "tune-master-0"
    assert where(place(newer)) == (2, 1, "tune-master-0")
    assert place({**PYTORCH_JOB, "LOCAL_RANK": "0"}).is_alone


def test_volcano() -> None:
    """The svc plugin lists the hosts of every task."""
    assert where(place(VOLCANO)) == (2, 1, "j-worker-0.j")
    split = {**VOLCANO, "VC_MASTER_HOSTS": "j-master-0.j"}
    worker = replace(HERE, name="j-worker-1")
    assert where(place(split, worker)) == (3, 2, "j-master-0.j")
    assert place(split, replace(HERE, name="other")).is_alone
    assert place({**split, "VC_PS_HOSTS": "j-ps-0.j"}, worker).is_alone


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({**STEP, "SLURM_NNODES": "two"}, "SLURM_NNODES"),
        ({**MPI, "OMPI_COMM_WORLD_RANK": "-1"}, "OMPI_COMM_WORLD_RANK"),
        ({**POD, "JOB_COMPLETION_INDEX": "x"}, "JOB_COMPLETION_INDEX"),
        ({**PYTORCH_JOB, "WORLD_SIZE": "0"}, "WORLD_SIZE"),
        ({**PYTORCH_JOB, "MASTER_PORT": "70000"}, "MASTER_PORT"),
    ],
)
def test_variables_without_a_meaning(environment: dict[str, str], name: str) -> None:
    """The message names the variable."""
    assert name in refused(environment)


def test_this_hosts_own_addresses() -> None:
    """Loopback and this host's name are local; other addresses aren't."""
    assert len(SCHEDULERS) == 5
    assert owns("127.0.0.1")
    assert owns("::1") or not socket.has_ipv6
    assert owns("localhost")
    assert owns(socket.gethostname())
    assert not owns("192.0.2.1")
    assert not owns("no-such-host.invalid")
