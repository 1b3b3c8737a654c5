# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_experts.py; collected by mutations.py."""


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
            "MiniMaxM2ForCausalLM-all",
            ("experts.choice_bias", "dropped", m.dropped(r"layers\.[012]\..*e_score_correction_bias")),
            ("experts.scores", "softmax", m.policy("scores: sigmoid", "scores: softmax")),
        ),
    )
