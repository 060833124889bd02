"""Logs that end with the training, and logs that break off."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from safe_launch.logs.headline import headline
from safe_launch.logs.judgement import Verdict
from support.logs import STEPS, entry_of, judged
from support.tables import table

TRACEBACK = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 426, in <module>
    main()
  File "/home/me/train.py", line 386, in main
    save(model, folder)
ValueError: the folder has another model
"""
HANDLED = "\nDuring handling of the above exception, another exception occurred:\n\n"
WATCHDOG = (
    "[E ProcessGroupNCCL.cpp:474] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=2, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1803289 milliseconds "
    "before timing out.\n"
)
ABORT = "terminate called after throwing an instance of 'std::runtime_error'\n"
REASON = (
    "  what():  [Rank 1] Some NCCL operations have failed or timed out. We are taking the entire "
    "process down.\n"
)
Change = Callable[[str], str]


@table(
    "end",
    [
        "{'train_runtime': 611.2, 'train_loss': 0.9, 'epoch': 3.0}",
        "  train_runtime            = 0:31:12.10",
        "`Trainer.fit` stopped: `max_epochs=3` reached.",
        "`Trainer.fit` stopped: `max_steps=1000` reached.",
        "[2024-03-12 09:15:40,338] [INFO] [launch.py:347:main] Process 4101 exits successfully.",
        "[INFO:swift] End time of running main: 2025-06-11 20:14:55.120016",
        "2025-03-08 12:10:01,020\tSUCC cli.py:64 -- Job 'raysubmit_aB3dE5gH7jK9mN1p' succeeded",
        "[after training is done] datetime: 2025-02-02 10:10:10",
        "Training complete.",
        "Training completed!!! Saving the model to out",
        "2025-02-02 10:10:10,123 - INFO - Training finished in 0:41:12",
        "done training in 1234.5 seconds",
        "100 epochs completed in 0.412 hours.",
        "done: reached 50 steps",
        "best weights in runs/exp14/best.pt, done in 3h 40m",
        "All done!",
        "Done.",
        "[INFO] Run finished.",
        "Job 4711 completed",
        "Training time 1:20:33",
        "训练完成",
        "[launch.sh] exit 0",
        "trainer-1 exited with code 0",
        "State: COMPLETED (exit code 0)",
        "4711         train  gpu  COMPLETED      0:0",
        "step 50/50 loss 0.41\nmodel saved to out/model.safetensors",
        "Epoch [3/3], Step [100/100], Loss: 0.4\nSaved the weights in /ckpt/last.pt",
        "saved final weights to /ckpt/final",
    ],
)
def test_an_end_is_seen(end: str) -> None:
    """A framework, launcher, scheduler or script announces it at the log's end."""
    assert judged(f"{STEPS}{end}\n").verdict is Verdict.HEALTHY
    assert judged(f"{STEPS}{end}").verdict is Verdict.HEALTHY
    assert judged(f"{TRACEBACK}{STEPS}{end}\n").verdict is Verdict.HEALTHY


@table(
    "last",
    [
        "",
        "100%|██████████| 50/50 [10:11<00:00, 10.18s/it]",
        "Epoch 0: 100%|██████████| 30/30 [02:09<00:00,  3.93s/it]\nsaved out/epoch-0.pt",
        "step 50/50 loss 0.41",
        "Saving model checkpoint to out/checkpoint-500\nModel weights saved in out/checkpoint-500",
        "epoch 2 finished in 120 s",
        "Training finished for epoch 2",
        "evaluation done in 12.1 s",
        "[eval] done",
        "Loading checkpoint shards: 100%|██████████| 4/4 [00:03<00:00]\ntokenizer saved",
        "Loading dataset: done in 3 s",
        "finished loading 20000 samples",
        "trainer ended with 1",
        "training finished with errors",
        "job finished with exit code 1",
        "exit code 0.5",
        "training isn't done",
        "done: reached 50 steps\nstep 51/100 loss 0.9",
        "4711         train  gpu  FAILED      1:0\n4711.extern  gpu  COMPLETED  0:0",
        "wandb: train/loss 0.91\nwandb: train/epoch 3",
    ],
)
def test_no_end_is_seen(last: str) -> None:
    """Only a part or a step has ended: the job may still run or have died."""
    judgement = judged(f"{STEPS}{last}\n")
    assert judgement.verdict is Verdict.UNFINISHED
    assert judgement.root is None
    assert judgement.break_off is not None
    assert judgement.break_off.last_lines[0].text in (STEPS + last).splitlines()[-1]
    assert judgement.break_off.last_lines[0].number == (STEPS + last + "\n").count("\n") - (
        not last
    )


@pytest.mark.parametrize(
    "after",
    [
        STEPS,
        "[2024-03-12 09:15:40,338] [INFO] [launch.py:20:main] WORLD INFO DICT: {}\n",
        "OSError: [Errno 28] a message without a traceback\n",
    ],
    ids=["another training", "another launch", "an error"],
)
def test_what_follows_an_end(after: str) -> None:
    """A second training has its own end; an error while saving comes after the end."""
    end = "{'train_runtime': 611.2, 'train_loss': 0.9}\n"
    assert judged(STEPS + end).verdict is Verdict.HEALTHY
    assert judged(STEPS + end + after).verdict is Verdict.UNFINISHED
    assert judged(STEPS + end + after + end).verdict is Verdict.HEALTHY


def test_a_launcher_that_gives_up_after_the_end() -> None:
    """A failure after the training's end isn't healthy."""
    own = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\ntrain.py FAILED\n"
    for end in ("{'train_runtime': 611.2}\n", "All done!\n"):
        judgement = judged(STEPS + end + own)
        assert (judgement.verdict, judgement.root) == (Verdict.UNKNOWN, None)


def test_a_worker_of_ray_that_is_started_again() -> None:
    """Ray runs a task again, and the run ends well; without an end it is a failure."""
    log = (
        "fold 1/2: 200 tasks submitted\n"
        "2023-06-07 15:26:09,573 WARNING worker.py:1986 -- A worker died or was killed while"
        " executing a task by an unexpected system error.\n"
    )
    assert judged(f"{log}fold 2/2: 200 of 200 done\nall folds done\n").verdict is Verdict.HEALTHY
    assert judged(log).verdict is Verdict.KNOWN


def test_an_evaluation_may_follow_the_end() -> None:
    """Its progress bars aren't a training's."""
    bars = "".join(f" {one}%|###  | {one}/100 [00:01<00:09]\r" for one in range(100))
    end = "{'train_runtime': 611.2, 'train_loss': 0.9}\n"
    assert judged(f"{STEPS}{end}{bars}\n{{'eval_loss': 0.8}}\n").verdict is Verdict.HEALTHY


@pytest.mark.parametrize("end", ["Training completed at Sat Nov 1", "Job finished.", "All done!"])
def test_a_shells_words_end_no_failure(end: str) -> None:
    """A batch script prints its last line even after a failure."""
    judgement = judged(f"{STEPS}{TRACEBACK}{end}\n")
    assert judgement.verdict is Verdict.UNKNOWN


def test_a_trackers_summary_is_no_progress() -> None:
    """Trackers repeat the last values even after a failure."""
    rows = "".join(f"wandb:   train/loss_{one} loss 0.{one}\n" for one in range(9))
    assert judged(f"{STEPS}{TRACEBACK}{rows}").verdict is Verdict.UNKNOWN


def test_one_of_several_files_ends() -> None:
    """Rank 0 alone announces it; another rank's truncated traceback is no end."""
    end = f"{STEPS}{{'train_runtime': 611.2}}\n"
    assert judged(end, STEPS).verdict is Verdict.HEALTHY
    cut = judged(end, STEPS + TRACEBACK.rpartition("ValueError")[0])
    assert cut.verdict is Verdict.UNKNOWN
    assert cut.root is not None
    assert cut.root.evidence.file == "1.log"
    assert cut.root.finding.record.at == STEPS.count("\n") + 1


@pytest.mark.parametrize("end", ["", "{'train_runtime': 611.2, 'train_loss': 0.9}\n"])
def test_a_traceback_without_its_exception(end: str) -> None:
    """It is a failure, at its last frame, unless the training goes on after it."""
    cut = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    save()\n'
    judgement = judged(STEPS + end + cut)
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.root is not None
    assert [frame.source for frame in judgement.root.finding.record.frames] == ["save()"]
    assert "failed at `save()`" in judgement.root.finding.record.message
    whole = "{'train_runtime': 611.2}\n"
    assert judged(STEPS + cut + STEPS + whole).verdict is Verdict.HEALTHY


@pytest.mark.parametrize(
    "cut",
    [
        HANDLED,
        f"{HANDLED}Traceback (most recent call last):\n",
        f"{HANDLED}{TRACEBACK.rpartition('ValueError')[0]}",
        f"{HANDLED}{TRACEBACK.rpartition('ValueError')[0]}" + "the shell goes on\n" * 60,
    ],
    ids=["link", "header", "frames", "frames, then others' lines"],
)
def test_a_whole_exception_before_one_that_is_cut_off(cut: str) -> None:
    """The complete one counts, alone or below a training."""
    for before in ("", STEPS):
        judgement = judged(before + TRACEBACK + cut)
        assert judgement.verdict is Verdict.UNKNOWN
        assert judgement.root is not None
        record = judgement.root.finding.record
        assert (record.exception, record.message) == (
            "builtins.ValueError",
            "the folder has another model",
        )


def test_an_entry_that_another_ranks_traceback_refutes() -> None:
    """A bare message counts for an entry about a function only if no traceback names another."""
    message = (
        "RuntimeError: shape mismatch: value tensor of shape [3, 80] cannot be broadcast to"
        " indexing result of shape [3, 64]\n"
    )
    bare = f"[rank2]: {message}"
    told = judged(bare)
    assert told.root is not None
    assert told.root.finding.entry is not None
    whole = TRACEBACK.rpartition("ValueError")[0] + message
    for log in (whole + bare, bare + whole):
        judgement = judged(log)
        assert judgement.root is not None
        assert judgement.root.finding.entry is None
        assert judgement.root.finding.record.frames


def test_a_loaders_exception_whose_origin_is_cut_off() -> None:
    """The waiting process's exception is complete."""
    told = "RuntimeError: Caught KeyError in DataLoader worker process 0.\nOriginal "
    log = TRACEBACK.rpartition("ValueError")[0] + told + TRACEBACK.rpartition("ValueError")[0]
    judgement = judged(log)
    assert judgement.root is not None
    assert judgement.root.finding.record.message.startswith("Caught KeyError in DataLoader")


def each(prefix: str) -> Change:
    """Puts a prefix in front of each line."""
    return lambda text: "".join(f"{prefix}{line}" for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(
    "prefix", [str, each("[rank1]: "), each("1: ")], ids=["no", "rank", "srun"]
)
@pytest.mark.parametrize(
    "pieces",
    [
        [WATCHDOG, ABORT],
        [ABORT, WATCHDOG],
        [WATCHDOG, ABORT, REASON],
        [WATCHDOG, ABORT, "[E ProcessGroupNCCL.cpp:494] another's line\n", REASON],
        [WATCHDOG, ABORT, f"  what():  {WATCHDOG.partition('] ')[2]}"],
    ],
    ids=["bare", "bare, first", "own words", "words later", "the watchdog's words"],
)
def test_an_abort_that_the_watchdog_explains(pieces: Sequence[str], prefix: Change) -> None:
    """C++'s message follows from the same rank's watchdog."""
    judgement = judged(prefix("".join(pieces)))
    assert {one.finding.entry.id for one in judgement.failures if one.finding.entry} == {
        "nccl-collective-timeout"
    }
    assert entry_of(judgement) == "nccl-collective-timeout"
    assert not judgement.others


@pytest.mark.parametrize("log", [ABORT, f"[rank3]: {ABORT}[rank1]: {WATCHDOG}"])
def test_an_abort_that_nothing_explains(log: str) -> None:
    """Another rank's watchdog doesn't explain an earlier abort."""
    judgement = judged(log)
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.root is not None
    assert judgement.root.finding.record.exception == "std.runtime_error"


@pytest.mark.parametrize(
    "frames",
    [
        "/opt/zoo/compiler.py in create(name)\n  295  x()\n--> 296  raise RuntimeError(problem)\n",
        "File /opt/zoo/compiler.py:296, in create(name)\n--> 296  raise RuntimeError(problem)\n",
    ],
    ids=["IPython 7", "IPython 8"],
)
def test_a_traceback_in_a_notebook(frames: str) -> None:
    """IPython prints the type before the frames and the message after them."""
    head = f"RuntimeError{' ' * 30}Traceback (most recent call last)\n"
    cell = "Cell In[3], line 1\n----> 1 zoo.create()\n\n"
    judgement = judged(f"{'-' * 75}\n{head}{cell}{frames}\nRuntimeError: no module came of it\n")
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.root is not None
    record = judgement.root.finding.record
    assert record.message == "no module came of it"
    places = [(frame.line, frame.function, frame.source.strip()) for frame in record.frames]
    assert places == [
        (1, "<module>", "zoo.create()"),
        (296, "create", "raise RuntimeError(problem)"),
    ]


def test_what_the_kernel_says_of_a_crash() -> None:
    """The dmesg line is pasted below the log."""
    line = (
        "python3.10[30781]: segfault at 60 ip 00007f24b8cf2616 error 4 in libc10_cuda.so[7f+5c]\n"
    )
    for stamp in ("", "[Mon Jun 23 19:39:31 2025] ", "[12345.678901] "):
        assert entry_of(judged(f"{STEPS}{stamp}{line}")) == "segfault"


CANCELLED = "slurmstepd: error: *** JOB 91 ON n21 CANCELLED AT 2026-08-30T16:12:09 ***\n"
INTERRUPT = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 22, in <module>
    trainer.train()
KeyboardInterrupt
```
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (f"step 1 loss 2.0\n{CANCELLED}", Verdict.KNOWN),
        (f"step 1 loss 2.0\n{CANCELLED}stopping\nstep 2 loss 1.9\nsaved\n", Verdict.UNFINISHED),
        (f"step 1 loss 2.0\n{INTERRUPT}I pressed Ctrl-C.\n", Verdict.UNFINISHED),
    ],
)
def test_who_stops_a_run_knows_that_it_has_not_failed(log: str, expected: Verdict) -> None:
    """Stopped runs and runs that caught the signal are neither failed nor finished."""
    found = judged(log)
    assert found.verdict is expected
    assert entry_of(found) == "stopped-from-outside"


WARNED = """\
[2023-02-14 11:02:58,113] torch._dynamo.convert_frame: [WARNING] WON'T CONVERT get_it m.py line 101
due to:
Traceback (most recent call last):
  File "/env/lib/python3.8/site-packages/torch/_dynamo/exc.py", line 71, in unimplemented
    raise Unsupported(msg)
torch._dynamo.exc.Unsupported: call_method UserDefinedObjectVariable(RLock) acquire [] {}
"""


def test_what_a_warning_quotes_is_no_failure_if_the_run_goes_on() -> None:
    """One step is enough to show that; before one it is unknown."""
    assert judged(f"{WARNED}\nstep 1 loss 2.0\n").verdict is Verdict.UNFINISHED
    assert judged(WARNED).root is not None


@pytest.mark.parametrize(("steps", "is_survived"), [(2, False), (3, True)])
def test_steps_after_an_exception(steps: int, is_survived: bool) -> None:
    """Synchronized ranks do at most one step without the failed one."""
    goes_on = "".join(f"epoch 1 step {step} loss 1.9\n" for step in range(steps))
    assert (judged(f"{TRACEBACK}{goes_on}").root is None) is is_survived


@pytest.mark.parametrize("steps", [2, 3])
def test_steps_of_another_process_after_an_exception(steps: int) -> None:
    """They count while the process of the exception prints nothing after it."""
    raised = "".join(f"(Sandbox pid=7) {line}\n" for line in TRACEBACK.splitlines())
    goes_on = "".join(f"(Runner pid=9) step:{step} - loss 1.9\n" for step in range(steps))
    assert (judged(f"{raised}{goes_on}").root is None) is (steps > 2)
    removed = "The actor is dead because all references to the actor were removed."
    raised = (
        f"(Loop pid=7) ray.exceptions.ActorDiedError: The actor died.\n(Loop pid=7) {removed}\n"
    )
    assert judged(f"{raised}{goes_on}").root is None
    assert judged(raised).root is not None


MEGATRON = " iteration {at}/     200 | loss scale: 1.0 | number of skipped iterations:   0 |\n"
SAVES = "  successfully saved checkpoint from iteration     200 to /results/tiny\n"


@pytest.mark.parametrize(
    ("log", "verdict"),
    [
        (f"{MEGATRON.format(at='     190')}{MEGATRON.format(at='     200')}{SAVES}", "healthy"),
        (f"{MEGATRON.format(at='     180')}{MEGATRON.format(at='     190')}{SAVES}", "unfinished"),
        (f"{STEPS}[after training is done]\nEvaluating iter 1/2\nEvaluating iter 2/2\n", "healthy"),
    ],
)
def test_megatrons_end(log: str, verdict: str) -> None:
    """Its last iteration is saved; an evaluation's iterations come after the end."""
    assert judged(log).verdict.value == verdict


def test_cleaning_up_at_the_interpreters_exit() -> None:
    """It changes nothing if it fails after the end, ms-swift's with its named bar."""
    raised = (
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.10/shutil.py", line 729, in rmtree\n'
        "    os.rmdir(path)\n"
        "OSError: [Errno 39] Directory not empty: '/w/hf_datasets-7'\n"
    )
    bar = "Train: 100%|##########| 193/193 [18:41<00:00,  5.81s/it]\n"
    ended = "End time of running main: 2025-03-23 09:29:36\n"
    assert judged(f"{bar}{ended}{raised}").verdict is Verdict.HEALTHY
    assert judged(f"{bar}{raised}").verdict is not Verdict.HEALTHY


def test_a_quoted_traceback_before_steps() -> None:
    """Frames without an exception aren't cut off if the training goes on after them."""
    frames = 'from user code:\n   File "/w/manager.py", line 16, in lock\n    _lock.acquire()\n'
    text = headline(judged(f"{frames}\nEpoch 1 loss: 4.6\nEpoch 2 loss: 4.5\n"))
    assert text == "no failure so far: the log ends while the training goes on"


def test_what_python_prints_at_its_exit() -> None:
    """An atexit function failed after the training was done."""
    printed = f"Error in atexit._run_exitfuncs:\n{TRACEBACK}"
    assert judged(f"{STEPS}{{'train_runtime': 3}}\n{printed}").verdict is Verdict.HEALTHY
    assert judged(f"{STEPS}{printed}").verdict is Verdict.UNFINISHED


def test_an_exception_that_was_survived_before() -> None:
    """One step is enough for the same line again; another line needs more."""
    survived = f"{TRACEBACK}step 1 loss 2.0\nstep 2 loss 2.0\nstep 3 loss 2.0\n"
    assert judged(f"{survived}{TRACEBACK}step 4 loss 1.9\n").root is None
    assert judged(f"{survived}{TRACEBACK}").root is not None
    other = TRACEBACK.replace("line 386", "line 390")
    assert judged(f"{survived}{other}step 4 loss 1.9\n").root is not None


def test_an_epoch_has_steps_that_count_by_themselves() -> None:
    """Five of them show that an exception was survived."""
    goes_on = "".join(f"epoch 1 step {step} loss 1.9\n" for step in range(5))
    assert judged(f"{TRACEBACK}{goes_on}").root is None
    same = "epoch 1 step 7 loss 1.9\n" * 5
    assert judged(f"{TRACEBACK}{same}").root is not None


@pytest.mark.parametrize(
    "after",
    [
        "root@gpu-3:/work# nvidia-smi",
        "(env) me@box:~/runs$ ls",
        "\U0001f9a5 Unsloth will patch your computer",
    ],
)
def test_what_follows_a_message(after: str) -> None:
    """A prompt or a program's pictograph isn't part of an exception's message."""
    root = judged(f"{TRACEBACK}{after}\n").root
    assert root is not None
    assert root.finding.record.message == "the folder has another model"


def test_a_message_that_ends_with_a_colon_goes_on() -> None:
    """The reason on its next line is part of it, although it looks like an exception."""
    said = "backend='zoo' raised:\nRuntimeError: the gate is shut"
    root = judged(f"{TRACEBACK.replace('the folder has another model', said)}").root
    assert root is not None
    assert root.finding.record.message == said


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ("(repeats, then all processes end)", Verdict.UNKNOWN),
        ("it exits immediately", Verdict.UNKNOWN),
        ("12:00:01 INFO epoch 1 ends here", Verdict.UNFINISHED),
        ("still loading", Verdict.UNFINISHED),
    ],
)
def test_somebody_says_that_it_ended(told: str, verdict: Verdict) -> None:
    """The complaint before such words is the failure; a program's own words don't count."""
    assert judged(f"zookeeper: cannot open the gate\n{told}\n").verdict is verdict


@pytest.mark.parametrize(
    ("log", "verdict"),
    [
        ("training on two nodes gets stuck here\n\nloading shards\n", Verdict.UNKNOWN),
        ("the job just exits after loading\nloading shards\n", Verdict.UNKNOWN),
        ("\u4efb\u52a1\u5361\u4f4f\u4e86\nloading shards\n", Verdict.UNKNOWN),
        ("loading shards\nE0601 10:03:00.1 x.py:7] could not connect: retry\n", Verdict.UNFINISHED),
        ("does the job hang??\nloading shards\n", Verdict.UNFINISHED),
        ("Disabled, as the process may be stuck otherwise\nloading shards\n", Verdict.UNFINISHED),
        ("another job is stuck\n" + "step 3 loss 0.4\n" * 9, Verdict.UNFINISHED),
    ],
)
def test_words_around_a_log_without_an_exception(log: str, verdict: Verdict) -> None:
    """Somebody's words at either end count; an error that is logged may be survived."""
    assert judged(log).verdict is verdict


EXITED = (
    "[rank4]:[W724 21:48:59.72 ProcessGroupNCCL.cpp:1496] Warning: WARNING: "
    "destroy_process_group() was not called before program exit, which can leak resources.\n"
)
ABORTED = (
    "terminate called after throwing an instance of 'c10::Error'\n  what():  No such pointer\n"
)


def test_an_object_that_fails_as_it_is_removed() -> None:
    """What it lacks it has never got, as its making had failed; a known failure's message, too."""
    ignored = (
        "Exception ignored in: <function DeepSpeedEngine.__del__>\n"
        "Traceback (most recent call last):\n"
        '  File "/env/deepspeed/runtime/engine.py", line 565, in __del__\n    self.destroy()\n'
        '  File "/env/deepspeed/runtime/engine.py", line 570, in destroy\n    return self._gate\n'
        "AttributeError: 'DeepSpeedEngine' object has no attribute '_gate'\n"
    )
    assert judged(ignored).verdict is Verdict.UNFINISHED
    assert judged(ignored.partition("\n")[2]).root is not None


def test_a_cut_traceback_whose_last_line_has_a_zero() -> None:
    """It isn't a person's word for nothing."""
    cut = (
        'Traceback (most recent call last):\n  File "/job/a.py", line 9, in f\n    return g(d[0])\n'
    )
    assert judged(cut).verdict is Verdict.UNKNOWN


def test_an_abort_as_a_process_exits() -> None:
    """By then the script has come to its end; a launcher's report counts more."""
    failed = "[launch.py:325:sigkill_handler] [...] exits with return code = -6\n"
    assert judged(f"{STEPS}{EXITED}").verdict is Verdict.UNFINISHED
    assert judged(f"{STEPS}{EXITED}{ABORTED}").verdict is Verdict.HEALTHY
    assert judged(f"{STEPS}{ABORTED}{EXITED}").root is not None
    assert judged(f"{STEPS}{EXITED}{ABORTED}{failed}").root is not None
