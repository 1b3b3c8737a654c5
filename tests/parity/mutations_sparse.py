# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_sparse.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "LongformerModel-all",
            (
                "attn.sliding_window",
                "two heads of the global values change places",
                m.blocks_swapped(r"layer\.2\.attention\.self\.value_global\.weight", 5, 0, 4),
            ),
            ("sliding_window.size", "two more in one layer", m.config(attention_window=[4, 8, 6])),
            ("sliding_window.global_q", "those of all tokens", m.swapped("query_global", "query")),
            ("sliding_window.global_k", "columns shifted", m.rolled(r"key_global\.weight", 1)),
            ("sliding_window.global_v", "bias of one layer is zero", m.dropped(r"layer\.1\..*value_global\.bias")),
        ),
        *of(
            "LongformerForSequenceClassification-light",
            ("architecture.global_tokens", "none", m.policy("global_tokens: first", "global_tokens: none")),
        ),
        *of(
            "LongformerForMultipleChoice-light",
            (
                "architecture.global_tokens",
                "those before",
                m.policy("global_tokens: after_separators", "global_tokens: before_separator"),
                "bare",
            ),
        ),
        *of(
            "LongformerForQuestionAnswering-light",
            (
                "architecture.global_tokens",
                "the first",
                m.policy("global_tokens: before_separator", "global_tokens: first"),
                "bare",
            ),
        ),
        *of(
            "LEDForConditionalGeneration-all",
            ("sliding_window.size", "two more in one layer", m.config(attention_window=[6, 8])),
            ("sliding_window.global_v", "bias of one layer is zero", m.dropped(r"layers\.1\..*value_global\.bias")),
            ("input.position", "of the encoder shifted", m.rolled(r"encoder\.embed_positions")),
        ),
        *of(
            "BigBirdModel-all",
            ("attn.block_sparse", "all keys", m.config(attention_type="original_full")),
            ("block_sparse.block", "one more", m.config(block_size=3)),
            ("block_sparse.random", "one more", m.config(num_random_blocks=2)),
            ("mlp.act", "exact gelu", m.config(hidden_act="gelu")),
        ),
        *of(
            "BigBirdModel-rescaled-without-bias",
            ("input.scale", "one", m.config(rescale_embeddings=False)),
        ),
        *of(
            "BigBirdForQuestionAnswering-light",
            ("head.mlp", "a bias is zero", m.dropped(r"qa_classifier\.output\.dense\.bias")),
            ("head.mlp", "the weight of its norm is one", m.ones(r"qa_classifier\.output\.LayerNorm\.weight")),
            ("head.mask_question", "and types of one text", m.policy("mask_question: true", ""), "bare"),
            ("policy.separator", "another", m.config(sep_token_id=9), "bare"),
        ),
        *of(
            "BigBirdForSequenceClassification-light",
            ("head.act", "tanh", m.policy("first, dense: dense, act: act", "first, dense: dense, act: tanh")),
        ),
        *of(
            "BigBirdPegasusForConditionalGeneration-all",
            ("block_sparse.random", "one more", m.config(num_random_blocks=2)),
            ("output.norm", "bias of the encoder's is zero", m.dropped(r"encoder\.layernorm_embedding\.bias")),
            ("input.scale", "one", m.config(scale_embedding=False)),
        ),
    )
