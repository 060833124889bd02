"""Secrets reach workers, but no file, output or process list of the launcher."""

from __future__ import annotations

import json
import time
from pathlib import Path

from support.processes import launch, workshop

__all__ = ["workshop"]
PLANTED = {
    "--hub_token": "hf_PlantedHubToken123",
    "--wandb_api_key": "planted-api-key",
    "--db_password": 'pl"anted\\pass',
    "--secret": "plantedsecret",
    "--store": "https://me:plantedurl@host/x",
}
VARIABLE = "planted-of-the-environment"
IN_FILE = "planted-of-the-file"
SCRIPT = """
import argparse, json, os, pathlib, time
parser = argparse.ArgumentParser()
for name in {names}:
    parser.add_argument(name)
parser.add_argument("--tokenizer_name")
given = parser.parse_args()
print("got", json.dumps(list(vars(given).values())[:{count}]), os.environ["HF_TOKEN"], flush=True)
pathlib.Path("printed-" + os.environ["RANK"]).touch()
while len(list(pathlib.Path().glob("printed-*"))) < 2:  # a failure stops who hasn't printed
    time.sleep(0.01)
HEADERS = {{"Authorization": "Bearer planted-literal-1"}}
config = json.load(open(given.deepspeed))
raise RuntimeError(f"{{given}} {{os.environ['HF_TOKEN']}} {{HEADERS}} {{config}}")
"""


def test_secrets_are_nowhere(workshop: Path) -> None:
    """Not in the run directory, the launcher's output, or a pod's status."""
    (workshop / "train.py").write_text(
        SCRIPT.format(names=[*PLANTED, "--deepspeed"], count=len(PLANTED))
    )
    (workshop / "ds.json").write_text(json.dumps({"comet": {"api_key": IN_FILE}}))
    words = [word for pair in PLANTED.items() for word in pair]
    done = launch(
        workshop,
        *("--nproc=2", "--redirects=3", "-v", "train.py", *words),
        *("--tokenizer_name", "planted/tokenizer", "--deepspeed", "ds.json"),
        HF_TOKEN=VARIABLE,
        SAFE_LAUNCH_TERMINATION_LOG="told",
    )
    assert done.returncode == 1
    logs = set((workshop / "runs").rglob("rank-*.log"))
    assert all(
        json.dumps([*PLANTED.values()]) in path.read_text()
        for path in logs
        if "err" not in path.name
    )
    written = [path for path in (workshop / "runs").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    texts = [path.read_text() for path in (workshop / "told", *written) if path not in logs]
    for text in (*texts, done.stderr, done.stdout):
        assert "lanted" not in text.replace("planted/tokenizer", "")
    assert "planted/tokenizer" in done.stderr


def test_a_bug_report_has_no_secret(workshop: Path) -> None:
    """The report includes the command line."""
    (workshop / "sitecustomize.py").write_text(
        "import safe_launch.machine.detect as detect\n"
        "def detected():\n    raise RuntimeError('planted-of-the-environment')\n"
        "detect.detect = detected\n"
    )
    words = [word for pair in PLANTED.items() for word in pair]
    done = launch(workshop, "train.py", *words, PYTHONPATH=workshop, HF_TOKEN=VARIABLE)
    assert done.returncode == 70
    assert "safe-launch --log-dir=runs train.py --hub_token ***" in done.stderr
    assert "lanted" not in done.stderr


def test_planted_links_are_not_followed(workshop: Path) -> None:
    """In a shared folder for rank logs with predictable names."""
    (workshop / "train.py").write_text("print('said')\n")
    (workshop / "treasure").write_text("mine")
    shared = workshop / "shared"
    shared.mkdir()
    for seconds in range(600):
        stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(time.time() + seconds))
        (shared / f"{stamp}_rank0.log").symlink_to(workshop / "treasure")
    done = launch(workshop, "--nproc=1", "--enable_each_rank_log=shared", "train.py")
    assert done.returncode == 0
    assert (workshop / "treasure").read_text() == "mine"
    (log,) = [path for path in shared.iterdir() if not path.is_symlink()]
    assert log.read_text() == "said\n"
    assert log.stat().st_mode & 0o777 == 0o600
