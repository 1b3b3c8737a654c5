# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for families whose scores read relative positions by content; cases.py collects them. Spans are so
short that texts of 33 tokens reach over them.
"""

LIGHT = (2,)
# as in cases.py
SEEDS = {
    "XLNetLMHeadModel-all": 26700,
    "XLNetLMHeadModel-causal": 25700,
    "XLNetLMHeadModel-short-memory": 28700,
    "XLNetLMHeadModel-causal-memory": 28700,
}
ENCODERS = ("deberta", "deberta-v2")
_TYPES = ("token_type_ids", "position_ids")
_BERT = {
    "hidden_size": 30,
    "num_attention_heads": 5,
    "num_hidden_layers": 3,
    "intermediate_size": 37,
    "vocab_size": 101,
    "max_position_embeddings": 80,
    "type_vocab_size": 3,
    "layer_norm_eps": 1e-3,
    "pad_token_id": 3,
    "bos_token_id": 4,
    "eos_token_id": 100,
}
_BOTH = ["c2p", "p2c"]
_XLNET = {
    "d_model": 30,
    "n_head": 5,
    "n_layer": 3,
    "d_inner": 37,
    "vocab_size": 101,
    "type_vocab_size": 3,
    "layer_norm_eps": 1e-3,
    "use_mems_eval": False,
    "pad_token_id": 3,
    "bos_token_id": 4,
    "eos_token_id": 100,
}


def cases(family):
    deberta = family(
        "deberta",
        "encoder",
        "DebertaConfig",
        _TYPES,
        **_BERT,
        relative_attention=True,
        pos_att_type=_BOTH,
        max_relative_positions=9,
    )
    deberta_v2 = family(
        "deberta-v2",
        "encoder",
        "DebertaV2Config",
        _TYPES,
        **_BERT,
        relative_attention=True,
        pos_att_type=_BOTH,
        position_buckets=8,
        max_relative_positions=24,
    )
    xlnet = family("xlnet", "encoder", "XLNetConfig", ("token_type_ids",), **_XLNET)
    return (
        *deberta("all", "DebertaForMaskedLM"),
        *deberta(
            "light",
            "DebertaModel DebertaForSequenceClassification DebertaForTokenClassification DebertaForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
            hidden_act="relu",
            pooler_hidden_act="tanh",
        ),
        *deberta(  # as published: no positions but relative ones, no types, a span as long as the longest text
            "published",
            "DebertaModel",
            takes=(),
            type_vocab_size=0,
            position_biased_input=False,
            max_relative_positions=-1,
        ),
        *deberta("by-content", "DebertaModel", ranks=LIGHT, pos_att_type=["c2p"]),
        *deberta("by-position", "DebertaModel", ranks=LIGHT, pos_att_type=["p2c"]),
        *deberta("no-terms", "DebertaModel", ranks=LIGHT, num_hidden_layers=1, pos_att_type=[]),
        *deberta("absolute", "DebertaModel", ranks=LIGHT, num_hidden_layers=1, relative_attention=False),
        *deberta("factorized", "DebertaForMaskedLM", embedding_size=13),
        *deberta("modern", "DebertaForMaskedLM", ranks=LIGHT, num_hidden_layers=1, legacy=False),
        *deberta_v2("all", "DebertaV2ForMaskedLM", share_att_key=True, norm_rel_ebd="layer_norm"),
        *deberta_v2(
            "light",
            "DebertaV2Model DebertaV2ForSequenceClassification DebertaV2ForMultipleChoice "
            "DebertaV2ForTokenClassification DebertaV2ForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
            hidden_act="relu",
            pooler_hidden_act="tanh",
        ),
        *deberta_v2(
            "convolution",
            "DebertaV2Model",
            share_att_key=True,
            norm_rel_ebd="layer_norm",
            conv_kernel_size=3,
            conv_act="gelu",
        ),
        *deberta_v2(  # fewer groups than ranks
            "convolution-in-groups", "DebertaV2Model", num_hidden_layers=2, conv_kernel_size=5, conv_groups=3
        ),
        *deberta_v2("no-buckets", "DebertaV2Model", ranks=LIGHT, position_buckets=-1, max_relative_positions=11),
        *deberta_v2("by-content", "DebertaV2Model", ranks=LIGHT, pos_att_type=["c2p"], share_att_key=True),
        *deberta_v2("by-position", "DebertaV2Model", ranks=LIGHT, pos_att_type=["p2c"]),
        *deberta_v2(
            "absolute",
            "DebertaV2Model",
            ranks=LIGHT,
            num_hidden_layers=1,
            relative_attention=False,
            norm_rel_ebd="layer_norm",
            attention_head_size=6,
        ),
        *deberta_v2("factorized", "DebertaV2ForMaskedLM", ranks=LIGHT, embedding_size=13, num_hidden_layers=1),
        *deberta_v2("modern", "DebertaV2ForMaskedLM", ranks=LIGHT, num_hidden_layers=1, legacy=False),
        *xlnet("all", "XLNetLMHeadModel"),
        *xlnet(
            "light",
            "XLNetModel XLNetForSequenceClassification XLNetForMultipleChoice XLNetForTokenClassification "
            "XLNetForQuestionAnsweringSimple",
            ranks=LIGHT,
            n_layer=2,
            ff_activation="relu",
        ),
        *xlnet(
            "search",
            "XLNetForQuestionAnswering",
            takes=("token_type_ids", "spans"),
            lengths=(5, 4, 16, 17, 33),
            n_layer=2,
            start_n_top=3,
            end_n_top=2,
        ),
        *xlnet("clamped", "XLNetModel", clamp_len=7, n_layer=2),
        *xlnet(
            "first-token-without-projection",
            "XLNetForSequenceClassification",
            ranks=LIGHT,
            n_layer=1,
            summary_type="first",
            summary_use_proj=False,
            summary_activation="relu",
        ),
        *xlnet("untied", "XLNetLMHeadModel", ranks=LIGHT, speaks=False, n_layer=1, tie_word_embeddings=False),
        *xlnet("causal", "XLNetLMHeadModel", ranks=LIGHT, n_layer=2, attn_type="uni"),
        *xlnet("memories", "XLNetLMHeadModel", ranks=LIGHT, n_layer=2, use_mems_eval=True, mem_len=None),
        *xlnet("short-memory", "XLNetLMHeadModel", ranks=LIGHT, n_layer=2, use_mems_eval=True, mem_len=7),
        *xlnet(
            "causal-memory",
            "XLNetLMHeadModel",
            ranks=LIGHT,
            n_layer=2,
            use_mems_eval=True,
            mem_len=7,
            attn_type="uni",
        ),
    )
