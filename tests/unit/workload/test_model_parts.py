"""Sizes in configurations, headers of weights, frameworks' terms."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from safe_launch.core.choices import Attention, Optimizer, Precision
from safe_launch.core.errors import LaunchError
from safe_launch.frameworks.config_files.vocabulary import (
    attention_named,
    dtype_named,
    optimizer_named,
)
from safe_launch.workload.models.stack_sizes import ConfigSizes, MissingSizeError
from safe_launch.workload.models.stored_weights import read_tensors, shards

SIZES = ConfigSizes({"n_embd": 8, "num_attention_heads": 4, "num_layers": 3, "bias": True}, "c: ")


def test_sizes_by_any_key() -> None:
    """For each type of model, derived from others, or reported as missing."""
    assert [SIZES[name] for name in ("hidden", "layers", "head_dim", "kv")] == [8, 3, 2, 4]
    assert SIZES.get("experts", 7) == 7
    with pytest.raises(MissingSizeError, match=r"^c: vocab_size$"):
        SIZES["vocab"]


@pytest.mark.parametrize("value", [0, True, "8", 1.5])
def test_what_is_no_size(value: object) -> None:
    """It is refused with its key."""
    with pytest.raises(LaunchError, match="c: hidden_size is a positive whole number"):
        ConfigSizes({"hidden_size": value}, "c: ")["hidden"]


def write(path: Path, header: object, content: bytes = b"") -> Path:
    """Writes a safetensors file."""
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)
    return path


def test_a_header(tmp_path: Path) -> None:
    """Names, types and shapes; bytes on request."""
    entry = {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}
    path = write(tmp_path / "model.safetensors", {"w": entry, "__metadata__": {}}, b"abcd")
    (tensor,) = read_tensors([path]).values()
    assert (tensor.name, tensor.dtype, tensor.shape) == ("w", "BF16", (2,))
    assert tensor.content() == b"abcd"
    assert shards(tmp_path) == [path]


@pytest.mark.parametrize(
    ("header", "content", "problem"),
    [
        ([], b"", "isn't a JSON object"),
        ({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, b"", "entry 'w'"),
        ({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"ab", "bytes exist"),
    ],
)
def test_a_broken_file(tmp_path: Path, header: object, content: bytes, problem: str) -> None:
    """It is refused with the fault."""
    with pytest.raises(LaunchError, match=problem):
        read_tensors([write(tmp_path / "model.safetensors", header, content)])


def test_files_that_are_not_the_weights(tmp_path: Path) -> None:
    """A Git LFS pointer, and an index that names a missing file."""
    pointer = tmp_path / "model.safetensors"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\n" + "x" * 99)
    with pytest.raises(LaunchError, match="pointer of Git LFS"):
        read_tensors([pointer])
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"w": "model-1.safetensors"}}')
    with pytest.raises(LaunchError, match=r"weight_map names model-1\.safetensors"):
        shards(tmp_path)


def test_frameworks_words() -> None:
    """The first matching part decides; optimizers with other states are unknown."""
    assert optimizer_named("paged_adamw_8bit") is Optimizer.ADAMW_8BIT
    assert optimizer_named("galore_adamw") is None
    assert attention_named("flash_attention_2") is Attention.FLASH
    assert attention_named("auto") is None
    assert dtype_named("torch.BFloat16") is Precision.BF16
    assert dtype_named("auto") is None
