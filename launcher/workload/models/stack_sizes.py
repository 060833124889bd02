"""Derives sizes of a transformer stack from its weights, not from its configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ...core.model import Weight

GATES = ("gate_proj", "gate_up_proj", "mlp.w3", "feed_forward.w3", "experts.*.w3")
FEED_FORWARD = ("mlp", "ffn", "feed_forward", ".fc", "intermediate")
FUSED = ("query_key_value", "qkv_proj", "qkv", "c_attn", "w_pack", "wqkv", "in_proj")
"""Fused projections to queries, keys and values."""


def hidden_of(inside: Iterable[Weight], declared: int) -> int:
    """Width of the residual stream, from the norms, preferring the declared one among them.

    In some towers' configurations the key means the language model's width.
    """
    widths: Counter[int] = Counter()
    for weight in inside:
        if len(weight.shape) == 1 and ("norm" in weight.name.lower() or ".ln_" in weight.name):
            widths[weight.shape[0]] += weight.count
    return declared if not widths or declared in widths else widths.most_common(1)[0][0]


def layers_of(inside: Iterable[Weight], hidden: int) -> int:
    """Number of layers, from the count of a norm; 0 if unknown."""
    return max((weight.count for weight in inside if weight.shape == (hidden,)), default=0)


def ffn_of(inside: Iterable[Weight], hidden: int, declared: int) -> int:
    """Width of the feed-forward part; 0 if unknown.

    The declared width if the weights have it, or if there are none. Qwen's first models declare the
    sum of both branches of the gate.
    """
    widths = {width for width, _ in _feed_forward(inside, hidden)}
    if declared and (not widths or {declared, 2 * declared} & widths):
        return declared
    if declared and declared // 2 in widths:
        return declared // 2
    return max(widths, default=declared)


def is_gated(inside: Iterable[Weight], hidden: int, ffn: int) -> bool:
    """Whether the feed-forward part has a gate, by name or as a third matrix of its size."""
    weights = list(inside)
    if any(gate in weight.name for weight in weights for gate in GATES):
        return True
    counts: Counter[int] = Counter()
    for width, count in _feed_forward(weights, hidden):
        counts[width] += count
    return counts[2 * ffn] > 0 or counts[ffn] >= 3 * max(1, layers_of(weights, hidden))


def _feed_forward(inside: Iterable[Weight], hidden: int) -> Iterator[tuple[int, int]]:
    """Inner width and number of each feed-forward matrix."""
    for weight in inside:
        is_matrix = len(weight.shape) == 2 and hidden in weight.shape
        is_inside = any(part in weight.name for part in FEED_FORWARD)
        if is_matrix and is_inside and ".lora_" not in weight.name:
            yield weight.size // hidden, weight.count


def head_dim_of(inside: Iterable[Weight], hidden: int, heads: int) -> int:
    """Width of a head, from the query projection; 0 if unknown."""
    for module, width in _projections(inside, hidden):
        if module == "q_proj" and width % heads == 0:
            return width // heads
    return 0


def kv_heads_of(inside: Iterable[Weight], hidden: int, heads: int, head_dim: int) -> int:
    """Number of key heads, from the projection's rows; 0 if unknown."""
    if head_dim < 1:  # fewer channels than heads, in a configuration that can't be built
        return 0
    for module, width in _projections(inside, hidden):
        if module == "k_proj" and width % head_dim == 0:
            return width // head_dim
        kv_heads, rest = divmod(width - heads * head_dim, 2 * head_dim)
        if module in FUSED and kv_heads > 0 and not rest:
            return kv_heads
    return 0


def _projections(inside: Iterable[Weight], hidden: int) -> Iterator[tuple[str, int]]:
    """Last name and width of each module that takes the residual stream."""
    for weight in inside:
        if len(weight.shape) == 2 and hidden in weight.shape:
            yield weight.module.rpartition(".")[2].lower(), weight.size // hidden
