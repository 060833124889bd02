"""`safe-launch diagnose`: paths in, a verdict for people or programs out."""

from __future__ import annotations

import gzip
import html
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from safe_launch.commands.registry import run
from safe_launch.core.errors import LaunchError
from safe_launch.logs import files, sources
from support.stacks import TESTS

LOGS = TESTS / "logs"
KNOWN = LOGS / "real-deepspeed-batch-sizes-disagree-deepspeed-deepspeed-0.19.8.log"
UNKNOWN = LOGS / "real-own-key-error-torchrun-4.log"
HEALTHY = LOGS / "real-well-torchrun.log"


def diagnosed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit code and output."""
    code = run(["diagnose", *map(str, arguments)])
    return int(code), capsys.readouterr().out


def test_what_a_person_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The cause, the remedy, the user's line, its place, the reason, and further reading."""
    code, text = diagnosed(capsys, KNOWN)
    assert code == 1
    first, second, *_ = text.splitlines()
    assert first.startswith("rank 0, /home/")
    assert ": DeepSpeed's three batch sizes don't fit the number of" in first
    assert first.endswith(
        "is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 16 != 2 * 1 * 2)"
    )
    assert second.startswith("  do       ")
    labels = [line.split()[0] for line in text.splitlines() if line[2:3].strip()][1:]
    assert list(dict.fromkeys(labels)) == ["do", "else", "where", "seen", "before", "why", "more"]
    assert "explain deepspeed-batch-sizes-disagree (reproduced)" in text
    number = json.loads(diagnosed(capsys, KNOWN, "--json")[1])["root"]["evidence"][-1]["line"]
    assert "Check batch related parameters" in KNOWN.read_text().splitlines()[number - 1]


def test_a_long_log_is_answered_from_its_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first answer goes to stderr at once; JSON has the final one only."""
    whole = diagnosed(capsys, KNOWN)
    monkeypatch.setattr(sources, "LONG", 1000)
    monkeypatch.setattr(sources, "END", KNOWN.stat().st_size - 1)
    assert run(["diagnose", str(KNOWN)]) == whole[0]
    printed = capsys.readouterr()
    assert printed.out == whole[1]
    (line,) = printed.err.splitlines()
    assert line.startswith(f"[safe-launch] by the end of {KNOWN}, while all of it is being read: ")
    assert line.endswith(whole[1].splitlines()[0])
    run(["diagnose", "--json", str(KNOWN)])
    assert capsys.readouterr().err == ""


def test_what_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    """The first failing rank's exception, then advice from the log's own words."""
    code, text = diagnosed(capsys, UNKNOWN)
    assert code == 2
    first, second, *_ = text.splitlines()
    assert first.startswith("rank 1, /home/")
    assert first.endswith(": KeyError: 'label'")
    assert second.startswith("  do       ")
    assert "There is no key 'label'" in second
    assert "no known failure matches; the advice is inferred from the log" in " ".join(text.split())
    root = json.loads(diagnosed(capsys, UNKNOWN, "--json")[1])["root"]
    assert (root["id"], root["rule"]) == (None, "own-line")
    assert (root["confidence"], root["run"]) == ("inferred from the log", None)
    assert "There is no key 'label'" in root["do"]


def test_an_abort_whose_reason_is_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The first line quotes the reason instead of the abort."""
    log = tmp_path / "a.log"
    log.write_text(
        ":0:rocdevice.cpp :3586: 1183357978 us: Callback: Queue 0x7f35 aborting with error :"
        " HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception.\n"
        "Fatal Python error: Aborted\n"
    )
    code, text = diagnosed(capsys, log)
    assert code == 2
    first, second, *_ = text.splitlines()
    assert "HSA_STATUS_ERROR_EXCEPTION" in first
    assert "An HSAIL operation resulted in a hardware exception" in second


def test_ranks_in_one_operation_with_other_shapes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """They run other modules, which the entry for other operations doesn't explain."""
    prints = "Rank {} is running collective: CollectiveFingerPrint(SequenceNumber=7, "
    prints += "OpType=_ALLGATHER_BASE, TensorShape=[{}], TensorDtypes=BFloat16)"
    log = tmp_path / "a.log"
    log.write_text(
        "[rank0]: RuntimeError: Detected mismatch between collectives on ranks."
        f" {prints.format(0, 256)}, but {prints.format(1, 4096)}.\n"
    )
    second = diagnosed(capsys, log)[1].splitlines()[1]
    assert "the same modules in the same order" in second


def test_a_rule_that_knows_more_than_a_general_entry(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A file removed by another rank differs from one that never existed."""
    log = tmp_path / "a.log"
    log.write_text(
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/home/ml/train.py", line 40, in main\n'
        "[rank1]:     shutil.rmtree(old)\n"
        '[rank1]:   File "/opt/conda/lib/python3.10/shutil.py", line 681, in rmtree\n'
        "[rank1]:     onerror(os.unlink, fullname, sys.exc_info())\n"
        "[rank1]: FileNotFoundError: [Errno 2] No such file or directory: '/home/ml/out/a.pth'\n"
    )
    root = json.loads(diagnosed(capsys, log, "--json")[1])["root"]
    assert root["id"] == "file-missing"
    assert root["do"].startswith("Let one rank do it (`if int(os.environ[")
    assert root["do"] in " ".join(diagnosed(capsys, log)[1].split())


def test_a_consequence_is_called_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """If the causing rank left no trace, the output states that and names candidates."""
    log = tmp_path / "a.log"
    lines = [
        f"[rank{rank}]:[E614 10:00:00.1 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, NumelIn=4, "
        f"NumelOut=4, Timeout(ms)=600000) ran for 600088 milliseconds before timing out.\n"
        for rank in (0, 1, 3)
    ]
    log.write_text("".join(lines))
    code, text = diagnosed(capsys, log)
    assert code == 1
    words = " ".join(text.split())
    assert "another rank or process may be the cause: look for the log of rank 2" in words
    assert "1800000" not in words.split(" do ")[0]  # no other run's numbers


def test_what_powershell_writes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its `>` writes UTF-16, also in a folder."""
    (tmp_path / "a.log").write_bytes(KNOWN.read_text().encode("utf-16"))
    assert diagnosed(capsys, tmp_path / "a.log")[0] == 1
    assert diagnosed(capsys, tmp_path)[0] == 1


def wrapped(text: str) -> str:
    """The text as copied from a terminal of eighty columns."""
    pieces = [
        [line[at : at + 80] for at in range(0, max(len(line), 1), 80)] for line in text.split("\n")
    ]
    return "\n".join(piece for line in pieces for piece in line)


@pytest.mark.parametrize(
    "copied",
    [
        html.escape,
        wrapped,
        lambda text: "".join(f"> {line}" for line in text.splitlines(keepends=True)),
        lambda text: "".join(f"    {line}" for line in text.splitlines(keepends=True)),
        lambda text: "".join(f"> {line}" for line in wrapped(text).splitlines(keepends=True)),
    ],
    ids=["escaped", "wrapped", "quoted", "indented", "wrapped and quoted"],
)
def test_logs_as_people_copy_them(
    copied: Callable[[str], str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """From an issue, terminal or mail; line numbers are kept."""
    log = tmp_path / "a.log"
    text = copied(KNOWN.read_text())
    log.write_text(text)
    document = json.loads(diagnosed(capsys, log, "--json")[1])
    assert document["root"]["id"] == "deepspeed-batch-sizes-disagree"
    number = document["root"]["evidence"][-1]["line"]
    assert "AssertionError: " in text.splitlines()[number - 1]


def test_a_healthy_log(capsys: pytest.CaptureFixture[str]) -> None:
    """No failure and no remedy are reported."""
    assert diagnosed(capsys, HEALTHY) == (0, "no failure: the training finished\n")


def test_a_traceback_without_its_exception(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The line that failed, what mostly fails in its call, and what is missing."""
    log = tmp_path / "a.log"
    frame = '  File "{}", line 3, in f\n    {}\n'
    text = "Traceback (most recent call last):\n" + frame.format("a.py", "main()")
    log.write_text(text + frame.format("a.py", "model.load_state_dict(torch.load(path))"))
    code, text = diagnosed(capsys, log)
    assert code == 2
    first, advice, *_ = text.splitlines()
    assert first == (
        "a.py:3: failed at `model.load_state_dict(torch.load(path))`; the log ends before the"
        " exception"
    )
    assert advice.split() == ["do", "Compare", *advice.split()[2:]]
    assert "the exception and its message are missing" in " ".join(text.split())


def test_a_log_that_breaks_off(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last complaint, the gap, where to look; no remedy and a separate exit code."""
    monkeypatch.chdir(tmp_path)  # else the name depends on where the tests run
    log = Path("a.log")
    log.write_text("reading shards\nCheckpoint file model.pt.ep1 not found.\n")
    code, text = diagnosed(capsys, log)
    assert code == 3
    assert text.startswith(
        "unfinished, with a complaint near the end: Checkpoint file model.pt.ep1 not found.\n"
    )
    labels = [line.split()[0] for line in text.splitlines() if line[2:3].strip()][1:]
    assert labels == ["next", "said", "last", "missing", "next"]
    log.write_text("step 3 loss 1.2\nValueError: one that may have been caught\nstep 4 loss 1.1\n")
    code, text = diagnosed(capsys, log, "--json")
    document = json.loads(text)
    assert code == 3
    assert (document["verdict"], document["is_complete"]) == ("unfinished", False)
    assert document["root"] is None
    off = document["break_off"]
    assert off["last"] == [{"file": str(log), "line": 3, "text": "step 4 loss 1.1"}]
    assert (off["error"]["line"], off["error"]["text"][:10]) == (2, "ValueError")


@pytest.mark.parametrize("log", [KNOWN, UNKNOWN, HEALTHY])
def test_a_verdict_and_an_end_agree(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log is complete exactly if it is healthy."""
    document = json.loads(diagnosed(capsys, log, "--json")[1])
    assert document["is_complete"] is (document["verdict"] == "healthy")
    assert document["break_off"] is None


def test_a_document_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has the same content."""
    document = json.loads(diagnosed(capsys, UNKNOWN, "--json")[1])
    assert document["verdict"] == "unknown"
    assert document["root"]["id"] is None
    assert document["root"]["rank"] == 1
    assert document["root"]["exception"] == "builtins.KeyError"
    assert document["root"]["where"]["text"].startswith("if case in")
    assert [one["verdict"] for one in document["attempts"]] == ["unknown"]


def test_folders_archives_and_the_standard_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All logs of a folder together, among other files; `.gz`; `-`."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "node-0.out").write_bytes(KNOWN.read_bytes())
    (folder / "weights.bin").write_bytes(b"\0" * 100)
    (folder / "notes.md").write_text("Killed\n")
    assert diagnosed(capsys, folder)[0] == 1
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(gzip.compress(KNOWN.read_bytes()))
    assert diagnosed(capsys, packed)[0] == 1
    stream = SimpleNamespace(buffer=io.BytesIO(KNOWN.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert diagnosed(capsys, "-")[0] == 1


def test_a_folder_with_a_file_that_cant_be_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The file is named, and the others are read."""
    (tmp_path / "node-0.out").write_bytes(KNOWN.read_bytes())
    for name in ("node-1.log.gz", "node-2.log.gz"):
        (tmp_path / name).write_bytes(b"no gzip")
    code, text = diagnosed(capsys, tmp_path)
    assert code == 1
    assert "node-1.log.gz and 1 other file can't be read: " in " ".join(text.split())


def test_the_newest_run_of_several(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A torchrun log folder keeps every run; the newest counts."""
    for age, (name, log) in enumerate((("new", HEALTHY), ("old", KNOWN))):
        file = tmp_path / name / "attempt_0" / "0" / "stderr.log"
        file.parent.mkdir(parents=True)
        file.write_bytes(log.read_bytes())
        os.utime(file, (1e9 - age, 1e9 - age))
    code, text = diagnosed(capsys, tmp_path)
    assert code == 0
    assert "of 2 runs the newest is read" in text


def test_attempts_in_the_order_of_their_folders(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The last attempt is the job's; each other one gets a line."""
    for number, log in ((0, UNKNOWN), (1, KNOWN)):
        file = tmp_path / "run" / f"attempt_{number}" / "0" / "stderr.log"
        file.parent.mkdir(parents=True)
        file.write_bytes(log.read_bytes())
    code, text = diagnosed(capsys, tmp_path)
    assert code == 1
    assert text.startswith("attempt 2 of 2: rank 0, /home/")
    assert "attempt  1: KeyError: 'label'" in text


@pytest.mark.parametrize(
    "first", ["plan     as asked: nothing is changed; on 2 x cpu", "run      t.py"]
)
def test_a_log_of_two_launches_of_our_own(
    first: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A plan's first line begins an attempt, in this version's words and earlier ones."""
    lines = [
        f"[safe-launch] {first}",
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 4, in step',
        '    return row["label"]',
        "KeyError: 'label'",
        "[safe-launch] attempt 1: failed: rank 0 raised KeyError after 0 steps (not known)",
        "[safe-launch]   what     KeyError: 'label'",
    ]
    log = tmp_path / "log"
    log.write_text("\n".join([*lines, *lines[:4], "ValueError: another", *lines[5:6], ""]))
    code, text = diagnosed(capsys, log)
    assert code == 2
    assert text.startswith("attempt 2 of 2: /job/train.py:4: ValueError: another\n")
    assert "attempt  1: KeyError: 'label'" in text


def test_several_nodes_files_are_one_attempt(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each file's first line is a launcher's and begins no second attempt."""
    for node in range(3):
        (tmp_path / f"node-{node}.log").write_bytes(UNKNOWN.read_bytes())
    document = json.loads(diagnosed(capsys, tmp_path, "--json")[1])
    assert len(document["attempts"]) == 1


def test_the_launcher_tells_who_failed_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Lines of several files have no order; torchrun names the first failed rank."""
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    x\n{0}\n'
    (tmp_path / "rank-0.log").write_text("\n" * 9 + trace.format("KeyError: 'x'"))
    (tmp_path / "rank-1.log").write_text(trace.format("ValueError: the batch is odd"))
    for first in (0, 1):
        (tmp_path / "launcher.log").write_text(
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \na.py FAILED\n"
            "Root Cause (first observed failure):\n[0]:\n"
            f"  rank      : {first} (local_rank: {first})\n  exitcode  : 1 (pid: 7)\n"
        )
        document = json.loads(diagnosed(capsys, tmp_path, "--json")[1])
        assert document["root"]["rank"] == first
        assert [one["rank"] for one in document["others"]] == [1 - first]


def test_binary_data_is_no_last_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last text line is quoted, if there is one."""
    garbage = bytes(range(128, 256)) + b"\0\1\2\n"
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"loading the data\n" + 30 * garbage)
    assert "rank-0.log:1: loading the data" in " ".join(diagnosed(capsys, log)[1].split())
    log.write_bytes(30 * garbage)
    text = diagnosed(capsys, log)[1]
    assert "\n  last" not in text
    assert text.startswith(f"unfinished: {log} is binary, not text\n")


def test_a_log_without_a_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line has the reason why nothing is found."""
    (tmp_path / "rank-0.log").touch()
    assert diagnosed(capsys, tmp_path / "rank-0.log")[1].splitlines()[0].endswith("is empty")
    (tmp_path / "rank-1.log").touch()
    text = diagnosed(capsys, tmp_path)[1]
    assert text.startswith("unfinished: no log has text\n")
    assert " ".join(text.split()).count("is empty") == 2


@pytest.mark.parametrize(
    ("paths", "problem"),
    [(["nowhere.log"], "nowhere.log: no such file"), (["."], "nothing in it looks like a log")],
)
def test_bad_paths(
    paths: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors are reported in words."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LaunchError) as caught:
        run(["diagnose", *paths])
    assert problem in caught.value.problem


def test_nothing_heavy_is_imported() -> None:
    """Torch isn't imported, so that the answer is quick."""
    import subprocess

    code = (
        "import sys; from safe_launch.commands.registry import run; "
        f"run(['diagnose', {str(KNOWN)!r}]); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_the_log_is_quoted_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Numbers keep all digits; long lines are cut after a word with an ellipsis."""
    folder = "/data/run_20261126140359123456789"
    words = " ".join(f"word{number}" for number in range(60))
    log = tmp_path / "a.log"
    log.write_text(
        "Traceback (most recent call last):\n"
        '  File "/home/anna/train.py", line 12, in main\n'
        "    check(x)\n"
        f"ValueError: seed 1234567890123456789012 of {folder} is refused: {words}\n"
    )
    text = " ".join(diagnosed(capsys, log)[1].split())
    assert text.count(f"seed 1234567890123456789012 of {folder} is refused") == 2
    ends = [part.rpartition(" ")[2] for part in text.split("…")[:-1]]
    assert len(ends) == 2
    assert set(ends) <= set(words.split())


def test_no_number_is_too_long(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Ranks, codes and sizes in a log may have any number of digits."""
    nines = "9" * 5000
    log = tmp_path / "a.log"
    log.write_text(
        f"[rank{nines}]: Traceback (most recent call last):\n"
        f'[rank{nines}]:   File "train.py", line {nines}, in main\n'
        f"[rank{nines}]: torch.OutOfMemoryError: CUDA out of memory. "
        f"Tried to allocate {nines} GiB\n"
        f"failed (exitcode: {nines}) local_rank: {nines} (pid: 1) of binary: python\n"
    )
    code, text = diagnosed(capsys, log)
    assert (code, "accelerator-out-of-memory" in text) == (1, True)


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "step 1 loss 2.0\nERROR: the vocabulary has 3 rows, 50257 are wanted\n{failed}",
            ["ERROR: the vocabulary has 3 rows, 50257 are wanted"],
        ),
        (
            "licence server: connection refused\n{child}\ntrain.py FAILED\n",
            ["licence server: connection refused"],
        ),
        ("can't find the mask, goes on without\nstep 2 loss 1.0\n{failed}", []),
        ("UserWarning: an invalid mask is ignored\n{failed}", []),
    ],
)
def test_the_lines_that_may_say_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, log: str, said: list[str]
) -> None:
    """Without an exception, the last error line before the launcher's report is shown."""
    failed = (
        "E1126 10:00:01.000000 700 torch/distributed/elastic/multiprocessing/api.py:1002] "
        "failed (exitcode: 1) local_rank: 0 (pid: 741) of binary: /usr/bin/python3\n"
    )
    child = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
    (tmp_path / "a.log").write_text(log.format(failed=failed, child=child))
    code, text = diagnosed(capsys, tmp_path / "a.log")
    document = json.loads(diagnosed(capsys, tmp_path / "a.log", "--json")[1])
    assert code == 2
    assert [line["text"] for line in document["said"]] == said
    assert all(line in " ".join(text.split()) for line in said)
    assert ("isn't in this log" in text or "don't show why" in text) == (not said)


def test_secrets_of_a_log_are_not_quoted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Passwords in URLs and keys are hidden, wherever a line is cut."""
    key = "hf_" + "aZkQxBmWpL" * 4
    message = f"can't read https://me:planted-1@git.host/x as {'word ' * 45}{key}"
    call = f"fetch('https://me:planted-1@git.host/x', wandb_key='{key}')"
    log = tmp_path / "a.log"
    log.write_text(
        f'Traceback (most recent call last):\n  File "/home/a/train.py", line 2, in main\n'
        f"    {call}\nRuntimeError: {message}\n"
    )
    for arguments in ((log,), (log, "--json")):
        code, text = diagnosed(capsys, *arguments)
        assert code == 2
        assert "https://***@git.host/x" in text
        assert "planted" not in text
        assert key[:8] not in text


def test_a_folder_without_an_end(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deep folders and older logs beyond the limits are skipped and reported."""
    monkeypatch.setattr(files, "MOST", 2)
    (deep := Path(tmp_path, *"abcdefghijklmn")).mkdir(parents=True)
    (deep / "log").write_bytes(UNKNOWN.read_bytes())
    os.mkfifo(tmp_path / "pipe.log")
    for number, log in enumerate((UNKNOWN, KNOWN, HEALTHY)):
        (path := tmp_path / f"{log.stem}.log").write_bytes(log.read_bytes())
        os.utime(path, (number, number))
    code, text = diagnosed(capsys, tmp_path)
    assert code == 1
    assert "KeyError" not in text
    assert "of 3 logs the newest 2 are read" in text
    assert "left out: deeper than 12 folders" in " ".join(text.split())


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (
            f"PermissionError: [Errno 13] Permission denied: '/data/{'shards/' * 30}index.lock'",
            "…/index.lock')",
        ),
        (
            (
                f"RuntimeError: {'The plugin of the loader of the engine is not there. ' * 4}"
                "(OSError: no file named plan.json)"
            ),
            "OSError: no file named plan.json",
        ),
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "Timeout"),
        (
            (
                "a.cu:3:9: fatal error: grid.h: No such file or directory\n"
                "ERROR: Failed building wheel for gridsample"
            ),
            "(a.cu:3:9: fatal error: grid.h: No such file or directory)",
        ),
    ],
)
def test_the_telling_part_of_a_long_message(
    log: str, says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A file's name, the error behind another, a compiler's line; nothing twice."""
    file = tmp_path / "a.log"
    file.write_text(f"loading\n{log}\n")
    first = diagnosed(capsys, file)[1].splitlines()[0]
    assert says in first
    assert first.count("RendezvousTimeoutError") < 2
