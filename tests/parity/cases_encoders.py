# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for encoders related to BERT, RoBERTa, ViT or XLM; cases.py collects them. One class of each family
runs on every number of ranks; the others, which differ in a head, run on two.
"""

LIGHT = (2,)
# as in cases.py
SEEDS = {
    "RobertaForCausalLM-causal": 758,
    "XLMRobertaForCausalLM-causal": 1141,
    "CamembertForCausalLM-causal": 961,
    "ElectraForCausalLM-causal": 744,
    "MegatronBertForCausalLM-causal": 1344,
    "RoFormerForCausalLM-causal": 38887,
    "ElectraForMaskedLM-all": 10738,
    "IBertForMaskedLM-all": 1534,
    "RoFormerModel-turned-values": 1884,
    "CamembertForMaskedLM-all": 2944,
    "FlaubertForQuestionAnswering-search": 1859,
    "LayoutLMForMaskedLM-all": 1887,
    "LayoutLMForSequenceClassification-light": 1889,
    "RoFormerForMaskedLM-all": 11876,
    "RoFormerForMultipleChoice-light": 5879,
    "RoFormerForQuestionAnswering-light": 7881,
    "RoFormerForSequenceClassification-light": 3878,
    "RobertaForMultipleChoice-light": 1754,
    "XLMForMultipleChoice-light": 1341,
    "XLMWithLMHeadModel-all": 38341,
    "XLMWithLMHeadModel-causal-relu-one-language": 45341,
    "FlaubertWithLMHeadModel-light": 57341,
    "FlaubertWithLMHeadModel-norms-before": 4841,
    "EuroBertForMaskedLM-all": 1872,
}
MODEL_TYPES = (
    "roberta",
    "xlm-roberta",
    "camembert",
    "electra",
    "distilbert",
    "megatron-bert",
    "dpr",
    "deit",
    "roformer",
    "layoutlm",
    "tapas",
    "xlm",
    "flaubert",
    "retribert",
    "visual_bert",
    "squeezebert",
    "ibert",
    "modernbert",
    "eurobert",
    "nomic_bert",
    "gte",
    "jina_embeddings_v3",
)
_BERT = {
    "hidden_size": 30,
    "num_attention_heads": 5,
    "num_hidden_layers": 3,
    "intermediate_size": 37,
    "vocab_size": 101,
    "max_position_embeddings": 80,
    "type_vocab_size": 3,
    "layer_norm_eps": 1e-3,
}
_IDS = {"pad_token_id": 3, "bos_token_id": 4, "eos_token_id": 100}
_TYPES = ("token_type_ids", "position_ids")


def cases(family):
    bert = family("bert", "encoder", "BertConfig", _TYPES, **_BERT, **_IDS)
    roberta = family("roberta", "encoder", "RobertaConfig", _TYPES, **_BERT, **_IDS)
    xlm_roberta = family("xlm-roberta", "encoder", "XLMRobertaConfig", _TYPES, **_BERT, **_IDS)
    camembert = family("camembert", "encoder", "CamembertConfig", _TYPES, **_BERT, **_IDS)
    electra = family("electra", "encoder", "ElectraConfig", _TYPES, embedding_size=13, **_BERT, **_IDS)
    squeezebert = family(
        "squeezebert",
        "encoder",
        "SqueezeBertConfig",
        _TYPES,
        **{**_BERT, "hidden_size": 40, "intermediate_size": 52},
        embedding_size=40,
        **_IDS,
    )
    ibert = family("ibert", "encoder", "IBertConfig", _TYPES, **_BERT, **_IDS)
    distilbert = family(
        "distilbert",
        "encoder",
        "DistilBertConfig",
        ("position_ids",),
        dim=30,
        n_heads=5,
        n_layers=3,
        hidden_dim=37,
        vocab_size=101,
        max_position_embeddings=80,
        pad_token_id=3,
    )
    modernbert = family(
        "modernbert",
        "encoder",
        "ModernBertConfig",
        ("position_ids",),
        hidden_size=40,  # five heads of eight
        num_attention_heads=5,
        num_hidden_layers=4,
        intermediate_size=37,
        vocab_size=101,
        max_position_embeddings=80,
        norm_eps=1e-3,
        local_attention=8,
        **_IDS,
        cls_token_id=4,
    )
    rotating = {**_BERT, "hidden_size": 40}  # five heads of eight
    del rotating["type_vocab_size"], rotating["layer_norm_eps"]
    eurobert = family("eurobert", "encoder", "EuroBertConfig", ("position_ids",), rms_norm_eps=1e-3, **rotating, **_IDS)
    rotating |= {"layer_norm_eps": 1e-3, "type_vocab_size": 3}
    nomic_bert = family("nomic_bert", "encoder", "NomicBertConfig", _TYPES, **rotating, **_IDS)
    gte = family("gte", "encoder", "GteConfig", _TYPES, **rotating, **_IDS)
    jina = family("jina_embeddings_v3", "encoder", "JinaEmbeddingsV3Config", _TYPES, **rotating, **_IDS)
    megatron = family("megatron-bert", "encoder", "MegatronBertConfig", _TYPES, **_BERT, **_IDS)
    dpr = family("dpr", "encoder", "DPRConfig", ("token_type_ids",), **_BERT, pad_token_id=3)
    deit = family(
        "deit",
        "vision",
        "DeiTConfig",
        hidden_size=30,
        num_attention_heads=5,
        num_hidden_layers=3,
        intermediate_size=37,
        image_size=16,
        patch_size=4,
        layer_norm_eps=1e-3,
    )
    roformer = family(
        "roformer",
        "encoder",
        "RoFormerConfig",
        ("token_type_ids",),
        **{**_BERT, "hidden_size": 40},
        embedding_size=14,
        **_IDS,
    )
    layoutlm = family(
        "layoutlm",
        "encoder",
        "LayoutLMConfig",
        (*_TYPES, "bbox"),
        max_2d_position_embeddings=60,
        **_BERT,
        pad_token_id=3,
    )
    tapas = family(
        "tapas",
        "encoder",
        "TapasConfig",
        ("position_ids", "cells"),
        type_vocab_sizes=[3, 5, 6, 2, 7, 4, 3],
        max_num_rows=3,
        max_num_columns=3,
        temperature=0.7,
        num_aggregation_labels=4,
        **{**_TAPAS, "max_position_embeddings": 9},
        pad_token_id=3,
    )
    xlm = family("xlm", "encoder", "XLMConfig", ("position_ids", "langs"), **_XLM)
    flaubert = family("flaubert", "encoder", "FlaubertConfig", ("position_ids",), **{**_XLM, "n_langs": 1})
    retribert = family("retribert", "encoder", "RetriBertConfig", _TYPES, projection_dim=9, **_BERT, pad_token_id=3)
    visual_bert = family(
        "visual_bert", "encoder", "VisualBertConfig", (*_TYPES, "features"), visual_embedding_dim=11, **_BERT, **_IDS
    )
    decoder = {"is_decoder": True, "num_hidden_layers": 2}
    return (
        # BORT, BERT of characters as for Japanese, HerBERT: checkpoints of BERT's type
        *bert(
            "narrow-mlp",
            "BertModel",
            ranks=LIGHT,
            hidden_size=32,
            num_attention_heads=4,
            intermediate_size=24,
            num_hidden_layers=2,
        ),
        *bert(
            "few-tokens", "BertForTokenClassification", ranks=LIGHT, vocab_size=40, eos_token_id=39, num_hidden_layers=2
        ),
        *bert("one-type", "BertForMaskedLM", ranks=LIGHT, type_vocab_size=1, num_hidden_layers=2),
        *roberta("all", "RobertaForMaskedLM RobertaModel"),
        *roberta(
            "light",
            "RobertaForSequenceClassification RobertaForMultipleChoice RobertaForTokenClassification "
            "RobertaForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
        ),
        *roberta("causal", "RobertaForCausalLM", **decoder),
        *roberta(
            "seven-heads-untied",
            "RobertaForMaskedLM",
            ranks=LIGHT,
            hidden_size=35,
            num_attention_heads=7,
            num_hidden_layers=1,
            hidden_act="relu",
            tie_word_embeddings=False,
            pad_token_id=1,
        ),
        *xlm_roberta("all", "XLMRobertaForMaskedLM"),
        *xlm_roberta(
            "light",
            "XLMRobertaModel XLMRobertaForSequenceClassification XLMRobertaForMultipleChoice "
            "XLMRobertaForTokenClassification "
            "XLMRobertaForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=1,
        ),
        *xlm_roberta("causal", "XLMRobertaForCausalLM", ranks=LIGHT, **decoder),
        *camembert("all", "CamembertForMaskedLM"),
        *camembert(
            "light",
            "CamembertModel CamembertForSequenceClassification CamembertForMultipleChoice "
            "CamembertForTokenClassification "
            "CamembertForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=1,
        ),
        *camembert("causal", "CamembertForCausalLM", ranks=LIGHT, **decoder),
        *electra("all", "ElectraForMaskedLM"),
        *electra(
            "light",
            "ElectraModel ElectraForPreTraining ElectraForSequenceClassification ElectraForMultipleChoice "
            "ElectraForTokenClassification "
            "ElectraForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
        ),
        *electra("causal", "ElectraForCausalLM", ranks=LIGHT, **decoder),
        *electra(
            "one-size", "ElectraForPreTraining", ranks=LIGHT, embedding_size=30, num_hidden_layers=1, hidden_act="relu"
        ),
        *squeezebert("all", "SqueezeBertForMaskedLM"),
        *squeezebert(
            "light",
            "SqueezeBertModel SqueezeBertForSequenceClassification SqueezeBertForMultipleChoice "
            "SqueezeBertForTokenClassification "
            "SqueezeBertForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=1,
            hidden_act="relu",
        ),
        *squeezebert(  # blocks that end inside of heads, and fewer of them than ranks
            "other-groups",
            "SqueezeBertModel",
            num_hidden_layers=2,
            q_groups=2,
            k_groups=1,
            v_groups=20,
            post_attention_groups=8,
            intermediate_groups=2,
            output_groups=1,
        ),
        *squeezebert(
            "dense",
            "SqueezeBertModel",
            ranks=LIGHT,
            num_hidden_layers=1,
            q_groups=1,
            k_groups=1,
            v_groups=1,
            intermediate_groups=1,
            output_groups=1,
        ),
        *ibert("all", "IBertForMaskedLM"),
        *ibert(
            "light",
            "IBertModel IBertForSequenceClassification IBertForMultipleChoice IBertForTokenClassification "
            "IBertForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
        ),
        *modernbert("all", "ModernBertForMaskedLM", lengths=(5, 1, 33, 17, 2)),
        *modernbert(
            "light",
            "ModernBertModel ModernBertForSequenceClassification ModernBertForMultipleChoice "
            "ModernBertForTokenClassification ModernBertForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": 300.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 40.0},
            },
        ),
        *modernbert(
            "biased",
            "ModernBertForMaskedLM ModernBertForSequenceClassification",
            ranks=LIGHT,
            num_hidden_layers=3,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
            norm_bias=True,
            attention_bias=True,
            mlp_bias=True,
            classifier_bias=True,
            classifier_pooling="mean",
            classifier_activation="relu",
            hidden_activation="silu",
            decoder_bias=False,
            tie_word_embeddings=False,
        ),
        *eurobert("all", "EuroBertForMaskedLM", num_key_value_heads=5),
        *eurobert(
            "light",
            "EuroBertModel EuroBertForSequenceClassification EuroBertForTokenClassification",
            ranks=LIGHT,
            num_hidden_layers=2,
            num_key_value_heads=1,
            attention_bias=True,
            mlp_bias=True,
            classifier_pooling="mean",
        ),
        *eurobert("first", "EuroBertForSequenceClassification", ranks=LIGHT, classifier_pooling="bos", mlp_bias=True),
        *nomic_bert("all", "NomicBertForMaskedLM"),
        *nomic_bert(
            "light",
            "NomicBertModel NomicBertForSequenceClassification NomicBertForTokenClassification",
            ranks=LIGHT,
            num_hidden_layers=2,
            head_dim=6,
        ),
        *gte("all", "GteForMaskedLM"),
        *gte(
            "light",
            "GteModel GteForSequenceClassification GteForTokenClassification",
            ranks=LIGHT,
            num_hidden_layers=2,
            rope_parameters={"rope_type": "default", "rope_theta": 300.0},
        ),
        *distilbert("all", "DistilBertForMaskedLM"),
        *distilbert(
            "light",
            "DistilBertModel DistilBertForSequenceClassification DistilBertForMultipleChoice "
            "DistilBertForTokenClassification "
            "DistilBertForQuestionAnswering",
            ranks=LIGHT,
            n_layers=2,
        ),
        *distilbert(
            "relu-sines", "DistilBertForMaskedLM", ranks=LIGHT, n_layers=1, activation="relu", sinusoidal_pos_embds=True
        ),
        *megatron("all", "MegatronBertForPreTraining"),
        *megatron(
            "light",
            "MegatronBertModel MegatronBertForMaskedLM MegatronBertForNextSentencePrediction "
            "MegatronBertForSequenceClassification "
            "MegatronBertForMultipleChoice MegatronBertForTokenClassification MegatronBertForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
        ),
        *megatron("causal", "MegatronBertForCausalLM", ranks=LIGHT, **decoder),
        *dpr("all", "DPRQuestionEncoder", projection_dim=9),
        *dpr("light", "DPRContextEncoder", ranks=LIGHT),
        *dpr("reader", "DPRReader", takes=(), ranks=LIGHT),
        *retribert("all", "RetriBertModel"),
        *retribert(
            "relative-key",
            "RetriBertModel",
            takes=("token_type_ids",),
            ranks=LIGHT,
            position_embedding_type="relative_key",
        ),
        *deit("all", "DeiTForImageClassificationWithTeacher"),
        *deit("light", "DeiTModel DeiTForImageClassification", ranks=LIGHT, num_hidden_layers=2),
        *deit("masked", "DeiTForMaskedImageModeling", ranks=LIGHT, num_hidden_layers=2, encoder_stride=4),
        *roformer("all", "RoFormerForMaskedLM"),
        *roformer(
            "light",
            "RoFormerModel RoFormerForSequenceClassification RoFormerForMultipleChoice "
            "RoFormerForTokenClassification RoFormerForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
        ),
        *roformer("causal", "RoFormerForCausalLM", **decoder),
        *roformer("turned-values", "RoFormerModel", rotary_value=True, embedding_size=40),
        *layoutlm("all", "LayoutLMForMaskedLM"),
        *layoutlm(
            "light",
            "LayoutLMModel LayoutLMForSequenceClassification LayoutLMForTokenClassification "
            "LayoutLMForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
        ),
        *tapas("all", "TapasForQuestionAnswering"),
        *tapas("light", "TapasModel TapasForMaskedLM TapasForSequenceClassification", ranks=LIGHT, num_hidden_layers=2),
        *tapas(
            "one-count",
            "TapasForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=1,
            num_aggregation_labels=0,
            reset_position_index_per_cell=False,
            max_position_embeddings=80,
            allow_empty_column_selection=True,
        ),
        *visual_bert("all", "VisualBertForPreTraining"),
        *visual_bert("regions", "VisualBertForRegionToPhraseAlignment"),
        *visual_bert(
            "light",
            "VisualBertModel VisualBertForMultipleChoice VisualBertForVisualReasoning",
            ranks=LIGHT,
            num_hidden_layers=2,
        ),
        *visual_bert(
            "seven-answers",
            "VisualBertForQuestionAnswering",
            ranks=LIGHT,
            lengths=(5, 2, 16, 17, 33),
            num_hidden_layers=2,
            num_labels=7,
        ),
        *xlm("all", "XLMWithLMHeadModel"),
        *xlm(
            "search",
            "XLMForQuestionAnswering",
            takes=("position_ids", "langs", "spans"),
            lengths=_SPANS,
            start_n_top=3,
            end_n_top=2,
        ),
        *xlm(
            "light",
            "XLMModel XLMForSequenceClassification XLMForMultipleChoice XLMForTokenClassification "
            "XLMForQuestionAnsweringSimple",
            ranks=LIGHT,
            n_layers=2,
        ),
        *xlm(
            "causal-relu-one-language",
            "XLMWithLMHeadModel",
            ranks=LIGHT,
            lengths=(17, 17),
            n_layers=1,
            causal=True,
            gelu_activation=False,
            n_langs=1,
            takes=("position_ids",),
        ),  # its causal mask forgets the padding
        *flaubert("all", "FlaubertModel"),
        *flaubert(
            "light",
            "FlaubertWithLMHeadModel FlaubertForSequenceClassification FlaubertForMultipleChoice "
            "FlaubertForTokenClassification "
            "FlaubertForQuestionAnsweringSimple",
            ranks=LIGHT,
            n_layers=2,
        ),
        *flaubert(
            "search",
            "FlaubertForQuestionAnswering",
            takes=("position_ids", "spans"),
            ranks=LIGHT,
            lengths=_SPANS,
            n_layers=2,
            start_n_top=2,
            end_n_top=4,
        ),
        *flaubert("norms-before", "FlaubertWithLMHeadModel", ranks=LIGHT, pre_norm=True, n_layers=2),
        *jina("all", "JinaEmbeddingsV3ForMaskedLM"),
        *jina(
            "light",
            "JinaEmbeddingsV3Model JinaEmbeddingsV3ForSequenceClassification "
            "JinaEmbeddingsV3ForTokenClassification JinaEmbeddingsV3ForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
            rope_parameters={"rope_type": "default", "rope_theta": 300.0},
        ),
    )


_SPANS = (6, 9, 16, 17, 33)  # of texts with as many places as are asked for
_TAPAS = {key: value for key, value in _BERT.items() if key != "type_vocab_size"}
_XLM = {
    "emb_dim": 30,
    "n_heads": 5,
    "n_layers": 3,
    "vocab_size": 101,
    "max_position_embeddings": 80,
    "n_langs": 4,
    "layer_norm_eps": 1e-3,
    "pad_token_id": 3,
    "bos_token_id": 4,
    "eos_token_id": 100,
    "mask_token_id": 7,
    "lang_id": 2,
}


def stack(case):
    return "vision" if case.kind == "vision" else "encoder"


def blocks(base):
    """transformers' layers in the order in which they run."""
    import torch

    if hasattr(base, "attentions"):  # XLM: lists of attentions, of norms, ...
        parts = zip(base.attentions, base.layer_norm1, base.ffns, base.layer_norm2, strict=True)
        return [torch.nn.ModuleDict(dict(zip(("attention", "norm1", "ffn", "norm2"), row))) for row in parts]
    while True:
        inner = next(
            (
                getattr(base, name)
                for name in ("bert_query", "encoder", "bert_model", "transformer")
                if hasattr(base, name)
            ),
            None,
        )
        if inner is None:
            return list(base.layer if hasattr(base, "layer") else base.layers)
        base = inner
