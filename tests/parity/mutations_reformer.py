# SPDX-License-Identifier: Apache-2.0
"""Mutations of the family of cases_reformer.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    last = r"layers\.2\.attention\."
    return (
        *of(
            "ReformerModel-all",
            ("input.position", "dropped", m.dropped(r"position_embeddings\.weights")),
            ("axial.row", "shifted by one", m.rolled(r"position_embeddings\.weights\.0")),
            ("axial.column", "shifted by one", m.rolled(r"position_embeddings\.weights\.1", 1)),
            ("position.axial", "the row counts twice", m.twice(r"position_embeddings\.weights\.0")),
            (
                "layer.order",
                "streams change places",
                m.tensors(r"encoder\.layer_norm\.", lambda tensor: m.numpy.roll(tensor, 30)),
            ),
            ("attn.norm", "bias dropped", m.dropped(last + r"layer_norm\.bias")),
            ("attn.q", "two heads change places", m.blocks_swapped(last + r"self_attention\.query_key", 5, 0, 4)),
            ("attn.v", "two heads change places", m.blocks_swapped(last + r"self_attention\.value", 5, 0, 4)),
            ("attn.k", "two heads change places", m.blocks_swapped(r"self_attention\.key\.", 5, 0, 4)),
            ("attn.out", "dropped", m.dropped(last + r"output\.dense\.weight")),
            ("attn.mask", "causal", m.config(is_decoder=True)),
            ("attn.chunks", "one of all tokens", m.config(local_attn_chunk_length=84, lsh_attn_chunk_length=84)),
            ("chunks.length", "in order of tokens: shorter", m.config(local_attn_chunk_length=4)),
            ("chunks.length", "in order of hashes: longer", m.config(lsh_attn_chunk_length=6)),
            ("chunks.before", "in order of tokens: none", m.config(local_num_chunks_before=0)),
            ("chunks.before", "in order of hashes: one more", m.config(lsh_num_chunks_before=2)),
            ("chunks.after", "in order of tokens: one more", m.config(local_num_chunks_after=2)),
            ("chunks.after", "in order of hashes: none", m.config(lsh_num_chunks_after=0)),
            ("chunks.hashes", "heads change rotations", m.policy("buckets: num_buckets", "buckets: 4")),
            ("hashes.rounds", "one less", m.config(num_hashes=2)),
            ("hashes.buckets", "factors change places", m.config(num_buckets=[6, 4])),
            ("hashes.seed", "one more", m.config(hash_seed=8)),
            ("hashes.seed", "none in config.json", m.config(hash_seed=None)),
            ("mlp.norm", "weight dropped", m.ones(r"layers\.2\.feed_forward\.layer_norm\.weight")),
            ("mlp.up", "bias dropped", m.dropped(r"layers\.2\.feed_forward\.dense\.dense\.bias")),
            ("mlp.down", "bias added twice", m.twice(r"layers\.2\.feed_forward\.output\.dense\.bias")),
            ("mlp.act", "gelu", m.config(hidden_act="gelu")),
            ("output.norm", "bias dropped", m.dropped(r"encoder\.layer_norm\.bias")),
            ("eps", "that of others", m.config(layer_norm_eps=1e-12)),
        ),
        *of(
            "ReformerModel-seven-heads-hashed-alone",
            (
                "hashes.positions",
                "so many that buckets have one factor",
                m.policy("positions: most\n          seed", "positions: 65536\n          seed"),
            ),
        ),
        *of(
            "ReformerModelWithLMHead-all",
            ("head.logits", "rows shifted", m.rolled(r"lm_head\.decoder\.weight")),
        ),
        *of(
            "ReformerForSequenceClassification-light",
            ("head.pool", "the last token", m.policy("pool: first", "pool: last")),
            ("head.dense", "bias dropped", m.dropped(r"classifier\.dense\.bias")),
            ("head.act", "relu", m.policy("act: tanh", "act: relu")),
            ("head.classes", "shifted", m.rolled(r"classifier\.out_proj\.weight")),
        ),
        *of(
            "ReformerForQuestionAnswering-light",
            ("head.output", "change places", m.policy("[start_logits, end_logits]", "[end_logits, start_logits]")),
        ),
    )
