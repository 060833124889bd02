"""Real command lines and files of common frameworks."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from safe_launch.core.choices import Framework
from safe_launch.core.errors import LaunchError
from safe_launch.core.model import Model, Stack
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact, Name, Setting, Value
from safe_launch.core.workload import Origin, Workload
from safe_launch.frameworks.config_files import accelerate
from safe_launch.frameworks.framework import Argument
from safe_launch.workload.read_workload import read_workload
from safe_launch.workload.readers import model_flags
from safe_launch.workload.readers.peft_flags import words_of
from safe_launch.workload.script.read_script import read_script


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory, and an environment without relevant variables."""
    for name in [one for one in os.environ if one.startswith("ACCELERATE_")]:
        monkeypatch.delenv(name)
    for name in ("MAX_PIXELS", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


PLAIN = "from transformers import HfArgumentParser, TrainingArguments, Trainer\n"


def read(folder: Path, *arguments: str, source: str = PLAIN, module: str = "") -> Workload:
    """The workload of a script or module with these arguments."""
    script = folder / "train.py"
    script.write_text(source)
    name = module or str(script)
    return read_workload(LaunchRequest(name, bool(module), arguments, 8, "--nproc 8"))


MINICPM = (
    "--model_name_or_path openbmb/MiniCPM-V-2_6 --bf16 true --do_train --tune_vision true "
    "--tune_llm false --use_lora true --lora_target_modules "
    r"llm\..*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj) --model_max_length 2048 "
    "--per_device_train_batch_size 1 --gradient_accumulation_steps 8 --gradient_checkpointing true"
)
QWEN = (
    "--model_name_or_path Qwen/Qwen-7B-Chat --bf16 True --use_lora --q_lora --optim adamw_torch "
    "--model_max_length 512 --per_device_train_batch_size 2 --gradient_accumulation_steps 8"
)
SWIFT_2 = (
    "--model_type qwen2-7b-instruct --sft_type lora --lora_rank 8 --lora_target_modules ALL "
    "--max_length 2048 --batch_size 1 --deepspeed default-zero2"
)
SWIFT_3 = (
    "--model Qwen/Qwen2.5-7B-Instruct --train_type lora --lora_rank 16 --lora_alpha 32 "
    "--target_modules all-linear --torch_dtype bfloat16 --attn_impl flash_attn "
    "--max_length 4096 --per_device_train_batch_size 1 --deepspeed zero3_offload"
)
SWIFT_4 = "--model Qwen/Qwen3-8B --tuner_type full --max_length 8192 --use_liger_kernel true"
TRL = (
    "--model_name_or_path Qwen/Qwen2-0.5B --use_peft --lora_r 32 --lora_target_modules q_proj "
    "v_proj --load_in_4bit --max_length 1024 --attn_implementation flash_attention_2"
)
EMBEDDING = (
    "--model_name_or_path BAAI/bge-m3 --train_group_size 8 --query_max_len 512 "
    "--passage_max_len 512 --fp16 --per_device_train_batch_size 2 --gradient_checkpointing"
)


@pytest.mark.parametrize(
    ("source", "module", "line", "expected"),
    [
        (
            PLAIN,
            "",
            MINICPM,
            {
                Fact.ADAPTER: "lora",
                Fact.LORA_TARGETS: r"llm\..*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj)",
                Fact.VISION_TRAINED: True,
                # They are frozen because of the adapters.
                Fact.LANGUAGE_TRAINED: None,
                Fact.SEQUENCE_LENGTH: 2048,
                Fact.FROZEN_PARAMETERS: True,
                Setting.ACCUMULATION: 8,
            },
        ),
        (
            PLAIN,
            "",
            QWEN,
            {
                Fact.ADAPTER: "lora",
                Fact.QUANTIZATION_BITS: 4,
                Fact.OPTIMIZER: "adamw",
                Fact.SEQUENCE_LENGTH: 512,
            },
        ),
        (
            "",
            "swift.cli.sft",
            SWIFT_2,
            {
                Fact.ADAPTER: "lora",
                Fact.LORA_RANK: 8,
                Fact.LORA_TARGETS: "all-linear",
                Setting.ZERO_STAGE: 2,
                Fact.ENGINE: "deepspeed",
            },
        ),
        (
            "",
            "swift.cli.sft",
            SWIFT_3,
            {
                Fact.ADAPTER: "lora",
                Fact.LORA_RANK: 16,
                Fact.LORA_TARGETS: "all-linear",
                Fact.LOADED_PRECISION: "bf16",
                Fact.ATTENTION: "flash_attention_2",
                Setting.ZERO_STAGE: 3,
                Setting.OFFLOAD: "optimizer_and_parameters",
                Setting.MICRO_BATCH: 1,
            },
        ),
        (
            "",
            "swift.cli.sft",
            SWIFT_4,
            {Fact.ADAPTER: "none", Fact.LOSS: "fused", Fact.SEQUENCE_LENGTH: 8192},
        ),
        (
            "from trl import SFTTrainer, TrlParser\n",
            "",
            TRL,
            {
                Fact.ADAPTER: "lora",
                Fact.LORA_RANK: 32,
                Fact.LORA_TARGETS: "q_proj,v_proj",
                Fact.QUANTIZATION_BITS: 4,
                Fact.ATTENTION: "flash_attention_2",
            },
        ),
        (
            "from trl import DPOTrainer, DPOConfig\n",
            "",
            "--model_name_or_path x --max_length 512",
            {Fact.OBJECTIVE: "preference", Fact.REFERENCE_MODEL: True},
        ),
        (PLAIN, "", EMBEDDING, {Fact.SEQUENCE_LENGTH: 8 * 512 + 512, Setting.PRECISION: "fp16"}),
    ],
    ids=["minicpm-v", "qwen", "swift-2", "swift-3", "swift-4", "trl", "dpo", "bge"],
)
def test_command_lines(
    source: str, module: str, line: str, expected: dict[Name, Value | None], tmp_path: Path
) -> None:
    """Each framework's own examples."""
    workload = read(tmp_path, *line.split(), source=source, module=module)
    assert {name: workload.value(name) for name in expected} == expected
    assert workload.framework is Framework.TRANSFORMERS


def test_a_file_of_llama_factory(tmp_path: Path) -> None:
    """Its YAML with overrides, else its defaults."""
    config = tmp_path / "sft.yaml"
    config.write_text(
        "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\ncutoff_len: 4096\n"
        "lora_target: q_proj,v_proj\nper_device_train_batch_size: 2\nquantization_bit: 4\n"
    )
    workload = read(
        tmp_path, "train", str(config), "per_device_train_batch_size=1", module="llamafactory.cli"
    )
    assert workload.value(Setting.MICRO_BATCH) == 1
    assert workload.value(Fact.SEQUENCE_LENGTH) == 4096
    assert workload.value(Fact.ADAPTER) == "lora"
    assert workload.known[Fact.ADAPTER].source == "LLaMA-Factory's default of finetuning_type"
    assert workload.value(Fact.LORA_TARGETS) == "q_proj,v_proj"
    assert workload.known[Fact.LORA_TARGETS].source == "sft.yaml: lora_target"
    assert workload.value(Fact.QUANTIZATION_BITS) == 4


def test_sizes_in_a_deepspeed_configuration(tmp_path: Path) -> None:
    """Numbers of elements, also in scientific notation; the framework sets "auto"."""
    config = {
        "zero_optimization": {
            "stage": 3,
            "reduce_bucket_size": "auto",
            "sub_group_size": 1e9,
            "stage3_max_live_parameters": 500_000,
            "overlap_comm": True,
        },
        "optimizer": {"type": "OneBitAdam"},
    }
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(config))
    workload = read(tmp_path, "--deepspeed", str(path))
    assert workload.value(Fact.AUTO_BUCKETS) is True
    assert workload.value(Fact.REDUCE_BUCKET) is None
    assert workload.value(Fact.SUB_GROUP) == 1_000_000_000
    assert workload.value(Fact.MAX_LIVE_PARAMETERS) == 500_000
    assert workload.value(Fact.OVERLAP_COMM) is True
    assert workload.value(Fact.OPTIMIZER) == "adamw"
    source = workload.known[Fact.SUB_GROUP].source
    assert source == "ds.json: zero_optimization.sub_group_size"


def test_the_allocator_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's variable decides, else the profile."""
    assert read(tmp_path).value(Fact.EXPANDABLE_SEGMENTS) is None
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128")
    assert read(tmp_path).value(Fact.EXPANDABLE_SEGMENTS) is False


def test_an_accelerate_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that `accelerate launch` derives from it are read."""
    path = tmp_path / "accelerate.yaml"
    path.write_text(
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n"
        "  zero_stage: 3\n  gradient_accumulation_steps: 4\n  offload_optimizer_device: cpu\n"
        "  offload_param_device: none\n"
    )
    for name, value in accelerate.read(path).variables.items():
        monkeypatch.setenv(name, value)
    workload = read(tmp_path)
    expected = {
        Fact.ENGINE: "deepspeed",
        Setting.ZERO_STAGE: 3,
        Setting.ACCUMULATION: 4,
        Setting.OFFLOAD: "optimizer",
    }
    assert {name: workload.value(name) for name in expected} == expected


def test_an_accelerate_configuration_that_isnt_modelled(tmp_path: Path) -> None:
    """Variables are accelerate's own; FSDP1 gets a note."""
    path = tmp_path / "fsdp.yaml"
    text = (
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nnum_machines: 2\n"
        "fsdp_config:\n  fsdp_transformer_layer_cls_to_wrap: Block\n  fsdp_version: 2\n"
    )
    path.write_text(text)
    found = accelerate.read(path)
    expected = {
        "ACCELERATE_USE_FSDP": "true",
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "FSDP_VERSION": "2",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "Block",
        "FSDP_USE_ORIG_PARAMS": "true",
    }
    assert expected.items() <= found.variables.items()
    assert found.workers == 4
    unread = "num_machines isn't read: --nnodes sets the number of nodes"
    assert [note.removeprefix(f"{path}: ") for note in found.notes] == [unread]
    path.write_text(text.replace("version: 2", "version: 1"))
    assert [note.removeprefix(f"{path}: ") for note in accelerate.read(path).notes] == [
        "FSDP isn't modelled: it is launched as asked",
        unread,
    ]


def test_more_workers_than_accelerate_starts(tmp_path: Path) -> None:
    """On CPUs it ignores the file's number; here that number is used, with a line."""
    path = tmp_path / "cpu.yaml"
    path.write_text("distributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: 2\n")
    found = accelerate.read(path)
    assert found.workers == 2
    told = (
        "2 workers, whereas `accelerate launch` starts one process on CPUs, unless mpirun starts it"
    )
    assert found.notes == (f"{path}: {told}",)
    for other in (("use_cpu: true", "use_cpu: false"), ("processes: 2", "processes: 1")):
        path.write_text(path.read_text().replace(*other))
        assert accelerate.read(path).notes == ()


def test_a_section_that_accelerate_translates(tmp_path: Path) -> None:
    """Its other sections are kept."""
    path = tmp_path / "compiled.yaml"
    path.write_text("distributed_type: MULTI_GPU\ndynamo_config:\n  dynamo_backend: INDUCTOR\n")
    found = accelerate.read(path)
    assert found.variables["ACCELERATE_DYNAMO_BACKEND"] == "INDUCTOR"
    assert (found.workers, found.notes) == (None, ())


def test_a_number_too_long_for_an_integer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In accelerate's variables it gets a note."""
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "9" * 5000)
    assert "isn't a value of accumulation" in read(tmp_path).notes[0]


def test_trls_default_rank(tmp_path: Path) -> None:
    """ModelConfig's rank applies if adapters are requested."""
    source = "from trl import ModelConfig, SFTTrainer, TrlParser\n"
    assert read(tmp_path, "--use_peft", source=source).value(Fact.LORA_RANK) == 16
    assert read(tmp_path, "--use_peft", "--lora_r=4", source=source).value(Fact.LORA_RANK) == 4
    assert read(tmp_path, source=source).value(Fact.LORA_RANK) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("distributed_type: FSPD\n", ":1: `distributed_type`: FSPD is unknown"),
        ("num_processes: 8\ndistributed_type: XLA\n", ":2: safe-launch starts workers as torchrun"),
        ("compute_environment: AMAZON_SAGEMAKER\n", "AMAZON_SAGEMAKER needs another launcher"),
        ("distributed_type: FSDP\nfsdp: {}\n", "accelerate can't use it: ValueError: The config"),
        (
            "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 5\n",
            ":3: `zero_stage`: 5 isn't a ZeRO stage",
        ),
        ("distributed_type: [\n", "can't be read"),
    ],
)
def test_accelerate_configurations_that_are_refused(
    text: str, problem: str, tmp_path: Path
) -> None:
    """The error has file, line and key."""
    path = tmp_path / "accelerate.yaml"
    path.write_text(text)
    with pytest.raises(LaunchError) as caught:
        accelerate.read(path)
    assert problem in caught.value.problem


def values(workload: Workload, *names: Name) -> dict[Name, Value | None]:
    """Some of the known values."""
    return {name: workload.value(name) for name in names}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # examples/train/multi-gpu/deepspeed/train_zero2.sh of 4.x, reduced
        (
            (
                "--model Qwen/Qwen2.5-7B-Instruct --tuner_type lora --torch_dtype bfloat16 "
                "--per_device_train_batch_size 1 --lora_rank 8 --target_modules all-linear "
                "--gradient_accumulation_steps 2 --max_length 2048 --deepspeed zero2"
            ),
            {
                Fact.ENGINE: "deepspeed",
                Setting.ZERO_STAGE: 2,
                Setting.OFFLOAD: "none",
                Fact.REDUCE_BUCKET: 200_000_000,
                Fact.AUTO_BUCKETS: None,
                Setting.PRECISION: "bf16",
                Setting.GRADIENT_CHECKPOINTING: "reentrant",
                Setting.ACCUMULATION: 2,
                Fact.VISION_TRAINED: False,
                Fact.OPTIMIZER: "adamw",
            },
        ),
        # examples/train/rlhf/dpo/full.sh
        (
            (
                "--rlhf_type dpo --model Qwen/Qwen2.5-7B-Instruct --tuner_type full "
                "--torch_dtype bfloat16 --per_device_train_batch_size 4 --max_length 8192 "
                "--gradient_accumulation_steps 1 --deepspeed zero3 --attn_impl flash_attn"
            ),
            {
                Fact.OBJECTIVE: "preference",
                Fact.REFERENCE_MODEL: True,
                Fact.ADAPTER: "none",
                Fact.FROZEN_PARAMETERS: None,
                Fact.LORA_RANK: None,
                Fact.LORA_TARGETS: None,
                Fact.AUTO_BUCKETS: True,
                Fact.ATTENTION: "flash_attention_2",
            },
        ),
        # 4.x without its defaults: LoRA of rank 8, all linear layers, 16 samples a step
        (
            "--model Qwen/Qwen2.5-7B-Instruct --tuner_type lora",
            {
                Setting.MICRO_BATCH: 1,
                Setting.ACCUMULATION: 2,
                Setting.GRADIENT_CHECKPOINTING: "non_reentrant",
                Fact.LORA_RANK: 8,
                Fact.LORA_TARGETS: "all-linear",
                Fact.SEQUENCE_LENGTH: None,
                Setting.PRECISION: None,
            },
        ),
        # 3.x changed its defaults for accumulation and checkpointing: unknown without its version
        (
            "--model Qwen/Qwen2.5-7B-Instruct --train_type lora",
            {
                Setting.ACCUMULATION: None,
                Setting.GRADIENT_CHECKPOINTING: None,
                Fact.LORA_TARGETS: "all-linear",
            },
        ),
        (
            (
                "--model_type qwen2-7b-instruct --batch_size 2 --sft_type lora --dtype AUTO "
                "--lora_target_modules DEFAULT --quantization_bit 0 --use_flash_attn auto"
            ),
            {
                Setting.MICRO_BATCH: 2,
                Setting.ACCUMULATION: 1,
                Fact.SEQUENCE_LENGTH: 2048,
                Fact.LORA_TARGETS: None,
                Fact.QUANTIZATION_BITS: None,
                Fact.VISION_TRAINED: None,
                Fact.ATTENTION: None,
            },
        ),
        (
            (
                "--model x --tuner_type lora --quant_method bnb --quant_bits 4 --freeze_vit false "
                "--freeze_llm true --gradient_checkpointing false --target_modules q_proj v_proj"
            ),
            {
                Fact.QUANTIZATION_BITS: 4,
                Fact.VISION_TRAINED: True,
                Fact.LANGUAGE_TRAINED: False,
                Setting.GRADIENT_CHECKPOINTING: "off",
                Fact.LORA_TARGETS: "q_proj,v_proj",
                Setting.FIND_UNUSED_PARAMETERS: True,
            },
        ),
        (
            (
                "--model x --tuner_type lora --ddp_find_unused_parameters false --target_regex "
                r"^(language_model).*\.(q_proj|v_proj){1,2}$ --torch_dtype float32"
            ),
            {
                Fact.LORA_TARGETS: r"^(language_model).*\.(q_proj|v_proj){1,2}$",
                Setting.PRECISION: "fp16",
                Setting.FIND_UNUSED_PARAMETERS: False,
            },
        ),
        (
            "--model x --tuner_type boft",
            {Fact.ADAPTER: None, Fact.FROZEN_PARAMETERS: True},
        ),
    ],
    ids=["zero2", "dpo", "defaults", "3.x", "2.x", "qlora", "regex", "boft"],
)
def test_ms_swift(line: str, expected: dict[Name, Value | None], tmp_path: Path) -> None:
    """Its own names and defaults in the version of the flags."""
    workload = read(tmp_path, *line.split(), module="swift.cli.sft")
    assert values(workload, *expected) == expected
    assert workload.framework is Framework.TRANSFORMERS


def test_the_configurations_of_an_installed_ms_swift(tmp_path: Path) -> None:
    """Its shipped files have more information than their names."""
    folder = tmp_path / "swift" / "config"
    folder.mkdir(parents=True)
    (tmp_path / "swift" / "__init__.py").touch()
    zero = {"stage": 2, "reduce_bucket_size": 1e8, "overlap_comm": True}
    (folder / "zero2.json").write_text(json.dumps({"zero_optimization": zero}))
    workload = read(tmp_path, "--deepspeed", "zero2", module="swift.cli.sft")
    assert workload.value(Setting.ZERO_STAGE) == 2
    assert workload.value(Fact.REDUCE_BUCKET) == 100_000_000
    assert workload.value(Fact.OVERLAP_COMM) is True
    known = workload.known[Fact.REDUCE_BUCKET]
    assert known.source == "--deepspeed zero2: zero_optimization.reduce_bucket_size"


def test_packages_that_a_script_merely_imports_dont_own_it(tmp_path: Path) -> None:
    """A plain loop stays unknown with any libraries."""
    for source in (
        "from swift import Swift, LoRAConfig\n",
        "from FlagEmbedding import BGEM3FlagModel\n",
        "from llamafactory.extras import logging\n",
    ):
        workload = read(tmp_path, "--max_length", "64", source=source)
        assert workload.framework is Framework.NONE
        found = {name.value for name in workload.known} - {"adapter_hinted"}
        assert found == {"sequence_length"}
    for source in (
        "from swift.llm import sft_main\n",
        "from llamafactory.train.tuner import run_exp\n",
    ):
        assert read(tmp_path, source=source).framework is Framework.TRANSFORMERS


QWEN3_VL = """
model_name_or_path: Qwen/Qwen3-VL-4B-Instruct
image_max_pixels: 262144
stage: sft
do_train: true
finetuning_type: full
freeze_vision_tower: true
freeze_multi_modal_projector: true
freeze_language_model: false
deepspeed: ds_z3_config.json
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
bf16: true
resume_from_checkpoint: null
"""
"""examples/train_full/qwen3vl_full_sft.yaml of LLaMA-Factory, shortened."""
QWEN3_DPO = """
model_name_or_path: Qwen/Qwen3-4B-Instruct-2507
stage: dpo
finetuning_type: lora
lora_rank: 8
lora_target: all
pref_loss: sigmoid
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
bf16: true
enable_liger_kernel: true
"""
"""examples/train_lora/qwen3_lora_dpo.yaml, shortened, with Liger's kernels."""


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        (
            QWEN3_VL,
            (),
            {
                Fact.ADAPTER: "none",
                Fact.VISION_TRAINED: False,
                Fact.LANGUAGE_TRAINED: True,
                Fact.FROZEN_PARAMETERS: True,
                Setting.ZERO_STAGE: 3,
                Setting.GRADIENT_CHECKPOINTING: "reentrant",
                Setting.ACCUMULATION: 2,
                Setting.PRECISION: "bf16",
                # Trained weights become fp32; DeepSpeed casts them anyway.
                Fact.LOADED_PRECISION: "fp32",
                Fact.AUTO_BUCKETS: True,
                Fact.PREFETCH_BUCKET: 50_000_000,
            },
        ),
        (
            QWEN3_DPO,
            (),
            {
                Fact.OBJECTIVE: "preference",
                Fact.REFERENCE_MODEL: False,
                Fact.LORA_TARGETS: "all-linear",
                Fact.LOADED_PRECISION: "bf16",
                # The trainer needs the logits.
                Fact.LOSS: None,
                Setting.FIND_UNUSED_PARAMETERS: False,
            },
        ),
        (
            QWEN3_DPO,
            ("stage=sft", "use_reentrant_gc=false", "flash_attn=fa2", "optim=adamw_8bit"),
            {
                Fact.OBJECTIVE: None,
                Fact.LOSS: "fused",
                Setting.GRADIENT_CHECKPOINTING: "non_reentrant",
                Fact.ATTENTION: "flash_attention_2",
                Fact.OPTIMIZER: "adamw_8bit",
            },
        ),
        (
            QWEN3_DPO,
            ("pref_loss=simpo", "disable_gradient_checkpointing=true", "flash_attn=auto"),
            {
                Fact.OBJECTIVE: "preference",
                Fact.REFERENCE_MODEL: False,
                Setting.GRADIENT_CHECKPOINTING: "off",
                Fact.ATTENTION: None,
            },
        ),
        (
            QWEN3_DPO,
            ("finetuning_type=full", "stage=kto", "use_muon=true", "pure_bf16=true"),
            {
                # One sequence a sample, and a copy of the model.
                Fact.OBJECTIVE: "supervised",
                Fact.REFERENCE_MODEL: True,
                Fact.OPTIMIZER: "lion",
                Fact.LOADED_PRECISION: "bf16",
            },
        ),
    ],
    ids=["qwen3-vl", "dpo", "overrides", "simpo", "kto"],
)
@pytest.mark.parametrize("module", ["llamafactory.launcher", "src"])
def test_llama_factory(
    text: str,
    overrides: tuple[str, ...],
    expected: dict[Name, Value | None],
    module: str,
    tmp_path: Path,
) -> None:
    """Examples by module and by src/train.py, with overrides after the file."""
    zero = {"stage": 3, "reduce_bucket_size": "auto"}
    automatic = {"enabled": "auto"}
    config = {"zero_optimization": zero, "bf16": automatic, "fp16": automatic}
    Path("ds_z3_config.json").write_text(json.dumps(config))
    Path("x.yaml").write_text(text)
    if module == "src":
        source = "from llamafactory.train.tuner import run_exp\n"
        workload = read(tmp_path, "x.yaml", *overrides, source=source)
    else:
        workload = read(tmp_path, "x.yaml", *overrides, module=module)
    assert values(workload, *expected) == expected
    assert workload.notes == workload.notes[:1]
    assert workload.framework is Framework.TRANSFORMERS


def test_flags_of_llama_factory(tmp_path: Path) -> None:
    """examples/train_lora/qwen3_lora_sft.sh: other commands' names stay values."""
    line = (
        "train --model_name_or_path Qwen/Qwen3-4B --stage sft --do_train --finetuning_type lora "
        "--lora_target all --cutoff_len 1024 --per_device_train_batch_size 1 --bf16"
    )
    workload = read(tmp_path, *line.split(), module="llamafactory.cli")
    assert workload.value(Fact.SEQUENCE_LENGTH) == 1024
    assert workload.value(Fact.LORA_TARGETS) == "all-linear"
    assert workload.value(Setting.PRECISION) == "bf16"
    assert workload.known[Setting.GRADIENT_CHECKPOINTING].origin is Origin.DEFAULT


AXOLOTL = """
base_model: NousResearch/Llama-3.2-1B
load_in_4bit: true
adapter: qlora
sequence_len: 2048
sample_packing: true
lora_r: 32
lora_target_modules: [q_proj, v_proj]
gradient_accumulation_steps: 4
micro_batch_size: 2
optimizer: adamw_bnb_8bit
bf16: auto
fp16:
gradient_checkpointing: true
flash_attention: true
fsdp:
"""
"""examples/llama-3/qlora-1b.yml of axolotl, shortened."""


def test_a_file_of_axolotl(tmp_path: Path) -> None:
    """Its own names of arguments, and flags after the file."""
    Path("x.yml").write_text(AXOLOTL)
    workload = read(tmp_path, "x.yml", "--micro_batch_size=1", module="axolotl.cli.train")
    expected: dict[Name, Value | None] = {
        Fact.ADAPTER: "lora",
        Fact.LORA_RANK: 32,
        Fact.QUANTIZATION_BITS: 4,
        Fact.SEQUENCE_LENGTH: 2048,
        Fact.PACKED: True,
        Fact.ATTENTION: "flash_attention_2",
        Fact.OPTIMIZER: "adamw_8bit",
        Setting.MICRO_BATCH: 1,
        Setting.ACCUMULATION: 4,
        # Of the device and the model: the workers report them.
        Setting.PRECISION: None,
        Setting.GRADIENT_CHECKPOINTING: None,
    }
    assert values(workload, *expected) == expected
    assert workload.known[Fact.SEQUENCE_LENGTH].source == "x.yml: sequence_len"
    assert (workload.notes, workload.not_understood) == ((), ())
    assert workload.framework is Framework.TRANSFORMERS


def test_what_axolotl_takes_by_default(tmp_path: Path) -> None:
    """All weights, and one sample at a time."""
    Path("x.yml").write_text("base_model: x\nadapter:\n")
    workload = read(tmp_path, "x.yml", module="axolotl.cli.train")
    assert workload.value(Fact.ADAPTER) == "none"
    assert workload.value(Setting.MICRO_BATCH) == 1
    assert workload.known[Fact.SEQUENCE_LENGTH].source == "axolotl's default of sequence_len"
    assert workload.value(Setting.GRADIENT_CHECKPOINTING) == "off"


@pytest.mark.parametrize(
    ("source", "module", "line", "problem"),
    [
        (
            PLAIN,
            "",
            "--load_in_4bit --load_in_8bit true",
            "--load_in_4bit and --load_in_8bit: a model is loaded in 4 or in 8 bits, not in both",
        ),
        (
            "",
            "llamafactory.launcher",
            "--model_name_or_path x --finetuning_type full --quantization_bit 4",
            "--quantization_bit: a quantized model can't be trained with --finetuning_type full",
        ),
        (
            "",
            "swift.cli.sft",
            "--per_device_train_batch_size -4",
            "--per_device_train_batch_size: -4 isn't a batch size: at least 1 is needed",
        ),
    ],
)
def test_what_the_framework_would_refuse(
    source: str, module: str, line: str, problem: str, tmp_path: Path
) -> None:
    """It is reported before the launch, by the flags' names."""
    with pytest.raises(LaunchError) as caught:
        read(tmp_path, *line.split(), source=source, module=module)
    assert caught.value.problem == problem


@pytest.mark.parametrize(
    ("module", "line", "tokens"),
    [
        ("FlagEmbedding.finetune.embedder.decoder_only.base", "--train_group_size 4", 4 * 100 + 10),
        ("FlagEmbedding.finetune.reranker.decoder_only.base", "--train_group_size 4", 4 * 110),
        ("FlagEmbedding.finetune.embedder.encoder_only.m3", "", 8 * 100 + 10),
    ],
)
def test_flag_embedding(module: str, line: str, tokens: int, tmp_path: Path) -> None:
    """A sample is a query with a group of passages; a reranker reads them together."""
    always = "--query_max_len 10 --passage_max_len 100 --use_lora True --target_modules q_proj "
    workload = read(tmp_path, *f"{always} v_proj {line}".split(), module=module)
    assert workload.value(Fact.SEQUENCE_LENGTH) == tokens
    assert workload.value(Fact.LORA_TARGETS) == "q_proj,v_proj"
    assert workload.value(Setting.MICRO_BATCH) == 8
    assert workload.value(Fact.LOSS_SPANS_BATCH) is (True if "embedder" in module else None)


@pytest.mark.parametrize(
    ("module", "line", "frozen", "rank"),
    [
        ("FlagEmbedding.finetune.reranker.decoder_only.base", "", True, 64),
        ("FlagEmbedding.finetune.embedder.decoder_only.icl", "--lora_rank 8", True, 8),
        ("FlagEmbedding.finetune.reranker.decoder_only.layerwise", "--use_lora no", None, None),
        ("FlagEmbedding.finetune.embedder.encoder_only.base", "", None, None),
    ],
)
def test_flag_embeddings_adapters_need_no_flag(
    module: str, line: str, frozen: bool | None, rank: int | None, tmp_path: Path
) -> None:
    """Decoders get them by default; DDP always looks for unused parameters."""
    workload = read(tmp_path, *line.split(), module=module)
    assert workload.value(Fact.FROZEN_PARAMETERS) is frozen
    assert workload.value(Fact.LORA_RANK) == rank
    assert workload.value(Setting.FIND_UNUSED_PARAMETERS) is True
    asked = read(tmp_path, "--ddp_find_unused_parameters", "no", module=module)
    assert asked.value(Setting.FIND_UNUSED_PARAMETERS) is False


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("q_proj", "v_proj"), ["q_proj", "v_proj"]),
        (("q_proj,v_proj",), ["q_proj", "v_proj"]),
        (("q_proj, v_proj",), ["q_proj", "v_proj"]),
        (('["q_proj",', '"v_proj"]'), ["q_proj", "v_proj"]),
        (("[q_proj,v_proj]",), ["q_proj", "v_proj"]),
        ((r"llm\.\d{1,2}\.(q|v)_proj",), [r"llm\.\d{1,2}\.(q|v)_proj"]),
        (("[]",), []),
        (("",), []),
    ],
)
def test_lists_of_modules(words: tuple[str, ...], expected: list[str]) -> None:
    """Every format of a list, and one regex that stays whole."""
    assert words_of(Argument(words[0], Origin.FLAG, "--lora_target_modules", words)) == expected
    assert words_of(Argument(expected, Origin.CONFIG, "x.yaml: lora_target")) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--optim paged_adamw_8bit", "adamw_8bit"),
        ("--optim paged_adamw_32bit", "adamw"),
        ("--optim adamw_torch_fused", "adamw"),
        ("--optim lion_32bit", "lion"),
        ("--optim sgd", "sgd"),
        ("--optim adafactor", "adafactor"),
        ("--optim rmsprop", "lion"),
        ("--optim muon", "muon"),
        ("--optim galore_adamw", None),
        ("--optim ademamix", None),
        ("--optim adalomo", None),
        ("", "adamw"),
    ],
)
def test_optimizers(line: str, expected: str | None, tmp_path: Path) -> None:
    """Transformers' names by states; others get a note instead of a guess."""
    workload = read(tmp_path, *line.split())
    assert workload.value(Fact.OPTIMIZER) == expected
    assert bool(workload.unmodelled) == (expected is None)


def test_every_optimizer_of_transformers_is_known_or_noted(tmp_path: Path) -> None:
    """The installed version's list is used."""
    from transformers.training_args import OptimizerNames

    for one in OptimizerNames:
        workload = read(tmp_path, "--optim", one.value)
        assert (workload.value(Fact.OPTIMIZER) is None) == bool(workload.unmodelled), one


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--attn_implementation eager", "eager"),
        ("--attn_implementation kernels-community/flash-attn2", "flash_attention_2"),
        ("--attn_implementation kernels-community/flash-attention", "flash_attention_2"),
        ("--attn_impl flash_attention_3", "flash_attention_2"),
        ("--attn_impl flex_attention", None),
        ("--flash_attn true", "flash_attention_2"),
        ("--use_flash_attn True", "flash_attention_2"),
        ("--use_flash_attn False", None),
        ("--flash_attn disabled", "eager"),
    ],
)
def test_attention(line: str, expected: str | None, tmp_path: Path) -> None:
    """Kinds other than flash may be SDPA or eager: unknown."""
    workload = read(tmp_path, *line.split())
    assert workload.value(Fact.ATTENTION) == expected
    assert workload.notes == ()


@pytest.mark.parametrize(
    ("source", "line", "objective", "reference"),
    [
        ("from trl import DPOTrainer", "", "preference", True),
        ("from trl import DPOTrainer", "--use_peft", "preference", False),
        ("from trl import DPOTrainer", "--precompute_ref_log_probs", "preference", False),
        ("from trl import DPOTrainer\nfrom peft import LoraConfig", "", "preference", None),
        ("from trl import KTOTrainer", "", "supervised", True),
        ("from trl import ORPOTrainer", "", "preference", False),
        ("from trl import RewardTrainer", "", "preference", False),
        ("from trl import DPOTrainer, SFTTrainer, KTOTrainer", "", None, None),
        ("from trl import SFTTrainer", "", None, None),
    ],
)
def test_preferences(
    source: str, line: str, objective: str | None, reference: bool | None, tmp_path: Path
) -> None:
    """Pairs double the sequences; adapters can make the reference model unnecessary."""
    workload = read(tmp_path, *line.split(), source=f"{source}\n")
    assert workload.value(Fact.OBJECTIVE) == objective
    assert workload.value(Fact.REFERENCE_MODEL) == reference


@pytest.mark.parametrize(
    ("line", "vision", "language"),
    [
        # LLaVA 1.5's first stage, and LLaVA-NeXT's terms
        ("--vision_tower x --tune_mm_mlp_adapter True", False, False),
        ("--vision_tower x --freeze_backbone True", None, False),
        ("--mm_tunable_parts mm_vision_tower,mm_mlp_adapter", True, False),
        # qwen-vl-finetune
        ("--tune_mm_vision False --tune_mm_mlp True --tune_mm_llm True", False, True),
        # InternVL: full, and LoRA in its frozen language model
        ("--freeze_llm False --freeze_mlp False --freeze_backbone True", False, True),
        ("--freeze_llm True --freeze_backbone True --use_llm_lora 16", False, None),
        ("--freeze_backbone True", None, None),
    ],
)
def test_towers(line: str, vision: bool | None, language: bool | None, tmp_path: Path) -> None:
    """The trained parts, in the terms of common vision-language scripts."""
    workload = read(tmp_path, *line.split())
    assert workload.value(Fact.VISION_TRAINED) is vision
    assert workload.value(Fact.LANGUAGE_TRAINED) is language
    assert workload.value(Fact.FROZEN_PARAMETERS) is True


def test_internvls_adapters(tmp_path: Path) -> None:
    """Its flag is the rank, 0 for none."""
    workload = read(tmp_path, "--use_llm_lora", "16", "--use_backbone_lora", "0")
    assert workload.value(Fact.ADAPTER) == "lora"
    assert workload.value(Fact.LORA_RANK) == 16
    assert read(tmp_path, "--use_llm_lora", "0").value(Fact.ADAPTER) is None


def vision_model(patch: int, image: int) -> Model:
    """A model with a tower of these sides."""
    stack = Stack("model.layers.", 2, 64, 4, 4, 16, 128, True)
    tower = Stack("visual.blocks.", 2, 32, 2, 2, 16, 64, False, patch=patch, image=image, merge=2)
    return Model("X", 100, stack, tower, (), "x")


@pytest.mark.parametrize(
    ("line", "model", "patches"),
    [
        ("--max_pixels 50176", vision_model(14, 0), 256),
        ("--image_max_pixels 262144", vision_model(16, 0), 1024),
        ("--max_pixels 50176", None, None),
        ("--max_pixels 50176", vision_model(14, 448), None),
        ("--max_dynamic_patch 6 --use_thumbnail True", vision_model(14, 448), 7 * 1024),
        ("--max_dynamic_patch 6 --force_image_size 224", vision_model(14, 448), 6 * 256),
        ("", vision_model(14, 0), None),
    ],
)
def test_patches(line: str, model: Model | None, patches: int | None, tmp_path: Path) -> None:
    """Known if the model states its patch size."""
    (tmp_path / "train.py").write_text(PLAIN)
    request = LaunchRequest("train.py", False, tuple(line.split()), 2, "")
    found = dict(model_flags.image_statements(read_script(request), model))
    known = found.get(Fact.IMAGE_PATCHES)
    assert (None if known is None else known.value) == patches


@pytest.mark.parametrize(
    ("line", "length"),
    [
        ("--max_prompt_length 512 --max_completion_length 256", 768),
        ("--max_length -1", None),
        ("--max_length None --block_size 128", 128),
        ("--model_max_length 2048", 2048),
        ("", None),
    ],
)
def test_lengths(line: str, length: int | None, tmp_path: Path) -> None:
    """No limit is no length."""
    workload = read(tmp_path, *line.split())
    assert workload.value(Fact.SEQUENCE_LENGTH) == length
    assert workload.notes == ()


def test_liger_without_the_fused_loss(tmp_path: Path) -> None:
    """`liger_kernel_config` can disable it."""
    assert read(tmp_path, "--use_liger_kernel").value(Fact.LOSS) == "fused"
    config = '--liger_kernel_config={"fused_linear_cross_entropy": false}'
    assert read(tmp_path, "--use_liger_kernel", config).value(Fact.LOSS) is None
    assert read(tmp_path, "--loss_type", "chunked_nll").value(Fact.LOSS) == "chunked"


def test_deepspeed_chat(tmp_path: Path) -> None:
    """A bare `--deepspeed` is DeepSpeed's own switch; the stage is another flag."""
    line = "--per_device_train_batch_size 4 --max_seq_len 512 --deepspeed --zero_stage 3"
    workload = read(tmp_path, *line.split(), source="import deepspeed\n")
    assert workload.value(Fact.ENGINE) == "deepspeed"
    assert workload.value(Setting.ZERO_STAGE) == 3
    assert workload.value(Fact.SEQUENCE_LENGTH) == 512
    assert read(tmp_path, "--deepspeed", "--zero_stage", "7").notes == (
        "--zero_stage: '7' isn't a ZeRO stage",
    )


@pytest.mark.parametrize(
    ("zero", "note"),
    [
        ({"reduce_bucket_size": "5e8"}, "reduce_bucket_size: '5e8' is not a number of elements"),
        ({"sub_group_size": -1}, "sub_group_size: -1 is not a number of elements"),
        ({"reduce_bucket_size": True}, "reduce_bucket_size: True is not a number of elements"),
        ({"overlap_comm": 1}, "overlap_comm: 1 is neither true nor false"),
        ({"reduce_bucket_size": 0.5}, "reduce_bucket_size: 0.5 is not a number of elements"),
    ],
)
def test_sizes_that_make_no_sense(zero: dict[str, object], note: str, tmp_path: Path) -> None:
    """DeepSpeed reports them itself."""
    Path("ds.json").write_text(json.dumps({"zero_optimization": zero}))
    workload = read(tmp_path, "--deepspeed", "ds.json")
    assert workload.notes == (f"ds.json: zero_optimization.{note}",)
    assert not {Fact.REDUCE_BUCKET, Fact.SUB_GROUP, Fact.OVERLAP_COMM} & workload.known.keys()


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ({"type": "AdamW"}, "adamw"),
        ({"type": "CPUAdam"}, "adamw"),
        ({"type": "Lion"}, "lion"),
        ({"type": "Muon"}, "muon"),
        ({"type": "SGD"}, "sgd"),
        ({"type": "SGD", "params": {"momentum": 0.9}}, "lion"),
        ({"type": "Shampoo"}, None),
        ({"type": ["Adam"]}, "adamw"),
        ({}, None),
    ],
)
def test_deepspeeds_own_optimizer(
    optimizer: dict[str, object], expected: str | None, tmp_path: Path
) -> None:
    """Its type decides the states; unknown ones get a note."""
    Path("ds.json").write_text(json.dumps({"optimizer": optimizer}))
    workload = read(tmp_path, "--deepspeed_config", "ds.json", source="import deepspeed\n")
    assert workload.value(Fact.OPTIMIZER) == expected
    assert bool(workload.unmodelled) == (optimizer.get("type") == "Shampoo")


@pytest.mark.parametrize(
    ("config", "fact", "expected"),
    [
        ({"optimizer": {"type": "Muon"}}, Fact.REDUCE_SCATTER, True),
        (
            {"optimizer": {"type": "Muon"}, "zero_optimization": {"reduce_scatter": False}},
            Fact.REDUCE_SCATTER,
            False,
        ),
        ({"optimizer": {"type": "AdamW"}}, Fact.REDUCE_SCATTER, None),
        (
            {"zero_optimization": {"stage3_use_all_reduce_for_fetch_params": True}},
            Fact.FETCHED_BY_ALL_REDUCE,
            True,
        ),
        ({"zero_optimization": {"stage": 3}}, Fact.FETCHED_BY_ALL_REDUCE, None),
        (
            {"zero_optimization": {"offload_optimizer": {"super_offload": True}}},
            Fact.SUPER_OFFLOAD,
            True,
        ),
        (
            {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}},
            Fact.SUPER_OFFLOAD,
            None,
        ),
        (
            {"zero_optimization": {"zero_hpz_partition_size": 8, "zero_quantized_weights": True}},
            Fact.SHARDS_QUANTIZED,
            True,
        ),
        ({"zero_optimization": {"zero_hpz_partition_size": 8}}, Fact.SHARDS_QUANTIZED, None),
        ({"zero_optimization": {"zero_quantized_weights": True}}, Fact.SHARDS_QUANTIZED, None),
        ({"checkpoint": {"load_universal": True}}, Fact.LOADS_UNIVERSAL, True),
        ({"checkpoint": {}}, Fact.LOADS_UNIVERSAL, None),
        ({"scheduler": {"type": "WarmupLR"}}, Fact.WARMUP_WITHOUT_RATE, True),
        (
            {"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}},
            Fact.WARMUP_WITHOUT_RATE,
            None,
        ),
        (
            {"scheduler": {"type": "WarmupLR"}, "optimizer": {"params": {"lr": 0.001}}},
            Fact.WARMUP_WITHOUT_RATE,
            None,
        ),
        ({"scheduler": {"type": "WarmupCosineLR"}}, Fact.WARMUP_WITHOUT_RATE, None),
        (
            {"scheduler": {"type": "OneCycle", "params": {"cycle_second_stair_count": 4}}},
            Fact.RATE_IN_STAIRS,
            True,
        ),
        (
            {"scheduler": {"type": "OneCycle", "params": {"cycle_first_stair_count": 0}}},
            Fact.RATE_IN_STAIRS,
            None,
        ),
    ],
)
def test_what_silent_failures_hang_on(
    config: dict[str, object], fact: Fact, expected: bool | None, tmp_path: Path
) -> None:
    """DeepSpeed keys used only for silent failures; defaults only if they matter."""
    Path("ds.json").write_text(json.dumps(config))
    workload = read(tmp_path, "--deepspeed_config", "ds.json", source="import deepspeed\n")
    assert workload.value(fact) is expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from trl import ORPOTrainer, ORPOConfig\n", "ORPOTrainer"),
        ("from trl import DPOTrainer, SFTTrainer\n", None),
        ("from mine import DPOTrainer\n", None),
        ("from trl import RichProgressCallback\n", None),
    ],
)
def test_the_trainer_of_trl(source: str, expected: str | None, tmp_path: Path) -> None:
    """Known if a script imports exactly one."""
    assert read(tmp_path, source=source).value(Fact.TRAINER) == expected


def test_compiling_is_read(tmp_path: Path) -> None:
    """The Trainer's flag is used."""
    source = "from transformers import TrainingArguments\n"
    assert read(tmp_path, "--torch_compile", source=source).value(Fact.COMPILED) is True
    assert read(tmp_path, source=source).value(Fact.COMPILED) is None


ODD = ("", "-1", "0", "yes", "NaN", "1e9", "[", "{}", "[]", "all", "9" * 5000, "\x00", "é")
READ = """
max_length passage_max_len train_group_size optim optimizer attn_impl flash_attn loss_type
liger_kernel_config use_liger_kernel rlhf_type stage pref_loss ref_model torch_dtype
use_lora tuner_type finetuning_type lora_rank lora_target_modules modules_to_save
freeze_vit tune_llm mm_tunable_parts quantization_bit load_in_4bit max_pixels zero_stage
batch_size gradient_accumulation_steps gradient_checkpointing
gradient_checkpointing_kwargs use_reentrant_gc pure_bf16 use_muon use_llm_lora
freeze_backbone max_dynamic_patch
"""


@pytest.mark.parametrize("module", ["", "swift.cli.sft", "swift.cli.rlhf", "llamafactory.cli"])
def test_no_value_is_a_traceback(module: str, tmp_path: Path) -> None:
    """Any value is read, noted, refused or ignored."""
    always = ("--model_name_or_path", "x")
    for flag in READ.split():
        for text in ODD:
            with suppress(LaunchError):
                read(tmp_path, *always, f"--{flag}={text}", module=module)
        for value in (None, True, -1, 2.5, [], ["a", 1], {"a": {}}, "x"):
            Path("odd.json").write_text(json.dumps({"model_name_or_path": "x", flag: value}))
            with suppress(LaunchError):
                read(tmp_path, "odd.json", module=module)
