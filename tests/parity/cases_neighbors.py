# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for families whose tokens read the tokens beside them; cases.py collects them."""

import cases_detection
import cases_prophetnet

LIGHT = (2,)
# as in cases.py
SEEDS = {}
ENCODERS = ("mobilebert", "convbert")
# by what parameters with these endings are divided: MobileBERT's norms have no statistics, and a bias of ConvBERT looks
# like a matrix; regions of LXMERT would become alike in a few layers, so that no attention would matter
SMALLER = {
    **cases_prophetnet.SMALLER,
    "detr": cases_detection.SMALLER,
    "lxmert": {"output.dense.weight": 4, "output.dense.bias": 4},
    "mobilebert": {"output.dense.weight": 4, "bottleneck.dense.weight": 4, "self.query.weight": 2},
    # biases of Funnel's queries look like matrices too
    "funnel": {"r_w_bias": 4, "r_r_bias": 4, "r_s_bias": 4, "q_head.weight": 2},
    "transfo-xl": {"r_w_bias": 4, "r_r_bias": 4, "qkv_net.weight": 2},
    "nomic_bert": {"q_proj.weight": 2},
    "gte": {"q_proj.weight": 2},
    "jina_embeddings_v3": {"q_proj.weight": 2},
    "convbert": {"key_conv_attn_layer.bias": 10, "conv_kernel_layer.weight": 2, "self.query.weight": 2},
}
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
    "embedding_size": 13,
    "pad_token_id": 3,
    "bos_token_id": 4,
    "eos_token_id": 100,
}


def cases(family):
    mobilebert = family(
        "mobilebert",
        "encoder",
        "MobileBertConfig",
        _TYPES,
        **_BERT,
        intra_bottleneck_size=20,
        num_feedforward_networks=3,
    )
    convbert = family(
        "convbert",
        "encoder",
        "ConvBertConfig",
        _TYPES,
        **{**_BERT, "num_attention_heads": 10},  # of which five attend
        conv_kernel_size=5,
    )
    return (
        *mobilebert("all", "MobileBertForMaskedLM"),
        *mobilebert(
            "light",
            "MobileBertModel MobileBertForPreTraining MobileBertForNextSentencePrediction "
            "MobileBertForSequenceClassification MobileBertForMultipleChoice MobileBertForTokenClassification "
            "MobileBertForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
            num_feedforward_networks=2,
        ),
        *mobilebert(  # attention reads narrow states; statistics in norms; the first state instead of a pooler
            "narrow-attention",
            "MobileBertModel",
            use_bottleneck_attention=True,
            trigram_input=False,
            normalization_type="layer_norm",
            layer_norm_eps=0.1,
            num_feedforward_networks=1,
            hidden_act="gelu",
            classifier_activation=False,
        ),
        *mobilebert(  # attention reads the layer's states, which is possible where both widths are equal
            "wide-attention",
            "MobileBertModel",
            ranks=LIGHT,
            num_hidden_layers=1,
            intra_bottleneck_size=30,
            key_query_shared_bottleneck=False,
        ),
        *mobilebert(
            "no-bottleneck",
            "MobileBertModel",
            ranks=LIGHT,
            num_hidden_layers=1,
            use_bottleneck=False,
            trigram_input=False,
            embedding_size=30,
        ),
        *convbert("all", "ConvBertForMaskedLM"),
        *convbert(
            "light",
            "ConvBertModel ConvBertForSequenceClassification ConvBertForMultipleChoice "
            "ConvBertForTokenClassification ConvBertForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
        ),
        *convbert(  # ranks' columns end inside of groups
            "groups",
            "ConvBertModel",
            num_hidden_layers=2,
            num_groups=3,
            intermediate_size=42,
            embedding_size=30,
            conv_kernel_size=3,
        ),
        *convbert(
            "summary",
            "ConvBertForMultipleChoice",
            ranks=LIGHT,
            num_hidden_layers=1,
            summary_type="mean",
            summary_use_proj=True,
            summary_activation="tanh",
        ),
        *convbert("one-head", "ConvBertModel", ranks=(1,), num_hidden_layers=1, head_ratio=12),
    )
