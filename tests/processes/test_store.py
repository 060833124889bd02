"""The workers' store: any death of its host ends the run with the reason."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from support.hosts import needs_hosts, network
from support.jobs import ended, job
from support.stacks import CURRENT

KILLS_THE_HOST = """
import os, signal, sys
import psutil, torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if os.environ["TORCHELASTIC_RESTART_COUNT"] != sys.argv[1]:
    raise RuntimeError("once")
if os.environ["RANK"] == "0":
    for one in psutil.Process(os.getppid()).children(recursive=True):
        if one.name() == "warm-store":
            one.kill()
signal.pause()
"""
"""Both ranks then wait for a signal only."""


def launch(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Launches two workers in the folder."""
    return CURRENT.run(
        "safe-launch",
        *("--log-dir", folder / "runs", "--nproc", "2", *arguments),
        cwd=folder,
        **variables,
    )


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_torch_that_cant_be_imported_is_told_as_it_fails(tmp_path: Path, method: str) -> None:
    """It loads torch_npu without CANN, which is reported before workers start.

    If a worker can start, its own line is reported instead, not the consequences.
    """
    packages = tmp_path / "site-packages"
    (packages / "torch").mkdir(parents=True)
    (packages / "torch" / "part.py").touch()
    missing = "libhccl.so: cannot open shared object file: No such file or directory"
    (packages / "torch" / "__init__.py").write_text(
        "import sys\nfrom . import part\nassert not hasattr(part, 'twice')\npart.twice = True\n"
        "try:\n    import torch_npu\nexcept Exception as error:\n"
        "    raise RuntimeError('Failed to load the backend extension: torch_npu.') from error\n"
    )
    (packages / "torch_npu" / "lib").mkdir(parents=True)
    (packages / "torch_npu" / "lib" / "libtorch_npu.so").write_bytes(b"\0libhccl.so\0")
    (packages / "torch_npu" / "__init__.py").write_text(f"raise ImportError('{missing}')\n")
    (tmp_path / "train.py").write_text("import torch\n")
    done = launch(tmp_path, "--start-method", method, "train.py", PYTHONPATH=str(packages))
    note, _, _ = done.stderr.partition(missing)
    assert "libhccl.so, one of CANN's libraries, isn't found" in note
    assert "set_env.sh" in note
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in note
    assert missing in done.stderr
    assert "AssertionError" not in done.stderr
    assert "TCPStore has failed" not in done.stderr
    if method == "spawn":
        assert done.returncode == 64
    else:
        assert done.returncode == 1
        assert "train.py:1 in <module>: import torch" in done.stderr
        assert "(npu-libs-not-found)" in done.stderr


@pytest.mark.parametrize("attempt", ["0", "1"])
def test_a_host_that_is_killed_ends_the_run(tmp_path: Path, attempt: str) -> None:
    """During the first attempt and during a later one."""
    (tmp_path / "train.py").write_text(KILLS_THE_HOST)
    done = launch(tmp_path, "--max-restarts", attempt, "train.py", attempt)
    assert done.returncode == 70, done.stderr
    assert "its process was ended by SIGKILL" in done.stderr
    assert "safe-launch itself failed" not in done.stderr
    assert done.stderr.count("attempt 1: failed") == int(attempt)


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_host_that_cant_begin_ends_the_run(tmp_path: Path, method: str) -> None:
    """Its torch is broken; the workers, without torch, would run forever."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libtorch.so:\\n no such file')")
    (tmp_path / "train.py").write_text("import signal\nsignal.pause()\n")
    done = launch(tmp_path, "--start-method", method, "train.py", PYTHONPATH=str(tmp_path))
    assert done.returncode == 64, done.stderr
    assert "torch can't be imported: OSError: libtorch.so: no such file" in done.stderr
    assert "Traceback" not in done.stderr


@needs_hosts
def test_the_other_nodes_end_with_it(tmp_path: Path) -> None:
    """Node 0's launcher hosts the store of all."""
    script = tmp_path / "train.py"
    script.write_text(KILLS_THE_HOST)
    with (
        network("alpha", "beta") as hosts,
        job(tmp_path, hosts, script, "0") as (head, other),
    ):
        ended([head, other], 70)
        assert head.says("its process was ended by SIGKILL")
        assert other.says("node 0 ended the run: the workers' TCPStore has failed")
