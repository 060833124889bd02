"""Tied embeddings with one end trained as a copy beside adapters."""

from __future__ import annotations

from pathlib import Path

import pytest
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact
from safe_launch.workload.read_workload import read_workload
from support.models import write_model
from support.tables import table

CONFIG = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


@table(
    ("more", "tied", "expected"),
    [
        ("--modules_to_save lm_head", True, True),
        ("--modules_to_save embed_tokens norm", True, True),
        ("--modules_to_save model.embed_tokens", True, True),
        ("--modules_to_save lm_head", False, None),
        ("--modules_to_save score", True, None),
        ("--modules_to_save lm_head --ensure_weight_tying", True, None),
        ("", True, None),
    ],
)
def test_only_an_end_of_a_tied_model_counts(
    more: str, tied: bool, expected: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless peft is asked to keep the tie, or may be."""
    monkeypatch.chdir(tmp_path)
    write_model(Path("m"), {**CONFIG, "tie_word_embeddings": tied})
    source = "from trl import ModelConfig, SFTTrainer, TrlParser\n"
    Path("train.py").write_text(source)
    line = ("--use_peft", "--model_name_or_path=m", *more.split())
    workload = read_workload(LaunchRequest("train.py", False, line, 2, "--nproc"))
    assert workload.value(Fact.TIED_SAVED) is expected
