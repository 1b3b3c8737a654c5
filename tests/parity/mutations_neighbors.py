# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_neighbors.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "MobileBertForMaskedLM-all",
            (
                "input.trigram",
                "next and previous token change places",
                m.blocks_swapped(r"embedding_transformation\.weight", 3, 0, 2, 1),
            ),
            ("input.projection", "bias dropped", m.dropped(r"embedding_transformation\.bias")),
            ("input.tables", "types shifted", m.rolled(r"token_type_embeddings")),
            ("layer.bottleneck", "blocks dropped", m.dropped(r"layer\.2\.output\.bottleneck\.dense\.weight")),
            ("bottleneck.input", "columns shifted", m.rolled(r"layer\.2\.bottleneck\.input\.dense\.weight", 1)),
            ("bottleneck.input_norm", "bias dropped", m.dropped(r"layer\.2\.bottleneck\.input\.LayerNorm\.bias")),
            ("bottleneck.attention", "outputs shifted", m.rolled(r"layer\.2\.bottleneck\.attention\.dense\.weight")),
            (
                "bottleneck.attention_norm",
                "weight dropped",
                m.ones(r"layer\.2\.bottleneck\.attention\.LayerNorm\.weight"),
            ),
            ("bottleneck.output", "bias dropped", m.dropped(r"layer\.2\.output\.bottleneck\.dense\.bias")),
            ("bottleneck.output_norm", "weight dropped", m.ones(r"layer\.2\.output\.bottleneck\.LayerNorm\.weight")),
            ("attn.v", "two heads change places", m.blocks_swapped(r"layer\.2\..*value\.weight", 5, 0, 4)),
            ("stacked_mlp.up", "columns shifted", m.rolled(r"layer\.2\.ffn\.1\.intermediate\.dense\.weight", 1)),
            ("stacked_mlp.down", "bias dropped", m.dropped(r"layer\.2\.ffn\.0\.output\.dense\.bias")),
            ("stacked_mlp.norm", "weight dropped", m.ones(r"layer\.2\.ffn\.1\.output\.LayerNorm\.weight")),
            ("layer.norm", "with statistics", m.config(normalization_type="layer_norm")),
            ("logits.concat", "rows shifted", m.rolled(r"predictions\.dense\.weight", 1)),
            ("logits.concat", "dropped", m.dropped(r"predictions\.dense\.weight")),
        ),
        *of(
            "MobileBertModel-narrow-attention",
            ("layer.norm", "without statistics", m.config(normalization_type="no_norm")),
            ("norm.eps", "that of others", m.policy("eps: 1e-5", "eps: eps", 2)),
            ("pooler.act", "tanh", m.policy("act: \"pooled ? 'tanh' : null\"", "act: tanh"), "", ("pooler_output",)),
        ),
        *of(
            "MobileBertModel-wide-attention",
            ("bottleneck.wide", "attention reads narrow states", m.policy("wide: wide", "wide: false")),
        ),
        *of(
            "ConvBertForMaskedLM-all",
            ("attn.span_convolution", "dropped", m.dropped(r"layer\.2\..*conv_out_layer")),
            ("span_convolution.depthwise", "taps shifted", m.rolled(r"layer\.2\..*depthwise\.weight", 2)),
            ("span_convolution.pointwise", "bias dropped", m.dropped(r"layer\.2\..*key_conv_attn_layer\.bias")),
            (
                "span_convolution.pointwise",
                "two heads change places",
                m.blocks_swapped(r"layer\.2\..*pointwise\.weight", 5, 0, 4),
            ),
            ("span_convolution.kernel", "bias dropped", m.dropped(r"layer\.2\..*conv_kernel_layer\.bias")),
            (
                "span_convolution.kernel",
                "kernels of two heads change places",
                m.blocks_swapped(r"layer\.2\..*conv_kernel_layer\.weight", 5, 1, 3),
            ),
            (
                "span_convolution.values",
                "two heads change places",
                m.blocks_swapped(r"layer\.2\..*conv_out_layer\.weight", 5, 0, 4),
            ),
            (
                "attn.out",
                "heads that attend and heads that convolve change places",
                m.blocks_swapped(r"layer\.2\.attention\.output\.dense\.weight", 2, 0, 1, 1),
            ),
        ),
        *of(
            "ConvBertModel-groups",
            ("up.groups", "two blocks change places", m.blocks_swapped(r"layer\.1\.intermediate\.dense\.w", 3, 0, 2)),
            ("down.groups", "two blocks change places", m.blocks_swapped(r"layer\.1\.output\.dense\.weight", 3, 1, 2)),
            ("mlp.up", "columns shifted", m.rolled(r"layer\.1\.intermediate\.dense\.weight", 2)),
        ),
        *of(
            "ConvBertForMultipleChoice-summary",
            ("head.pool", "the first token", m.config(summary_type="first")),
            ("head.act", "relu", m.config(summary_activation="relu")),
        ),
    )
