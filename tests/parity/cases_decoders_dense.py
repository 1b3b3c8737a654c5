# SPDX-License-Identifier: Apache-2.0
"""Further rows of cases.py: decoders with rotary positions that differ from LLaMA by options of its blocks."""

from cases_decoders import LLAMA3, SMALL_DECODER
from cases_multimodal import YARN

TWO = (2,)  # ranks
_ROPE = {"rope_type": "default", "rope_theta": 1000.0}
_HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
_LLAMA3 = LLAMA3 | {"original_max_position_embeddings": 16}
_WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]

# as in cases.py; or answers would be nearly tied
SEEDS = {
    "LlamaForCausalLM-internlm3": 925,
    "Ministral3ForQuestionAnswering-all": 1035,
    "ApertusForCausalLM-relu-bias": 776,
    "SeedOssModel-all": 2854,
    "SmolLM3ForCausalLM-all": 2,
    "SmolLM3Model-all": 2,
    "SmolLM3ForTokenClassification-all": 2,
    "HeliumForSequenceClassification-all": 2,
    "GlmModel-all": 1,
    "Glm4ForTokenClassification-all": 1,
    "Ernie4_5ForCausalLM-bias-tied": 1,
    "Olmo2ForCausalLM-seven-heads": 2492,
    "VaultGemmaModel-all": 2,
    "CwmForCausalLM-all": 1,
    "HyperCLOVAXModel-all": 1,
}

# by fixtures.shrink(): nothing else bounds the scores
SMALLER = {"gemma": {"q_proj.weight": 4.0}}

# model_type: its class names' beginning, how many of _HEADS it has, and settings
_FAMILIES = {
    "smollm3": ("SmolLM3", 3, {"no_rope_layers": [1, 0, 1], "rope_parameters": _ROPE, "tie_word_embeddings": False}),
    "granite": (
        "Granite",
        0,
        {
            "embedding_multiplier": 1.5,
            "logits_scaling": 1.3,
            "residual_multiplier": 0.7,
            "attention_multiplier": 0.3,
            "rope_parameters": _ROPE,
        },
    ),
    "seed_oss": ("SeedOss", 3, {"head_dim": 8, "rope_parameters": _ROPE}),
    "arcee": ("Arcee", 3, {"head_dim": 6, "rope_parameters": _ROPE}),
    "starcoder2": (
        "Starcoder2",
        2,
        {"norm_epsilon": 1e-3, "sliding_window": 7, "rope_parameters": _ROPE, "tie_word_embeddings": False},
    ),
    "stablelm": (
        "StableLm",
        2,
        {
            "hidden_size": 48,
            "layer_norm_eps": 1e-3,
            "use_qkv_bias": True,
            "rope_parameters": {**_ROPE, "partial_rotary_factor": 0.5},
        },
    ),
    "ernie4_5": ("Ernie4_5", 0, {"head_dim": 8, "rope_parameters": _ROPE, "tie_word_embeddings": False}),
    "helium": ("Helium", 2, {"head_dim": 6, "rope_parameters": _ROPE}),
    "phi": (
        "Phi",
        2,
        {
            "hidden_size": 48,
            "layer_norm_eps": 1e-3,
            "qk_layernorm": True,
            "rope_parameters": {**_ROPE, "partial_rotary_factor": 0.5},
        },
    ),
    "cohere": (
        "Cohere",
        0,
        {"layer_norm_eps": 1e-3, "logit_scale": 0.5, "rope_parameters": _ROPE, "tie_word_embeddings": False},
    ),
    "cohere2": (
        "Cohere2",
        0,
        {
            "layer_norm_eps": 1e-3,
            "logit_scale": 0.5,
            "sliding_window": 6,
            "layer_types": _WINDOWS,
            "rope_parameters": _ROPE,
            "tie_word_embeddings": False,
        },
    ),
    "glm": ("Glm", 2, {"head_dim": 8, "rope_parameters": {**_ROPE, "partial_rotary_factor": 0.5}}),
    "glm4": ("Glm4", 2, {"head_dim": 8, "rope_parameters": {**_ROPE, "partial_rotary_factor": 0.5}}),
    "nemotron": (
        "Nemotron",
        3,
        {"head_dim": 8, "norm_eps": 1e-3, "rope_parameters": {**_ROPE, "partial_rotary_factor": 0.5}},
    ),
    "exaone4": ("Exaone4", 3, {"sliding_window": 6, "layer_types": _WINDOWS, "rope_parameters": _ROPE}),
    "olmo2": ("Olmo2", 1, {"rope_parameters": _ROPE}),
    "olmo3": (
        "Olmo3",
        1,
        {
            "sliding_window": 6,
            "layer_types": _WINDOWS,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1000.0},
            },
        },
    ),
    "ministral3": ("Ministral3", 3, {"head_dim": 8, "rope_parameters": YARN}),
    "hunyuan_v1_dense": (
        "HunYuanDenseV1",
        1,
        {"head_dim": 8, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "alpha": 3.0, "factor": 1.0}},
    ),
    "apertus": ("Apertus", 0, {"rope_parameters": _ROPE}),
    "gemma": ("Gemma", 2, {"head_dim": 8, "rope_parameters": _ROPE, "tie_word_embeddings": False}),
    "vaultgemma": (
        "VaultGemma",
        0,
        {
            "head_dim": 8,
            "sliding_window": 5,
            "query_pre_attn_scalar": 11,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
            "rope_parameters": _ROPE,
        },
    ),
    "cwm": (
        "Cwm",
        0,
        {"head_dim": 8, "sliding_window": 6, "layer_types": _WINDOWS, "rope_parameters": _LLAMA3},
    ),
    "jais2": ("Jais2", 0, {"head_dim": 8, "layer_norm_eps": 1e-3, "rope_parameters": _ROPE}),
    "hyperclovax": (
        "HyperCLOVAX",
        0,
        {
            "embedding_multiplier": 1.5,
            "logits_scaling": 1.3,
            "residual_multiplier": 0.7,
            "rope_parameters": _ROPE,
        },
    ),
    "olmo": ("Olmo", 1, {"rope_parameters": _ROPE}),
    "ministral": (
        "Ministral",
        3,
        {"head_dim": 8, "sliding_window": 6, "layer_types": _WINDOWS, "rope_parameters": _ROPE},
    ),
}

MODEL_TYPES = (*_FAMILIES, "gemma3_text", "internlm3", "gpt_bigcode", "mpt")
_INTERNLM3 = SMALL_DECODER | {"head_dim": 8, "rope_parameters": _ROPE}

# what is rarer, in the class with the LM head
_VARIANTS = (
    ("smollm3", "windows-tied", {"use_sliding_window": True, "sliding_window": 5, "tie_word_embeddings": True}),
    ("stablelm", "parallel", {"use_parallel_residual": True, "use_qkv_bias": False}),
    ("starcoder2", "tied-no-window-no-bias", {"sliding_window": None, "use_bias": False, "tie_word_embeddings": True}),
    ("cohere", "tied-bias", {"attention_bias": True, "tie_word_embeddings": True}),
    ("phi", "no-norms", {"qk_layernorm": False}),
    ("ernie4_5", "bias-tied", {"use_bias": True, "tie_word_embeddings": True}),
    (
        "olmo2",
        "seven-heads",
        {"hidden_size": 42, "num_attention_heads": 7, "num_key_value_heads": 7, "attention_bias": True},
    ),
    ("hunyuan_v1_dense", "plain-bias", {"attention_bias": True, "rope_parameters": _ROPE}),
    ("apertus", "relu-bias", {"hidden_act": "relu", "attention_bias": True, "tie_word_embeddings": True}),
    ("exaone4", "no-window", {"sliding_window": None, "layer_types": ["full_attention"] * 3}),
    ("gemma", "gelu-tied", {"hidden_act": "gelu", "attention_bias": True, "tie_word_embeddings": True}),
    ("jais2", "no-biases", {"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True}),
    ("hyperclovax", "no-post-norms", {"use_post_norm": False, "attention_multiplier": 0.3, "attention_bias": True}),
    ("olmo", "bias-tied", {"attention_bias": True, "tie_word_embeddings": True}),
)


def _of_other_names(family):
    """Rows of families whose sizes have names of their own."""
    ids = {name: SMALL_DECODER[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id", "vocab_size")}
    big_code = family(
        "gpt_bigcode",
        "decoder",
        "GPTBigCodeConfig",
        ("position_ids",),
        **ids,
        n_embd=36,
        n_head=6,
        n_layer=3,
        n_inner=77,
        n_positions=80,
        layer_norm_epsilon=1e-3,
        tie_word_embeddings=False,
    )
    mpt = family("mpt", "decoder", "MptConfig", (), **ids, d_model=32, n_heads=4, n_layers=3, layer_norm_epsilon=1e-3)
    return [
        *big_code("all", "GPTBigCodeForCausalLM"),
        *big_code(
            "all",
            "GPTBigCodeModel GPTBigCodeForSequenceClassification GPTBigCodeForTokenClassification",
            ranks=TWO,
        ),
        *big_code("heads-tied", "GPTBigCodeForCausalLM", multi_query=False, tie_word_embeddings=True),
        *big_code("unscaled", "GPTBigCodeForCausalLM", ranks=TWO, scale_attn_weights=False, n_inner=None),
        *mpt("all", "MptForCausalLM"),
        *mpt(
            "all",
            "MptModel MptForSequenceClassification MptForTokenClassification MptForQuestionAnswering",
            ranks=TWO,
        ),
        *mpt(
            "scale-untied", "MptForCausalLM", ranks=TWO, attn_config={"softmax_scale": 0.4}, tie_word_embeddings=False
        ),
    ]


def cases(family):
    """All rows; `family` is that of cases.py."""
    found, makers = [], {}
    for model_type, (name, heads, settings) in _FAMILIES.items():
        made = SMALL_DECODER | settings
        if not model_type.startswith(
            ("smollm3", "granite", "seed", "arcee", "ernie", "helium", "glm", "exa", "min", "olmo", "hun", "ap", "ge")
            + ("vault", "cwm", "hyper")
        ):
            del made["rms_norm_eps"]  # theirs has another name
        makers[model_type] = family(model_type, "decoder", f"{name}Config", ("position_ids",), **made)
        found += makers[model_type]("all", f"{name}ForCausalLM")
        classes = [f"{name}Model", *(name + head for head in _HEADS[:heads])]
        classes += ["ApertusForTokenClassification"] if model_type == "apertus" else []
        found += makers[model_type]("all", " ".join(classes), ranks=TWO)
    for model_type, label, settings in _VARIANTS:
        found += makers[model_type](label, f"{_FAMILIES[model_type][0]}ForCausalLM", ranks=TWO, **settings)
    found += _of_other_names(family)
    internlm3 = family("internlm3", "decoder", "InternLM3Config", ("position_ids",), **_INTERNLM3)
    found += internlm3("internlm3", "LlamaForCausalLM")
    found += internlm3("internlm3-bias", "LlamaForCausalLM", ranks=TWO, attention_bias=True, mlp_bias=True)
    gemma3 = family(
        "gemma3_text",
        "decoder",
        "Gemma3TextConfig",
        ("position_ids",),
        **SMALL_DECODER,
        head_dim=8,
        sliding_window=5,
        query_pre_attn_scalar=11,
        layer_types=_WINDOWS,
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1000.0},
        },
    )
    found += gemma3("all", "Gemma3ForCausalLM")
    found += gemma3("all", "Gemma3TextModel Gemma3TextForSequenceClassification", ranks=TWO)
    found += gemma3("both-ways", "Gemma3TextModel", use_bidirectional_attention=True)  # EmbeddingGemma
    return found
