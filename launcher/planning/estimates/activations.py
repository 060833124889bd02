"""Memory of forward and backward passes per token.

The formulas count the tensors saved by autograd and the largest temporaries of the backward pass,
operation by operation, for layers as in transformers (models/llama/modeling_llama.py): fp32 norms,
rotary embeddings that save nothing, attention that saves its inputs and output, a gated
feed-forward part. docs/design/memory.md has the table and the measurements.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace

from ...core.choices import Attention, Checkpointing
from ...core.model import Model, Stack, Weight
from ...core.settings import Fact
from ...core.workload import Workload
from .model_sizes import ModelSizes

INTO_ATTENTION = (
    r"q_proj|k_proj|v_proj|c_attn|qkv|query|key\b|value\b|W_pack|wqkv|kv_a|kv_b|q_a|q_b"
)
INTO_FFN = r"gate_proj|up_proj|gate_up_proj|fc1|c_fc|\bw1\b|\bw3\b|h_to_4h|intermediate"
OUT_OF_FFN = r"down_proj|fc2|mlp\.c_proj|\bw2\b|4h_to_h|output\.dense"

FUSED = r"qkv|W_pack|wqkv|query_key_value|c_attn"
"""Names of fused query, key and value projections."""
SAVED_BY = {"relu": 0, "gelu_new": 4, "gelu_fast": 4, "quick_gelu": 2}
"""Tensors an activation function saves besides its result: none if the result suffices, one for
torch's, more if written in Python (transformers/activations.py)."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of a sample in the language model; patches per sample and per image."""

    language: int
    patches: int
    image: int


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes of a micro batch's activations.

    Attributes:
        layers_at_turn: held by all layers between forward and backward pass.
        final_norm: held by the final norm at that time.
        one_layer: additional bytes during one layer's backward pass, with temporaries.
        first_layer: held during the first layer's backward pass, after all others.
        vision: held by the vision tower between the passes.
    """

    layers_at_turn: int
    final_norm: int
    one_layer: int
    first_layer: int
    vision: int


def tokens_of(sizes: ModelSizes) -> Tokens | None:
    """Tokens of a sample; None if the sequence length is unknown."""
    workload, tower = sizes.workload, sizes.model.vision
    length = workload.value(Fact.SEQUENCE_LENGTH)
    if length is None:
        return None
    stated = workload.value(Fact.IMAGE_PATCHES)
    if tower is None:
        return Tokens(int(length), int(stated or 0), 0)
    image = ((tower.slice or tower.image) // tower.patch) ** 2 if tower.patch else 0
    # With images of any size, every language model token may come from an image.
    patches = image * tower.slices or int(length) * tower.merge**2
    patches = patches if stated is None else int(stated)
    return Tokens(int(length), patches, min(image or patches, patches))


@dataclass(frozen=True, slots=True)
class Types:
    """Dtypes of a layer's tensors, and what its operations save.

    Attributes:
        computed: bytes per element in the computation.
        stream: bytes of an element of the residual stream; under autocast it has the weights' type,
            and the input of every linear layer is cast each time.
        adapter: bytes of an element of an adapter's input, which peft casts to the adapter's type.
        every_input: whether linear layers save their input for frozen weights too, as ZeRO-3's own
            do (deepspeed/runtime/zero/linear.py).
        quantized_input: whether the products of 4-bit weights save theirs, as bitsandbytes' do
            below 0.44 (its commit 9e753741).
        fused: whether pointwise operations save their inputs alone: a norm the stream, the gated
            part gate and projection, whose gradients Liger writes over them
            (liger_kernel/ops/rms_norm.py, swiglu.py); torch.compile recomputes the rest.
    """

    computed: int
    stream: int
    adapter: int
    every_input: bool = False
    quantized_input: bool = False
    fused: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """Bytes per token of a layer: saved in total, saved by the feed-forward part, temporaries."""

    saved: int
    ffn: int
    ffn_temporary: int
    attention_temporary: int

    @property
    def backward(self) -> int:
        """Bytes per token at the peak of the layer's backward pass."""
        saved = self.saved
        return max(saved + self.ffn_temporary, saved - self.ffn + self.attention_temporary)


@functools.lru_cache(maxsize=64)
def layer_of(
    stack: Stack, weights: tuple[Weight, ...], types: Types, attention: Attention, length: int
) -> Layer:
    """Bytes a layer holds per token of a sequence of `length`.

    A frozen weight saves no input; its adapter does.
    """
    e, stream = types.computed, types.stream
    h, q = stack.hidden, stack.heads * stack.head_dim
    k = stack.kv_heads * stack.head_dim
    into_attention = _inputs(weights, INTO_ATTENTION, types)
    into_ffn = _inputs(weights, INTO_FFN, types)
    norms = _norms(stack, weights)
    trained_norm = any(
        weight.trained for weight in weights if "norm" in weight.name or "ln" in weight.name
    )
    if stack.gated and types.fused:
        norm = stream * h + 4
    elif stack.gated and not stack.patch:
        # The fp32 copy, its reciprocal root, the normalized value if the scale is trained.
        normalized = 4 if stack.scales_in_fp32 else stream
        norm = 4 * h + 4 + (normalized * h if trained_norm else 0)
    else:
        norm = stream * h + 8
    per_head = 4 + (e if trained_norm else 0)
    narrow = sum(
        per_head * (k if "k_" in weight.name or "key" in weight.name else q)
        for weight in weights
        if "norm" in weight.name and weight.shape == (stack.head_dim,)
    )
    if attention is Attention.EAGER:
        scores = stack.heads * length
        attended, temporary = 4 * e * q + (4 + e) * scores, (8 + e) * scores
        attended += 0 if e == 2 else -4 * scores
        if stack.drops_attention:  # the mask, and in fp32 the probabilities before it too
            attended += (1 if e == 2 else 1 + e) * scores
    else:
        attended, temporary = 2 * e * q + 2 * e * k + 4 * stack.heads, 3 * e * q
    if stack.rotary and any(re.search(FUSED, weight.name) for weight in weights):
        attended += e * (q + k)  # the unrotated ones are kept, fused with the values
    routed = stack.experts_per_token
    width = stack.ffn * max(routed, 1)
    down = e * width if _inputs(weights, OUT_OF_FFN, types) else 0
    fused = stack.gated and types.fused
    ffn = (3 - fused if stack.gated else SAVED_BY.get(stack.activation, 1)) * e * width
    ffn += 2 * e * h * routed  # each expert's input and output, gathered
    inputs = (into_attention + into_ffn) * h
    masks = 2 * h if stack.drops_hidden else 0
    saved = norms * norm + narrow + inputs + attended + ffn + down + masks
    return Layer(
        saved=saved,
        ffn=ffn + down + into_ffn * h,
        ffn_temporary=_ffn_temporary(stack, e * width, down, fused=fused) + e * h,
        attention_temporary=temporary + e * h,
    )


def _ffn_temporary(stack: Stack, tensor: int, down: int, *, fused: bool) -> int:
    """Bytes per token that the feed-forward part's backward pass adds to its saved tensors.

    A gated part adds the gradients of product, gate and projection; a fused one only the product's,
    and the product itself if it isn't saved.
    """
    if fused:
        return 2 * tensor - down
    return 3 * tensor - down if stack.gated else tensor


def _inputs(weights: tuple[Weight, ...], pattern: str, types: Types) -> int:
    """Bytes per element of the inputs saved by matching linear layers."""
    matching = [
        weight for weight in weights if re.search(pattern, weight.name) and len(weight.shape) > 1
    ]
    whole = [
        weight
        for weight in matching
        if (weight.trained or types.every_input or (weight.bits == 4.5 and types.quantized_input))
        and ".lora_" not in weight.name
    ]
    adapters = [weight for weight in matching if weight.trained and ".lora_A" in weight.name]
    separate = types.stream != types.computed
    total = types.computed * (len(whole) if separate else min(len(whole), 1))
    if adapters and types.adapter != types.computed:
        total += types.adapter * len(adapters)
    elif adapters and not whole:
        total += types.computed * (len(adapters) if separate else 1)
    return total


def _norms(stack: Stack, weights: tuple[Weight, ...]) -> int:
    """Number of norms of the residual stream per layer."""
    norms = sum(
        weight.shape == (stack.hidden,) and ("norm" in weight.name or "ln" in weight.name)
        for weight in weights
        if weight.name.endswith("weight")
    )
    return norms or 2


def activations_of(
    model: Model,
    tokens: Tokens,
    micro_batch: int,
    types: Types,
    mode: Checkpointing,
    workload: Workload,
) -> Activations:
    """Activations of a micro batch of `micro_batch` samples."""
    attention = Attention(str(workload.value(Fact.ATTENTION) or Attention.SDPA))
    stack = model.language
    weights = tuple(model.within(stack))
    layer = layer_of(stack, weights, types, attention, tokens.language)
    count = tokens.language * micro_batch
    norm = (4 + types.stream + types.computed) * stack.hidden + 4
    if mode is Checkpointing.OFF:
        at_turn = stack.layers * layer.saved
        one_layer, first_layer = layer.backward - layer.saved, layer.backward
    else:
        layer_input = types.stream * stack.hidden
        at_turn = stack.layers * layer_input
        one_layer = layer.backward + (layer_input if mode is Checkpointing.REENTRANT else 0)
        first_layer = one_layer + layer_input
    return Activations(
        layers_at_turn=at_turn * count,
        final_norm=norm * count,
        one_layer=one_layer * count,
        first_layer=first_layer * count,
        vision=_vision(model, tokens, micro_batch, types, mode, attention),
    )


def _vision(
    model: Model,
    tokens: Tokens,
    micro_batch: int,
    types: Types,
    mode: Checkpointing,
    attention: Attention,
) -> int:
    """Bytes the vision tower holds between the passes; a frozen tower saves nothing."""
    tower = model.vision
    if tower is None:
        return 0
    copies = (
        replace(weight, name=weight.name.replace(".modules_to_save.", "."))
        for weight in model.weights
        if weight.is_copy
    )
    copied = tuple(weight for weight in copies if weight.name.startswith(tower.prefix))
    weights = copied or tuple(model.within(tower))
    if not any(weight.trained for weight in weights):
        return 0
    if tower.slice and attention is not Attention.FLASH:
        attention = Attention.EAGER  # MiniCPM-V's modeling_minicpmv.py, `init_vision_module`
    layer = layer_of(tower, weights, types, attention, tokens.image)
    count = tokens.patches * micro_batch
    if mode is Checkpointing.OFF:
        return tower.layers * layer.saved * count
    return (tower.layers * types.stream * tower.hidden + layer.backward) * count
