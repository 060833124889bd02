"""Records what Slurm really gives a task, for `tests/fixtures/slurm/*.env`.

    PYTHONPATH=tests python -m support.record_slurm

It takes root, and Debian's slurmctld, slurmd, slurm-client and munge.

Each file holds the variables of one task; a comment says which command gave them.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from support.slurm_cluster import Cluster, cluster

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "slurm"
NAMES = r"SLURM|SBATCH|CUDA|GPU|ROCR|HIP|ZE_|HOSTNAME"
PROBE = f"env | grep -E '^({NAMES})' | sort > $OUT/${{SLURM_PROCID:-0}}\n"
"""Shell that writes a task's variables into a file of its own."""
SRUN = {
    "one-task-a-node": ("-N2", "--ntasks-per-node=1"),
    "one-task-a-node-gpus-per-node": ("-N2", "--ntasks-per-node=1", "--gpus-per-node=2"),
    "one-task-a-node-typed-gres": ("-N2", "--ntasks-per-node=1", "--gres=gpu:a100:2"),
    "one-task-a-node-gpus": ("-N2", "--ntasks-per-node=1", "--gpus=4"),
    "one-task-a-gpu-visible-to-all": ("-N2", "--ntasks-per-node=2", "--gpus-per-node=2"),
    "one-task-a-gpu-bound": ("-N2", "--ntasks-per-node=2", "--gpus-per-task=1"),
    "two-gpus-a-task": ("-N1", "-n2", "--gpus-per-task=2"),
    "two-typed-gpus-a-task": ("-N1", "-n2", "--gpus-per-task=a100:2"),
    "one-node": ("-N1", "-n1", "--gpus-per-node=2"),
    "three-tasks-over-two-nodes": ("-N2", "-n3"),
}
"""Options of an `srun` without a job around it."""
STEP = {
    "batch-one-task-a-node": ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=2"),
    "batch-one-task-a-gpu": ("--nodes=2", "--ntasks-per-node=2", "--gpus-per-task=1"),
    "batch-typed-gres": ("--nodes=2", "--ntasks-per-node=1", "--gres=gpu:a100:2"),
    "batch-exclusive": ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=2", "--exclusive"),
}
"""Options of a batch job whose script calls `srun` without any."""
BODY = {
    "batch-without-srun": ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=2"),
    "batch-without-srun-one-node": ("--nodes=1", "--gres=gpu:a100:2"),
}
"""Options of a batch job whose script is the program itself."""
ALLOCATION = {
    "salloc": ("-N2", "--ntasks-per-node=1", "--gpus-per-node=2"),
}
"""Options of a `salloc` in whose shell, on the login host, the program is called."""


def main() -> None:
    """Brings a cluster up and records all of the cases."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "slurm").mkdir()
        with cluster(folder / "slurm") as slurm:
            probe = folder / "probe.sh"
            probe.write_text(PROBE)
            for case, options in SRUN.items():
                out = _folder(folder / case)
                slurm.run("srun", *options, "bash", probe, OUT=str(out))
                _keep(case, f"srun {' '.join(options)}", out)
            for case, options in STEP.items():
                out = _folder(folder / case)
                _batch(slurm, out, options, f"srun bash {probe}")
                _keep(case, f"sbatch {' '.join(options)}; srun in its script", out)
            for case, options in BODY.items():
                out = _folder(folder / case)
                _batch(slurm, out, options, f"bash {probe}")
                _keep(case, f"sbatch {' '.join(options)}; no srun in its script", out)
            for case, options in ALLOCATION.items():
                out = _folder(folder / case)
                slurm.run("salloc", *options, "bash", probe, OUT=str(out))
                _keep(case, f"salloc {' '.join(options)}; no srun in its shell", out)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _batch(slurm: Cluster, out: Path, options: tuple[str, ...], body: str) -> None:
    """Runs a batch job to its end."""
    script = out.with_suffix(".sbatch")
    script.write_text(f"#!/bin/bash\n{body}\n")
    log = out.with_suffix(".out")
    job = slurm.submit(*options, f"--output={log}", script, OUT=str(out))
    assert slurm.wait(job) == "COMPLETED", log.read_text()


def _keep(case: str, command: str, out: Path) -> None:
    """Writes the files of a case; this machine's own paths and names are left out."""
    files = sorted(out.iterdir())
    assert files, case
    for path in files:
        suffix = "" if len(files) == 1 else f"-{path.name}"
        lines = [line for line in path.read_text().splitlines() if re.match(r"[A-Z_0-9]+=", line)]
        lines = [line for line in lines if not line.startswith(("SLURM_CONF=", "SBATCH_"))]
        text = "\n".join([f"# {command}", *lines]) + "\n"
        text = text.replace(str(out.parent), "/home/user")
        (FOLDER / f"{case}{suffix}.env").write_text(text)


if __name__ == "__main__":
    main()
