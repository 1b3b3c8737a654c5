# SPDX-License-Identifier: Apache-2.0
"""Further rows of cases.py: decoders whose keys and values are made of latents (MLA)."""

from cases_decoders import SMALL_DECODER
from cases_experts import COLUMNS

TWO = (2,)  # ranks
_ROPE = {"rope_type": "default", "rope_theta": 1000.0}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 0.7,
    "mscale_all_dim": 1.2,
    "original_max_position_embeddings": 20,
}
# no two sizes are the same, and heads divide by no number of ranks but two
SIZES = {
    "num_key_value_heads": 6,
    "kv_lora_rank": 14,
    "q_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "moe_intermediate_size": COLUMNS,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "tie_word_embeddings": False,
}
GROUPS = {"n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 1.5}
INDEX = {"index_topk": 96, "index_head_dim": 6, "index_n_heads": 3}

# as in cases.py; or answers would be nearly tied
SEEDS = {}

# model_type: its class names' beginning, its further heads, settings
_FAMILIES = {
    "deepseek_v3": (
        "DeepseekV3",
        ("ForSequenceClassification", "ForTokenClassification"),
        {**GROUPS, "first_k_dense_replace": 1, "rope_parameters": _YARN, "num_mtp_layers": 0},
    ),
    "deepseek_v2": (
        "DeepseekV2",
        ("ForSequenceClassification",),
        {
            "n_group": 4,
            "topk_group": 2,
            "topk_method": "group_limited_greedy",
            "routed_scaling_factor": 1.5,
            "first_k_dense_replace": 1,
            "rope_parameters": _YARN,
        },
    ),
    "glm4_moe_lite": ("Glm4MoeLite", (), {**GROUPS, "rope_parameters": _ROPE}),
    "mistral4": (
        "Mistral4",
        ("ForSequenceClassification", "ForTokenClassification"),
        {**GROUPS, "rope_parameters": {**_YARN, "llama_4_scaling_beta": 0.7, "original_max_position_embeddings": 7}},
    ),
    "deepseek_v32": ("DeepseekV32", (), {**GROUPS, **INDEX, "first_k_dense_replace": 1, "rope_parameters": _YARN}),
    "glm_moe_dsa": ("GlmMoeDsa", (), {**GROUPS, **INDEX, "first_k_dense_replace": 2, "rope_parameters": _ROPE}),
}

MODEL_TYPES = tuple(_FAMILIES)

# as in cases_experts.py
SMALLER = {
    model_type: {
        "experts.gate_up_proj": (2 * COLUMNS) ** -0.5,
        "experts.down_proj": 36**-0.5,
        "q_b_proj.weight": 6 if model_type == "mistral4" else 2,  # whose queries grow
        "q_proj.weight": 2,
    }
    for model_type in _FAMILIES
}

# what is rarer, in the class with the LM head
_VARIANTS = (
    ("deepseek_v3", "plain-queries", {"q_lora_rank": None, "rope_parameters": _ROPE, "first_k_dense_replace": 0}),
    (
        "deepseek_v3",
        "neox-biases-one-group",
        {"rope_interleave": False, "attention_bias": True, "n_group": 1, "topk_group": 1, "norm_topk_prob": False},
    ),
    ("deepseek_v3", "wide-values-tied", {"v_head_dim": 16, "tie_word_embeddings": True}),
    (
        "deepseek_v2",
        "lite",
        {"q_lora_rank": None, "topk_method": "greedy", "n_group": 1, "topk_group": 1, "mlp_bias": True},
    ),
    ("glm4_moe_lite", "listed-layers", {"mlp_layer_types": ["sparse", "dense", "sparse"]}),
)


def ignored(name):
    """Whether a tensor is one of an index, which selects all tokens of a sequence."""
    return ".self_attn.indexer." in name


def cases(family):
    """All rows; `family` is that of cases.py."""
    found, makers = [], {}
    for model_type, (name, heads, settings) in _FAMILIES.items():
        make = family(model_type, "decoder", f"{name}Config", ("position_ids",), **(SMALL_DECODER | SIZES | settings))
        makers[model_type] = make
        found += make("all", f"{name}ForCausalLM")
        found += make("all", " ".join(name + head for head in ("Model", *heads)), ranks=TWO)
    for model_type, label, settings in _VARIANTS:
        found += makers[model_type](label, f"{_FAMILIES[model_type][0]}ForCausalLM", ranks=TWO, **settings)
    return found
