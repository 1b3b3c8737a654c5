# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_prophetnet.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "ProphetNetForConditionalGeneration-all",
            ("input.token", "rows shifted", m.rolled(r"word_embeddings")),
            ("input.position", "shifted by one", m.rolled(r"decoder\.position_embeddings")),
            ("position.offset", "of the encoder, none", m.rolled(r"encoder\.position_embeddings")),
            ("input.streams", "the first is the last", m.rolled(r"ngram_embeddings")),
            ("input.norm", "bias dropped", m.dropped(r"decoder\.embeddings_layer_norm\.bias")),
            ("attn.norm", "bias dropped", m.dropped(r"decoder\.layers\.1\.self_attn_layer_norm\.bias")),
            ("attn.mask", "of the encoder causal", m.policy("mask: full", "mask: causal")),
            ("attn.content_buckets", "bias dropped", m.dropped(r"layers\.1\..*relative_pos_embeddings\.bias")),
            (
                "attn.content_buckets",
                "two heads change places",
                m.tensors(
                    r"layers\.1\..*relative_pos_embeddings\.weight",
                    lambda tensor: tensor.reshape(9, 6, -1)[:, [5, 1, 2, 3, 4, 0]].reshape(tensor.shape),
                ),
            ),
            ("attn.content_buckets", "a bucket farther", m.rolled(r"layers\.1\..*relative_pos_embeddings\.weight")),
            ("content_buckets.max_distance", "a little farther", m.config(relative_max_distance=20)),
            (
                "content_buckets.swapped_in_streams",
                "not swapped",
                m.policy("swapped_in_streams: true", "swapped_in_streams: false"),
            ),
            ("attn.q", "bias dropped", m.dropped(r"decoder\.layers\.1\.self_attn\.query_proj\.bias")),
            ("attn.k", "dropped", m.dropped(r"decoder\.layers\.1\.self_attn\.key_proj\.weight")),
            ("attn.v", "bias dropped", m.dropped(r"decoder\.layers\.1\.self_attn\.value_proj\.bias")),
            (
                "attn.out",
                "two heads change places",
                m.blocks_swapped(r"decoder\.layers\.1\.self_attn\.out_proj\.weight", 6, 0, 4, 1),
            ),
            ("cross.norm", "bias dropped", m.dropped(r"cross_attn_layer_norm\.bias")),
            ("cross.q", "bias dropped", m.dropped(r"layers\.1\.cross_attn\.query_proj\.bias")),
            ("cross.k", "dropped", m.dropped(r"layers\.1\.cross_attn\.key_proj\.weight")),
            ("cross.v", "bias dropped", m.dropped(r"layers\.1\.cross_attn\.value_proj\.bias")),
            ("cross.out", "bias dropped", m.dropped(r"layers\.1\.cross_attn\.out_proj\.bias")),
            ("cross.source", "the other way round", m.rolled(r"encoder\.layers\.2\.feed_forward_layer_norm\.bias")),
            ("mlp.norm", "bias dropped", m.dropped(r"decoder\.layers\.1\.feed_forward_layer_norm\.bias")),
            ("mlp.up", "bias dropped", m.dropped(r"decoder\.layers\.1\.feed_forward\.intermediate\.bias")),
            ("mlp.down", "bias dropped", m.dropped(r"decoder\.layers\.1\.feed_forward\.output\.bias")),
            ("mlp.act", "relu", m.config(activation_function="relu")),
            ("layer.order", "norms before the blocks", m.policy("order: post", "order: pre")),
            ("layer.norm", "times 1 more", m.policy("order: post, norm: layer", "order: post, norm: layer1p")),
            (
                "head.streams",
                "of the main stream",
                m.policy("streams: true\n    output: [logits, logits_ngram]", "streams: false"),
                "",
                ("logits",),
            ),
            ("head.output", "under other names", m.policy("[logits, logits_ngram]", "[logits, others]")),
            ("head.logits", "rows shifted", m.rolled(r"word_embeddings")),
        ),
        *of(
            "ProphetNetForConditionalGeneration-three-streams-seven-heads-untied",
            ("streams.count", "the last two change places", m.tensors(r"ngram_embeddings", lambda t: t[[0, 2, 1]])),
            ("head.logits", "two rows change places", m.rolled(r"lm_head")),
        ),
        *of(
            "ProphetNetModel-all",
            (
                "attn.attentions",
                "probabilities",
                m.policy("mask: full\n      attentions: scores", "mask: full"),
                "bare",
                ("encoder_attentions.1",),
            ),
            (
                "cross.attentions",
                "probabilities",
                m.policy("norm: cross_attn_layer_norm\n      attentions: scores", "norm: cross_attn_layer_norm"),
                "bare",
                ("cross_attentions.1",),
            ),
        ),
        *of("XLMProphetNetForConditionalGeneration-all", ("mlp.act", "relu", m.config(activation_function="relu"))),
    )
