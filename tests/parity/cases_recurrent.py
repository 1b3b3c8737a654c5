# SPDX-License-Identifier: Apache-2.0
"""Further rows of cases.py: decoders of which some layers keep a state of each sequence in place of keys and values."""

from cases_decoders import SMALL_DECODER
from cases_experts import COLUMNS
from cases_multimodal import PLACES, QWEN_TOWER

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
_VISION = {
    "vision_config": {**QWEN_TOWER, "patch_size": 4, "num_position_embeddings": 4, "out_hidden_size": 36},
    **PLACES,
}

# as in cases.py; or answers would be nearly tied
SEEDS = {
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
        {**_EXPERTS, "mlp_only_layers": [1], "norm_topk_prob": True, "rope_parameters": _ROPE},
        False,
    ),
    "qwen3_5": (
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5Model Qwen3_5ForSequenceClassification Qwen3_5ForTokenClassification",
        "Qwen3_5Config",
        {"rope_parameters": _SECTIONS},
        True,
    ),
    "qwen3_5_text": (
        "Qwen3_5ForCausalLM",
        "Qwen3_5TextModel Qwen3_5TextForSequenceClassification",
        "Qwen3_5TextConfig",
        {"rope_parameters": _SECTIONS},
        False,
    ),
    "qwen3_5_moe": (
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3_5MoeModel",
        "Qwen3_5MoeConfig",
        {**_EXPERTS, "rope_parameters": _SECTIONS},
        True,
    ),
    "qwen3_5_moe_text": (
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeTextModel",
        "Qwen3_5MoeTextConfig",
        {**_EXPERTS, "rope_parameters": _SECTIONS},
        False,
    ),
}

MODEL_TYPES = tuple(_FAMILIES)
WITH_EXPERTS = tuple(model_type for model_type in _FAMILIES if model_type not in ("qwen3_5", "qwen3_5_text"))

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
}

# what is rarer, in a class that generates
_VARIANTS = (
    ("qwen3_next", "tied-equal-heads", {"tie_word_embeddings": True, "linear_num_value_heads": 5}),
    ("qwen3_5_text", "biases-two-taps", {"attention_bias": True, "linear_conv_kernel_dim": 2}),
)


def attending_layers(case, layers):
    """How many of a case's layers have attentions."""
    return case.text.get("layer_types", []).count("full_attention") if case.model_type in MODEL_TYPES else layers


def delta_net(module, weight):
    """transformers' module as resolve_dump describes a policy's; `weight` is the name of its norm's."""
    return {
        "key_heads": module.num_k_heads,
        "value_heads": module.num_v_heads,
        "key_dim": module.head_k_dim,
        "value_dim": module.head_v_dim,
        "taps": module.conv_kernel_size,
        "norm": {"kind": "rms", "eps": module.norm.variance_epsilon, "weight": weight},
    }


def cases(family):
    """All rows; `family` is that of cases.py."""
    found = []
    for model_type, (generates, others, config, settings, in_section) in _FAMILIES.items():
        text = SMALL_DECODER | _NETS | {"tie_word_embeddings": False} | settings
        ids = {name: SMALL_DECODER[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        outer = {"text_config": text, "tie_word_embeddings": False, **ids, **_VISION} if in_section else text
        make = family(model_type, "decoder", config, ("position_ids",), **outer)
        found += make("all", generates)
        found += make("all", others, ranks=TWO)
        for _, label, changed in (row for row in _VARIANTS if row[0] == model_type):
            found += make(label, generates, ranks=TWO, **changed)
    return found
