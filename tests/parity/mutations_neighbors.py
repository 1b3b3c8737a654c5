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
    )
