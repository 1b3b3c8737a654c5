# SPDX-License-Identifier: Apache-2.0
"""Rows of mutations.py: the families of cases_decoders.py."""


def decoders(m):
    """All rows; `m` is the module mutations."""
    of, config, policy, dropped, ones, rolled, swapped = (
        m._of,
        m.config,
        m.policy,
        m.dropped,
        m.ones,
        m.rolled,
        m.swapped,
    )
    return (
        *of(
            "MistralForCausalLM-all",
            ("attn.window", "off", policy('window: "has(sliding_window) ? sliding_window ?? 0 : 4096"', "window: 0")),
            ("attn.window", "one token longer", config(sliding_window=8)),
        ),
        *of(
            "Qwen2ForCausalLM-all",
            ("attn.bias", "of the keys dropped", dropped(r"2\.self_attn\.k_proj\.bias")),
            ("attn.window", "in all layers", config(layer_types=["sliding_attention"] * 3)),
        ),
        *of(
            "Qwen3ForCausalLM-all",
            ("attn.query_norm", "weight dropped", ones(r"2\.self_attn\.q_norm")),
            ("attn.key_norm", "weight dropped", ones(r"2\.self_attn\.k_norm")),
            ("attn.query_norm", "each has the other's", swapped("q_norm", "k_norm")),
        ),
        *of(
            "Phi3ForCausalLM-all",
            ("mlp.gate_up", "gate and up change places", m.blocks_swapped(r"2\.mlp\.gate_up_proj", 2, 0, 1)),
            ("qkv.fused", "by kv groups", policy("fused: concat", "fused: grouped")),
            ("rotary.dims", "all of the head", config(rope_parameters__partial_rotary_factor=1.0)),
        ),
        *of(
            "Phi3ForCausalLM-longrope-long",
            ("rotary.longrope", "short factors", config(original_max_position_embeddings=80)),
            ("rotary.longrope", "another factor of attention", config(rope_parameters__attention_factor=1.0)),
        ),
        *of(
            "Phi3ForCausalLM-longrope-short",
            ("longrope.original", "shorter than the texts", config(original_max_position_embeddings=4)),
        ),
        *of(
            "Gemma2ForCausalLM-all",
            ("attn.softcap", "off", config(attn_logit_softcapping=None)),
            ("attn.softcap", "a little higher", config(attn_logit_softcapping=5.5)),
            ("head.softcap", "none", config(final_logit_softcapping=None)),
            ("attn.post_norm", "weight dropped", dropped(r"2\.post_attention_layernorm")),
            ("mlp.post_norm", "weight dropped", dropped(r"2\.post_feedforward_layernorm")),
            (
                "mlp.post_norm",
                "that of the attention",
                swapped("post_attention_layernorm", "post_feedforward_layernorm"),
            ),
            ("layer.norm", "nothing added to weights", policy("gemma_rms", "rms")),
            ("scale", "that of others", config(query_pre_attn_scalar=8)),
            ("input.scale", "none", policy("scale: hidden ** 0.5", "scale: 1")),
            (
                "attn.window",
                "in the other layers",
                config(layer_types=["full_attention", "sliding_attention", "full_attention"]),
            ),
        ),
        *of(
            "GPTNeoXForCausalLM-all",
            ("layer.order", "the MLP after the attention", config(use_parallel_residual=False)),
            ("mlp.norm", "that of the attention", swapped("input_layernorm", "post_attention_layernorm")),
            ("qkv.fused", "one after the other", policy("fused: per_head", "fused: concat")),
            ("rotary.dims", "all of the head", config(rope_parameters__partial_rotary_factor=1.0)),
        ),
        *of(
            "CodeGenForCausalLM-all",
            ("fused.order", "keys and values change places", policy("[q, v, k]", "[q, k, v]")),
            ("fused.blocks", "half as many", policy("blocks: 4", "blocks: 2")),
        ),
        *of(
            "OPTForCausalLM-all",
            ("position.offset", "rows shifted", rolled(r"embed_positions")),
            (
                "position.skip_padding",
                "columns of the batch",
                policy("skip_padding: true", "skip_padding: false"),
                "left",
            ),
            (
                "position.position_ids",
                "those of a request count rows",
                policy("position_ids: tokens", "position_ids: rows"),
                "given",
            ),
            ("mlp.act", "gelu", config(activation_function="gelu")),
        ),
        *of(
            "OPTForCausalLM-norms-after-narrow",
            ("layer.order", "norms before", policy("order: \"before ? 'pre' : 'post'\"", "order: pre")),
            ("input.projection", "outputs shifted", rolled(r"project_in")),
            ("output.projection", "outputs shifted", rolled(r"project_out")),
        ),
        *of(
            "OpenAIGPTLMHeadModel-all",
            ("layer.order", "norms before", policy("order: post", "order: pre")),
            ("mlp.act", "exact gelu", policy("? 'gelu_new' :", "? 'gelu' :")),
        ),
        *of(
            "CTRLLMHeadModel-all",
            ("position.sinusoidal", "other frequencies", policy("sinusoidal: paper", "sinusoidal: tensor2tensor")),
            ("input.scale", "none", policy("scale: hidden ** 0.5", "scale: 1")),
            ("norm.eps", "that of the layers", policy("layer_norm_epsilon ?? 1e-6", "1e-6")),
        ),
        *of("BertGenerationDecoder-all", ("layer.order", "norms before", policy("order: post", "order: pre"))),
        *of(
            "MBartForConditionalGeneration-all",
            ("output.norm", "of the encoder, weight dropped", ones(r"encoder\.layer_norm\.weight")),
            ("output.norm", "of the decoder, weight dropped", ones(r"decoder\.layer_norm\.weight")),
            ("input.norm", "weight dropped", ones(r"encoder\.layernorm_embedding\.weight")),
        ),
        *of(
            "MBartModel-all",
            ("shift_tokens", "the usual start", policy("shift_tokens: true", "shift_tokens: false"), "bare"),
        ),
        *of(
            "BlenderbotForConditionalGeneration-all",
            ("input.scale", "off", config(scale_embedding=False)),
            ("output.norm", "of the decoder, weight dropped", ones(r"decoder\.layer_norm\.weight")),
        ),
        *of(
            "BlenderbotSmallForConditionalGeneration-all",
            (
                "position.after_norm",
                "before the norm",
                policy("position: {after_norm: true}", "position: {after_norm: false}"),
            ),
        ),
        *of(
            "MarianMTModel-all",
            ("position.sinusoidal", "other frequencies", policy("sinusoidal: paper", "sinusoidal: tensor2tensor")),
            ("logits.bias", "dropped", dropped(r"final_logits_bias")),
        ),
        *of(
            "PegasusForConditionalGeneration-all",
            ("position.sinusoidal", "other frequencies", policy("sinusoidal: paper", "sinusoidal: tensor2tensor")),
        ),
        *of(
            "M2M100ForConditionalGeneration-all",
            ("position.sinusoidal", "other frequencies", policy("sinusoidal: tensor2tensor", "sinusoidal: paper")),
            ("position.offset", "one less", policy('"(pad_token_id ?? 1) + 1"', "1")),
            (
                "position.skip_padding",
                "columns of the batch",
                policy("skip_padding: true", "skip_padding: false"),
                "left",
            ),
        ),
        *of(
            "FSMTForConditionalGeneration-all",
            ("position.offset", "one less", policy('"(pad_token_id ?? 1) + 1"', "1")),
            ("shift_tokens", "the usual start", policy("shift_tokens: true", "shift_tokens: false"), "bare"),
        ),
        *of(
            "MT5ForConditionalGeneration-all",
            ("logits.scale_input", "that of T5", policy("rescale: false", "rescale: true")),
        ),
    )
