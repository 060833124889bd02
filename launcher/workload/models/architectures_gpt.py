"""Weights of GPT-2, BERT and their kin, in the language of `architectures.py`."""

from __future__ import annotations

from .architectures import Architecture, Sizes

_BERT = """
embeddings.word_embeddings vocab hidden
embeddings.position_embeddings positions hidden
embeddings.token_type_embeddings type_vocab_size hidden
embeddings.LayerNorm hidden +
pooler.dense hidden hidden +
encoder.layer.*
  attention.self.query hidden hidden +
  attention.self.key hidden hidden +
  attention.self.value hidden hidden +
  attention.output.dense hidden hidden +
  attention.output.LayerNorm hidden +
  intermediate.dense ffn hidden +
  output.dense hidden ffn +
  output.LayerNorm hidden +
"""


def _falcon(sizes: Sizes) -> dict[str, int]:
    """Falcon's three schemes of sharing keys, and its norms."""
    new, parallel = sizes.get("new_decoder_architecture"), sizes.get("parallel_attn")
    is_multi_query = sizes.get("multi_query")
    kv = (
        sizes.get("num_kv_heads") or sizes["heads"]
        if new
        else 1
        if is_multi_query
        else sizes["heads"]
    )
    two = (sizes.get("num_ln_in_parallel_attn") or 2) == 2
    return {
        "kv": kv,
        "ffn": sizes.get("ffn_hidden_size") or 4 * sizes["hidden"],
        "two_norms": int(new and two),
        "one_norm": int(not (new and two)),
        "second_norm": int(not new and not parallel),
    }


def _opt(sizes: Sizes) -> dict[str, int]:
    """OPT's narrower embedding, and its optional norm after the last layer."""
    word = sizes.get("word_embed_proj_dim") or sizes["hidden"]
    last = sizes.get("do_layer_norm_before") and not sizes.get("_remove_final_layer_norm")
    ffn = sizes["ffn_dim"]
    return {
        "ffn": ffn,
        "word": word,
        "projected": int(word != sizes["hidden"]),
        "last_norm": int(last),
    }


_ENCODER = Architecture(_BERT, {"type_vocab_size": 2}, gated=False, tied=True, output=False)

GPT_ARCHITECTURES: dict[str, Architecture] = {
    "gpt2": Architecture(
        """
transformer.wte vocab hidden
transformer.wpe positions hidden
transformer.ln_f hidden +
transformer.h.*
  ln_1 hidden +
  ln_2 hidden +
  =attn.c_attn.weight hidden 3*hidden
  =attn.c_attn.bias 3*hidden
  =attn.c_proj.weight hidden hidden
  =attn.c_proj.bias hidden
  =mlp.c_fc.weight hidden ffn
  =mlp.c_fc.bias ffn
  =mlp.c_proj.weight ffn hidden
  =mlp.c_proj.bias hidden
""",
        derive=lambda sizes: {"ffn": sizes.get("n_inner") or 4 * sizes["hidden"]},
        gated=False,
        tied=True,
    ),
    "gpt_neox": Architecture(
        """
gpt_neox.embed_in vocab hidden
gpt_neox.final_layer_norm hidden +
embed_out vocab hidden ?!tied
gpt_neox.layers.*
  input_layernorm hidden +
  post_attention_layernorm hidden +
  attention.query_key_value 3*hidden hidden +attention_bias
  attention.dense hidden hidden +attention_bias
  mlp.dense_h_to_4h ffn hidden +
  mlp.dense_4h_to_h hidden ffn +
""",
        {"attention_bias": True},
        gated=False,
    ),
    "gpt_bigcode": Architecture(
        """
transformer.wte vocab hidden
transformer.wpe positions hidden
transformer.ln_f hidden +
transformer.h.*
  ln_1 hidden +
  ln_2 hidden +
  attn.c_attn hidden+2*k hidden +
  attn.c_proj hidden hidden +
  mlp.c_fc ffn hidden +
  mlp.c_proj hidden ffn +
""",
        {"multi_query": True},
        derive=lambda sizes: {
            "kv": 1 if sizes.raw("multi_query") else sizes["heads"],
            "ffn": sizes.get("n_inner") or 4 * sizes["hidden"],
        },
        gated=False,
        tied=True,
    ),
    "phi": Architecture(
        """
model.embed_tokens vocab hidden
model.final_layernorm hidden +
lm_head vocab hidden + ?!tied
model.layers.*
  input_layernorm hidden +
  self_attn.q_proj q hidden +
  self_attn.k_proj k hidden +
  self_attn.v_proj k hidden +
  self_attn.dense hidden q +
  mlp.fc1 ffn hidden +
  mlp.fc2 hidden ffn +
""",
        gated=False,
    ),
    "opt": Architecture(
        """
model.decoder.embed_tokens vocab word
model.decoder.embed_positions positions+2 hidden
model.decoder.project_in hidden word ?projected
model.decoder.project_out word hidden ?projected
model.decoder.final_layer_norm hidden + ?last_norm
lm_head vocab word ?!tied
model.decoder.layers.*
  self_attn.q_proj hidden hidden +enable_bias
  self_attn.k_proj hidden hidden +enable_bias
  self_attn.v_proj hidden hidden +enable_bias
  self_attn.out_proj hidden hidden +enable_bias
  self_attn_layer_norm hidden +
  fc1 ffn hidden +enable_bias
  fc2 hidden ffn +enable_bias
  final_layer_norm hidden +
""",
        {"ffn_dim": 3072, "enable_bias": True, "do_layer_norm_before": True},
        derive=_opt,
        gated=False,
        tied=True,
    ),
    "bloom": Architecture(
        """
transformer.word_embeddings vocab hidden
transformer.word_embeddings_layernorm hidden +
transformer.ln_f hidden +
lm_head vocab hidden ?!tied
transformer.h.*
  input_layernorm hidden +
  post_attention_layernorm hidden +
  self_attention.query_key_value 3*hidden hidden +
  self_attention.dense hidden hidden +
  mlp.dense_h_to_4h ffn hidden +
  mlp.dense_4h_to_h hidden ffn +
""",
        derive=lambda sizes: {"ffn": 4 * sizes["hidden"]},
        gated=False,
        tied=True,
    ),
    "falcon": Architecture(
        """
transformer.word_embeddings vocab hidden
transformer.ln_f hidden +
lm_head vocab hidden ?!tied
transformer.h.*
  input_layernorm hidden + ?one_norm
  post_attention_layernorm hidden + ?second_norm
  ln_attn hidden + ?two_norms
  ln_mlp hidden + ?two_norms
  self_attention.query_key_value q+2*k hidden +bias
  self_attention.dense hidden hidden +bias
  mlp.dense_h_to_4h ffn hidden +bias
  mlp.dense_4h_to_h hidden ffn +bias
""",
        {"multi_query": True, "parallel_attn": True},
        derive=_falcon,
        gated=False,
        tied=True,
    ),
    "bert": _ENCODER,
    "roberta": _ENCODER,
    "xlm-roberta": _ENCODER,
}
"""By `model_type`."""
