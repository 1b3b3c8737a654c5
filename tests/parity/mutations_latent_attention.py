# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_latent_attention.py; collected by mutations.py."""

_HEADS, _NOPE, _ROPE, _VALUES, _RANK = 6, 6, 4, 8, 14


def _by_parts(tensor):
    """kv_b_proj, whose rows lie by heads, as if the rows of all keys lay before those of all values."""
    keys, values = (tensor.reshape(_HEADS, _NOPE + _VALUES, -1)[:, part] for part in (slice(_NOPE), slice(_NOPE, None)))
    return [*keys.reshape(-1, _RANK), *values.reshape(-1, _RANK)]


def _values_first(tensor):
    heads = tensor.reshape(_HEADS, _NOPE + _VALUES, -1)
    return [*heads[:, [*range(_NOPE, _NOPE + _VALUES), *range(_NOPE)]].reshape(tensor.shape)]


def _shared_key_first(tensor):
    return [*tensor[_RANK:], *tensor[:_RANK]]


def _rotated_first(tensor):
    """Queries whose rotated numbers stand before the others of their head."""
    heads = tensor.reshape(_HEADS, _NOPE + _ROPE, -1)
    return [*heads[:, [*range(_NOPE, _NOPE + _ROPE), *range(_NOPE)]].reshape(tensor.shape)]


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "DeepseekV3ForCausalLM-all",
            (
                "attn.latent",
                "of another layer",
                m.swapped("layers.0.self_attn.kv_a_proj", "layers.1.self_attn.kv_a_proj"),
            ),
            ("q_norm.eps", "another", m.policy("q_a_layernorm, eps: 1e-6", "q_a_layernorm, eps: 1")),
            ("latent.q_down", "weight dropped", m.dropped(r"layers\.1\..*q_a_proj\.weight")),
            ("latent.q_norm", "weight dropped", m.ones(r"layers\.[012]\..*q_a_layernorm")),
            ("latent.kv_down", "weight dropped", m.dropped(r"layers\.1\..*kv_a_proj_with_mqa\.weight")),
            ("latent.kv_down", "the shared key first", m.tensors(r"layers\.1\..*kv_a_proj_with", _shared_key_first)),
            ("latent.kv_norm", "weight dropped", m.ones(r"layers\.[012]\..*kv_a_layernorm")),
            ("kv_norm.eps", "another", m.policy("kv_a_layernorm, eps: 1e-6", "kv_a_layernorm, eps: 1")),
            ("latent.kv_up", "weight dropped", m.dropped(r"layers\.1\..*kv_b_proj\.weight")),
            ("latent.kv_up", "rows by parts", m.tensors(r"layers\.1\..*kv_b_proj\.weight", _by_parts)),
            ("latent.kv_up", "values before keys", m.tensors(r"layers\.1\..*kv_b_proj\.weight", _values_first)),
            ("latent.kv_up", "heads shifted", m.tensors(r"layers\.1\..*kv_b_proj", lambda w: [*w[14:], *w[:14]])),
            ("attn.q", "rotated numbers first", m.tensors(r"layers\.[012]\..*q_b_proj", _rotated_first)),
            ("attn.scale", "without mscale", m.policy("** -0.5 * mscale * mscale", "** -0.5")),
            ("attn.scale", "mscale once", m.policy("** -0.5 * mscale * mscale", "** -0.5 * mscale")),
            ("rotary.scaling", "another factor", m.config(rope_parameters__factor=8.0)),
            ("rotary.scaling", "mscale", m.config(rope_parameters__mscale=1.2)),
            ("rotary.style", "neox", m.policy("? 'interleaved' : 'neox'", "? 'neox' : 'interleaved'")),
            ("rotary.theta", "another", m.config(rope_parameters__rope_theta=500.0)),
            ("experts.choice_bias", "dropped", m.dropped(r"layers\.[12]\..*e_score_correction_bias")),
            ("experts.groups", "one", m.config(n_group=1, topk_group=1)),
            ("experts.groups_kept", "all", m.config(topk_group=4)),
            ("experts.group_score", "max", m.policy("groups_kept:", "group_score: max\n        groups_kept:")),
            ("experts.factor", "none", m.config(routed_scaling_factor=1.0)),
            ("experts.normalise", "not", m.config(norm_topk_prob=False)),
            ("shared.down", "dropped", m.dropped(r"layers\.1\..*shared_experts\.down_proj\.weight")),
        ),
        *of(
            "DeepseekV3ForCausalLM-neox-biases-one-group",
            ("latent.q_down", "bias dropped", m.dropped(r"layers\.[012]\..*q_a_proj\.bias")),
            ("latent.kv_down", "bias dropped", m.dropped(r"layers\.[012]\..*kv_a_proj_with_mqa\.bias")),
            ("rotary.style", "interleaved", m.config(rope_interleave=True)),
        ),
        *of(
            "DeepseekV2ForCausalLM-all",
            ("experts.group_score", "top2_sum", m.policy("group_score: max", "group_score: top2_sum")),
            ("experts.groups", "one", m.config(topk_method="greedy")),
            ("experts.scores", "sigmoid", m.policy("scores: softmax", "scores: sigmoid")),
            ("experts.normalise", "by their sum", m.policy('normalise: "false"', 'normalise: "true"')),
            ("experts.factor", "none", m.config(routed_scaling_factor=1.0)),
            ("attn.scale", "mscale_all_dim", m.config(rope_parameters__mscale_all_dim=0.3)),
        ),
        *of(
            "DeepseekV2ForCausalLM-lite",
            ("mlp.bias", "of shared experts dropped", m.dropped(r"layers\.[12]\..*shared_experts\.down_proj\.bias")),
            ("mlp.up", "bias dropped", m.dropped(r"layers\.0\.mlp\.up_proj\.bias")),
        ),
        *of(
            "Glm4MoeLiteForCausalLM-listed-layers",
            ("experts.when", "in other layers", m.swapped("layers.0.mlp.experts", "layers.2.mlp.experts")),
        ),
        *of(
            "DeepseekV32ForCausalLM-all",
            ("rotary.style", "neox", m.policy("rotary: {style: interleaved}", "rotary: {style: neox}")),
            ("latent.kv_norm", "weight dropped", m.ones(r"layers\.[012]\..*kv_a_layernorm")),
        ),
        *of(
            "GlmMoeDsaForCausalLM-all",
            ("rotary.theta", "another", m.config(rope_parameters__rope_theta=900.0)),
            ("experts.factor", "none", m.config(routed_scaling_factor=1.0)),
        ),
        *of(
            "Mistral4ForCausalLM-all",
            ("query_growth.beta", "none", m.config(rope_parameters__llama_4_scaling_beta=0.0)),
            (
                "query_growth.original",
                "larger",
                m.policy("original: scaling.original", "original: 3 * scaling.original"),
            ),
            ("experts.scores", "sigmoid", m.policy("scores: softmax", "scores: sigmoid")),
        ),
    )
