# SPDX-License-Identifier: Apache-2.0
"""Further rows of cases.py: decoders whose tokens choose among experts."""

from cases_decoders import SMALL_DECODER

TWO = (2,)  # ranks
_ROPE = {"rope_type": "default", "rope_theta": 1000.0}
_HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
COLUMNS = 16  # of an expert: three ranks have unlike shares, and transformers multiplies rows of 16 bytes
# of Granite's decoders with experts
GRANITE = {
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "intermediate_size": COLUMNS,
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.7,
    "logits_scaling": 2.0,
}

# as in cases.py; or answers would be nearly tied
SEEDS = {}

# model_type: its class names' beginning, the name of its configuration, how many of _HEADS it has, and settings
_FAMILIES = {
    "mixtral": (
        "Mixtral",
        "MixtralConfig",
        3,
        {"num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": COLUMNS},
    ),
    "qwen2_moe": (
        "Qwen2Moe",
        "Qwen2MoeConfig",
        3,
        {
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": COLUMNS,
            "shared_expert_intermediate_size": 22,
            "mlp_only_layers": [1],
        },
    ),
    "qwen3_moe": (
        "Qwen3Moe",
        "Qwen3MoeConfig",
        3,
        {
            "head_dim": 8,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": COLUMNS,
            "decoder_sparse_step": 2,
            "norm_topk_prob": True,
        },
    ),
    "olmoe": ("Olmoe", "OlmoeConfig", 0, {"num_experts": 6, "num_experts_per_tok": 2, "intermediate_size": COLUMNS}),
    "glm4_moe": (
        "Glm4Moe",
        "Glm4MoeConfig",
        0,
        {
            "head_dim": 8,
            "n_routed_experts": 8,
            "n_group": 4,
            "topk_group": 2,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": COLUMNS,
            "routed_scaling_factor": 1.5,
            "use_qk_norm": True,
            "attention_bias": True,
            "rope_parameters": {**_ROPE, "partial_rotary_factor": 0.5},
            "num_mtp_layers": 0,
        },
    ),
    "dots1": (
        "Dots1",
        "Dots1Config",
        0,
        {
            "n_routed_experts": 6,
            "n_shared_experts": 2,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": COLUMNS,
            "first_k_dense_replace": 1,
            "layer_types": ["full_attention"] * 3,
        },
    ),
    "ernie4_5_moe": (
        "Ernie4_5_Moe",
        "Ernie4_5_MoeConfig",
        0,
        {
            "moe_num_experts": 6,
            "moe_k": 2,
            "moe_intermediate_size": COLUMNS,
            "moe_num_shared_experts": 2,
            "tie_word_embeddings": False,
        },
    ),
    "gpt_oss": (
        "GptOss",
        "GptOssConfig",
        2,
        {
            "head_dim": 8,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "intermediate_size": COLUMNS,
            "swiglu_limit": 1.5,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1000.0,
                "factor": 4.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 120,  # so that `truncate` counts
            },
        },
    ),
    "granitemoe": (
        "GraniteMoe",
        "GraniteMoeConfig",
        0,
        {**GRANITE, "attention_bias": True},
    ),
    "granitemoeshared": (
        "GraniteMoeShared",
        "GraniteMoeSharedConfig",
        0,
        {
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "intermediate_size": COLUMNS,
            "shared_intermediate_size": 22,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
        },
    ),
    "cohere2_moe": (
        "Cohere2Moe",
        "Cohere2MoeConfig",
        0,
        {
            "head_dim": 8,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "intermediate_size": COLUMNS,
            "num_shared_experts": 2,
            "expert_selection_fn": "sigmoid",
            "first_k_dense_replace": 1,
            "prefix_dense_intermediate_size": 26,
            "sliding_window": 5,
            "sliding_window_pattern": 2,
        },
    ),
    "hunyuan_v1_moe": (
        "HunYuanMoEV1",
        "HunYuanMoEV1Config",
        1,
        {
            "head_dim": 8,
            "num_experts": 6,
            "moe_topk": [2, 3, 2],
            "intermediate_size": COLUMNS,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "alpha": 3.0, "factor": 1.0},
        },
    ),
    "phimoe": (
        "Phimoe",
        "PhimoeConfig",
        1,
        {
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "intermediate_size": COLUMNS,
            "router_jitter_noise": 0.3,  # or no logit would lie near another
            "attention_bias": True,
            "lm_head_bias": True,
        },
    ),
    "minimax_m2": (
        "MiniMaxM2",
        "MiniMaxM2Config",
        0,
        {
            "head_dim": 8,
            "rotary_dim": 4,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "intermediate_size": COLUMNS,
        },
    ),
}

# Llama 4's text, whose class without a head has a name of its own
LLAMA4 = {
    "head_dim": 8,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "intermediate_size": COLUMNS,
    "intermediate_size_mlp": 26,
    "moe_layers": [0, 2],
    "no_rope_layers": [1, 0, 1],
    "floor_scale": 3,
    "attn_scale": 0.4,
    "attention_chunk_size": 128,
    "rope_parameters": _ROPE,
    "tie_word_embeddings": False,
}

MODEL_TYPES = (*_FAMILIES, "llama4_text")

# Matrices of all experts lie in one array, which makes them too small where they are drawn: divided by less than 1.
# Without norms of queries and keys softmaxes would be too sharp.
SMALLER = {
    model_type: {
        "experts.gate_up_proj": (2 * COLUMNS) ** -0.5,
        "experts.down_proj": 36**-0.5,
        "sinks": 0.1,  # or all would take alike of a softmax
        "q_proj.weight": 1
        if model_type in ("qwen3_moe", "olmoe", "glm4_moe", "dots1", "minimax_m2", "hunyuan_v1_moe")
        else 2,
    }
    for model_type in MODEL_TYPES
}

# what is rarer, in the class with the LM head
_VARIANTS = (
    ("mixtral", "windows-tied", {"sliding_window": 5, "tie_word_embeddings": True}),
    ("qwen2_moe", "normalised-no-bias", {"norm_topk_prob": True, "qkv_bias": False, "mlp_only_layers": []}),
    ("qwen3_moe", "not-normalised", {"norm_topk_prob": False, "decoder_sparse_step": 1}),
    ("olmoe", "normalised", {"norm_topk_prob": True}),
    ("glm4_moe", "one-group", {"n_group": 1, "topk_group": 1, "use_qk_norm": False, "norm_topk_prob": False}),
    (
        "dots1",
        "one-shared-windows",
        {"n_shared_experts": 1, "sliding_window": 5, "layer_types": ["sliding_attention"] * 3},
    ),
    (
        "gpt_oss",
        "plain-tied",
        {
            "attention_bias": False,
            "layer_types": ["full_attention"] * 3,
            "rope_parameters": _ROPE,
            "tie_word_embeddings": True,
        },
    ),
    (
        "cohere2_moe",
        "softmax-sum-rms",
        {
            "expert_selection_fn": "softmax",
            "shared_expert_combination_strategy": "sum",
            "rms_norm_eps": 1e-3,
            "first_k_dense_replace": 0,
        },
    ),
    *(
        (
            "phimoe",
            label,
            {
                "original_max_position_embeddings": original,
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 1000.0,
                    "short_factor": [1.1, 1.3, 1.7],
                    "long_factor": [1.5, 4.0, 11.0],
                    "short_mscale": 0.8,
                    "long_mscale": 0.9,
                    "original_max_position_embeddings": original,
                },
            },
        )
        for label, original in (("longrope-long", 4), ("longrope-short", 80))
    ),
    ("ernie4_5_moe", "some-layers", {"moe_layer_interval": 2, "moe_num_shared_experts": 0}),
)


def counts_padding(case):
    """Whether transformers counts padding before a text where positions are more than distances."""
    return "llama4" in case.model_type and case.text.get("attn_temperature_tuning", True)


def cases(family):
    """All rows; `family` is that of cases.py."""
    base = SMALL_DECODER | {"rope_parameters": _ROPE, "tie_word_embeddings": False}
    found, makers = [], {}
    for model_type, (name, config, heads, settings) in _FAMILIES.items():
        makers[model_type] = family(model_type, "decoder", config, ("position_ids",), **(base | settings))
        found += makers[model_type]("all", f"{name}ForCausalLM")
        classes = [f"{name}Model", *(name + head for head in _HEADS[:heads])]
        found += makers[model_type]("all", " ".join(classes), ranks=TWO)
    for model_type, label, settings in _VARIANTS:
        found += makers[model_type](label, f"{_FAMILIES[model_type][0]}ForCausalLM", ranks=TWO, **settings)
    llama4 = family("llama4_text", "decoder", "Llama4TextConfig", **(SMALL_DECODER | LLAMA4))
    found += llama4("all", "Llama4ForCausalLM")
    found += llama4("all", "Llama4TextModel", ranks=TWO)
    found += llama4(
        "plain-bias",  # as Maverick: no norms of queries and keys
        "Llama4ForCausalLM",
        ranks=TWO,
        use_qk_norm=False,
        attn_temperature_tuning=False,
        attention_bias=True,
        moe_layers=[1],
    )
    return found
