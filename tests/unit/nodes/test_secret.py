"""Sources of a job's secret, and rejected secrets."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.core.errors import ExitCode, LaunchError, Refused
from safe_launch.core.placement import Placement
from safe_launch.nodes import secret
from safe_launch.nodes.secret import VARIABLE, Kind, Trust
from safe_launch.schedulers.slurm import munge_socket

TWO = Placement(2, 2, 1, "n1")
ALONE = Placement()
TASK = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_NNODES": "2",
    "SLURM_CONF": "/nowhere",
}


def found(
    file: Path | None = None,
    placement: Placement = TWO,
    environment: dict[str, str] | None = None,
    *,
    is_required: bool = False,
) -> Trust:
    """The secret that the job's launchers share."""
    given = {} if environment is None else environment
    return secret.of_job(file, placement, given, is_required=is_required)


def test_a_variable_is_taken_out() -> None:
    """Workers don't inherit it, on a single node either."""
    for placement in (TWO, ALONE):
        environment = {VARIABLE: " a secret of the job\n", "PATH": "x"}
        assert found(placement=placement, environment=environment) == Trust(
            Kind.SECRET, b"a secret of the job"
        )
        assert environment == {"PATH": "x"}


def test_a_file_precedes_a_variable(tmp_path: Path) -> None:
    """Surrounding white space is removed: editors add a newline."""
    (file := tmp_path / "secret").write_text("from the file\n")
    file.chmod(0o600)
    environment = {VARIABLE: "from the variable"}
    assert found(file, environment=environment) == Trust(Kind.SECRET, b"from the file")
    assert environment == {}


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o602, 0o666])
def test_a_file_that_others_can_read(mode: int, tmp_path: Path) -> None:
    """It is rejected, like ssh keys."""
    (file := tmp_path / "secret").write_text("open to all")
    file.chmod(mode)
    with pytest.raises(LaunchError, match="others can read it") as caught:
        found(file)
    assert caught.value.code == ExitCode.USAGE
    assert caught.value.hint == f"chmod 600 {file}"


def test_what_is_no_secret(tmp_path: Path) -> None:
    """Reading neither blocks nor goes on forever."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, content in (("empty", ""), ("blank", " \n"), ("long", "x" * 5000)):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o600)
    for name, problem in (
        ("pipe", "isn't a file"),
        (".", "Is a directory"),
        ("nothing", "No such file"),
        ("empty", "the secret is empty"),
        ("blank", "the secret is empty"),
        ("long", "the secret is longer than 4,096 bytes"),
    ):
        with pytest.raises(LaunchError, match=problem) as caught:
            found(tmp_path / name)
        assert caught.value.code == ExitCode.USAGE
    with pytest.raises(LaunchError, match="SAFE_LAUNCH_SECRET: the secret is empty"):
        found(environment={VARIABLE: ""})


@pytest.mark.parametrize(
    ("placement", "spans"),
    [
        (TWO, True),
        (ALONE, False),
        (replace(TWO, address="127.0.0.1"), False),
        (replace(TWO, address="localhost"), False),
        (replace(TWO, beside=2), False),
        (replace(TWO, nodes=4, beside=2), True),
    ],
)
def test_more_than_one_host(placement: Placement, *, spans: bool) -> None:
    """Without a secret --require-secret refuses, and the default warns."""
    assert (secret.remark(found(placement=placement), placement) != "") == spans
    assert secret.remark(Trust(Kind.SECRET, b"x" * 16), placement) == ""
    if spans:
        with pytest.raises(LaunchError, match="--require-secret") as caught:
            found(placement=placement, is_required=True)
        assert caught.value.code == ExitCode.USAGE
    else:
        assert found(placement=placement, is_required=True) == Trust()


def test_a_secret_that_can_be_guessed() -> None:
    """It is used with a warning that doesn't quote it."""
    assert "has only 5 characters" in secret.remark(Trust(Kind.SECRET, b"hello"), TWO)
    assert "hello" not in secret.remark(Trust(Kind.SECRET, b"hello"), TWO)


def test_slurm_without_munge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks are unprotected; with munge, only srun's tasks are protected."""
    assert found(environment=TASK) == Trust()
    monkeypatch.setattr("safe_launch.nodes.secret.munge_encoded", lambda *_: b"MUNGE:x:")
    assert found(environment=TASK) == Trust(Kind.MUNGE)
    assert found(environment={**TASK, VARIABLE: "x"}) == Trust(Kind.SECRET, b"x")
    assert found(environment={"SLURM_JOB_ID": "7", "SLURM_NNODES": "2"}) == Trust()
    assert found(placement=ALONE, environment=TASK) == Trust()
    names = ("COMM_WORLD_SIZE", "COMM_WORLD_RANK", "COMM_WORLD_LOCAL_RANK", "COMM_WORLD_LOCAL_SIZE")
    by_mpirun = {f"OMPI_{name}": "1" for name in names}
    assert found(environment={**TASK, **by_mpirun}) == Trust()


def test_munge_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing daemon or library is no error."""
    for library in (secret._LIBRARY, "libnothing.so.0"):
        monkeypatch.setattr("safe_launch.nodes.secret._LIBRARY", library)
        for result in (
            secret.munge_encoded(b"x", os.getuid(), "/nowhere"),
            secret.munge_decoded(b"MUNGE:x:", os.getuid(), "/nowhere"),
        ):
            assert isinstance(result, Refused)
            assert result.sentence.startswith("munge")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("AuthInfo=socket=/a/b,cred_expire=5\n", "/a/b"),
        ("ClusterName=x\n authinfo = cred_expire=5,socket=/a/b # c\n", "/a/b"),
        ("#AuthInfo=socket=/a/b\n", ""),
        ("AuthInfo=cred_expire=5\n", ""),
    ],
)
def test_where_munge_listens(text: str, expected: str, tmp_path: Path) -> None:
    """AuthInfo in slurm.conf, or munge's default."""
    (tmp_path / "slurm.conf").write_text(text)
    assert munge_socket({"SLURM_CONF": str(tmp_path / "slurm.conf")}) == expected
    assert munge_socket({"SLURM_CONF": str(tmp_path / "nothing")}) == ""
