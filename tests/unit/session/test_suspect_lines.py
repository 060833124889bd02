"""Warnings about user lines that are likely to fail and that the plan doesn't avoid."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from safe_launch.catalogue.reader import read_catalogue
from safe_launch.core.choices import Framework
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Known, Origin
from safe_launch.planning.plan import Plan
from safe_launch.planning.search import as_asked
from safe_launch.session.console import suspect_rows
from safe_launch.session.launch_warnings import SuspectLine, suspect_lines
from safe_launch.workload.script.line_searches import SEARCHES, spots
from support.stacks import CURRENT
from support.tables import table
from support.worlds import HARDWARE, world

DUMMY = "loss = loss + sum(p.sum() for p in model.adapter.parameters()) * 0.0"
ZERO3: dict[Name, Value] = {Fact.ENGINE: "deepspeed", Setting.ZERO_STAGE: 3}
ENTRIES = read_catalogue()
NODE = replace(HARDWARE, accelerators=8)


def plan_of(
    script: Path,
    values: dict[Name, Value],
    framework: Framework = Framework.TRANSFORMERS,
    nproc: int = 8,
) -> Plan:
    """The plan that keeps the request."""
    request = LaunchRequest(str(script), False, (), nproc, "--nproc")
    return as_asked(request, world(values, framework), NODE)


def feared(plan: Plan, points_at: str = "parameter_reductions") -> tuple[SuspectLine, ...]:
    """The warnings under the plan, for shipped entries with this search."""
    own = [one for one in ENTRIES if one.points_at == points_at]
    return suspect_lines(plan, own)


def test_a_dummy_loss_is_feared_under_stage_3_alone(tmp_path: Path) -> None:
    """With file, line and entry; not under another stage or engine."""
    script = tmp_path / "train.py"
    script.write_text(f"import torch\n{DUMMY}\n")
    (one,) = feared(plan_of(script, ZERO3))
    assert one.entry.id == "zero3-parameter-outside-forward"
    assert (one.spot.line, one.spot.text) == (2, DUMMY)
    for values in (
        {**ZERO3, Setting.ZERO_STAGE: 2},
        {Fact.ENGINE: "ddp"},
        {Fact.ENGINE: "deepspeed"},
        {},
        {**ZERO3, Fact.PARAMETER_OUTSIDE_FORWARD: False},
    ):
        assert feared(plan_of(script, values)) == ()


def test_what_the_script_imports_from_its_folder_is_searched(tmp_path: Path) -> None:
    """Modules and packages, but not their own imports or unimported files."""
    (tmp_path / "parts").mkdir()
    for name in ("losses", "far", "unused", "parts/__init__", "parts/heads"):
        (tmp_path / f"{name}.py").write_text(f"{DUMMY}\n")
    (tmp_path / "losses.py").write_text(f"import far\n{DUMMY}\n")
    script = tmp_path / "train.py"
    script.write_text("import torch\nfrom losses import loss_of\nfrom parts import heads\n")
    names = {Path(one.spot.file).relative_to(tmp_path) for one in feared(plan_of(script, ZERO3))}
    assert names == {Path("losses.py"), Path("parts/__init__.py"), Path("parts/heads.py")}
    (tmp_path / "losses.py").write_text("def f(:\n")
    assert len(feared(plan_of(script, ZERO3))) == 2


def test_each_failure_is_told_once_with_its_lines(tmp_path: Path) -> None:
    """Two lines, one entry: a note for each, the possible failure, and the remedy."""
    script = tmp_path / "train.py"
    script.write_text(f"{DUMMY}\n{DUMMY}\n")
    plan = plan_of(script, ZERO3)
    rows = suspect_rows(feared(plan), plan.workload)
    assert [label for label, _ in rows] == ["note", "note", "may end", "do", "else"]
    assert rows[0][1].endswith(f"train.py:1: {DUMMY}")
    assert "safe-launch explain zero3-parameter-outside-forward" in rows[2][1]
    assert rows[3][1].startswith("Take the term on bare parameters out of the loss")


def test_plan_says_so_to_people_and_to_programs(tmp_path: Path) -> None:
    """`safe-launch plan` prints the note and forbids no plan."""
    (tmp_path / "train.py").write_text(f"from transformers import Trainer\n{DUMMY}\n")
    (tmp_path / "zero3.json").write_text(json.dumps({"zero_optimization": {"stage": 3}}))
    own = ["--nproc=2", "train.py", "--deepspeed=zero3.json"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(CURRENT.bin / "safe-launch"), "plan", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    told = run(*own)
    assert told.returncode == 0
    flat = " ".join(told.stdout.split())
    assert f"note train.py:2: {DUMMY}" in flat
    assert "safe-launch explain zero3-parameter-outside-forward" in told.stdout
    (one,) = json.loads(run("--json", *own).stdout)["suspicions"]
    assert (one["failure"], one["line"]["line"]) == ("zero3-parameter-outside-forward", 2)
    assert "train.py:2" not in run("--set=zero_stage=2", *own).stdout


def lines_of(search: str, text: str) -> list[int]:
    """The lines of a text that a search finds."""
    import ast

    return list(SEARCHES[search].find(ast.parse(text)))


@pytest.mark.parametrize(
    ("search", "text"),
    [
        ("device_maps", 'm = AutoModel.from_pretrained(name, device_map="auto")'),
        ("device_maps", 'def load():\n    return A.from_pretrained(n, device_map="balanced")'),
        (
            "device_maps",
            'if __name__ == "__main__":\n    m = A.from_pretrained(n, device_map="auto")',
        ),
        ("fixed_devices", 'model.to("cuda:0")'),
        ("fixed_devices", "torch.cuda.set_device(0)"),
        ("fixed_devices", "model = Net().cuda(0)"),
        ("fixed_devices", 'model.to("npu:0")'),
        ("no_sync_calls", "if step % 4:\n    with engine.no_sync():\n        step()"),
        ("device_map_arguments", 'm = A.from_pretrained(n, device_map={"": rank})'),
        ("half_precision_loads", "m = AutoModel.from_pretrained(n, torch_dtype=torch.float16)"),
        ("half_precision_loads", "m = LlamaForCausalLM.from_pretrained(n, dtype='float16')"),
        ("frozen_block_inputs", "model = get_peft_model(model, config)"),
        ("frozen_block_inputs", "if args.lora:\n    model = peft.get_peft_model(model, config)"),
        ("outdated_arguments", "a = TrainingArguments(out,\n  evaluation_strategy='steps')"),
        ("no_sync_calls", "with m.no_sync() if step % 4 else nullcontext(): step()"),
    ],
)
def test_further_searches_find(search: str, text: str) -> None:
    """Lines that every rank of a distributed run would reach."""
    assert len(lines_of(search, text)) == 1


@table(
    ("search", "text"),
    [
        ("device_maps", "m = A.from_pretrained(n, device_map={'': local_rank})"),
        ("device_maps", "m = A.from_pretrained(n, device_map=None)"),
        ("device_maps", "m = A.from_pretrained(n, device_map=args.device_map)"),
        ("device_maps", 'if world_size == 1:\n    m = A.from_pretrained(n, device_map="auto")'),
        ("device_maps", 'm = A.from_pretrained(n, device_map="auto" if not ddp else None)'),
        ("device_maps", 'def predict():\n    return A.from_pretrained(n, device_map="auto")'),
        ("device_maps", 'm = A.from_pretrained(n, device_map="cuda")'),
        ("device_maps", 'if args.bits == 4: m = A.from_pretrained(n, device_map="auto")'),
        ("device_maps", 'options = dict(device_map="auto")'),
        ("fixed_devices", 'model.to("cuda")'),
        ("fixed_devices", 'model.to(f"cuda:{rank}")'),
        ("fixed_devices", "torch.cuda.set_device(local_rank)"),
        ("fixed_devices", "model.cuda()"),
        ("fixed_devices", 'if not distributed:\n    model.to("cuda:0")'),
        ("fixed_devices", 'torch.load(path, map_location="cuda:0")'),
        ("device_map_arguments", "m = A.from_pretrained(n, device_map=None)"),
        ("device_map_arguments", "m = A.from_pretrained(n, device_map=given)"),
        ("half_precision_loads", "m = AutoModel.from_pretrained(n, torch_dtype=torch.bfloat16)"),
        ("half_precision_loads", "m = AutoModel.from_pretrained(n, torch_dtype=dtype)"),
        ("half_precision_loads", "t = Tokenizer.from_pretrained(n, torch_dtype=torch.float16)"),
        (
            "half_precision_loads",
            "r = AutoModel.from_pretrained(n)\nm = AutoModel.from_pretrained(n, dtype=torch.half)",
        ),
        (
            "outdated_arguments",
            "class TrainingArguments: ...\nTrainingArguments(evaluation_strategy=1)",
        ),
        ("outdated_arguments", "if version < 5: TrainingArguments(evaluation_strategy='no')"),
        ("outdated_arguments", "TrainingArguments(eval_strategy='no')"),
        ("no_sync_calls", "with accelerator.no_sync(model): step()"),
        ("no_sync_calls", "if args.backend == 'ddp':\n    with model.no_sync(): step()"),
        ("no_sync_calls", "with model.join(): step()"),
    ],
)
def test_further_searches_leave_alone(search: str, text: str) -> None:
    """Values that differ by rank, and lines under a condition."""
    assert lines_of(search, text) == []


def test_conditions_beyond_the_line(tmp_path: Path) -> None:
    """A device map needs several ranks and devices; `no_sync` a plain loop with ZeRO-2 or 3."""
    (entry,) = (one for one in ENTRIES if one.id == "zero3-parameter-outside-forward")
    bare = replace(entry, forbids=(), proves={})
    script = tmp_path / "train.py"
    script.write_text('m = A.from_pretrained(n, device_map="auto")\nwith m.no_sync(): m(1)\n')
    spread = [replace(bare, points_at="device_maps")]
    (one,) = suspect_lines(plan_of(script, {}), spread)
    assert one.spot.change == "m = A.from_pretrained(n)"
    assert suspect_lines(plan_of(script, {}, nproc=1), spread) == ()
    assert suspect_lines(plan_of(script, {}, Framework.NONE), spread) == ()
    zero3 = [replace(bare, points_at="device_map_arguments")]
    assert len(suspect_lines(plan_of(script, ZERO3), zero3)) == 1
    assert suspect_lines(plan_of(script, ZERO3), spread) == ()
    assert suspect_lines(plan_of(script, {}), zero3) == ()
    without = [replace(bare, points_at="no_sync_calls")]
    assert len(suspect_lines(plan_of(script, ZERO3, Framework.NONE), without)) == 1
    assert suspect_lines(plan_of(script, ZERO3), without) == ()
    assert suspect_lines(plan_of(script, {Fact.ENGINE: "ddp"}, Framework.NONE), without) == ()


@pytest.mark.parametrize(
    ("search", "line", "word"),
    [
        ("frozen_block_inputs", "m = get_peft_model(m, c)", "m.enable_input_require_grads()"),
        ("frozen_block_inputs", "m = get_peft_model(m, c)", "from trl import SFTTrainer"),
        ("half_precision_loads", "m = AutoModel.from_pretrained(n, dtype=torch.half)", "m.float()"),
        (
            "fixed_devices",
            'DistributedDataParallel(m.to("cuda:0"))',
            'os.environ["CUDA_VISIBLE_DEVICES"] = rank',
        ),
    ],
)
def test_a_word_elsewhere_makes_a_line_harmless(
    search: str, line: str, word: str, tmp_path: Path
) -> None:
    """Another of the user's files may have it."""
    paths = [str(tmp_path / "model.py"), str(tmp_path / "train.py")]
    Path(paths[0]).write_text(f"{line}\n")
    Path(paths[1]).write_text("import torch\n")
    assert len(spots(search, paths)) == 1
    Path(paths[1]).write_text(f"{word}\n")
    assert spots(search, paths) == ()


def test_a_fixed_device_does_harm_only_where_ranks_train_together(tmp_path: Path) -> None:
    """Without DDP a script trains separately on every rank, on any device."""
    path = tmp_path / "train.py"
    path.write_text('m.to("cuda:0")\n')
    assert spots("fixed_devices", [str(path)]) == ()


@pytest.mark.parametrize(
    ("search", "values", "versions", "framework", "count"),
    [
        ("frozen_block_inputs", {}, {"transformers": "4.57.1"}, Framework.TRANSFORMERS, 1),
        ("frozen_block_inputs", {}, {"transformers": "5.23.0"}, Framework.TRANSFORMERS, 0),
        ("frozen_block_inputs", {}, {"transformers": "4.57.1"}, Framework.NONE, 0),
        ("outdated_arguments", {}, {"transformers": "4.57.1"}, Framework.TRANSFORMERS, 1),
        ("outdated_arguments", {}, {"transformers": "4.40.0"}, Framework.TRANSFORMERS, 0),
        ("outdated_arguments", {}, {}, Framework.TRANSFORMERS, 0),
        ("half_precision_loads", {Setting.PRECISION: "fp16"}, {}, Framework.TRANSFORMERS, 1),
        ("half_precision_loads", {Setting.PRECISION: "bf16"}, {}, Framework.TRANSFORMERS, 0),
        (
            "half_precision_loads",
            {Setting.PRECISION: "fp16", Fact.ENGINE: "deepspeed"},
            {},
            Framework.TRANSFORMERS,
            0,
        ),
        (
            "half_precision_loads",
            {Setting.PRECISION: "fp16", Fact.ADAPTER: "lora"},
            {},
            Framework.TRANSFORMERS,
            0,
        ),
        ("fixed_devices", {}, {}, Framework.NONE, 1),
        ("fixed_devices", {Fact.ENGINE: "deepspeed"}, {}, Framework.NONE, 0),
        ("fixed_devices", {}, {}, Framework.TRANSFORMERS, 0),
    ],
)
def test_plans_under_which_a_line_does_harm(
    search: str,
    values: dict[Name, Value],
    versions: dict[str, str],
    framework: Framework,
    count: int,
    tmp_path: Path,
) -> None:
    """Versions, precision, engine and the loop's owner decide."""
    lines = {
        "frozen_block_inputs": "m = get_peft_model(m, c)",
        "outdated_arguments": "TrainingArguments(evaluation_strategy='no')",
        "half_precision_loads": "m = AutoModel.from_pretrained(n, dtype=torch.half)",
        "fixed_devices": 'm = DistributedDataParallel(m.to("cuda:0"))',
    }
    script = tmp_path / "train.py"
    script.write_text(lines[search])
    (entry,) = (one for one in ENTRIES if one.id == "zero3-parameter-outside-forward")
    plan = plan_of(script, values, framework)
    plan = replace(plan, workload=replace(plan.workload, versions=versions))
    found = suspect_lines(plan, [replace(entry, forbids=(), proves={}, points_at=search)])
    assert len(found) == count


@pytest.mark.parametrize(
    ("search", "line", "expected"),
    [
        ("device_maps", 'A.f(n, device_map="auto", x=1)', "A.f(n, x=1)"),
        ("device_maps", "A.f(n, device_map='auto')", "A.f(n)"),
        ("device_maps", 'device_map="auto",', "(without this line)"),
        ("fixed_devices", 'm.to("cuda:0")', "m.to(f\"cuda:{os.environ['LOCAL_RANK']}\")"),
        ("device_map_arguments", 'A.f(n, device_map={"": 0}, x=1)', "A.f(n, x=1)"),
        (
            "half_precision_loads",
            "A.f(n, torch_dtype=torch.float16)",
            "A.f(n, torch_dtype=torch.float32)",
        ),
        (
            "frozen_block_inputs",
            "model = get_peft_model(model, config)",
            "model.enable_input_require_grads(); model = get_peft_model(model, config)",
        ),
        ("frozen_block_inputs", "return get_peft_model(model, config)", None),
        ("outdated_arguments", 'evaluation_strategy="no",', 'eval_strategy="no",'),
        ("fixed_devices", "m.cuda(0)", 'm.cuda(int(os.environ["LOCAL_RANK"]))'),
        ("parameter_reductions", DUMMY, None),
    ],
)
def test_the_line_as_it_should_be(search: str, line: str, expected: str | None) -> None:
    """The user's line with the fix, if the line alone is enough for it."""
    assert SEARCHES[search].changed(line) == expected


def test_origins_dont_matter(tmp_path: Path) -> None:
    """A worker's observation counts like a flag."""
    script = tmp_path / "train.py"
    script.write_text(f"{DUMMY}\n")
    plan = plan_of(script, ZERO3)
    seen = Known(True, Origin.OBSERVED, "a worker")
    informed = plan.workload.informed([(Fact.PARAMETER_OUTSIDE_FORWARD, seen)])
    assert len(feared(replace(plan, workload=informed))) == 1
