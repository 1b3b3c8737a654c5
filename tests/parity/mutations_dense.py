# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_decoders_dense.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "GraniteForCausalLM-all",
            ("layer.residual_multiplier", "none", m.config(residual_multiplier=1.0)),
            ("input.scale", "none", m.config(embedding_multiplier=1.0)),
            ("head.scale_input", "none", m.config(logits_scaling=1.0)),
            ("attn.scale", "by the size of a head", m.config(attention_multiplier=6**-0.5)),
        ),
        *of("ArceeForCausalLM-all", ("let.act", "relu, not squared", m.config(hidden_act="relu"))),
        *of(
            "GemmaForCausalLM-all",
            ("input.scale", "none", m.policy("  decoder:\n", "  decoder:\n    input: {scale: 1}\n")),
            ("layer.norm", "times the weight alone", m.policy("  decoder:\n", "  decoder:\n    layer: {norm: rms}\n")),
        ),
        *of("VaultGemmaForCausalLM-all", ("attn.window", "another", m.config(sliding_window=3))),
        *of("CwmForCausalLM-all", ("attn.window", "another", m.config(sliding_window=4))),
        *of(
            "Jais2ForCausalLM-all",
            ("attn.norm", "bias dropped", m.dropped(r"layers\.1\.input_layernorm\.bias")),
            ("mlp.bias", "up's dropped", m.dropped(r"layers\.1\.mlp\.up_proj\.bias")),
        ),
        *of(
            "HyperCLOVAXForCausalLM-all",
            ("head.scale_input", "none", m.config(logits_scaling=1.0)),
            ("attn.post_norm", "weight dropped", m.ones(r"layers\.1\.post_norm1\.weight")),
        ),
        *of(
            "OlmoForCausalLM-all",
            ("layer.norm", "RMSNorm", m.policy("norm: layer", "norm: rms")),
            ("norm.weight", "no norm", m.policy("attn: {norm: {weight: false}}", "attn: {norm: ~}")),
        ),
        *of(
            "GPTBigCodeForCausalLM-heads-tied",
            ("qkv.fused", "the projections side by side", m.policy("'per_head'", "'concat'")),
        ),
        *of("MptForCausalLM-all", ("attn.alibi", "none", m.policy("alibi: true", "alibi: false"))),
        *of(
            "NemotronForCausalLM-all",
            ("layer.norm", "times the weight alone", m.policy("norm: layer1p", "norm: layer")),
            ("rotary.dims", "all of a head", m.config(rope_parameters__partial_rotary_factor=1.0)),
        ),
        *of(
            "SmolLM3ForCausalLM-all",
            ("rotary.when", "in every layer", m.config(no_rope_layers=[1, 1, 1])),
        ),
        *of(
            "SmolLM3ForCausalLM-windows-tied",
            ("attn.window", "none", m.config(use_sliding_window=False, layer_types=["full_attention"] * 3)),
        ),
        *of("SeedOssForCausalLM-all", ("attn.bias", "queries' dropped", m.dropped(r"layers\.1\..*q_proj\.bias"))),
        *of("Starcoder2ForCausalLM-all", ("attn.window", "another", m.config(sliding_window=4))),
        *of(
            "StableLmForCausalLM-all",
            ("rotary.dims", "all of a head", m.config(rope_parameters__partial_rotary_factor=1.0)),
        ),
        *of(
            "StableLmForCausalLM-parallel",
            ("layer.order", "one block after the other", m.policy("'parallel' : 'pre'", "'pre' : 'pre'")),
        ),
        *of("Ernie4_5ForCausalLM-all", ("rotary.style", "halves", m.policy("style: interleaved", "style: neox"))),
        *of("HeliumForCausalLM-all", ("rotary.style", "halves", m.policy("style: interleaved", "style: neox"))),
        *of(
            "PhiForCausalLM-all",
            ("attn.query_norm", "bias dropped", m.dropped(r"layers\.1\..*q_layernorm\.bias")),
            ("attn.key_norm", "weight dropped", m.ones(r"layers\.1\..*k_layernorm\.weight")),
            ("logits.bias", "dropped", m.dropped(r"lm_head\.bias")),
        ),
        *of("CohereForCausalLM-all", ("head.scale_input", "another", m.config(logit_scale=0.4))),
        *of(
            "Cohere2ForCausalLM-all",
            ("attn.window", "another", m.config(sliding_window=4)),
            ("rotary.when", "in every layer", m.policy('when: "', 'when: "true or ')),
        ),
        *of("GlmForCausalLM-all", ("attn.bias", "keys' dropped", m.dropped(r"layers\.1\..*k_proj\.bias"))),
        *of(
            "Glm4ForCausalLM-all",
            ("attn.post_norm", "weight dropped", m.ones(r"layers\.1\.post_self_attn_layernorm\.weight")),
            ("mlp.post_norm", "weight dropped", m.ones(r"layers\.1\.post_mlp_layernorm\.weight")),
        ),
        *of(
            "Exaone4ForCausalLM-all",
            ("rotary.when", "in every layer", m.policy('when: "', 'when: "true or ')),
            ("attn.query_norm", "weight dropped", m.ones(r"layers\.1\..*q_norm\.weight")),
        ),
        *of(
            "Olmo2ForCausalLM-all",
            (
                "query_norm.over",
                "the first heads' weight",
                m.tensors(r"layers\.1\..*q_norm\.weight", lambda t: t[::-1]),
            ),
            ("attn.query_norm", "weight dropped", m.ones(r"layers\.1\..*q_norm\.weight")),
            ("attn.key_norm", "weight dropped", m.ones(r"layers\.1\..*k_norm\.weight")),
            ("key_norm.over", "turned round", m.tensors(r"layers\.1\..*k_norm\.weight", lambda t: t[::-1])),
        ),
        *of(
            "Olmo3ForCausalLM-all",
            ("attn.window", "another", m.config(sliding_window=4)),
            ("rotary.theta", "of the other layers", m.config(rope_parameters__sliding_attention__rope_theta=1000.0)),
            ("rotary.scaling", "none", m.config(rope_parameters__full_attention__rope_type="default")),
        ),
        *of(
            "Ministral3ForCausalLM-all",
            ("rotary.query_growth", "none", m.config(rope_parameters__llama_4_scaling_beta=0.0)),
            ("query_growth.beta", "another", m.config(rope_parameters__llama_4_scaling_beta=0.2)),
            ("query_growth.original", "another", m.policy('original: "rope.original', 'original: "7 + rope.original')),
        ),
        *of(
            "HunYuanDenseV1ForCausalLM-all",
            ("attn.norms_after_rotary", "before it", m.policy("norms_after_rotary: true", "norms_after_rotary: false")),
            ("attn.query_norm", "weight dropped", m.ones(r"layers\.1\..*query_layernorm\.weight")),
            ("rotary.theta", "without alpha", m.config(rope_parameters__alpha=1.0)),
        ),
        *of(
            "ApertusForCausalLM-all",
            ("mlp.xielu", "two numbers change places", m.swapped("act_fn.alpha_p", "act_fn.alpha_n")),
            ("xielu.positive", "another", m.tensors(r"layers\.1\..*alpha_p", lambda t: t + 0.5)),
            ("xielu.negative", "another", m.tensors(r"layers\.1\..*alpha_n", lambda t: t + 0.5)),
            ("xielu.beta", "another", m.tensors(r"layers\.1\..*act_fn\.beta", lambda t: t + 0.5)),
            ("xielu.eps", "another", m.tensors(r"act_fn\.eps", lambda t: t * 0 - 1)),
        ),
        *of(
            "Gemma3ForConditionalGeneration-all",
            ("attn.window", "another", m.config(text_config__sliding_window=4)),
            ("rotary.scaling", "none", m.config(text_config__rope_parameters__full_attention__rope_type="default")),
        ),
        *of(
            "Mistral3ForConditionalGeneration-all",
            ("rotary.query_growth", "none", m.config(text_config__rope_parameters__llama_4_scaling_beta=0.0)),
        ),
        *of(
            "Mistral3ForConditionalGeneration-plain",
            ("attn.window", "none", m.config(text_config__sliding_window=None)),
        ),
        *of(
            "Qwen2_5_VLForConditionalGeneration-windows",
            ("attn.window", "none", m.config(text_config__layer_types=["full_attention"] * 3)),
            ("rotary.theta", "another", m.config(text_config__rope_parameters__rope_theta=900.0)),
        ),
        *of(
            "Qwen3VLForConditionalGeneration-all",
            ("rotary.theta", "another", m.config(text_config__rope_parameters__rope_theta=900.0)),
        ),
        *of(
            "LlavaNextForConditionalGeneration-all", ("attn.window", "none", m.config(text_config__sliding_window=None))
        ),
        *of(
            "LlavaForConditionalGeneration-biases",
            ("attn.out", "bias dropped", m.dropped(r"layers\.1\..*o_proj\.bias")),
        ),
        *of(
            "LlavaForConditionalGeneration-qwen2",
            ("attn.bias", "keys' dropped", m.dropped(r"layers\.1\..*k_proj\.bias")),
            ("logits.from", "weight dropped", m.dropped(r"lm_head\.weight")),
        ),
        *of("LlamaForCausalLM-internlm3-bias", ("attn.bias", "keys' dropped", m.dropped(r"layers\.1\..*k_proj\.bias"))),
        *of("MinistralForCausalLM-all", ("attn.window", "another", m.config(sliding_window=4))),
        *of(
            "Gemma3TextModel-both-ways",
            ("attn.window", "another", m.config(sliding_window=8)),
            ("attn.mask", "causal", m.config(use_bidirectional_attention=False, sliding_window=3)),
        ),
        *of(
            "Gemma3ForCausalLM-all",
            ("rotary.theta", "of the other layers", m.config(rope_parameters__sliding_attention__rope_theta=1000.0)),
            ("rotary.scaling", "none", m.config(rope_parameters__full_attention__rope_type="default")),
            ("attn.query_norm", "weight dropped", m.dropped(r"layers\.1\..*q_norm\.weight")),
        ),
    )
