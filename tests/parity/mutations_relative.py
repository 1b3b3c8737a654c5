# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_relative.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "DebertaForMaskedLM-all",
            ("relative_content.table", "a distance further", m.rolled(r"rel_embeddings")),
            (
                "relative_content.content_to_position",
                "two heads change places",
                m.blocks_swapped(r"layer\.2\..*pos_proj\.weight", 5, 0, 4),
            ),
            (
                "relative_content.position_to_content",
                "two heads change places",
                m.blocks_swapped(r"layer\.2\..*pos_q_proj\.weight", 5, 0, 3),
            ),
            ("relative_content.position_to_content", "bias dropped", m.dropped(r"layer\.2\..*pos_q_proj\.bias")),
            ("attn.relative_content", "without rows", m.dropped(r"rel_embeddings")),
            ("qkv.q_bias", "dropped", m.dropped(r"layer\.2\..*q_bias")),
            ("qkv.v_bias", "two heads change places", m.blocks_swapped(r"layer\.2\..*v_bias", 5, 0, 4)),
            ("qkv.fused", "concatenated", m.policy("fused: per_head", "fused: concat")),
            ("scale", "of products of contents alone", m.policy("? 0 : length(terms)", "? 0 : 0")),
            ("head.dense", "bias dropped", m.dropped(r"transform\.dense\.bias")),
        ),
        *of(
            "DebertaForMaskedLM-factorized",
            ("input.projection", "columns shifted", m.rolled(r"embed_proj\.weight", 1)),
            ("input.norm", "bias dropped", m.dropped(r"embeddings\.LayerNorm\.bias")),
        ),
        *of(
            "DebertaForMaskedLM-modern",
            ("head.logits", "bias dropped", m.dropped(r"lm_predictions\.lm_head\.bias")),
            ("head.norm", "weight dropped", m.ones(r"lm_predictions\.lm_head\.LayerNorm\.weight")),
        ),
        *of(
            "DebertaForSequenceClassification-light",
            ("head.act", "gelu", m.config(pooler_hidden_act="gelu")),
            ("head.pool", "the last token", m.policy("pool: first", "pool: last")),
        ),
        *of(
            "DebertaV2ForMaskedLM-all",
            ("relative_content.table", "a distance further", m.rolled(r"rel_embeddings")),
            ("relative_content.norm", "weight dropped", m.ones(r"encoder\.LayerNorm\.weight")),
            ("relative_content.max_distance", "a little farther", m.config(max_relative_positions=30)),
            ("scale", "of one term", m.policy(" + (p2c ? 1 : 0)", "")),
            ("attn.q", "two heads change places", m.blocks_swapped(r"layer\.2\..*query_proj\.weight", 5, 0, 4)),
        ),
        *of(
            "DebertaV2Model-convolution",
            ("layer.convolution_branch", "bias dropped", m.dropped(r"conv\.conv\.bias")),
            ("convolution_branch.act", "tanh", m.config(conv_act="tanh")),
            ("convolution_branch.norm", "bias dropped", m.dropped(r"conv\.LayerNorm\.bias")),
            ("layer.convolution_branch", "taps shifted", m.rolled(r"conv\.conv\.weight", 2)),
            ("layer.convolution_branch", "after another layer", m.policy("l == 0", "l == 1")),
        ),
        *of(
            "XLNetLMHeadModel-all",
            (
                "relative_content.content_to_position",
                "two heads change places",
                m.blocks_swapped(r"layer\.2\.rel_attn\.r$", 5, 0, 4, 1),
            ),
            ("content_to_position.layout", "linear", m.policy('"=r", layout: conv1d', '"=r"')),
            ("q.layout", "linear", m.policy('"=q", layout: conv1d', '"=q"')),
            ("k.layout", "linear", m.policy('"=k", layout: conv1d', '"=k"')),
            ("v.layout", "linear", m.policy('"=v", layout: conv1d', '"=v"')),
            ("content_to_position.query_bias", "dropped", m.dropped(r"layer\.2\.rel_attn\.r_r_bias")),
            ("relative_content.content_bias", "dropped", m.dropped(r"layer\.2\.rel_attn\.r_w_bias")),
            ("relative_content.segments", "changed about", m.rolled(r"layer\.2\.rel_attn\.seg_embed")),
            ("segments.query_bias", "dropped", m.dropped(r"layer\.2\.rel_attn\.r_s_bias")),
            ("head.logits", "bias dropped", m.dropped(r"lm_loss\.bias")),
        ),
        *of(
            "XLNetModel-clamped",
            ("relative_content.span", "one farther", m.config(clamp_len=8)),
        ),
        *of(
            "XLNetForSequenceClassification-light",
            ("head.act", "relu", m.config(summary_activation="relu")),
            ("head.pool", "the first token", m.config(summary_type="first")),
        ),
    )
