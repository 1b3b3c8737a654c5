# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_pooled.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "FunnelForMaskedLM-all",
            (
                "layer.pooling",
                "before another layer",
                m.policy(
                    "l > 0 and l < encoded and l == sum(runs, block)",
                    "block > 0 and l < encoded and l == sum(runs, block) + 1",
                ),
            ),
            ("pooling.class_apart", "in a pair", m.policy("class_apart: apart\n        truncate", "truncate")),
            ("pooling.truncate", "all rows", m.config(truncate_seq=False)),
            ("pooling.queries_only", "keys too", m.config(pool_q_only=False)),
            ("layer.upsampling", "before another layer", m.policy("when: l == encoded", "when: l == encoded + 1")),
            (
                "upsampling.stride",
                "half",
                m.policy("2 ** (length(runs) - 1)", "2 ** (length(runs) - 2)"),
            ),
            ("upsampling.added_layer", "the one before", m.policy('"sizes[0]"', '"sizes[0] - 1"')),
            (
                "upsampling.class_apart",
                "in a pair",
                m.policy('"sizes[0]"\n        class_apart: apart', '"sizes[0]"'),
            ),
            (
                "relative_content.content_to_position",
                "two heads change places",
                m.blocks_swapped(r"blocks\.2\.0\.attention\.r_kernel", 5, 0, 4, 1),
            ),
            ("content_to_position.query_bias", "dropped", m.dropped(r"layers\.1\.attention\.r_r_bias")),
            ("relative_content.content_bias", "dropped", m.dropped(r"blocks\.0\.1\.attention\.r_w_bias")),
            (
                "relative_content.class_apart",
                "with terms",
                m.policy("class_apart: apart\n    mlp", "class_apart: false\n    mlp"),
            ),
            ("relative_content.segments", "heads shifted", m.rolled(r"layers\.1\.attention\.seg_embed", 1)),
            ("segments.query_bias", "dropped", m.dropped(r"layers\.1\.attention\.r_s_bias")),
            ("segments.others_first", "the other order", m.policy("others_first: true", "others_first: false")),
            ("segments.common", "another one", m.policy("common: 2", "common: 1")),
            ("attn.q", "two heads change places", m.blocks_swapped(r"blocks\.1\.0\.attention\.q_head\.w", 5, 0, 4)),
            ("attn.k", "two heads change places", m.blocks_swapped(r"layers\.1\.attention\.k_head\.w", 5, 0, 4)),
            ("attn.v", "bias dropped", m.dropped(r"blocks\.1\.0\.attention\.v_head\.bias")),
            ("attn.out", "bias dropped", m.dropped(r"blocks\.1\.0\.attention\.post_proj\.bias")),
            ("mlp.up", "columns shifted", m.rolled(r"blocks\.2\.1\.ffn\.linear_1\.weight", 1)),
            ("mlp.down", "bias dropped", m.dropped(r"layers\.0\.ffn\.linear_2\.bias")),
            ("input.norm", "weight dropped", m.ones(r"embeddings\.layer_norm\.weight")),
            ("head.logits", "bias dropped", m.dropped(r"lm_head\.bias")),
        ),
        *of(
            "FunnelForMaskedLM-untied",
            ("content_to_position.layout", "linear", m.policy('"=r_kernel", layout: conv1d', '"=r_kernel"')),
        ),
        *of("FunnelModel-pooled-keys", ("pooling.kind", "mean", m.config(pooling_type="mean"))),
        *of(
            "FunnelForSequenceClassification-light",
            ("head.dense", "bias dropped", m.dropped(r"linear_hidden\.bias")),
            ("head.act", "relu", m.policy("act: tanh", "act: relu")),
        ),
    )
