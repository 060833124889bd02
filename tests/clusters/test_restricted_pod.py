"""A restricted pod: a non-root user without name or home, and a read-only file system."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stacks import CURRENT, ROOT

LACKING = os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("setpriv"))
USER = 12_345
"""An unused user id."""
SHELL = f"""
set -e
mount -t tmpfs -o size=64m,uid={USER} tmpfs "$1"
mount -o remount,ro,bind /
shift
exec setpriv --reuid={USER} --regid={USER} --clear-groups \\
  --inh-caps=+dac_read_search --ambient-caps=+dac_read_search \\
  --bounding-set=-all,+dac_read_search "$@"
"""
"""Root may still read, since the tests' environment may be root's; it can't write."""


@pytest.fixture
def volume() -> Iterator[Path]:
    """A mountable folder; pytest's own are reachable by root alone."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(LACKING, reason="namespaces need root, util-linux")
def test_a_pod_that_may_write_to_a_volume_alone(volume: Path) -> None:
    """With --log-dir on it, temporary files and torch's extensions go there, with a note."""
    runs = volume
    kept = {**os.environ, **CURRENT.environment()}
    for name in ("HOME", "TMPDIR", "TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"):
        kept.pop(name, None)
    launch = (CURRENT.bin / "safe-launch", "--nproc=1", f"--log-dir={runs}")
    program = ROOT / "tests" / "programs" / "writes.py"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", SHELL, "sh", *map(str, (runs, *launch, program))],
        cwd="/",
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    extensions = runs / ".torch_extensions"
    assert f"uid {USER} builds in {extensions}" in done.stdout
    assert f"temporary files go to {runs}" in done.stderr
    assert f"torch's extensions are built in {extensions}" in done.stderr
