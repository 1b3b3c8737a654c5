# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_recurrent.py; collected by mutations.py."""

_HEADS = 5  # of keys


def _by_parts(tensor):
    """Rows that lie by key heads, as if all rows of a part lay together."""
    return tensor.reshape(_HEADS, -1, 2, tensor.shape[1]).transpose(2, 0, 1, 3).reshape(tensor.shape)


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "Qwen3NextForCausalLM-all",
            ("delta_net.qkvz", "rows by parts", m.tensors(r"layers\.0\..*in_proj_qkvz\.weight", _by_parts)),
            ("delta_net.ba", "rows by parts", m.tensors(r"layers\.0\..*in_proj_ba\.weight", _by_parts)),
            ("delta_net.norm", "weight dropped", m.dropped(r"layers\.0\.input_layernorm\.weight")),
            ("delta_net.out_norm", "weight dropped", m.ones(r"layers\.2\.linear_attn\.norm\.weight")),
            ("mlp.shared", "weight dropped", m.dropped(r"layers\.2\..*shared_expert\.up_proj\.weight")),
            ("experts.normalise", "not", m.config(norm_topk_prob=False)),
        ),
        *of(
            "Qwen3_5ForCausalLM-all",
            (
                "delta_net.qkv",
                "queries and keys change places",
                m.tensors(
                    r"layers\.0\..*in_proj_qkv\.weight",
                    lambda w: w[[*range(40, 80), *range(40), *range(80, len(w))]],
                ),
            ),
            ("delta_net.qkv", "values of heads change places", m.rolled(r"layers\.0\..*in_proj_qkv\.weight")),
            ("delta_net.z", "weight dropped", m.dropped(r"layers\.0\..*in_proj_z\.weight")),
            ("delta_net.a", "weight dropped", m.dropped(r"layers\.0\..*in_proj_a\.weight")),
            ("delta_net.b", "weight dropped", m.dropped(r"layers\.0\..*in_proj_b\.weight")),
            ("delta_net.a", "read as b", m.swapped("layers.0.linear_attn.in_proj_a", "layers.0.linear_attn.in_proj_b")),
            ("delta_net.convolution", "taps backwards", m.tensors(r"layers\.2\..*conv1d", lambda w: w[:, :, ::-1])),
            ("delta_net.convolution", "channels shifted", m.rolled(r"layers\.0\..*conv1d\.weight")),
            ("delta_net.decay", "e times as large", m.tensors(r"layers\.2\..*A_log", lambda a: a + 1)),
            ("delta_net.decay", "heads shifted", m.rolled(r"layers\.0\..*A_log")),
            ("delta_net.step_bias", "dropped", m.dropped(r"layers\.0\..*dt_bias")),
            ("delta_net.out", "columns shifted", m.rolled(r"layers\.0\..*out_proj\.weight", 1)),
            (
                "attn.q_gate",
                "gates for queries",
                m.tensors(
                    r"layers\.1\..*q_proj\.weight",
                    lambda w: w.reshape(6, 2, 8, -1)[:, ::-1].reshape(w.shape),
                ),
            ),
            ("rotary.dims", "a quarter of a head", m.config(rope_parameters__partial_rotary_factor=0.25)),
            ("norm", "without the one", m.policy("norm: gemma_rms", "norm: rms")),
        ),
        *of(
            "Qwen3_5MoeForCausalLM-all",
            ("experts.per_token", "one more", m.config(num_experts_per_tok=3)),
            ("experts.normalise", "not", m.policy('normalise: "true"', 'normalise: "false"')),
            ("shared.gated_by", "weight dropped", m.dropped(r"layers\.2\..*shared_expert_gate\.weight")),
            ("experts.up", "of one dropped", m.dropped(r"layers\.1\..*experts\.2\.up_proj\.weight")),
        ),
    )
