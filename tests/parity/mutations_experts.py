# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_experts.py; collected by mutations.py."""

import numpy

_IN_TURN = [i ^ 1 for i in range(32)]  # gate and up change places where a column of each lies in turn


def _read_as_linear(tensor):
    """Experts [in, out] whose numbers lie as [out, in]."""
    return tensor.transpose(0, 2, 1).reshape(tensor.shape)


def _without_first(tensor):
    return tensor * (numpy.arange(len(tensor)) > 0).astype(tensor.dtype)[:, None, None]


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "MixtralForCausalLM-all",
            ("experts.router", "weight dropped", m.dropped(r"layers\.1\..*moe\.gate\.weight")),
            ("experts.per_token", "one more", m.config(num_experts_per_tok=3)),
            ("experts.normalise", "not", m.policy("normalise: true", "normalise: false")),
            ("experts.scores", "sigmoid", m.policy("normalise: true", "normalise: true\n        scores: sigmoid")),
            ("experts.at", "in another order", m.policy("experts.{e}.", "experts.{4 - e}.")),
            (
                "mlp.experts",
                "two change places",
                m.swapped("layers.1.block_sparse_moe.experts.0.w1", "layers.1.block_sparse_moe.experts.1.w1"),
            ),
            ("experts.up", "of one dropped", m.dropped(r"layers\.1\..*experts\.2\.w3\.weight")),
            ("experts.down", "of one dropped", m.dropped(r"layers\.1\..*experts\.3\.w2\.weight")),
            ("experts.gate", "up for gate", m.policy("gate: w1\n        up: w3", "gate: w3\n        up: w1")),
        ),
        *of(
            "Qwen2MoeForCausalLM-all",
            ("experts.normalise", "by their sum", m.config(norm_topk_prob=True)),
            ("shared.gated_by", "weight dropped", m.dropped(r"layers\.2\..*shared_expert_gate\.weight")),
            ("mlp.shared", "twice", m.twice(r"layers\.2\..*shared_expert\.down_proj\.weight")),
            ("shared.gate", "weight dropped", m.dropped(r"layers\.2\..*shared_expert\.gate_proj\.weight")),
            ("shared.up", "weight dropped", m.dropped(r"layers\.2\..*shared_expert\.up_proj\.weight")),
            ("shared.down", "weight dropped", m.dropped(r"layers\.2\..*shared_expert\.down_proj\.weight")),
        ),
        *of(
            "Llama4ForCausalLM-all",
            ("experts.weigh_input", "what they make", m.policy("weigh_input: true", "weigh_input: false")),
            ("experts.scores", "softmax", m.policy("scores: sigmoid", "scores: softmax_of_chosen")),
            ("rotary.style", "halves", m.policy("style: interleaved", "style: neox")),
            ("rotary.when", "in every layer", m.policy("when: turns", "when: true")),
            ("attn.query_norm", "none", m.config(use_qk_norm=False)),
            ("query_norm.weight", "of another kind", m.policy("query_norm: {", "query_norm: {kind: layer, ")),
            ("key_norm.weight", "of another kind", m.policy("key_norm: {", "key_norm: {kind: layer, ")),
            ("query_growth.when", "never", m.config(attn_temperature_tuning=False)),
            ("query_growth.beta", "another", m.config(attn_scale=0.3)),
            ("query_growth.original", "another", m.config(floor_scale=4)),
            ("query_growth.offset", "none", m.policy("offset: 1", "offset: 0")),
        ),
        *of(
            "PhimoeForCausalLM-longrope-long",
            ("longrope.attention_factors", "the short one", m.config(rope_parameters__long_mscale=0.8)),
            ("longrope.long_factor", "the long one", m.policy("rope.short_factor", "rope.long_factor")),
        ),
        *of(
            "PhimoeForCausalLM-longrope-short",
            ("longrope.original", "shorter", m.config(original_max_position_embeddings=4)),
        ),
        *of("Qwen3MoeForCausalLM-all", ("experts.normalise", "not", m.config(norm_topk_prob=False))),
        *of(
            "OlmoeForCausalLM-all",
            ("experts.router", "weight dropped", m.dropped(r"layers\.1\.mlp\.gate\.weight")),
            ("experts.normalise", "by their sum", m.config(norm_topk_prob=True)),
        ),
        *of(
            "Glm4MoeForCausalLM-all",
            ("experts.choice_bias", "dropped", m.dropped(r"layers\.[12]\..*e_score_correction_bias")),
            ("experts.choice_bias", "in the weights", m.policy("scores: sigmoid", "scores: softmax")),
            ("experts.groups", "one", m.config(n_group=1, topk_group=1)),
            ("experts.groups_kept", "all", m.config(topk_group=4)),
            ("experts.factor", "none", m.config(routed_scaling_factor=1.0)),
            ("experts.normalise", "not", m.config(norm_topk_prob=False)),
        ),
        *of("Dots1ForCausalLM-all", ("shared.down", "dropped", m.dropped(r"layers\.1\..*shared.*down_proj\.weight"))),
        *of(
            "Ernie4_5_MoeForCausalLM-all",
            ("experts.choice_bias", "dropped", m.dropped(r"layers\.[12]\..*e_score_correction_bias")),
        ),
        *of(
            "GptOssForCausalLM-all",
            ("attn.sinks", "dropped", m.dropped(r"layers\.1\..*sinks")),
            ("attn.sinks", "of other heads", m.rolled(r"layers\.[02]\..*sinks")),
            ("attn.window", "one more", m.config(sliding_window=6)),
            ("attn.window", "in the other layers", m.policy("kind == 'sliding", "kind != 'sliding")),
            ("rotary.scaling", "none", m.config(rope_parameters={"rope_type": "default", "rope_theta": 1000.0})),
            ("rotary.scaling", "truncated", m.config(rope_parameters__truncate=True)),
            ("mlp.limit", "none", m.config(swiglu_limit=1e4)),
            ("mlp.up_offset", "none", m.policy("up_offset: 1", "up_offset: 0")),
            ("gate_up.fused", "concat", m.policy("fused: interleaved, ", "")),
            ("experts.gate_up", "up for gate", m.tensors(r"gate_up_proj", lambda t: t[..., _IN_TURN])),
            ("experts.gate_up", "bias dropped", m.dropped(r"layers\.1\..*gate_up_proj_bias")),
            ("experts.down", "bias of another", m.rolled(r"layers\.1\..*down_proj_bias")),
            ("experts.stacked", "of another expert", m.rolled(r"layers\.1\..*experts\.down_proj$")),
            ("experts.layout", "linear", m.tensors(r"layers\.1\..*experts\.down_proj$", _read_as_linear)),
            ("experts.router", "bias dropped", m.dropped(r"layers\.[012]\..*router\.bias")),
            ("experts.scores", "softmax of all", m.policy("softmax_of_chosen", "softmax")),
            ("experts.per_token", "one more", m.config(num_experts_per_tok=3)),
        ),
        *of(
            "GraniteMoeForCausalLM-all",
            ("input.scale", "none", m.config(embedding_multiplier=1.0)),
            ("attn.scale", "another", m.config(attention_multiplier=0.3)),
            ("layer.residual_multiplier", "none", m.config(residual_multiplier=1.0)),
            ("head.scale_input", "none", m.config(logits_scaling=1.0)),
            ("experts.stacked", "of another expert", m.rolled(r"layers\.1\..*input_linear")),
            ("experts.gate_up", "up for gate", m.blocks_swapped(r"layers\.1\..*input_linear", 2, 0, 1, axis=1)),
            ("experts.down", "of one dropped", m.tensors(r"layers\.1\..*output_linear", _without_first)),
            ("experts.scores", "softmax of all", m.policy("softmax_of_chosen", "softmax")),
            ("experts.per_token", "one more", m.config(num_experts_per_tok=3)),
        ),
        *of(
            "GraniteMoeSharedForCausalLM-all",
            ("mlp.shared", "twice", m.twice(r"layers\.1\..*shared_mlp\.output_linear")),
            ("shared.gate_up", "up for gate", m.blocks_swapped(r"layers\.1\..*shared_mlp\.input_linear", 2, 0, 1)),
            ("shared.down", "dropped", m.dropped(r"layers\.2\..*shared_mlp\.output_linear")),
        ),
        *of(
            "Cohere2MoeForCausalLM-all",
            ("head.scale_input", "none", m.config(logit_scale=1.0)),
            ("attn.window", "one more", m.config(sliding_window=6)),
            ("rotary.theta", "another", m.config(rope_parameters__rope_theta=500.0)),
            ("experts.scores", "softmax", m.config(expert_selection_fn="softmax")),
            ("experts.normalise", "not", m.config(norm_topk_prob=False)),
            ("experts.factor", "1", m.policy('true)"\n        factor: "average ? 0.5 : 1"', 'true)"')),
            (
                "shared.factor",
                "1",
                m.policy('num_shared_experts"\n        factor: "average ? 0.5 : 1"', 'num_shared_experts"'),
            ),
            ("shared.down", "dropped", m.dropped(r"layers\.1\..*shared_experts\.down_proj")),
        ),
        *of(
            "HunYuanMoEV1ForCausalLM-all",
            ("attn.norms_after_rotary", "before it", m.policy("norms_after_rotary: true", "norms_after_rotary: false")),
            ("attn.query_norm", "dropped", m.ones(r"layers\.1\..*query_layernorm")),
            ("rotary.theta", "without alpha", m.config(rope_parameters__alpha=1.0)),
            ("experts.per_token", "two", m.config(moe_topk=2)),
            ("experts.normalise", "not", m.policy("normalise: true", "normalise: false")),
            ("shared.down", "dropped", m.dropped(r"layers\.1\..*shared_mlp\.down_proj")),
        ),
        *of(
            "PhimoeForCausalLM-all",
            (
                "experts.scores",
                "softmax of those chosen",
                m.policy("scores: sparsemixer\n", "scores: softmax_of_chosen\n"),
            ),
            ("experts.jitter", "little", m.config(router_jitter_noise=0.01)),
        ),
        *of(
            "MiniMaxM2ForCausalLM-all",
            ("experts.choice_bias", "dropped", m.dropped(r"layers\.[012]\..*e_score_correction_bias")),
            ("experts.scores", "softmax", m.policy("scores: sigmoid", "scores: softmax")),
        ),
    )
