# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_recurrent.py; collected by mutations.py."""

_HEADS = 5  # of keys


def _by_parts(tensor):
    """Rows that lie by key heads, as if all rows of a part lay together."""
    return tensor.reshape(_HEADS, -1, 2, tensor.shape[1]).transpose(2, 0, 1, 3).reshape(tensor.shape)


def _backwards(taps):
    return taps[..., ::-1]


def _gates_swapped(w):
    return w[[*range(36, 72), *range(36), *range(72, 108)]]


# rows of in_proj: 72 of the gate, 72 values, of each group 5 that it writes with and 5 that it reads with, 9 steps


def _values_first(w):
    return w[[*range(72, 144), *range(72), *range(144, len(w))]]


def _read_first(w):
    return w[[*range(144), *range(149, 154), *range(144, 149), *range(154, len(w))]]


def _steps_shifted(w):
    return w[[*range(len(w) - 9), len(w) - 1, *range(len(w) - 9, len(w) - 1)]]


def _groups_shifted(w):
    return w[[*range(144), *range(149, 159), *range(144, 149), *range(159, len(w))]]


def _nemotron_groups_shifted(w):  # 60 rows of the gate, 60 values, 25 that are written with
    return w[[*range(120), *range(125, 145), *range(120, 125), *range(145, len(w))]]


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
        *of(
            "Lfm2ForCausalLM-all",
            ("short_convolution.norm", "weight dropped", m.dropped(r"layers\.0\.operator_norm\.weight")),
            ("short_convolution.in", "gates change places", m.tensors(r"layers\.0\.conv\.in_proj", _gates_swapped)),
            ("short_convolution.in", "channels shifted", m.rolled(r"layers\.2\.conv\.in_proj\.weight")),
            ("short_convolution.convolution", "taps backwards", m.tensors(r"layers\.2\.conv\.conv\.", _backwards)),
            ("short_convolution.convolution", "channels shifted", m.rolled(r"layers\.0\.conv\.conv\.weight")),
            ("short_convolution.out", "columns shifted", m.rolled(r"layers\.0\.conv\.out_proj\.weight", 1)),
            ("query_norm", "weight dropped", m.dropped(r"layers\.1\..*q_layernorm\.weight")),
        ),
        *of(
            "Lfm2ForCausalLM-biases-tied-given-width",
            ("short_convolution.in", "bias dropped", m.dropped(r"layers\.0\.conv\.in_proj\.bias")),
            ("short_convolution.convolution", "bias dropped", m.dropped(r"layers\.2\.conv\.conv\.bias")),
            ("short_convolution.out", "bias dropped", m.dropped(r"layers\.0\.conv\.out_proj\.bias")),
        ),
        *of(
            "Lfm2MoeForCausalLM-all",
            ("experts.choice_bias", "dropped", m.dropped(r"expert_bias")),
            ("experts.factor", "none", m.config(routed_scaling_factor=1.0)),
            ("experts.normalise", "not", m.config(norm_topk_prob=False)),
        ),
        *of(
            "GraniteMoeHybridForCausalLM-all",
            ("state_space.norm", "weight dropped", m.dropped(r"layers\.0\.input_layernorm\.weight")),
            ("state_space.in", "gate and values change places", m.tensors(r"layers\.0\.mamba\.in_proj", _values_first)),
            (
                "state_space.in",
                "written and read with change places",
                m.tensors(r"layers\.2\.mamba\.in_proj", _read_first),
            ),
            ("state_space.in", "steps of heads shifted", m.tensors(r"layers\.0\.mamba\.in_proj", _steps_shifted)),
            ("state_space.convolution", "taps backwards", m.tensors(r"layers\.2\..*conv1d\.weight", _backwards)),
            ("state_space.convolution", "bias dropped", m.dropped(r"layers\.0\..*conv1d\.bias")),
            ("state_space.decay", "e times as large", m.tensors(r"layers\.2\..*A_log", lambda a: a + 1)),
            ("state_space.decay", "heads shifted", m.rolled(r"layers\.0\..*A_log")),
            ("state_space.step_bias", "dropped", m.dropped(r"layers\.0\..*dt_bias")),
            ("state_space.skip", "dropped", m.dropped(r"layers\.0\.mamba\.D$")),
            ("state_space.out_norm", "weight dropped", m.ones(r"layers\.2\.mamba\.norm\.weight")),
            ("state_space.out", "columns shifted", m.rolled(r"layers\.0\..*mamba\.out_proj\.weight", 1)),
            ("mlp.shared", "weight dropped", m.dropped(r"layers\.1\.shared_mlp\.output_linear\.weight")),
            ("rotary.when", "no positions", m.config(position_embedding_type=None)),
            ("layer.residual_multiplier", "none", m.config(residual_multiplier=1.0)),
        ),
        *of(
            "NemotronHForCausalLM-all",
            ("state_space.groups", "of others", m.tensors(r"layers\.0\.mixer\.in_proj", _nemotron_groups_shifted)),
            ("state_space.out_norm", "weight dropped", m.ones(r"layers\.4\.mixer\.norm\.weight")),
            ("experts.up", "of one dropped", m.dropped(r"layers\.1\..*experts\.2\.up_proj\.weight")),
            ("experts.groups_kept", "one more", m.config(topk_group=3)),
            ("mlp.shared", "weight dropped", m.dropped(r"layers\.1\..*shared_experts\.down_proj\.weight")),
            ("mlp.up", "rows shifted", m.rolled(r"layers\.3\.mixer\.up_proj\.weight")),
            ("mlp.norm", "weight dropped", m.dropped(r"layers\.3\.norm\.weight")),
            ("attn.norm", "weight dropped", m.dropped(r"layers\.2\.norm\.weight")),
            ("mlp.act", "relu", m.config(mlp_hidden_act="relu")),
        ),
        *of(
            "GraniteMoeHybridForCausalLM-groups-biases-dense",
            ("state_space.in", "bias dropped", m.dropped(r"layers\.0\.mamba\.in_proj\.bias")),
            ("state_space.out", "bias dropped", m.dropped(r"layers\.2\.mamba\.out_proj\.bias")),
            ("state_space.groups", "of others", m.tensors(r"layers\.0\.mamba\.in_proj", _groups_shifted)),
        ),
        *of(
            "BambaForCausalLM-all",
            ("state_space.when", "attention elsewhere", m.swapped("layers.0.mamba.", "layers.2.mamba.")),
            ("state_space.out", "columns shifted", m.rolled(r"layers\.0\..*mamba\.out_proj\.weight", 1)),
            ("rotary.dims", "the whole head", m.policy('        dims: "head_dim // 2"\n', "")),
            ("attn.norm", "weight dropped", m.dropped(r"layers\.1\.input_layernorm\.weight")),
            ("mlp.norm", "weight dropped", m.ones(r"layers\.2\.pre_ff_layernorm\.weight")),
            ("mlp.gate", "gate and up change places", m.swapped("gate_proj", "up_proj")),
            ("output.norm", "weight dropped", m.ones(r"final_layernorm\.weight")),
        ),
        *of(
            "BambaForCausalLM-groups-biases-tied",
            ("mlp.bias", "dropped", m.dropped(r"layers\.2\.feed_forward\.down_proj\.bias")),
        ),
        *of(
            "GraniteMoeHybridModel-limits",
            ("state_space.least_step", "lower", m.config(time_step_limit=[0.1, 0.9])),
            ("state_space.most_step", "higher", m.config(time_step_limit=[0.3, 1.5])),
        ),
    )
