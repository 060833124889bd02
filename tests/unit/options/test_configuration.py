"""Default options from files: their locations, contents and precedence."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from safe_launch.commands import plan
from safe_launch.commands.registry import run
from safe_launch.core.errors import ExitCode, LaunchError
from safe_launch.options import configuration
from safe_launch.options.parser import by_files, by_variables

PROJECT = '[tool.safe-launch]\nnproc = 2\nset = ["micro_batch=2", "accumulation=4"]\n'


def words(folder: Path, **variables: str) -> list[str]:
    """The options set by files."""
    return [word for default in by_files(folder, variables) for word in default.words]


def user(tmp_path: Path, text: str) -> str:
    """A user's file."""
    (file := tmp_path / "config.yaml").write_text(text)
    return str(file)


def test_the_users_file(tmp_path: Path) -> None:
    """In XDG_CONFIG_HOME, if not empty, or the home's default."""
    text = "log-dir: runs\nmax_restarts: 2\nstrict: true\nallow-restart: false\n"
    file = tmp_path / ".config/safe-launch/config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    expected = ["--log-dir=runs", "--max_restarts=2", "--strict"]
    assert words(tmp_path, HOME=str(tmp_path)) == expected
    assert words(tmp_path, XDG_CONFIG_HOME=str(file.parents[1])) == expected
    assert words(tmp_path, SAFE_LAUNCH_CONFIG=str(file)) == expected
    assert words(tmp_path, SAFE_LAUNCH_CONFIG="", HOME=str(tmp_path)) == []
    assert words(tmp_path) == []
    file.write_text("# nothing yet\n")
    assert words(tmp_path, HOME=str(tmp_path)) == []


def test_the_projects_table(tmp_path: Path) -> None:
    """The nearest pyproject.toml above the script, after the user's file."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (deep := tmp_path / "a/b").mkdir(parents=True)
    own = ["--nproc=2", "--set=micro_batch=2", "--set=accumulation=4"]
    assert words(deep) == own
    file = user(tmp_path, "nproc: 8\n")
    assert words(deep, SAFE_LAUNCH_CONFIG=file) == ["--nproc=8", *own]
    (tmp_path / "a/pyproject.toml").write_text("[tool.other]\n")
    assert words(deep) == []


def test_the_hosts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the weakest; YAML's bare `off` is a word."""
    (hosts := tmp_path / "hosts.yaml").write_text("ask: off\nnever-change: [offload, precision]\n")
    monkeypatch.setattr(configuration, "HOSTS", hosts)
    own = ["--ask=off", "--never-change=offload", "--never-change=precision"]
    assert words(tmp_path) == own
    file = user(tmp_path, "ask: on\n")
    assert words(tmp_path, SAFE_LAUNCH_CONFIG=file) == [*own, "--ask=on"]
    assert by_variables({"SAFE_LAUNCH_ASK": "off", "SAFE_LAUNCH_NEVER_CHANGE": ""}) == ["--ask=off"]
    monkeypatch.setattr(configuration, "HOSTS", tmp_path / ("x" * 300))  # unreachable
    with pytest.raises(LaunchError, match="can't be read: File name too long"):
        words(tmp_path)
    with pytest.raises(LaunchError, match=r"SAFE_LAUNCH_NEVER_CHANGE=offlaod: .* no setting"):
        by_variables({"SAFE_LAUNCH_NEVER_CHANGE": "offlaod"})


@pytest.mark.parametrize(
    "text",
    [
        "# [tool.safe-launch]\n",
        "[project]\ndescription = 'see [tool.safe-launch]'\n",
        "tool = 1 # [tool.safe-launch]\n",
        "[tool.other] # [tool.safe-launch]\n",
    ],
)
def test_a_table_that_is_only_mentioned(tmp_path: Path, text: str) -> None:
    """A comment or string with the table's name sets no option."""
    (tmp_path / "pyproject.toml").write_text(text)
    assert words(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_strangers_project_doesnt_count(tmp_path: Path) -> None:
    """A parent folder's owner must be the script's."""
    (project := tmp_path / "pyproject.toml").write_text(PROJECT)
    (deep := tmp_path / "a").mkdir()
    os.chown(project, 4711, -1)
    assert words(deep) == []
    os.chown(deep, 4711, -1)
    assert words(deep)


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("strickt: true", "strickt: there is no such option", "did you mean `strict`?"),
        ("tee: [1, 2]", "tee: a single value", ""),
        ("tee: {a: 1}", "tee: a number or a text", ""),
        ("tee:", "tee: a number or a text", ""),
        ("tee: true", "tee: a number or a text", ""),
        ("strict: 1", "strict: true or false", ""),
        ("fix: always", "fix: --fix: `always` is none of auto", "--help"),
        ("autotuning: run", "autotuning: --autotuning isn't done here", ""),
        ("never-change: [offlaod]", "no setting `offlaod`", "did you mean `offload`?"),
        ("module: true", "module: it belongs to a single launch", ""),
        ("- tee", "a mapping of options", "such as"),
        ("a: [", "config.yaml:1: not YAML", ""),
        ("a: 1\nb: \tx: 2", "config.yaml:2: not YAML", ""),
        ("\0", "can't be read", ""),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, problem: str, hint: str) -> None:
    """Errors have the file and the key."""
    file = user(tmp_path, text)
    with pytest.raises(LaunchError) as raised:
        by_files(tmp_path, {"SAFE_LAUNCH_CONFIG": file})
    assert str(file) in raised.value.problem
    assert problem in raised.value.problem
    assert hint in raised.value.hint
    with pytest.raises(LaunchError, match="there is no such file"):
        by_files(tmp_path, {"SAFE_LAUNCH_CONFIG": f"{file}.gone"})
    (tmp_path / "pyproject.toml").write_text("[tool.safe-launch]\nnproc =\n")
    with pytest.raises(LaunchError, match=r"pyproject\.toml can't be read"):
        by_files(tmp_path, {})


def test_a_script_that_cant_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalid names give the usual error; a deleted folder gives a message."""
    with pytest.raises(LaunchError, match="no script has such a long name"):
        run(["a" * 5000])
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(LaunchError, match="current folder can't be used: No such file"):
        run(["train.py"])


def test_the_command_line_and_variables_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files are the weakest, and the plan names the file."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "pyproject.toml").write_text('[tool.safe-launch]\nnproc = 5\nfix = "suggest"\n')
    seen = []
    monkeypatch.setattr(plan, "_plan", lambda options: seen.append(options) or 0)
    monkeypatch.setenv("SAFE_LAUNCH_CONFIG", user(tmp_path, "nproc: 7\nmax-restarts: 1\n"))
    monkeypatch.setenv("PET_MAX_RESTARTS", "3")
    run(["plan", "--fix", "once", str(tmp_path / "train.py"), "--nproc", "9"])
    (options,) = seen
    assert (options.nproc, options.fix, options.max_restarts) == ("5", "once", 3)
    told = capsys.readouterr().err
    assert f"defaults --nproc=7 --max-restarts=1 ({tmp_path / 'config.yaml'})" in told
    assert f"defaults --nproc=5 --fix=suggest ({tmp_path / 'pyproject.toml'})" in told


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}
ASKED = (
    "--model_name_or_path model --bf16 --use_peft False --load_in_4bit False --output_dir out "
    "--gradient_checkpointing True --per_device_train_batch_size 64 --max_seq_length 2048"
)


def test_what_is_never_changed_is_told_with_who_forbids_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first source that names the setting: a file, variable or flag."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "train.py").write_text(
        "from transformers import Trainer, TrainingArguments\n"
        "from trl import ModelConfig\nimport deepspeed\n"
    )
    (tmp_path / "zero.json").write_text(
        '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAFE_LAUNCH_LESSONS", "off")
    file = user(tmp_path, "never_change: [zero_stage, micro_batch]\n")
    monkeypatch.setenv("SAFE_LAUNCH_CONFIG", file)
    monkeypatch.setenv("SAFE_LAUNCH_NEVER_CHANGE", "micro_batch")
    words = [
        "plan",
        "--json",
        "--hardware=a100-40gb",
        "--nproc=8",
        "--never-change=offload,zero_stage",
    ]
    command = [*words, "train.py", "--deepspeed", "zero.json", *ASKED.split()]
    assert run(command) == ExitCode.NO_PLAN
    document = json.loads(capsys.readouterr().out)
    assert document["never_changed"] == {
        "zero_stage": f"never-change in {file}",
        "micro_batch": f"never-change in {file}",
        "offload": "--never-change",
    }
    assert document["barred"]["micro_batch"] < 64
    assert {
        (each["preset"]["zero_stage"], each["preset"]["micro_batch"])
        for each in document["candidates"]
    } == {(2, 64)}
    assert run([word for word in command if word != "--json"]) == ExitCode.NO_PLAN
    told = " ".join(capsys.readouterr().out.split())
    assert f"micro_batch is never changed (never-change in {file})" in told
