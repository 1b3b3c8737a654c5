# SPDX-License-Identifier: Apache-2.0
"""Further rows of cases.py: decoders of which some layers keep a state of each sequence in place of keys and values."""

from cases_decoders import SMALL_DECODER
from cases_experts import COLUMNS, GRANITE
from cases_multimodal import PLACES, TABLED_TOWER

TWO = (2,)  # ranks
_ROPE = {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5}
_SECTIONS = {**_ROPE, "mrope_section": [1, 1, 0], "mrope_interleaved": True}
_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": COLUMNS,
    "shared_expert_intermediate_size": 22,
}
_NETS = {
    "head_dim": 8,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 5,
    "linear_num_value_heads": 10,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 6,
    "linear_conv_kernel_dim": 4,
}
_SPACES = {
    **GRANITE,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "mamba_n_heads": 9,
    "mamba_d_head": 8,
    "mamba_d_state": 5,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
    "shared_intermediate_size": 22,
    "position_embedding_type": "rope",
}
_SHORT = {
    "layer_types": ["conv", "full_attention", "conv"],
    "norm_eps": 1e-3,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
}
_VISION = {
    "vision_config": TABLED_TOWER,
    **PLACES,
}

# as in cases.py; or answers would be nearly tied
SEEDS = {
    "Qwen3_5MoeForConditionalGeneration-all": 2204,
    "Qwen3NextForCausalLM-all": 2036,
    "Qwen3NextForTokenClassification-all": 2039,
    "Qwen3NextForQuestionAnswering-all": 1145,
    "Qwen3NextForCausalLM-tied-equal-heads": 2041,
    "Qwen3_5ForConditionalGeneration-all": 742,
    "Qwen3_5ForCausalLM-biases-two-taps": 2193,
    "Qwen3_5MoeForCausalLM-all": 2606,
    "Qwen3_5MoeTextModel-all": 2607,
}

# model_type: its classes that generate, further classes, the name of its configuration, settings, whether the text is a
# section of its configuration
_FAMILIES = {
    "qwen3_next": (
        "Qwen3NextForCausalLM",
        "Qwen3NextModel Qwen3NextForSequenceClassification Qwen3NextForTokenClassification "
        "Qwen3NextForQuestionAnswering",
        "Qwen3NextConfig",
        {**_NETS, **_EXPERTS, "mlp_only_layers": [1], "norm_topk_prob": True, "rope_parameters": _ROPE},
        False,
    ),
    "qwen3_5": (
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5Model Qwen3_5ForSequenceClassification Qwen3_5ForTokenClassification",
        "Qwen3_5Config",
        {**_NETS, "rope_parameters": _SECTIONS},
        True,
    ),
    "qwen3_5_text": (
        "Qwen3_5ForCausalLM",
        "Qwen3_5TextModel Qwen3_5TextForSequenceClassification",
        "Qwen3_5TextConfig",
        {**_NETS, "rope_parameters": _SECTIONS},
        False,
    ),
    "qwen3_5_moe": (
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3_5MoeModel",
        "Qwen3_5MoeConfig",
        {**_NETS, **_EXPERTS, "rope_parameters": _SECTIONS},
        True,
    ),
    "qwen3_5_moe_text": (
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeTextModel",
        "Qwen3_5MoeTextConfig",
        {**_NETS, **_EXPERTS, "rope_parameters": _SECTIONS},
        False,
    ),
    "lfm2": (
        "Lfm2ForCausalLM",
        "Lfm2Model",
        "Lfm2Config",
        {**_SHORT, "block_multiple_of": 7, "block_ffn_dim_multiplier": 1.3},
        False,
    ),
    "lfm2_moe": (
        "Lfm2MoeForCausalLM",
        "Lfm2MoeModel",
        "Lfm2MoeConfig",
        {
            **_SHORT,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": COLUMNS,
            "num_dense_layers": 1,
            "routed_scaling_factor": 1.3,
        },
        False,
    ),
    "granitemoehybrid": (
        "GraniteMoeHybridForCausalLM",
        "GraniteMoeHybridModel",
        "GraniteMoeHybridConfig",
        _SPACES,
        False,
    ),
    "bamba": (
        "BambaForCausalLM",
        "BambaModel",
        "BambaConfig",
        {
            **{name: _SPACES[name] for name in _SPACES if name.startswith("mamba_")},
            "attn_layer_indices": [1],
            "head_dim": 8,
            "rope_parameters": _ROPE,
        },
        False,
    ),
    "nemotron_h": (
        "NemotronHForCausalLM",
        "NemotronHModel",
        "NemotronHConfig",
        {
            "num_hidden_layers": 5,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention"],
            "head_dim": 8,
            "mamba_num_heads": 10,
            "mamba_head_dim": 6,
            "ssm_state_size": 5,
            "n_groups": 5,
            "conv_kernel": 4,
            "layer_norm_epsilon": 1e-3,
            "n_routed_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": COLUMNS,
            "moe_shared_expert_intermediate_size": 22,
            "n_group": 3,
            "topk_group": 2,
            "routed_scaling_factor": 1.3,
        },
        False,
    ),
}

MODEL_TYPES = tuple(_FAMILIES)
WITH_EXPERTS = tuple(
    model_type for model_type in _FAMILIES if model_type not in ("qwen3_5", "qwen3_5_text", "lfm2", "bamba")
)

# as in cases_experts.py; norms multiply by 1 + weight, and states are divided by their length
SMALLER = {
    model_type: {
        **{name: 4 for name in ("layernorm.weight", "q_norm.weight", "k_norm.weight")},
        **{
            f"{name}.weight": 2
            for name in ("in_proj_qkv", "in_proj_qkvz", "in_proj_z", "in_proj_a", "in_proj_b", "in_proj_ba")
        },
        **{f"{name}.weight": 2 for name in ("conv1d", "linear_attn.out_proj", "o_proj")},
        "experts.gate_up_proj": (2 * COLUMNS) ** -0.5,
        "experts.down_proj": 36**-0.5,
    }
    for model_type in _FAMILIES
    if model_type.startswith("qwen")
} | {
    **{
        model_type: {
            **{name: 2 for name in ("q_layernorm.weight", "k_layernorm.weight", "conv.in_proj.weight")},
            **{name: 2 for name in ("conv.conv.weight", "self_attn.out_proj.weight", "w1.weight", "w2.weight")},
            "conv.out_proj.weight": 4,
            "experts.gate_up_proj": (2 * COLUMNS) ** -0.5,
            "experts.down_proj": 36**-0.5,
        }
        for model_type in ("lfm2", "lfm2_moe")
    },
    "granitemoehybrid": {
        f"{name}.weight": 2
        for name in ("input_linear", "output_linear", "in_proj", "conv1d", "mamba.out_proj", "o_proj", "q_proj")
    },
    "bamba": {f"{name}.weight": 2 for name in ("in_proj", "conv1d", "mamba.out_proj", "o_proj", "q_proj", "down_proj")},
    "nemotron_h": {
        **{f"{name}.weight": 2 for name in ("in_proj", "conv1d", "mixer.out_proj", "o_proj", "k_proj", "down_proj")},
        "q_proj.weight": 4,
        "up_proj.weight": 2,
        "experts.up_proj": COLUMNS**-0.5,
        "experts.down_proj": 36**-0.5,
    },
}

# what is rarer, in a class that generates
_VARIANTS = (
    ("qwen3_next", "tied-equal-heads", {"tie_word_embeddings": True, "linear_num_value_heads": 5}),
    ("qwen3_5_text", "biases-two-taps", {"attention_bias": True, "linear_conv_kernel_dim": 2}),
    (
        "lfm2",
        "biases-tied-given-width",
        {"conv_bias": True, "tie_word_embeddings": True, "block_auto_adjust_ff_dim": False},
    ),
    ("lfm2_moe", "no-bias-of-choice", {"use_expert_bias": False, "norm_topk_prob": False, "conv_L_cache": 4}),
    (
        "granitemoehybrid",
        "groups-biases-dense",
        {
            "mamba_n_groups": 3,
            "mamba_proj_bias": True,
            "attention_bias": True,
            "num_local_experts": 0,
            "position_embedding_type": None,
            "tie_word_embeddings": True,
        },
    ),
    (
        "nemotron_h",
        "biases-tied-one-group",
        {"use_bias": True, "mlp_bias": True, "n_groups": 1, "tie_word_embeddings": True, "norm_topk_prob": False},
    ),
    (
        "bamba",
        "groups-biases-tied",
        {
            "mamba_n_groups": 3,
            "mamba_proj_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
        },
    ),
    ("granitemoehybrid", "no-convolution-bias", {"mamba_conv_bias": False}),
)

_LIMITS = {"granitemoehybrid": {"time_step_limit": [0.3, 0.9]}, "nemotron_h": {"time_step_min": 0.3}}


def attending_layers(case, layers):
    """How many of a case's layers have attentions."""
    if case.model_type not in MODEL_TYPES:
        return layers
    if case.model_type == "bamba":
        return len(case.text["attn_layer_indices"])
    return (case.text.get("layer_types") or case.text["layers_block_type"]).count("full_attention")


def reads_padding(case):
    """Whether transformers' convolutions read padding before a text: they hide its states, and projections with biases
    make something of these nevertheless."""
    return any(case.settings.get(name) for name in ("conv_bias", "mamba_proj_bias", "use_bias"))


def recurrent(block, norm):
    """What stands in place of attention in transformers' block, as resolve_dump describes a policy's; `norm` is the
    name of its norm's weight."""
    if hasattr(block, "conv"):
        return {
            "kind": "short_convolution",
            "taps": block.conv.conv_kernel_size,
            "channels": block.conv.conv.in_channels,
        }
    if hasattr(block, "mamba") or hasattr(block, "mixer"):
        module = getattr(block, "mamba", None) or block.mixer
        low, high = module.time_step_limit
        return {
            "kind": "state_space",
            "heads": module.num_heads,
            "head_dim": module.head_dim,
            "groups": module.n_groups,
            "state_size": module.ssm_state_size,
            "taps": module.conv_kernel_size,
            "steps": [low, None if high == float("inf") else high],
            "norm": {"kind": "rms", "eps": module.norm.variance_epsilon, "weight": norm},
        }
    module = block.linear_attn
    return {
        "kind": "delta_net",
        "key_heads": module.num_k_heads,
        "value_heads": module.num_v_heads,
        "key_dim": module.head_k_dim,
        "value_dim": module.head_v_dim,
        "taps": module.conv_kernel_size,
        "norm": {"kind": "rms", "eps": module.norm.variance_epsilon, "weight": norm},
    }


def cases(family):
    """All rows; `family` is that of cases.py."""
    found = []
    for model_type, (generates, others, config, settings, in_section) in _FAMILIES.items():
        text = SMALL_DECODER | {"tie_word_embeddings": False} | settings
        ids = {name: SMALL_DECODER[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        outer = {"text_config": text, "tie_word_embeddings": False, **ids, **_VISION} if in_section else text
        make = family(model_type, "decoder", config, ("position_ids",), **outer)
        found += make("all", generates)
        found += make("all", others, ranks=TWO)
        for _, label, changed in (row for row in _VARIANTS if row[0] == model_type):
            found += make(label, generates, ranks=TWO, **changed)
        # transformers does not bound the steps of tokens that it generates
        if model_type in _LIMITS:
            found += make("limits", others, ranks=TWO, **_LIMITS[model_type])
    return found
