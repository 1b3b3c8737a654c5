# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_memory.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "TransfoXLLMHeadModel-all",
            ("layer.memory", "none", m.policy("memory > 0", "memory > 99")),
            ("attn.window", "one more", m.policy("same ? memory : 0", "same ? memory + 1 : 0")),
            ("relative_content.span", "one less", m.config(clamp_len=3)),
            (
                "relative_content.content_to_position",
                "two heads change places",
                m.blocks_swapped(r"layers\.1\.dec_attn\.r_net", 5, 0, 4),
            ),
            ("content_to_position.query_bias", "dropped", m.dropped(r"layers\.2\.dec_attn\.r_r_bias")),
            ("relative_content.content_bias", "dropped", m.dropped(r"layers\.0\.dec_attn\.r_w_bias")),
            ("attn.qkv", "columns shifted", m.rolled(r"layers\.1\.dec_attn\.qkv_net", 1)),
            ("attn.out", "columns shifted", m.rolled(r"layers\.1\.dec_attn\.o_net", 1)),
            ("attn.norm", "weight dropped", m.ones(r"layers\.0\.dec_attn\.layer_norm\.weight")),
            ("mlp.up", "columns shifted", m.rolled(r"layers\.2\.pos_ff\.CoreNet\.0\.weight", 1)),
            ("mlp.down", "bias dropped", m.dropped(r"layers\.0\.pos_ff\.CoreNet\.3\.bias")),
            ("input.scale", "none", m.policy('scale: "hidden ** 0.5"', "scale: 1")),
            ("input.clusters", "a projection shifted", m.rolled(r"word_emb\.emb_projs\.1", 1)),
            ("clusters.table", "shifted", m.rolled(r"word_emb\.emb_layers\.2\.weight", 1)),
            ("clusters.projection", "columns shifted", m.rolled(r"word_emb\.emb_projs\.2", 1)),
            ("head.score_clusters", "a bias shifted", m.rolled(r"crit\.out_layers\.2\.bias")),
            ("score_clusters.scores", "a bias dropped", m.dropped(r"crit\.out_layers\.1\.bias")),
            ("score_clusters.projection", "columns shifted", m.rolled(r"crit\.out_projs\.0", 1)),
            ("score_clusters.others", "bias dropped", m.dropped(r"crit\.cluster_bias")),
        ),
        *of(
            "TransfoXLModel-whole-memory",
            ("memory.length", "longer", m.policy("length: memory", "length: memory + 2")),
        ),
        *of("TransfoXLModel-light", ("layer.order", "after", m.config(pre_lnorm=False))),
    )
