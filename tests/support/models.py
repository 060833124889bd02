"""Models whose memory is estimated in tests."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safe_launch.core.choices import Framework, Precision
from safe_launch.core.hardware import Accelerator, Hardware
from safe_launch.core.model import Model, Weight
from safe_launch.core.settings import Fact, Name, Value
from safe_launch.core.workload import Known, Origin, Workload
from safe_launch.workload.models.from_config import model_from_config
from safe_launch.workload.models.stack_sizes import ConfigSizes

GIB = 2**30


DEVICE = Accelerator(
    name="device",
    kind="cuda",
    memory=80 * GIB,
    taken=GIB,
    precisions=frozenset(Precision),
    compute=3e14,
    bandwidth=2e12,
    link=2e11,
    node_link=2e10,
    host_link=2e10,
    environment=MappingProxyType({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
)


HARDWARE = Hardware(DEVICE, 8, 64, 1024 * GIB)


QWEN2_7B = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}


def model_of(config: dict[str, Any]) -> Model:
    """The model of a configuration, with weights like Llama's whatever its type."""
    model = model_from_config(config, weights_of(config), "test")
    assert model is not None
    return model


def weights_of(config: dict[str, Any]) -> tuple[Weight, ...]:
    """A language model's weights, and those of a vision tower where there is one."""
    text = config.get("text_config", config)
    vision = config.get("vision_config")
    weights = _language(ConfigSizes(text), str(text.get("model_type")))
    return weights if vision is None else (*weights, *_tower(ConfigSizes(vision)))


def _language(sizes: ConfigSizes, kind: str) -> tuple[Weight, ...]:
    hidden, layers, heads = sizes["hidden"], sizes["layers"], sizes["heads"]
    queries, keys = heads * sizes["head_dim"], sizes["kv"] * sizes["head_dim"]
    experts = sizes.get("experts")
    ffn = sizes["expert_ffn"] if experts else sizes.get("ffn", 4 * hidden)
    shapes = {"self_attn.q_proj": (queries, hidden), "self_attn.o_proj": (hidden, queries)}
    shapes |= dict.fromkeys(("self_attn.k_proj", "self_attn.v_proj"), (keys, hidden))
    part = "mlp.experts.*" if experts else "mlp"
    shapes |= {f"{part}.gate_proj": (ffn, hidden), f"{part}.up_proj": (ffn, hidden)}
    shapes |= {f"{part}.down_proj": (hidden, ffn)}
    found = [Weight("model.embed_tokens.weight", (sizes["vocab"], hidden))]
    if not sizes.config.get("tie_word_embeddings"):
        found.append(Weight("lm_head.weight", (sizes["vocab"], hidden)))
    found.append(Weight("model.norm.weight", (hidden,)))
    norms = ("input_layernorm", "post_attention_layernorm")
    found += [Weight(f"model.layers.*.{name}.weight", (hidden,), layers) for name in norms]
    for name, (rows, columns) in shapes.items():
        count = layers * experts if "experts" in name else layers
        found.append(Weight(f"model.layers.*.{name}.weight", (rows, columns), count))
        if kind.startswith("qwen2") and name.endswith(("q_proj", "k_proj", "v_proj")):
            found.append(Weight(f"model.layers.*.{name}.bias", (rows,), layers))
    return tuple(found)


def _tower(sizes: ConfigSizes) -> tuple[Weight, ...]:
    width, layers = sizes.get("embed_dim") or sizes["hidden"], sizes["layers"]
    ffn = sizes.get("ffn", 4 * width)
    shapes = {"norm1": (width,), "norm2": (width,), "attn.qkv": (3 * width, width)}
    shapes |= {"attn.proj": (width, width), "mlp.fc1": (ffn, width), "mlp.fc2": (width, ffn)}
    return tuple(Weight(f"visual.blocks.*.{k}.weight", v, layers) for k, v in shapes.items())


def write_model(folder: Path, config: dict[str, Any]) -> None:
    """A model's folder: the configuration, and weights of which there are only the headers."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for weight in weights_of(config):
        for index in range(weight.count):
            begin, end = end, end + 2 * weight.size
            entry = {"dtype": "BF16", "shape": weight.shape, "data_offsets": [begin, end]}
            header[weight.name.replace("*", str(index))] = entry
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)  # takes no room on the disk


def workload_of(model: Model, facts: dict[Name, Value]) -> Workload:
    """A workload on DeepSpeed unless the facts say otherwise."""
    known = {Fact.ENGINE: "deepspeed", Fact.SEQUENCE_LENGTH: 2048, **facts}
    return Workload(
        Framework.TRANSFORMERS,
        MappingProxyType(
            {name: Known(one, Origin.FLAG, f"--{name}") for name, one in known.items()}
        ),
        model=model,
    )


LORA: dict[Name, Value] = {
    Fact.ADAPTER: "lora",
    Fact.LORA_RANK: 16,
    Fact.LORA_TARGETS: "all-linear",
}
