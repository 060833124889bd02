"""Arguments after the script belong to the script, whatever they look like."""

from __future__ import annotations

import pytest
from safe_launch.core.errors import LaunchError
from safe_launch.options import parser
from support.script_arguments import BEHIND

FRONTS: dict[str, tuple[tuple[str, ...], str]] = {
    "nothing": ((), "train.py"),
    "options": (("--nproc", "2", "-t3", "--log_dir=logs", "-q"), "train.py"),
    "module": (("-qm",), "package.train"),
    "program": (("--no-python", "--launcher_args=-i key"), "bash"),
    "dashes": (("--fix", "once", "--"), "train.py"),
    "beginnings": (("--num_no", "-1", "--shutdown-t=3", "--no_py"), "train.py"),
}


@pytest.mark.parametrize("front", FRONTS)
def test_what_stands_behind_the_script(front: str) -> None:
    """They don't affect the launcher's options and are passed unchanged."""
    own, script = FRONTS[front]
    for words in map(str.split, BEHIND):
        given = parser.parsed([*own, script, *words])
        assert (given.script, given.arguments) == (script, words)
        alone = parser.parsed([*own, script])
        alone.arguments = words
        assert given == alone


def test_what_stands_before_it() -> None:
    """Values that look like scripts are values; a missing value is reported there."""
    given = parser.parsed(["--role", "a.py", "-t", "3", "-H", "hosts", "train.py"])
    assert (given.role, str(given.hostfile), given.script) == ("a.py", "hosts", "train.py")
    for words, problem in (
        (["--tee", "--nproc", "2", "train.py"], "--tee: a value is needed"),
        (["--tee"], "--tee: a value is needed"),
        (["--nprok", "2", "train.py", "--in"], "unrecognized arguments: --nprok"),
        (["-x", "train.py"], "unrecognized arguments: -x"),
    ):
        with pytest.raises(LaunchError, match=problem):
            parser.parsed(words)
