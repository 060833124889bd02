"""Models in folders and caches: safetensors headers, quantized weights, broken files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safe_launch.core.errors import LaunchError
from safe_launch.core.model import Model, Weight
from safe_launch.core.request import LaunchRequest
from safe_launch.core.settings import Fact
from safe_launch.workload.models.from_folder import read_model
from safe_launch.workload.read_workload import read_workload
from support.lazy import Lazy
from support.models import model_of, weights_of

torch = Lazy("torch")
safetensors = Lazy("safetensors.torch")

Config = dict[str, Any]

SMALL: Config = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "tie_word_embeddings": False,
}


def table(weights: tuple[Weight, ...]) -> dict[tuple[str, tuple[int, ...]], int]:
    """Counts by name and shape."""
    return {(weight.name, weight.shape): weight.count for weight in weights}


def tensors_of(config: Config) -> dict[str, torch.Tensor]:
    """Zeros for all weights of a configuration."""
    tensors = {}
    for weight in weights_of(config):
        for index in range(weight.count):
            name = weight.name.replace("*", str(index))
            tensors[name] = torch.zeros(weight.shape, dtype=torch.bfloat16)
    return tensors


def folder(path: Path, config: Config | str, **files: dict[str, torch.Tensor]) -> Path:
    """A folder with a configuration and files of tensors."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    for name, tensors in files.items():
        safetensors.save_file(tensors, path / f"{name}.safetensors")
    return path


def read(path: Path | str, **environment: str) -> tuple[Model | None, list[str]]:
    """The result of `read_model`, and its notes."""
    notes: list[str] = []
    return read_model(str(path), notes, environment), notes


def test_headers_alone_tell_an_unknown_architecture(tmp_path: Path) -> None:
    """Names, shapes, layers and gate come from the weights."""
    path = folder(tmp_path / "m", {**SMALL, "model_type": "new"}, model=tensors_of(SMALL))
    model, notes = read(path)
    assert model is not None, notes
    assert table(model.weights) == table(model_of(SMALL).weights)
    assert model.language == model_of(SMALL).language
    assert (model.vocabulary, model.tied) == (256, False)


def test_shards_are_read_together(tmp_path: Path) -> None:
    """The index lists the model's files."""
    tensors = tensors_of(SMALL)
    names = sorted(tensors)
    parts = {"a": {n: tensors[n] for n in names[:9]}, "b": {n: tensors[n] for n in names[9:]}}
    path = folder(tmp_path / "m", SMALL, **parts, stray={"other": torch.zeros(5)})
    index = {"weight_map": {n: f"{part}.safetensors" for part in parts for n in parts[part]}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    model, _ = read(path)
    assert model is not None
    assert table(model.weights) == table(model_of(SMALL).weights)
    (path / "b.safetensors").unlink()
    with pytest.raises(LaunchError, match=r"weight_map names b\.safetensors"):
        read(path)


def test_tied_output_counts_once(tmp_path: Path) -> None:
    """Even if the checkpoint has it twice."""
    path = folder(tmp_path / "m", {**SMALL, "tie_word_embeddings": True}, model=tensors_of(SMALL))
    model, _ = read(path)
    assert model is not None
    assert model.tied
    assert model.vocabulary == 256
    assert model.parameters == model_of({**SMALL, "tie_word_embeddings": True}).parameters


def quantized(path: Path, config: Config, pieces: dict[str, torch.Tensor]) -> Weight:
    """The first layer's query projection, stored in parts."""
    tensors = tensors_of(SMALL)
    del tensors["model.layers.0.self_attn.q_proj.weight"]
    named = {f"model.layers.0.self_attn.q_proj.{name}": one for name, one in pieces.items()}
    model, notes = read(folder(path, {**SMALL, **config}, model={**tensors, **named}))
    assert model is not None, notes
    return next(weight for weight in model.weights if weight.bits is not None)


@pytest.mark.parametrize("kind", ["gptq", "awq", "bnb4", "bnb8", "fp8", "packed"])
def test_quantized_weights_keep_their_own_shape(tmp_path: Path, kind: str) -> None:
    """Inputs, outputs and all stored bits; 64 x 64 in groups of 32."""
    state = json.dumps({"shape": [64, 64], "blocksize": 64}).encode()
    settings = {"gptq": {"bits": 4}, "awq": {"bits": 4}}.get(kind, {})
    integers = {"qzeros": torch.zeros(2, 8, dtype=torch.int32), "scales": torch.zeros(2, 64).half()}
    pieces = {
        "gptq": {"qweight": torch.zeros(8, 64, dtype=torch.int32), **integers},
        "awq": {"qweight": torch.zeros(64, 8, dtype=torch.int32), **integers},
        "bnb4": {
            "weight": torch.zeros(2048, 1, dtype=torch.uint8),
            "weight.absmax": torch.zeros(64),
            "weight.quant_state.bitsandbytes__nf4": torch.tensor(list(state), dtype=torch.uint8),
        },
        "bnb8": {"weight": torch.zeros(64, 64, dtype=torch.int8), "SCB": torch.zeros(64)},
        "fp8": {
            "weight": torch.zeros(64, 64, dtype=torch.float8_e4m3fn),
            "weight_scale_inv": torch.zeros(1, 1),
        },
        "packed": {
            "weight_packed": torch.zeros(64, 8, dtype=torch.int32),
            "weight_scale": torch.zeros(64, 2).half(),
            "weight_shape": torch.tensor([64, 64]),
        },
    }[kind]
    weight = quantized(tmp_path / "m", {"quantization_config": settings}, pieces)
    stored = sum(one.numel() * one.element_size() for one in pieces.values())
    assert (weight.name, weight.shape) == ("model.layers.*.self_attn.q_proj.weight", (64, 64))
    assert weight.bits == pytest.approx(8 * stored / 64**2, abs=1e-3)
    assert not weight.trained


def test_broken_files_are_named(tmp_path: Path) -> None:
    """Faults that would end the training are refused early, with file and field."""
    path = folder(tmp_path / "m", SMALL, model=tensors_of(SMALL))
    file = path / "model.safetensors"
    whole = file.read_bytes()
    for content, message in (
        (whole[:-2], r"model\.safetensors isn't a complete safetensors file: .* bytes exist"),
        (whole[:100], "its header is cut off"),
        (b"\x08" + bytes(7) + b"not JSON", "its header isn't JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "pointer of Git LFS"),
        (b"", "its header is cut off"),
    ):
        file.write_bytes(content)
        with pytest.raises(LaunchError, match=message):
            read(path)
    file.write_bytes(whole)
    for text, message in (
        ("{", r"config\.json:1: not JSON"),
        ("[]", r"config\.json: a JSON object"),
        (json.dumps({**SMALL, "hidden_size": -1}), r"config\.json: hidden_size is a positive"),
        (json.dumps({**SMALL, "num_hidden_layers": 0}), "num_hidden_layers is a positive"),
        (json.dumps({**SMALL, "vocab_size": "many"}), "vocab_size is a positive"),
    ):
        folder(path, text)
        with pytest.raises(LaunchError, match=message):
            read(path)


@pytest.mark.parametrize(
    ("config", "note"),
    [
        (
            {**SMALL, "model_type": "foo"},
            "config.json: no transformers that is installed here builds",
        ),
        ({}, 'builds "None"'),
    ],
)
def test_what_stays_unknown_is_noted(tmp_path: Path, config: Config, note: str) -> None:
    """A launch that may work isn't refused; the note has file and field."""
    model, notes = read(folder(tmp_path / "m", config))
    assert model is None
    assert len(notes) == 1
    assert note in notes[0]


@pytest.mark.parametrize("name", ["~nobody/x", "a\0b", "x" * 5000, "../..", "", "a/b/c"])
def test_names_that_no_file_can_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """They get a note, like any missing model."""
    monkeypatch.chdir(tmp_path)
    notes: list[str] = []
    assert read_model(name, notes, {}) is None
    assert len(notes) == 1


def test_a_hub_name_is_looked_up_in_the_caches(tmp_path: Path) -> None:
    """The revision of `main` in each variable's folder; the network isn't used."""
    hub = tmp_path / "hub" / "models--org--name"
    folder(hub / "snapshots" / "new", SMALL, model=tensors_of(SMALL))
    folder(hub / "snapshots" / "old", {**SMALL, "num_hidden_layers": 1})
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("new")
    for variables in (
        {"HF_HOME": str(tmp_path)},
        {"HF_HUB_CACHE": str(tmp_path / "hub")},
        {"TRANSFORMERS_CACHE": str(tmp_path / "hub")},
    ):
        model, _ = read("org/name", **variables)
        assert model is not None
        assert model.language.layers == 3
    folder(tmp_path / "ms" / "models" / "org" / "name-1___5", SMALL, model=tensors_of(SMALL))
    model, _ = read("org/name-1.5", MODELSCOPE_CACHE=str(tmp_path / "ms"), HOME=str(tmp_path))
    assert model is not None
    model, notes = read("org/other", HF_HOME=str(tmp_path), HOME=str(tmp_path))
    assert model is None
    assert "neither a folder nor in a cache" in notes[0]


def test_a_flag_names_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workload has the model; unknown facts are noted with the flag."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "train.py").write_text("import transformers\n")
    folder(tmp_path / "m", SMALL, model=tensors_of(SMALL))

    def workload(*arguments: str) -> Any:
        return read_workload(LaunchRequest("train.py", False, arguments, 2, ""))

    found = workload("--model_name_or_path", "m")
    assert table(found.model.weights) == table(weights_of(SMALL))
    assert found.model.source == "m: config.json and 1 safetensors header"
    missing = workload("--model", "org/none")
    assert missing.model is None
    assert missing.unmodelled[-1].startswith("--model: org/none is neither")


@pytest.mark.parametrize(
    ("given", "stored", "loaded"),
    [("m", "bfloat16", "bf16"), ("m/config.json", None, "fp32"), ("org/none", "bfloat16", None)],
)
def test_a_model_from_scratch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str,
    stored: str | None,
    loaded: str | None,
) -> None:
    """Its configuration gives the type; a flag with a model overrides it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "run_clm.py").write_text("from transformers import AutoConfig, Trainer\n")
    folder(tmp_path / "m", {**SMALL, "torch_dtype": stored} if stored else SMALL)
    folder(tmp_path / "other", {**SMALL, "num_hidden_layers": 1})
    scratch = ("--model_type", "qwen2", "--config_name", given)
    found = read_workload(LaunchRequest("run_clm.py", False, scratch, 2, ""))
    weights = found.model.weights if found.model else ()
    assert table(weights) == table(weights_of(SMALL) if loaded else ())
    assert found.value(Fact.LOADED_PRECISION) == loaded
    assert [note[:23] for note in found.unmodelled] == ["--config_name: org/none"] * (not loaded)
    named = (*scratch, "--model_name_or_path", "other")
    found = read_workload(LaunchRequest("run_clm.py", False, named, 2, ""))
    assert found.model
    assert found.model.source == "other: config.json"
    assert Fact.LOADED_PRECISION not in found.known


def test_hydras_config_name_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that can't be folders aren't models either."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import hydra\n")
    for name in ("llama", "x" * 5000):
        words = ("--config-name", name)
        found = read_workload(LaunchRequest("train.py", False, words, 2, ""))
        assert (found.model, found.unmodelled) == (None, ())
