"""Sizes of a transformer stack: in config.json, under its various keys, and by the weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ...core.errors import LaunchError
from ...core.model import Weight
from ...core.setting_table import TOO_LARGE

ALIASES: dict[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "embed_dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers", "depth"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "heads"),
    "kv": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels"),
    "ffn": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "positions": ("max_position_embeddings", "n_positions", "seq_length"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "expert_ffn": ("moe_intermediate_size",),
    "experts_per_token": ("num_experts_per_tok", "moe_topk", "num_experts_per_token"),
    "patch": ("patch_size",),
    "image": ("image_size",),
}
"""Keys of config.json by a common name."""

HIDDEN_DROPOUT = ("hidden_dropout_prob", "hidden_dropout", "resid_pdrop", "dropout")
ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop")
"""Dropout rate keys: of a layer's two outputs, of attention probabilities."""

_POSITIVE = ("hidden", "layers", "heads", "kv", "head_dim", "ffn", "vocab", "patch")
GATES = ("gate_proj", "gate_up_proj", "mlp.w3", "feed_forward.w3", "experts.*.w3")
FEED_FORWARD = ("mlp", "ffn", "feed_forward", ".fc", "intermediate")
FUSED = ("query_key_value", "qkv_proj", "qkv", "c_attn", "w_pack", "wqkv", "in_proj")
"""Fused projections to queries, keys and values."""


class MissingSizeError(Exception):
    """A configuration lacks a size that its model type needs; the message names the field."""


@dataclass(frozen=True, slots=True)
class ConfigSizes:
    """Looks up sizes in a configuration.

    Attributes:
        config: config.json, or its section for one tower.
        where: its name in messages, up to the key: `Qwen2-7B/config.json: ` or
            `.../config.json: text_config.`.
        derived: sizes that take precedence over all others.
    """

    config: Mapping[str, Any]
    where: str = ""
    derived: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, name: str) -> int:
        """The size called `name`: a name of `ALIASES`, a derived size or a key.

        Raises:
            MissingSizeError: the size is unknown.
            LaunchError: the value isn't a size.
        """
        if name in self.derived:
            if name in _POSITIVE and self.derived[name] < 1:
                raise MissingSizeError(f"{self.where}{ALIASES[name][0]}, which can't be 0")
            return self.derived[name]
        # DeepSeek's heads have two parts with separate keys.
        if name == "head_dim" and self.config.get("qk_nope_head_dim") is not None:
            return self["qk_nope_head_dim"] + self.get("qk_rope_head_dim")
        if name == "kv" and self.config.get("qk_nope_head_dim") is not None:
            return self["heads"]
        for key in ALIASES.get(name, (name,)):
            value = self.config.get(key)
            if value is not None:
                return self._checked(name, key, value)
        match name:
            case "kv":
                return self["heads"]
            case "head_dim":
                return self["hidden"] // self["heads"]
        raise MissingSizeError(f"{self.where}{ALIASES.get(name, (name,))[0]}")

    def get(self, name: str, default: int = 0) -> int:
        """The size called `name`, or `default` if unknown."""
        try:
            return self[name]
        except MissingSizeError:
            return default

    def derive(self, sizes: Mapping[str, int]) -> ConfigSizes:
        """Adds derived sizes, keeping existing ones."""
        return replace(self, derived={**sizes, **self.derived})

    def _checked(self, name: str, key: str, value: object) -> int:
        least = 1 if name in _POSITIVE else 0
        if isinstance(value, float) and value.is_integer() and name not in ALIASES:
            value = int(value)
        if isinstance(value, bool) and name in ALIASES:
            value = None
        if isinstance(value, (list, dict)):
            raise MissingSizeError(f"{self.where}{key}, which isn't a single number")
        if not isinstance(value, int) or not least <= value < TOO_LARGE:
            kind = "a positive whole number" if least else "a whole number of 0 or more"
            raise LaunchError(
                f"{self.where}{key} is {kind}, not {self.config.get(key)!r}",
                "the model can't be built from this configuration; restore the file as published",
            )
        return int(value)


def activation(config: Mapping[str, Any]) -> str:
    """The activation function, under its various names in configurations."""
    nested = [value for value in config.values() if isinstance(value, dict)]
    for part in (config, *nested):
        for key in ("hidden_activation", "hidden_act", "activation_function", "activation"):
            if isinstance(part.get(key), str):
                return str(part[key])
    return ""


def stored_type(config: Mapping[str, Any]) -> str:
    """The weights' dtype in the configuration, e.g. `bfloat16`."""
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        named = part.get("dtype") or part.get("torch_dtype")
        if isinstance(named, str):
            return named.removeprefix("torch.")
    return ""


def drops(config: Mapping[str, Any], keys: tuple[str, ...]) -> bool:
    """Whether any of these dropout rates is positive."""
    rates = (config.get(key) for key in keys)
    return any(isinstance(rate, int | float) and rate > 0 for rate in rates)


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
