"""The shape of a model: its weights and its stacks of layers, without any value of a weight.

The process that has the model describes it as JSON, which the receiver checks.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .choices import Output
from .setting_table import TOO_LARGE

DIMENSIONS = 8
"""Of a described weight, at most."""
COUNT = 1 << 28
"""Equal weights of a description, at most."""
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_EMBEDDINGS = ("wte", "wpe")
_OUTPUTS = ("lm_head", "embed_out", "output_layer", "output")
_WRAPPED = ("modules_to_save", "original_module")
"""Modules that replace one that peft trains in full (peft/utils/other.py)."""
_CLASSES = {
    Output.SCORES: re.compile(r"For(\w*Classification|MultipleChoice|QuestionAnswering)$"),
    Output.VOCABULARY: re.compile(
        r"(For(CausalLM|ConditionalGeneration|MaskedLM|Seq2SeqLM|ImageTextToText|Vision2Seq"
        r"|PreTraining)|LMHeadModel)$"
    ),
}


def output_of(class_name: str) -> Output | None:
    """The output of a model of transformers, by the name of its class."""
    return next((each for each, names in _CLASSES.items() if names.search(class_name)), None)


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter of a model, or equal parameters of several layers.

    Attributes:
        name: as in the model's state dict, every number in it (of a layer, an expert) as `*`, e.g.
            `model.layers.*.self_attn.q_proj.weight`.
        shape: elements along each dimension, regardless of partitioning or quantization; a linear
            layer's weight is [outputs, inputs].
        count: the number of equal parameters.
        trained: whether it takes a gradient.
        bits: bits of an element as stored on the accelerator if it is quantized, else None.
    """

    name: str
    shape: tuple[int, ...]
    count: int = 1
    trained: bool = True
    bits: float | None = None

    @property
    def size(self) -> int:
        """Elements of one parameter."""
        return math.prod(self.shape)

    @property
    def total(self) -> int:
        """Elements of all equal parameters."""
        return self.size * self.count

    @property
    def module(self) -> str:
        """Name of the module that owns it."""
        return self.name.rpartition(".")[0]

    @property
    def is_copy(self) -> bool:
        """Whether it is the copy that peft trains in place of a frozen weight."""
        return ".modules_to_save." in self.name

    @property
    def _module_name(self) -> str:
        """The last part of its module's name, without peft's wrappers."""
        parts = self.module.split(".")
        return parts[-2] if len(parts) > 1 and parts[-1] in _WRAPPED else parts[-1]

    @property
    def is_output(self) -> bool:
        """Whether it is the weight of an output projection, by its name in language models."""
        last = self._module_name
        named = last in _OUTPUTS and self.name.endswith(".weight") and "*" not in self.name
        return named and len(self.shape) == 2

    @property
    def is_embedding(self) -> bool:
        """Whether it is the weight of an embedding, by its name."""
        last = self._module_name
        named = last in _EMBEDDINGS or "embed" in last
        return named and len(self.shape) == 2 and not self.is_output

    @property
    def is_linear(self) -> bool:
        """Whether it is the weight of a linear layer inside the model."""
        matrix = self.name.endswith(".weight") and len(self.shape) == 2
        return matrix and not self.is_output and not self.is_embedding


@dataclass(frozen=True, slots=True)
class Stack:
    """Equal transformer layers that follow each other.

    Attributes:
        prefix: beginning of the names of the layers' weights, e.g. `model.layers.`.
        hidden: width of the residual stream.
        kv_heads: heads of keys and values; fewer than `heads` in grouped-query attention.
        ffn: width of the feed-forward part, or of one expert.
        gated: whether the feed-forward part also has a gate projection (SwiGLU, GeGLU).
        experts: experts of a layer; 0 for a dense one.
        experts_per_token: experts that one token passes through.
        patch: side of an image's patch, in pixels; 0 in a language model.
        image: side of the image that the tower takes, in pixels; 0 if any size is taken, or in
            a language model.
        merge: patches along each side that become one token of the language model; 1 for none.
        slice: side of the slices that an image is cut into, in pixels; 0 if it isn't.
        slices: how many there are at most, with the image as a whole; 1 if it isn't cut.
        activation: the feed-forward part's function, e.g. `silu`; empty if it isn't known.
        rotary: whether queries and keys are rotated, which makes new tensors of them.
        scales_in_fp32: whether a norm multiplies with its weight in fp32, as Gemma's do.
        drops_hidden: whether the outputs of attention and feed-forward part go through dropout.
        drops_attention: whether the attention's probabilities do.
    """

    prefix: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gated: bool
    experts: int = 0
    experts_per_token: int = 0
    patch: int = 0
    image: int = 0
    merge: int = 1
    slice: int = 0
    slices: int = 1
    activation: str = ""
    rotary: bool = True
    scales_in_fp32: bool = False
    drops_hidden: bool = False
    drops_attention: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """The shape of the model that is trained.

    Attributes:
        architecture: the class, e.g. `Qwen2ForCausalLM`.
        vocabulary: entries of the output projection; 0 without one.
        language: the layers of the language model.
        vision: the layers of the vision tower; None without one.
        weights: all parameters; tied ones once.
        source: where it was read, e.g. `Qwen2-7B/config.json and 4 safetensors headers`.
        tied: whether the output projection is the embedding.
        context: longest sequence by the configuration, in tokens; 0 if it gives none.
        model_type: the configuration's `model_type`, e.g. `qwen2`; empty if it isn't known.
        stored: type of the weights on disk, e.g. `bfloat16`; empty if unknown.
    """

    architecture: str
    vocabulary: int
    language: Stack
    vision: Stack | None
    weights: tuple[Weight, ...]
    source: str
    tied: bool = False
    context: int = 0
    model_type: str = ""
    stored: str = ""

    @property
    def parameters(self) -> int:
        """Elements of all parameters."""
        return sum(weight.total for weight in self.weights)

    @property
    def trained(self) -> int:
        """Elements of the parameters that take a gradient."""
        return sum(weight.total for weight in self.weights if weight.trained)

    def within(self, stack: Stack) -> Iterator[Weight]:
        """The weights of a stack's layers."""
        return (weight for weight in self.weights if weight.name.startswith(stack.prefix))


def grouped(parameters: Iterable[tuple[str, tuple[int, ...], bool]]) -> tuple[Weight, ...]:
    """Groups parameters that have equal names, shapes and training across layers.

    A number as a component of a name numbers a layer or an expert: `h.0.mlp.w1` becomes
    `h.*.mlp.w1`.
    """
    counts = Counter(
        (_NUMBER.sub("*", name), tuple(shape), trained) for name, shape, trained in parameters
    )
    return tuple(
        Weight(name, shape, count, trained) for (name, shape, trained), count in counts.items()
    )


def shape_of(model: Any) -> dict[str, Any]:
    """A model as JSON: its configuration, and its parameters by kind.

    Each kind has a name (every number in it as `*`), shape, trained, bits if quantized
    (bitsandbytes keeps the logical shape of 4-bit weights in `quant_state`), and count.
    """
    counts: Counter[tuple[str, tuple[int, ...], bool, float | None]] = Counter()
    for name, parameter in model.named_parameters():
        kind = re.sub(r"^(module\.|_orig_mod\.)+", "", name)
        kind = _NUMBER.sub("*", kind)
        kind = re.sub(r"^base_model\.model\.|\.base_layer|\.default(?=\.weight)", "", kind)
        state = getattr(parameter, "quant_state", None)
        whole = getattr(parameter, "ds_shape", None) or (
            parameter.shape if state is None else state.shape
        )
        bits = (8.0 if parameter.element_size() == 1 else None) if state is None else 4.5
        counts[kind, tuple(map(int, whole)), bool(parameter.requires_grad), bits] += 1
    config = getattr(model, "config", None)
    described = {} if config is None or not hasattr(config, "to_dict") else config.to_dict()
    weights = [[*key, count] for key, count in counts.items()]
    plain_config = json.dumps(described, default=str, skipkeys=True)
    return {"config": json.loads(plain_config), "weights": weights}


def is_described_model(shape: Mapping[str, Any]) -> bool:
    """Whether it has the form of `shape_of`'s results."""
    weights = shape.get("weights")
    return (
        isinstance(shape.get("config"), dict)
        and isinstance(weights, list)
        and all(isinstance(row, list) and len(row) == 5 and _is_weight(*row) for row in weights)
    )


def _is_weight(name: object, shape: object, trained: object, bits: object, count: object) -> bool:
    return (
        isinstance(name, str)
        and isinstance(shape, list)
        and len(shape) <= DIMENSIONS
        and all(type(size) is int and 0 <= size < TOO_LARGE for size in shape)
        and isinstance(trained, bool)
        and (bits is None or (isinstance(bits, int | float) and 0 < bits <= 64))
        and type(count) is int
        and 0 < count <= COUNT
    )
