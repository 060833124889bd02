"""What forward and backward hold for each token: a function of values.

The formulas count the tensors that autograd saves and the largest temporaries of the backward
pass, operation by operation, for the layers as transformers writes them
(models/llama/modeling_llama.py): norms in fp32, rotary embeddings that save nothing, attention that
saves its inputs and output, a gated feed-forward part. docs/design/memory.md has the table and the
measurements.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from ...core.model import Model, Stack, Weight
from ...core.settings import Attention, Checkpointing, Fact, Loss
from ...core.workload import Workload

INTO_ATTENTION = (
    r"q_proj|k_proj|v_proj|c_attn|qkv|query|key\b|value\b|W_pack|wqkv|kv_a|kv_b|q_a|q_b"
)
INTO_FFN = r"gate_proj|up_proj|gate_up_proj|fc1|c_fc|\bw1\b|\bw3\b|h_to_4h|intermediate"
OUT_OF_FFN = r"down_proj|fc2|mlp\.c_proj|\bw2\b|4h_to_h|output\.dense"

FUSED = r"qkv|W_pack|wqkv|query_key_value|c_attn"
"""Projections to queries, keys and values in one."""
SAVED_BY = {"relu": 0, "gelu_new": 4, "gelu_fast": 4, "quick_gelu": 2}
"""Tensors that a function saves beside its result: none where the result is enough, one for those
of torch, more where it is written in Python (transformers/activations.py)."""

LOGIT_BYTES = 12
"""Bytes a token and vocabulary entry at the loss's backward: the saved log-softmax, the gradient
that enters it and the one that leaves it, fp32 each (torch's cross_entropy;
transformers/loss/loss_utils.py casts the logits to fp32 before)."""
LOGIT_BYTES_BEFORE_4_45 = 16
"""transformers up to 4.44 also holds the fp32 logits, which it returns."""
CHUNK = 1024
"""Tokens whose logits a chunked loss holds at once."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of one sample: in the language model, and patches in the vision tower."""

    language: int
    patches: int


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes of a micro batch's activations.

    Attributes:
        kept: held by all layers at the turn from forward to backward.
        last: held beyond the layers at the turn: the final norm.
        one: held by a layer that is in its backward pass, with its temporaries, beyond `kept`.
        first: the same for the first layer, when all others are done.
        vision: held by the vision tower at the turn.
    """

    kept: int
    last: int
    one: int
    first: int
    vision: int


def tokens_of(workload: Workload, model: Model) -> Tokens | None:
    """Tokens of one sample; None where the length of a sequence isn't known."""
    length = workload.value(Fact.SEQUENCE_LENGTH)
    if length is None:
        return None
    patches = workload.value(Fact.IMAGE_PATCHES)
    tower = model.vision
    if patches is None and tower is not None and tower.image and tower.patch:
        patches = (tower.image // tower.patch) ** 2
    if patches is None and tower is not None:
        # Every token of the language model could be of an image.
        patches = int(length) * tower.merge**2
    return Tokens(int(length), int(patches or 0))


@dataclass(frozen=True, slots=True)
class Types:
    """How a layer's tensors are held.

    Attributes:
        computed: bytes of an element in the computation.
        stream: of the residual stream; autocast leaves it in the weights' type, and casts the input
            of every linear layer anew.
        adapter: of an adapter's input, which peft casts to the adapter's type.
        every_input: whether linear layers save their input for frozen weights too, as ZeRO-3's own
            do (deepspeed/runtime/zero/linear.py).
    """

    computed: int
    stream: int
    adapter: int
    every_input: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """Bytes a token of one layer: what is saved, of that the feed-forward part's, temporaries."""

    saved: int
    ffn: int
    ffn_temporary: int
    attention_temporary: int

    @property
    def backward(self) -> int:
        """At the fullest moment of the layer's backward pass."""
        saved = self.saved
        return max(saved + self.ffn_temporary, saved - self.ffn + self.attention_temporary)


@functools.lru_cache(maxsize=64)
def layer_of(
    stack: Stack, weights: tuple[Weight, ...], types: Types, attention: Attention, length: int
) -> Layer:
    """What one layer holds for a token of a sequence of `length`.

    A weight that takes no gradient saves no input; an adapter saves its own.
    """
    e, stream = types.computed, types.stream
    h, q = stack.hidden, stack.heads * stack.head_dim
    k = stack.kv_heads * stack.head_dim
    into_attention = _inputs(weights, INTO_ATTENTION, types)
    into_ffn = _inputs(weights, INTO_FFN, types)
    norms = _norms(stack, weights)
    trained_norm = any(one.trained for one in weights if "norm" in one.name or "ln" in one.name)
    if stack.gated and not stack.patch:
        # The fp32 copy, its reciprocal root, the normalized value where the scale is trained.
        normalized = 4 if stack.scales_in_fp32 else stream
        norm = 4 * h + 4 + (normalized * h if trained_norm else 0)
    else:
        norm = stream * h + 8
    per_head = 4 + (e if trained_norm else 0)
    narrow = sum(
        per_head * (k if "k_" in one.name or "key" in one.name else q)
        for one in weights
        if "norm" in one.name and one.shape == (stack.head_dim,)
    )
    if attention is Attention.EAGER:
        scores = stack.heads * length
        attended, temporary = 4 * e * q + (4 + e) * scores, (8 + e) * scores
        attended += 0 if e == 2 else -4 * scores
    else:
        attended, temporary = 2 * e * q + 2 * e * k + 4 * stack.heads, 3 * e * q
    if stack.rotary and any(re.search(FUSED, one.name) for one in weights):
        attended += e * (q + k)  # what was rotated is still there, in one tensor with the values
    routed = stack.experts_per_token
    width = stack.ffn * max(routed, 1)
    down = e * width if _inputs(weights, OUT_OF_FFN, types) else 0
    ffn = (3 if stack.gated else SAVED_BY.get(stack.activation, 1)) * e * width
    ffn += 2 * e * h * routed  # each expert's input and output, gathered
    inputs = (into_attention + into_ffn) * h
    saved = norms * norm + narrow + inputs + attended + ffn + down
    return Layer(
        saved=saved,
        ffn=ffn + down + into_ffn * h,
        ffn_temporary=(3 * e * width - down if stack.gated else e * width) + e * h,
        attention_temporary=temporary + e * h,
    )


def _inputs(weights: tuple[Weight, ...], pattern: str, types: Types) -> int:
    """Bytes an element of the inputs that the matching linear layers save."""
    matching = [one for one in weights if re.search(pattern, one.name) and len(one.shape) > 1]
    whole = [
        one for one in matching if (one.trained or types.every_input) and ".lora_" not in one.name
    ]
    adapters = [one for one in matching if one.trained and ".lora_A" in one.name]
    separate = types.stream != types.computed
    total = types.computed * (len(whole) if separate else min(len(whole), 1))
    if adapters and types.adapter != types.computed:
        total += types.adapter * len(adapters)
    elif adapters and not whole:
        total += types.computed * (len(adapters) if separate else 1)
    return total


def _norms(stack: Stack, weights: tuple[Weight, ...]) -> int:
    """Norms of the residual stream in a layer."""
    found = sum(
        one.shape == (stack.hidden,) and ("norm" in one.name or "ln" in one.name)
        for one in weights
        if one.name.endswith("weight")
    )
    return found or 2


def activations_of(
    model: Model,
    tokens: Tokens,
    micro_batch: int,
    types: Types,
    mode: Checkpointing,
    workload: Workload,
) -> Activations:
    """What a micro batch of so many sequences holds."""
    attention = Attention(str(workload.value(Fact.ATTENTION) or Attention.SDPA))
    stack = model.language
    weights = tuple(model.within(stack))
    layer = layer_of(stack, weights, types, attention, tokens.language)
    count = tokens.language * micro_batch
    last = (4 + types.stream + types.computed) * stack.hidden + 4
    if mode is Checkpointing.OFF:
        kept = stack.layers * layer.saved
        one, first = layer.backward - layer.saved, layer.backward
    else:
        kept = stack.layers * types.stream * stack.hidden
        one = layer.backward
        one += types.stream * stack.hidden if mode is Checkpointing.REENTRANT else 0
        first = one + types.stream * stack.hidden
    return Activations(
        kept=kept * count,
        last=last * count,
        one=one * count,
        first=first * count,
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
    """Bytes that the vision tower holds at the turn; a frozen tower saves nothing."""
    tower = model.vision
    if tower is None:
        return 0
    weights = tuple(model.within(tower))
    if not any(one.trained for one in weights):
        return 0
    layer = layer_of(tower, weights, types, attention, tokens.patches)
    count = tokens.patches * micro_batch
    if mode is Checkpointing.OFF:
        return tower.layers * layer.saved * count
    return (tower.layers * types.stream * tower.hidden + layer.backward) * count


@dataclass(frozen=True, slots=True)
class Logits:
    """Bytes of the output projection's results.

    Attributes:
        peak: at the loss's backward.
        gradient: when their gradient goes on into the projection.
    """

    peak: int
    gradient: int


def logits_of(
    model: Model, tokens: Tokens, micro_batch: int, size: int, workload: Workload
) -> Logits:
    """What the loss of a micro batch holds.

    A fused loss works on so many tokens at a time that their logits are about as large as the
    hidden states, and computes the projection's gradient in the forward pass (Liger's
    fused_linear_cross_entropy.py).
    """
    count = tokens.language * micro_batch
    vocabulary, hidden = model.vocabulary, model.language.hidden
    loss = Loss(str(workload.value(Fact.LOSS) or Loss.CROSS_ENTROPY))
    if loss is Loss.FUSED:
        held = (LOGIT_BYTES + size) * hidden * count + size * vocabulary * hidden
        return Logits(held, held)
    if loss is Loss.CHUNKED:
        count = min(count, CHUNK)
    version = workload.versions.get("transformers", "")
    old = re.match(r"4\.(\d+)", version)
    each = LOGIT_BYTES_BEFORE_4_45 if old and int(old[1]) < 45 else LOGIT_BYTES
    each = 4 * size if loss is Loss.NATIVE else each
    return Logits(each * vocabulary * count, size * vocabulary * count)
