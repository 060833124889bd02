"""Failures without a traceback: a process's last words, and exceptions only mentioned."""

from __future__ import annotations

import pytest
from safe_launch.logs.interleaved import doubled_exception
from safe_launch.logs.judgement import Verdict
from support.logs import STEPS, entry_of, judged
from support.tables import table

SAID = "KeeperError: the door stands open"


@table(
    "header",
    [
        "",
        " ",
        "ERROR: ",
        "Error: ",
        "ERROR:root:",
        "ERROR:zoo.gate:",
        "[rank0]: ",
        "[2024-05-01 10:00:00] ",
        "[10/30/2024 15:11:11] ",
        "10/30/2024 15:11:11 - ERROR - __main__ - ",
        "2025-06-14 08:40:52,940 - train - ERROR - ",
        "2025-06-14 08:40:52.940 | ERROR    | __main__:main:12 - ",
        "[2024-05-01 10:00:00,123] [ERROR] [axolotl.train:55] [PID:123] [RANK:0] ",
        "ERROR 05-05 10:00:00 [core.py:387] ",
        "[2024-04-18 15:55:06] CRITICAL [zoo.util:158, rank=0] Uncaught ",
        "Unhandled exception: ",
        "E0512 10:00:00.000000 4711 gate.py:12] ",
        "> ",
        "# ",
        "- ",
        "3. ",
    ],
)
@pytest.mark.parametrize("before", ["", STEPS], ids=["alone", "below a training"])
def test_the_last_that_was_said(header: str, before: str) -> None:
    """An exception in a log's last line ended the process, whoever printed it."""
    judgement = judged(f"{before}{header}{SAID}\n")
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.root is not None
    record = judgement.root.finding.record
    assert (record.exception, record.message) == ("builtins.KeeperError", "the door stands open")
    assert record.rank in (None, 0)
    assert (record.rank == 0) is ("rank" in header.lower())


@pytest.mark.parametrize(
    "line",
    [
        f"WARNING:train:{SAID}",
        f"INFO: {SAID}",
        f"[W520 10:11:12.131 gate.cpp:12] {SAID}",
        f"batch 3 skipped: {SAID}",
        f"ERROR:train:batch 3 is skipped: {SAID}",
        f"retrying after {SAID}",
        f"ERROR:train:bad sample 7: {SAID}, using sample 8 instead",
        f"except {SAID}",
        "ProcessGroup: 8 ranks",
        "CondaError: Run 'conda init' before 'conda activate'",
    ],
)
def test_an_exception_that_is_only_spoken_of(line: str) -> None:
    """In a warning, sentence or quotation it didn't end the training."""
    assert judged(f"{STEPS}{line}\n").verdict is Verdict.UNFINISHED
    assert judged(f"{line}\n").verdict is Verdict.UNFINISHED


@pytest.mark.parametrize("header", ["", "ERROR:root:"])
def test_an_exception_after_which_the_log_goes_on(header: str) -> None:
    """Later steps or the training's end show that it was caught."""
    assert judged(f"{header}{SAID}\n\n{STEPS}").verdict is Verdict.UNFINISHED
    assert judged(f"{header}{SAID}\n{STEPS}{{'train_runtime': 3}}\n").verdict is Verdict.HEALTHY
    for after in ("wandb: Run history:\n", "loading the next shard\n" * 60):
        assert judged(f"{STEPS}{header}{SAID}\n{after}").verdict is Verdict.UNKNOWN


def test_a_line_that_repeats_an_exception() -> None:
    """The traceback takes precedence, and so does the line that names a rank."""
    traceback = (
        f'Traceback (most recent call last):\n  File "/a.py", line 3, in f\n    g()\n{SAID}\n'
    )
    logged = f"[2024-04-18 15:55:06] CRITICAL [zoo.util:158, rank=6] Uncaught {SAID}\n"
    for log in (f"ERROR:root:{SAID}\n{traceback}", f"{traceback}ERROR:root:{SAID}\n"):
        assert [bool(one.finding.record.frames) for one in judged(log).failures] == [True]
    assert [one.finding.record.rank for one in judged(f"{SAID}\n{logged}").failures] == [6]


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (
            "[E x:9] [c10d] The client socket has timed out after 60s while trying to connect to x",
            "store-not-reached",
        ),
        ("CUDA error: uncorrectable ECC error encountered", "accelerator-hardware-fault"),
        (
            "[Mon Jun 23 19:39:31 2025] NVRM: Xid (PCI:0000:b9:00): 79, it has fallen off the bus",
            "accelerator-hardware-fault",
        ),
        ("NPU error, error code is 507015", "npu-kernel-exception"),
        (
            "NCCL error in: /pytorch/c10d/NCCL.cpp:784, unhandled system error, NCCL version 2.7.8",
            "nccl-system-call-failed",
        ),
        (
            "npuSynchronizeDevice:NPUStream.cpp:390 NPU function error: x, error code is 507046",
            "hccl-notify-timeout",
        ),
        ("NPU function error: aclrtZoo, error code is 599999", None),
        ("EI9999: 2024-08-05-18:15:21.270.506 nobody has met with this", None),
        (
            "429 Client Error: Zoo closed for url: https://zoo.org/api/models",
            None,
        ),
        (
            "slurmstepd: error: Detected 3 oom_kill events in StepId=12.batch.",
            "host-out-of-memory-killed",
        ),
        ("      Reason:       OOMKilled", "host-out-of-memory-killed"),
    ],
)
def test_what_native_code_and_systems_say(line: str, entry: str | None) -> None:
    """These lines lack Python's type; without an entry they stay unknown."""
    judgement = judged(f"{STEPS}{line}\n")
    assert judgement.verdict is (Verdict.KNOWN if entry else Verdict.UNKNOWN)
    assert entry_of(judged(f"{STEPS}{line}\n")) == entry


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("/usr/bin/python: No module named zoo.keeper", "python-package-missing"),
        (
            "python: Error while finding module specification for 'zoo.keeper' (ImportError: no)",
            "python-package-missing",
        ),
        (
            "/bin/python3: can't open file '/u/me/train.py': [Errno 2] No such file or directory",
            "file-missing",
        ),
    ],
)
def test_what_the_interpreter_says(line: str, entry: str) -> None:
    """Python can't start the script; only the launcher's lines follow."""
    summary = "[launcher] a summary of what has failed\n" * 12
    for log in (f"{line}\n", f"{line}\n{summary}"):
        assert entry_of(judged(log)) == entry
    assert judged(f"{line}\n{STEPS}").verdict is Verdict.UNFINISHED


def test_a_warning_with_a_code_is_none() -> None:
    """torch_npu recovers from the errors in its warnings."""
    line = "[W compiler_depend.ts:526] Warning: NPU warning, error code is 107002[Error]: \n"
    assert judged(f"{STEPS}{line}").verdict is Verdict.UNFINISHED


GUARDED = "[PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with "
REASON = "exception: CUDA error: an illegal memory access was encountered\n"
ABORT = "terminate called after throwing an instance of 'c10::DistBackendError'\n"


@pytest.mark.parametrize(
    "log",
    [
        f"[rank1]:[E520 10:11:12.131 ProcessGroupNCCL.cpp:1895] {GUARDED}{REASON}",
        f"[rank1]:[E520 10:11:12.131 ProcessGroupNCCL.cpp:1895] {GUARDED}{REASON}\n{ABORT}",
        f"{ABORT}  what():  {GUARDED}{REASON}",
        f"[E520 10:11 x.cpp:1] {GUARDED}{REASON}\n{ABORT}  what():  {GUARDED}{REASON}",
    ],
    ids=["the watchdog", "and a bare abort", "the abort alone", "both with the reason"],
)
def test_what_the_watchdog_ended_of(log: str) -> None:
    """Its text, `what()` and the abort are one event, explained by the inner exception."""
    judgement = judged(f"{STEPS}{log}")
    assert entry_of(judged(f"{STEPS}{log}")) == "kernel-crashed"
    assert not judgement.others


def test_an_abort_with_an_unknown_reason() -> None:
    """The watchdog's message is reported, once."""
    reason = "exception: the zoo is closed\n"
    log = f"[E520 10:11 x.cpp:1] {GUARDED}{reason}\n{ABORT}  what():  {GUARDED}{reason}"
    judgement = judged(log)
    assert judgement.verdict is Verdict.UNKNOWN
    assert [one.finding.record.message for one in judgement.failures] == ["the zoo is closed"]
    assert judgement.failures[0].finding.record.rank == 1


@pytest.mark.parametrize(
    "mixed",
    [
        "RuntRuntimeEimeErrorrro: thr:e the zoo  zoo of of 1212  isis  ccloslosed oed on Monn Mon",
        "RuRntimeErrunotimer: the Ezoo of 12 is clrroosed on Mr: tonhe zoo of 12 is closed on Mon",
        "RRuunnttiimmeeEErrrroorr::  tthhee  zzoooo  ooff  1122  iiss  cclloosseedd",
    ],
)
def test_letters_of_two_ranks(mixed: str) -> None:
    """If they can be separated, it is both ranks' exception."""
    pair = doubled_exception(f"a line before\n{mixed}")
    assert pair is not None
    assert pair.kind == "RuntimeError"
    judgement = judged(f"{STEPS}{mixed}\n")
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.root is not None
    assert judgement.root.finding.record.exception.endswith("RuntimeError")
    assert "zoo" in judgement.root.finding.record.message
    assert judged(f"{mixed}\n{STEPS}").verdict is Verdict.UNFINISHED


def test_a_message_that_another_rank_tears() -> None:
    """A torn name's rest is no exception; text before a header is no prefix."""
    begin = 'Traceback (most recent call last):\n  File "/a.py", line 3, in <module>\n    main()\n'
    root = judged(
        f"{begin}ValueErr{begin}or: the zoo is closed\nValueError: the zoo is closed\n"
    ).root
    assert root is not None
    assert root.finding.record.exception == "builtins.ValueError"


def test_similar_words_are_no_mixed_letters() -> None:
    """Whole words among others weren't written by two ranks at once."""
    log = (
        "[W compiler_depend.ts:526] Warning: NPU warning, error code is 107002[Error]: \n"
        "[ERROR] 2024-05-10 call aclrtSynchronizeDevice failed\n"
        "NPU status, error code is 0\n"
    )
    assert entry_of(judged(f"{STEPS}{log}")) is None
