# SPDX-License-Identifier: Apache-2.0
"""Further rows of cases.py: decoders whose layers differ in their heads, share keys, and read inputs of their own."""

from cases_decoders import SMALL_DECODER

TWO = (2,)  # ranks
_COLUMNS = 16  # of an expert: three ranks have unlike shares, and transformers multiplies rows of 16 bytes
TEXT = SMALL_DECODER | {
    "num_hidden_layers": 4,
    "num_key_value_heads": 3,
    "head_dim": 8,
    "global_head_dim": 12,
    "num_global_key_value_heads": 2,
    "attention_k_eq_v": True,
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        "full_attention": {"rope_type": "proportional", "rope_theta": 1000.0, "partial_rotary_factor": 0.5},
    },
    "final_logit_softcapping": 4.0,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
}
EXPERTS = {"enable_moe_block": True, "num_experts": 5, "top_k_experts": 2, "moe_intermediate_size": _COLUMNS}
# E2B and E4B: two of each kind of layer read keys of an earlier one, whose values are no raw keys
INPUTS = {
    "attention_k_eq_v": False,
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"] * 2,
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 7,
    "vocab_size_per_layer_input": 211,
}

MODEL_TYPES = ("gemma4_text",)

# as in cases.py; or answers would be nearly tied
SEEDS = {
    "Gemma4ForCausalLM-inputs": 2121,
    "Gemma4ForCausalLM-plain-bias": 2124,
    "Gemma4TextModel-inputs": 5123,
}

# Matrices of all experts lie in one array, which makes them too small where they are drawn, as vectors are that
# multiply: divided by less than 1.
SMALLER = {
    model_type: {
        "experts.gate_up_proj": (2 * _COLUMNS) ** -0.5,
        "experts.down_proj": 36**-0.5,
        "router.scale": 0.05,
        "per_expert_scale": 0.2,
        "layer_scalar": 0.2,
        "q_norm.weight": 3,  # or softmaxes would be too sharp, for scores are not scaled
    }
    for model_type in ("gemma4_text", "gemma4")
}


def cases(family):
    """All rows; `family` is that of cases.py."""
    make = family("gemma4_text", "decoder", "Gemma4TextConfig", ("position_ids",), **TEXT)
    found = make("all", "Gemma4ForCausalLM")
    found += make("experts", "Gemma4ForCausalLM", **EXPERTS)
    found += make("inputs", "Gemma4ForCausalLM", **INPUTS)
    found += make("all", "Gemma4TextModel", ranks=TWO)
    found += make("inputs", "Gemma4TextModel", ranks=TWO, **INPUTS)
    found += make(
        "plain-bias",
        "Gemma4ForCausalLM",
        ranks=TWO,
        attention_bias=True,
        attention_k_eq_v=False,
        final_logit_softcapping=None,
        hidden_size_per_layer_input=5,
        vocab_size_per_layer_input=223,
    )
    return found
