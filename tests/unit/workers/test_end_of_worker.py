"""A worker's behaviour after its script has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safe_launch.workers.start import ENTRY

SCRIPT = """\
import signal
from safe_launch.evidence.worker_channel import Sender

Sender.send = lambda *_: signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("end", ["", "raise ValueError('the bug')"], ids=["well", "failing"])
def test_ctrl_c_just_after_the_scripts_end(end: str, tmp_path: Path) -> None:
    """An interrupt's exit code, the script's traceback, and no launcher frames."""
    (tmp_path / "train.py").write_text(SCRIPT + end)
    done = subprocess.run(
        [sys.executable, ENTRY, "script", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "RANK": "0", "LOCAL_RANK": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130
    assert "KeyboardInterrupt" in done.stderr
    assert ("ValueError: the bug" in done.stderr) == bool(end)
    assert "another exception" not in done.stderr
    assert "worker.py" not in done.stderr
