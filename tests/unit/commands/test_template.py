"""The command `template` and its filled-in files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from safe_launch.commands.cluster_files import filled, shipped
from safe_launch.commands.template import TEMPLATES
from safe_launch.core.errors import ExitCode
from support.stacks import CURRENT, ROOT

SHIPPED = ROOT / "scripts" / "slurm" / "safe-launch.sbatch"
WORDS = ("my train.py", "--kw", '{"use_reentrant": true}', "$HOME", "a'b", "two\nlines", "*", "")


def template(*words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Runs the command."""
    return CURRENT.run("safe-launch", "template", *words, cwd=cwd)


def test_the_shipped_batch_script_is_what_the_command_fills_in() -> None:
    """Filled in with its own example job, the shipped file is unchanged."""
    own = ("--nodes=2", "--gpus-per-node=8", "--name=finetune")
    done = template("slurm", *own, "finetune.py", "--deepspeed", "zero2.json")
    assert done.stdout == SHIPPED.read_text()
    assert subprocess.run(["bash", "-n", SHIPPED], check=False).returncode == 0


def test_a_batch_script_for_the_job_at_hand(tmp_path: Path) -> None:
    """Slurm options get separate lines; words are quoted for the shell."""
    options = ("--nodes=4", "--gpus-per-node=4", "--gres=gpu:a100", "--time=1:30", "--requeues=2")
    done = template("slurm", *options, "-o", tmp_path / "job", "--", "--fix=once", *WORDS)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "job").read_text()
    lines = [line.removeprefix("#SBATCH ") for line in text.splitlines() if "#SBATCH " in line]
    assert {"--nodes=4", "--gres=gpu:a100:4", "--time=1:30", "--job-name=my-train"} <= set(lines)
    assert "\nrequeues=2\n" in text
    assignment = text[text.index("training=(") : text.index("# How often")]
    shell = ["bash", "-c", f"{assignment}\nprintf '%s\\0' \"${{training[@]}}\""]
    words = subprocess.run(shell, capture_output=True, text=True, check=True).stdout
    assert tuple(words.split("\0")[:-1]) == ("safe-launch", "--fix=once", *WORDS)


def test_a_batch_script_for_an_array_on_cpus(tmp_path: Path) -> None:
    """Each task gets an output file; no device is requested."""
    file = tmp_path / "job.sbatch"
    given = ("--gpus-per-node=0", "--array=0-7%2", "-o", str(file))
    assert template("slurm", *given, "train.py").returncode == 0
    options = [line.split()[1] for line in file.read_text().splitlines() if line[:4] == "#SBA"]
    assert {"--array=0-7%2", "--output=%x-%A_%a.out"} <= set(options)
    assert not [option for option in options if "gres" in option or option == "--output=%x-%j.out"]


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    """Existing files are kept unless forced; write errors are reported."""
    target = tmp_path / "job"
    target.write_text("mine")
    done = template("slurm", "-o", target, "train.py")
    assert done.returncode == ExitCode.CANNOT_WRITE
    assert f"{target} already exists" in done.stderr
    assert target.read_text() == "mine"
    assert template("slurm", "-o", target, "--force", "train.py").returncode == 0
    assert "safe-launch train.py" in target.read_text()
    done = template("slurm", "-o", tmp_path / "no" / "folder", "train.py")
    assert done.returncode == ExitCode.CANNOT_WRITE
    assert "No such file or directory" in done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "template of what?"),
        (("slrum", "train.py"), "there is no template `slrum`"),
        (("slurm",), "no script is given"),
        (("slurm", "--nodes=0", "train.py"), "at least 1, is needed"),
        (("slurm", "--requeues=-1", "train.py"), "at least 0, is needed"),
        (("slurm", "--nods=2", "train.py"), "unrecognized arguments"),
        (("slurm", "--time=1\n2", "train.py"), "one word"),
    ],
)
def test_what_cant_be_filled_in(words: tuple[str, ...], problem: str) -> None:
    """A mistake is reported and no file is written."""
    done = template(*words)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_every_template_has_its_file() -> None:
    """Every placeholder occurs exactly once; the help names every kind."""
    assert set(TEMPLATES) == {"kubernetes", "slurm"}
    with pytest.raises(ValueError, match="not enough values"):
        filled(shipped("slurm/safe-launch.sbatch"), {"no such line": ""})
    for name in TEMPLATES:
        assert "--nodes N" in template(name, "--help").stdout
