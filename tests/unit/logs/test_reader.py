"""The log reader: one failure in every format of launchers and schedulers."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safe_launch.logs import lines, report
from safe_launch.logs.judgement import Verdict
from safe_launch.logs.reader import Reader
from safe_launch.logs.verdict import decisive, judge
from support.logs import CATALOGUE, entry_of, entry_of_failure, judged, root_in
from support.tables import table

TRACEBACK = """\
Traceback (most recent call last):
  File "/home/ml/finetune.py", line 31, in main
    loss.backward()
  File "/opt/lib/python3.11/site-packages/torch/_tensor.py", line 623, in backward
    torch.autograd.backward(
RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the \
following reasons: 1) Use of a module parameter outside the `forward` function.
"""
KNOWN = "ddp-parameter-ready-twice"
ENDED = "E0614 10:00:01.000000 7 torch/distributed/elastic/x.py:9] failed (exitcode: 1) \
local_rank: 0 (pid: 9) of binary: /usr/bin/python3\n"


def each(change: Callable[[str], str]) -> Callable[[str], str]:
    """A change of every line."""
    return lambda text: "".join(change(line) for line in text.splitlines(keepends=True))


def docker(line: str) -> str:
    """A line in the format of Docker's json-file driver."""
    return json.dumps({"log": line, "stream": "stderr"}, separators=(",", ":")) + "\n"


SHAPES: list[tuple[str, Callable[[str], str], int | None]] = [
    ("plain", str, None),
    ("torch's excepthook", each(lambda line: f"[rank3]: {line}"), 3),
    ("torchrun --tee", each(lambda line: f"[default1]:[rank3]: {line}"), 3),
    ("torchrun --tee, by role", each(lambda line: f"[trainer5]:{line}"), 5),
    ("srun --label", each(lambda line: f" 3: {line}".lstrip()), 3),
    ("mpirun --tag-output", each(lambda line: f"[1,3]<stderr>:{line}"), 3),
    ("horovodrun", each(lambda line: f"[3]<stderr>:{line}"), 3),
    ("pdsh", each(lambda line: f"node-12: {line}"), None),
    ("pdsh and rank", each(lambda line: f"10.0.0.7: [rank3]: {line}"), 3),
    ("kubectl --timestamps", each(lambda line: f"2025-04-02T07:00:11.003817441Z {line}"), None),
    ("kubectl --prefix", each(lambda line: f"[pod/job-0-x7/main] {line}"), None),
    (
        "container runtime",
        each(lambda line: f"2025-04-02T07:00:11.003+08:00 stderr F {line}"),
        None,
    ),
    ("docker", each(docker), None),
    ("ray", each(lambda line: f"(TorchTrainer pid=71, ip=10.0.0.1) {line}"), None),
    ("logger", each(lambda line: f"E0614 10:00:01.000000 7 torch/x/y.py:9] {line}"), None),
    ("numbered", each(lambda line: f"[70314] [rank3]: {line}"), 3),
    ("Windows", each(lambda line: line.replace("\n", "\r\n")), None),
    ("a terminal's", each(lambda line: line.replace("\n", "\r\r\n")), None),
    ("coloured", each(lambda line: f"\x1b[1;31m{line.rstrip()}\x1b[0m\n"), None),
    ("behind a bar", lambda text: f" 10%|#    | 1/10 [00:01<00:09]\r{text}", None),
    ("loguru", lambda text: text.replace('  File "/home', '> File "/home'), None),
    ("no last line end", lambda text: text.rstrip(), None),
    ("cut head", lambda text: text.partition("\n")[2], None),
    (
        "wide spaces",
        lambda text: text.replace("mark a variable", "mark a            variable"),
        None,
    ),
]


@table("case", SHAPES, name=lambda case: case[0])
@pytest.mark.parametrize("around", ["", "other 1\nother 2\n"], ids=["alone", "within"])
def test_a_traceback_in_any_shape(
    case: tuple[str, Callable[[str], str], int | None], around: str
) -> None:
    """Prefixes, line ends and colours are removed; line numbers are kept."""
    _, shape, rank = case
    log = f"{around}{shape(TRACEBACK)}\n{around}{ENDED}"
    root = root_in(log)
    assert entry_of_failure(root) == KNOWN
    assert root.finding.record.rank == rank
    number = root.evidence.lines[-1][0]
    assert "RuntimeError" in log.encode().split(b"\n")[number - 1].decode()
    place, text = root.evidence.lines[0]
    assert "_tensor.py" in log.encode().split(b"\n")[place - 1].decode()
    assert "_tensor.py" in text
    frames = [frame.function for frame in root.finding.record.frames]
    assert frames == ["main", "backward"]
    assert root.finding.record.user_files == ("/home/ml/finetune.py",)


@pytest.mark.parametrize(
    "prefix",
    [
        "    ",
        "> ",
        "{0:6d}\t",
        "14:09:{1:02d}.118 ",
        "[2025-05-24 14:09:{1:02d}] ",
        "May 24 14:09:{1:02d} gpu-b2 python[7110]: ",
        "2025-05-24T14:09:{1:02d}+02:00 gpu-b2 jobrunner[7110]: ",
        "train\tUNKNOWN STEP\t2025-05-24T14:09:{1:02d}.118Z ",
        "[stderr] ",
        '{{"level": "error", "ts": {0}, "msg": ',
    ],
)
@pytest.mark.parametrize("head", [0, 3], ids=["whole", "cut head"])
def test_a_prefix_of_all_lines(prefix: str, head: int) -> None:
    """Any collector's prefix is removed, also in a box."""
    rows = [*(f"step {one} loss 1.2" for one in range(9)), *TRACEBACK.splitlines()[head:], ENDED]
    is_document = "msg" in prefix
    lines = [
        prefix.format(number, number % 60) + (json.dumps(row) + "}" if is_document else row)
        for number, row in enumerate(rows)
    ]
    root = root_in("\n".join(lines))
    assert entry_of_failure(root) == KNOWN
    assert root.finding.record.frames[-1].function == "backward"


def test_a_traceback_in_a_string_of_json() -> None:
    """A logger writes the whole traceback as one JSON string."""
    line = json.dumps({"level": "error", "message": TRACEBACK.rstrip(), "time": "2025-04-02"})
    root = root_in(f"a line\n{line}\n{ENDED}")
    assert entry_of_failure(root) == KNOWN
    assert root.evidence.lines[-1][0] == 2
    assert root.finding.record.message.endswith("`forward` function.")


def test_two_ranks_lines_in_turns() -> None:
    """Prefixes separate the ranks' lines."""
    other = TRACEBACK.replace("RuntimeError: Expected", "KeyError: 'Expected")
    pairs = zip(TRACEBACK.splitlines(), other.splitlines(), strict=True)
    log = "".join(f"[rank0]: {one}\n[rank1]: {two}\n" for one, two in pairs)
    judgement = judged(log)
    assert [one.finding.record.rank for one in judgement.failures] == [0, 1]
    assert [entry_of_failure(one) for one in judgement.failures] == [KNOWN, None]
    assert judgement.others[0].finding.record.exception == "builtins.KeyError"


def test_a_rich_box_that_wraps_the_message() -> None:
    """Frames are in a box; the message below is wrapped at the terminal's width."""
    log = """\
╭─────────────────────── Traceback (most recent call last) ────────────────────────╮
│ /home/ml/finetune.py:31 in main                                                  │
│                                                                                  │
│   30 │   │   loss = model(**batch).loss                                           │
│ ❱ 31 │   │   loss.backward()                                                      │
│   32 │   │   optimizer.step()                                                     │
│                                                                                  │
│ /opt/lib/python3.11/site-packages/torch/a/very/long/path/which/is/wrapped/_tens  │
│ or.py:623 in backward                                                            │
╰──────────────────────────────────────────────────────────────────────────────────╯
RuntimeError: Expected to mark a variable
ready only once. This error is caused by one
of the following reasons: 1) Use of a module
"""
    root = root_in(log)
    assert entry_of_failure(root) == KNOWN
    places = [(frame.line, frame.function, frame.source) for frame in root.finding.record.frames]
    assert places[0] == (31, "main", "loss.backward()")


def test_two_ranks_letters_in_turns() -> None:
    """Messages of two ranks that write at once are separated."""
    mixed = "".join(a + b for a, b in zip(TRACEBACK, TRACEBACK, strict=True))
    assert entry_of(judged(mixed + "\n" + ENDED)) == KNOWN
    pieces = "RuntimeErrorRuntimeError: : " + TRACEBACK.partition("Error: ")[2]
    assert entry_of(judged(pieces + "\n" + ENDED)) == KNOWN


def test_the_text_itself_is_not_two_ranks() -> None:
    """A complete message in a help text or warning isn't interleaved."""
    message = TRACEBACK.partition("Error: ")[2]
    assert judged(f"The text {message} and so on\n" * 3).root is None


@pytest.mark.parametrize(
    "line",
    [
        "UserWarning: {0}",
        "train.py:12: UserWarning: {0}",
        "config: {{'doc': '{0}'}}",
        "  print('{0}')",
        "INFO:root:retrying after RuntimeError: {0}",
        "# {0}",
        "{{'loss': 1.2, 'text': \"RuntimeError: {0}\"}}",
    ],
)
def test_words_of_a_failure_in_a_healthy_log(line: str) -> None:
    """Neither a warning nor a printed text is a failure."""
    message = TRACEBACK.partition("Error: ")[2].strip()
    log = f"start\n{line.format(message)}\n{{'train_runtime': 3.2}}\n"
    assert judged(log).verdict is Verdict.HEALTHY


def test_what_the_training_survived_is_no_failure() -> None:
    """An exception was caught and logged, and the training continued."""
    steps = "".join(f"step {number} loss 1.2\n" for number in range(6))
    assert judged(f"{TRACEBACK}\n{steps}").verdict is Verdict.UNFINISHED
    assert judged(f"{steps}{TRACEBACK}\n").verdict is Verdict.KNOWN
    one_step_of_all_ranks = "step 3 loss 1.2\n" * 16
    assert judged(f"{TRACEBACK}\n{one_step_of_all_ranks}").verdict is Verdict.KNOWN
    of_one_epoch = "".join(f"{{'loss': 1.{number}, 'epoch': 0.0}}\n" for number in range(6))
    assert judged(f"{TRACEBACK}\n{of_one_epoch}").verdict is Verdict.UNFINISHED


def test_the_same_line_may_be_survived_and_then_not() -> None:
    """A line that was survived once may be fatal later."""
    timeout = (
        "[rank1]:[E614 10:00:00.1 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, "
        "Timeout(ms)=600000) ran for 600088 milliseconds before timing out.\n"
    )
    steps = "".join(f"step {number} loss 1.2\n" for number in range(6))
    assert judged(timeout + steps).verdict is Verdict.UNFINISHED
    assert entry_of(judged(timeout + steps + timeout)) == "nccl-collective-timeout"


def test_the_last_attempt_decides() -> None:
    """With several attempts in a file, the last one's cause is the job's."""
    start = "W0614 run.py:7] Setting OMP_NUM_THREADS environment variable for each process to 1\n"
    bug = TRACEBACK.replace("RuntimeError: Expected", "KeyError: Expected")
    log = f"{start}{bug}{ENDED}{start}{TRACEBACK}{ENDED}"
    assert entry_of(judged(log)) == KNOWN
    ended = "{'train_runtime': 3.2}\n"
    assert judged(f"{start}{bug}{ENDED}{start}{ended}").verdict is Verdict.HEALTHY
    assert judged(f"{start}{bug}{ENDED}{start}").verdict is Verdict.UNKNOWN


def test_an_unknown_exception_outranks_every_consequence() -> None:
    """Watchdogs, signals and exit codes follow an unexplained exception."""
    log = (
        "[rank1]:[E614 10:00:00.1 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, "
        "Timeout(ms)=600000) ran for 600088 milliseconds before timing out.\n"
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "a.py", line 3, in f\n'
        "[rank0]: KeyError: 'x'\n"
        "torch failed (exitcode: -6) local_rank: 1 (pid: 7) of binary: x\n"
    )
    judgement = judged(log)
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.root is not None
    assert judgement.root.finding.record.exception == "builtins.KeyError"
    assert {entry_of_failure(one) for one in judgement.failures[1:]} == {"nccl-collective-timeout"}


def test_several_causes_are_all_named() -> None:
    """Independent failures on two ranks are both reported, once each."""
    lacking = TRACEBACK.replace(
        "RuntimeError: Expected",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. Expected",
    )
    ranks = [TRACEBACK, lacking, TRACEBACK, lacking]
    log = "".join(
        f"[rank{rank}]: {line}\n" for rank, text in enumerate(ranks) for line in text.splitlines()
    )
    judgement = judged(log)
    assert judgement.root is not None
    assert entry_of_failure(judgement.root) == KNOWN
    assert [entry_of_failure(one) for one in judgement.others] == ["accelerator-out-of-memory"]


def test_a_message_is_read_to_its_end_and_no_further() -> None:
    """Other processes' output below an exception isn't part of it."""
    noise = [
        "[2025-06-14 10:00:00,000] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 7"
    ]
    log = f"{TRACEBACK}second line of it\n{noise[0]}\n"
    record = root_in(log).finding.record
    assert record.message.splitlines()[-1] == "second line of it"
    assert noise[0] in record.log_tail


def test_exceptions_that_led_to_it_are_its_chain() -> None:
    """The first exception is the cause; the last one printed gives the frame."""
    link = "\nDuring handling of the above exception, another exception occurred:\n\n"
    last = (
        'Traceback (most recent call last):\n  File "b.py", line 2, in g\n    h()\nValueError: no\n'
    )
    root = root_in(f"{TRACEBACK}{link}{last}")
    assert root.finding.record.exception == "builtins.ValueError"
    assert [one.exception for one in root.finding.record.chain] == ["RuntimeError"]
    assert entry_of_failure(root) == KNOWN


def test_what_a_script_handled_isnt_the_cause() -> None:
    """A failed optional import is no failure; the exception raised instead is."""
    tried = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 3, in <module>
    import flash_attn
ModuleNotFoundError: No module named 'flash_attn'
"""
    link = "\nDuring handling of the above exception, another exception occurred:\n\n"
    then = 'Traceback (most recent call last):\n  File "t.py", line 5, in f\n    x\nKeyError: 1\n'
    assert entry_of(judged(tried)) == "flash-attention-missing"
    assert entry_of(judged(tried + link + then)) is None


def test_a_failure_that_left_nothing_is_one() -> None:
    """Only the launcher's report shows that it failed."""
    own = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\ntrain.py FAILED\n"
    judgement = judged(own)
    assert (judgement.verdict, judgement.root) == (Verdict.UNKNOWN, None)


def test_whose_death_a_shell_tells() -> None:
    """The training's death counts, not that of another command in the script."""
    killed = "run.sh: line 40: 4711 Killed                  {0} --batch 3\n"
    assert entry_of(judged(killed.format("python train.py"))) == "worker-killed"
    assert judged(killed.format("nvidia-smi dmon")).verdict is Verdict.UNFINISHED


def test_a_loaders_exception_is_the_one_of_its_worker() -> None:
    """The waiting process's message contains the worker's traceback."""
    log = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 10, in <module>
    for batch in loader:
  File "/opt/lib/python3.11/site-packages/torch/_utils.py", line 694, in reraise
    raise exception
RuntimeError: Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/opt/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 308, in f
    data = fetcher.fetch(index)
  File "/home/me/data.py", line 33, in __getitem__
    return row["messages"]
RuntimeError: Expected to mark a variable ready only once. This error is caused by one of

"""
    judgement = judged(log)
    assert [entry_of_failure(one) for one in judgement.failures] == [KNOWN]
    record = judgement.failures[0].finding.record
    assert record.message.startswith("Caught RuntimeError in DataLoader")
    assert record.user_files == ("/home/me/train.py", "/home/me/data.py")


def test_an_exception_whose_message_quotes_another() -> None:
    """The part behind the colon is the cause, as for Ray's import errors."""
    quoting = (
        'Traceback (most recent call last):\n  File "/site-packages/ray/a.py", line 3, in f\n'
        "    raise RuntimeError(\nRuntimeError: The actor failed to import on the worker:\n\n"
    )
    root = root_in(f"{quoting}{TRACEBACK}\n{ENDED}")
    assert entry_of_failure(root) == KNOWN
    assert root.finding.record.message.startswith("The actor failed")


def test_a_traceback_in_an_indented_block() -> None:
    """It ends where the indentation is less than its header's."""
    block = textwrap.indent(TRACEBACK, "   ")
    root = root_in(f"aborted due to:\n{block}\nlost sys.stderr\n{ENDED}")
    assert entry_of_failure(root) == KNOWN
    assert "lost" not in root.finding.record.message


def test_what_four_ranks_wrote_at_once() -> None:
    """Type and message repeat in a line; Hydra's advice isn't part of a message."""
    kinds, said = "ModuleNotFoundError", "No module named 'coolname'"
    log = (
        'Traceback (most recent call last):\n  File "/data/a.py", line 1, in <module>\n'
        f"{kinds}: {kinds}{kinds}{said}: : \n{said}{said}\n\n"
        "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    )
    root = root_in(log + ENDED)
    assert root.finding.record.message == said
    assert entry_of_failure(root) == "python-package-missing"


def test_rays_workers_after_the_end() -> None:
    """Ray stops its workers after the training has ended."""
    died = (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error."
    )
    assert entry_of(judged(f"{died}\n")) == "ray-worker-died"
    assert judged(f"Final validation metrics: {{'a': 1}}\n{died}\n").verdict is Verdict.HEALTHY


def test_a_failed_removal_at_the_interpreters_exit() -> None:
    """Python prints it, and the run has ended before; without an end it is the failure."""
    failed = (
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.10/weakref.py", line 667, in _exitfunc\n    f()\n'
        '  File "/usr/lib/python3.10/shutil.py", line 729, in rmtree\n    os.rmdir(path)\n'
        "OSError: [Errno 39] Directory not empty: '/tmp/hf_datasets-7'\n"
    )
    trained = "{'loss': 0.5}\n{'loss': 0.4}\n{'train_runtime': 11.2, 'train_loss': 0.45}\n"
    assert judged(f"{trained}{failed}").verdict is Verdict.HEALTHY
    assert judged(failed).verdict is not Verdict.HEALTHY


def test_a_failure_after_the_end() -> None:
    """A second cleanup, and a peer that has left; other failures and launchers' reports count."""
    head = (
        "Process SpawnProcess-1:\nTraceback (most recent call last):\n"
        '  File "/usr/lib/python3.8/multiprocessing/process.py", line 315, in _bootstrap\n'
        "    self.run()\n"
    )
    removal = (
        '  File "/home/eu/otx/training_base.py", line 391, in cleanup\n'
        "    self._delete_scratch_space()\n"
        "FileNotFoundError: [Errno 2] No such file or directory: 'checkpoints_round_0'\n"
    )
    left = (
        '  File "/app/train.py", line 482, in train_and_evaluate\n    loss.backward()\n'
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by "
        "peer [127.0.0.1]:20133\n"
    )
    trained = "epoch 150 loss 0.51\nINFO: Training is done.\n"
    for failure in (removal, left):
        judgement = judged(f"{trained}{head}{failure}")
        assert judgement.verdict is Verdict.HEALTHY
        ((name, text),) = report.rows(judgement, ())
        assert (name, failure.splitlines()[-1][:60] in text) == ("note", True), text
        assert judged(f"epoch 150 loss 0.51\n{head}{failure}").verdict is not Verdict.HEALTHY
        assert judged(f"{trained}{head}{failure}{ENDED}").verdict is not Verdict.HEALTHY
    other = removal.replace("in cleanup", "in evaluate")
    assert judged(f"{trained}{head}{other}").verdict is Verdict.UNKNOWN


PIECES: Sequence[str] = (
    *TRACEBACK.splitlines(),
    *ENDED.splitlines(),
    "╭─ Traceback (most recent call last) ─╮",
    "│ a.py:3 in f │",
    "╰──╯",
    "During handling of the above exception, another exception occurred:",
    "Exception ignored in: <function f>",
    "terminate called after throwing an instance of 'c10::Error'",
    "  what():  [Rank 3] x",
    "[rank1]: ",
    "[default0]:",
    '{"log":"',
    "3: ",
    "\r",
    "\n",
    "\n\n",
    "\x1b[31m",
    "Error: ",
    "EErrrroorr",
    "srun: error: n1: task 3: Killed",
    "Setting OMP_NUM_THREADS environment variable for each process",
    "{'loss': 1.0}",
    "a" * 300,
    "\udcff",
    "\0",
)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=3000))
def test_any_bytes_are_read(log: bytes) -> None:
    """Any bytes give a verdict."""
    assert judged(log).verdict in Verdict


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60), st.sampled_from(["", "\n", "\r\n"]))
def test_any_mixture_is_read(pieces: list[str], end: str) -> None:
    """Broken and mixed tracebacks, prefixes and boxes give a verdict with existing lines."""
    log = end.join(pieces).encode("utf-8", "surrogateescape")
    judgement = judged(log)
    for one in judgement.failures:
        for number, _ in one.evidence.lines:
            assert 1 <= number <= log.count(b"\n") + 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40), st.integers(1, 64))
def test_blocks_dont_matter(pieces: list[str], size: int) -> None:
    """Block boundaries don't change the result, except for cut lines."""
    log = "\n".join(pieces).encode("utf-8", "surrogateescape")

    class Slow(BytesIO):
        """A file that returns a few bytes at a time."""

        def read(self, _size: int | None = -1, /) -> bytes:
            return super().read(size)

    whole = list(lines.blocks(BytesIO(log)))
    parts = list(lines.blocks(Slow(log)))
    assert b"".join(parts) == b"".join(whole) == log
    if b"\r" not in log:
        reader = Reader(CATALOGUE)
        reader.read("a.log", Slow(log))
        slow = decisive(judge(reader.attempts, CATALOGUE))
        fast = judged(log)
        assert [one.evidence.lines for one in slow.failures] == [
            one.evidence.lines for one in fast.failures
        ]


def test_only_what_may_matter_is_looked_at() -> None:
    """No line of a long healthy log reaches Python, and few repeated warnings do."""
    text = b"{'loss': 1.0, 'epoch': 0.1}\n" * 20_000
    warning = b"x.py:3: UserWarning: RuntimeError: None of the inputs have requires_grad=True\n"
    quiet = Reader(CATALOGUE).searches.quiet
    assert len(list(lines.interesting(BytesIO(text), lambda: quiet))) == 0
    seen = list(lines.interesting(BytesIO((text[:280] + warning) * 5000), lambda: quiet))
    assert len(seen) < 1000
