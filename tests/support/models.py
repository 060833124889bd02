"""Models whose memory is estimated in tests."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from safe_launch.core.certainty import Origin
from safe_launch.core.choices import Framework, Precision
from safe_launch.core.hardware import Accelerator, Hardware
from safe_launch.core.model import Model
from safe_launch.core.settings import Fact, Name, Value
from safe_launch.core.workload import Known, Workload
from safe_launch.workload.models.from_config import model_from_config

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
    """The shape that a configuration describes."""
    model = model_from_config(config, None, "test")
    assert model is not None
    return model


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
