# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for BERT and its relatives with relative position keys, which removed_relative_keys.py puts back into
transformers; cases.py collects them.
"""

LIGHT = (2,)
# as in cases.py
SEEDS = {
    "AlbertModel-relative-key": 4635,
    "BertLMHeadModel-relative-key-query": 44430,
    "BertLMHeadModel-relative-key-causal": 1432,
    "ElectraForCausalLM-relative-key-causal": 4737,
    "RobertaForCausalLM-relative-key-causal": 36752,
    "MegatronBertForCausalLM-relative-key-causal": 2336,
}
_TYPES = ("token_type_ids",)
_SIZES = {
    "hidden_size": 30,
    "num_attention_heads": 5,
    "num_hidden_layers": 3,
    "intermediate_size": 37,
    "vocab_size": 101,
    "max_position_embeddings": 80,
    "layer_norm_eps": 1e-3,
    "pad_token_id": 3,
}
_BERT = {**_SIZES, "type_vocab_size": 3, "bos_token_id": 4, "eos_token_id": 100}
_KEY, _BOTH = ({"position_embedding_type": kind} for kind in ("relative_key", "relative_key_query"))
_DECODER = {"is_decoder": True}


def cases(family):
    bert = family("bert", "encoder", "BertConfig", _TYPES, **_BERT)
    albert = family("albert", "encoder", "AlbertConfig", _TYPES, **_BERT, embedding_size=13, num_hidden_groups=3)
    electra = family("electra", "encoder", "ElectraConfig", _TYPES, **_BERT, embedding_size=13)
    roberta = family("roberta", "encoder", "RobertaConfig", _TYPES, **_BERT)
    xlm_roberta = family("xlm-roberta", "encoder", "XLMRobertaConfig", _TYPES, **_BERT)
    camembert = family("camembert", "encoder", "CamembertConfig", _TYPES, **_BERT)
    megatron = family("megatron-bert", "encoder", "MegatronBertConfig", _TYPES, **_BERT)
    dpr = family("dpr", "encoder", "DPRConfig", _TYPES, **_SIZES, type_vocab_size=3)
    generation = family(
        "bert-generation",
        "encoder",
        "BertGenerationConfig",
        ("position_ids",),
        **_SIZES,
        bos_token_id=4,
        eos_token_id=100,
    )
    return (
        *bert("relative-key-query", "BertForMaskedLM BertLMHeadModel", **_BOTH),
        *bert("relative-key", "BertForMaskedLM", **_KEY),
        *bert("relative-key-causal", "BertLMHeadModel", ranks=LIGHT, **_KEY),
        *albert("relative-key-query", "AlbertForMaskedLM", **_BOTH),
        *albert("relative-key", "AlbertModel", ranks=LIGHT, **_KEY),
        *electra("relative-key-query", "ElectraForMaskedLM", **_BOTH),
        *electra("relative-key-causal", "ElectraForCausalLM", ranks=LIGHT, **_KEY, **_DECODER),
        *roberta("relative-key-query", "RobertaForMaskedLM", **_BOTH),
        *roberta("relative-key-causal", "RobertaForCausalLM", ranks=LIGHT, **_KEY, **_DECODER),
        *xlm_roberta("relative-key", "XLMRobertaForMaskedLM", ranks=LIGHT, **_KEY),
        *camembert("relative-key", "CamembertForMaskedLM", ranks=LIGHT, **_KEY),
        *megatron("relative-key-query", "MegatronBertForMaskedLM", **_BOTH),
        *megatron("relative-key-causal", "MegatronBertForCausalLM", ranks=LIGHT, **_BOTH, **_DECODER),
        *dpr("relative-key-query", "DPRQuestionEncoder", ranks=LIGHT, **_BOTH),
        *generation("relative-key-query", "BertGenerationDecoder", **_BOTH),
    )
