# SPDX-License-Identifier: Apache-2.0
"""Relative position keys of BERT and its relatives (Shaw et al. 2018; Huang et al. 2020), which transformers 5 no
longer has, put back into its classes where a config asks for them. test_removed_classes.py holds them against answers
of the last release that had them.
"""

import functools

import torch
from torch import nn
from transformers.models.albert import modeling_albert
from transformers.models.bert import modeling_bert
from transformers.models.bert_generation import modeling_bert_generation
from transformers.models.camembert import modeling_camembert
from transformers.models.electra import modeling_electra
from transformers.models.megatron_bert import modeling_megatron_bert
from transformers.models.roberta import modeling_roberta
from transformers.models.xlm_roberta import modeling_xlm_roberta

# the self-attention of each, and the embeddings that leave positions out; BertGeneration's never did
ATTENTIONS = (
    modeling_bert.BertSelfAttention,
    modeling_albert.AlbertAttention,
    modeling_bert_generation.BertGenerationSelfAttention,
    modeling_camembert.CamembertSelfAttention,
    modeling_electra.ElectraSelfAttention,
    modeling_megatron_bert.MegatronBertSelfAttention,
    modeling_roberta.RobertaSelfAttention,
    modeling_xlm_roberta.XLMRobertaSelfAttention,
)
EMBEDDINGS = (
    modeling_bert.BertEmbeddings,
    modeling_albert.AlbertEmbeddings,
    modeling_camembert.CamembertEmbeddings,
    modeling_electra.ElectraEmbeddings,
    modeling_megatron_bert.MegatronBertEmbeddings,
    modeling_roberta.RobertaEmbeddings,
    modeling_xlm_roberta.XLMRobertaEmbeddings,
)


def _kind(config):
    return getattr(config, "position_embedding_type", "absolute")


def _with_distances(attention, positional, named):
    """Adds to the mask what queries, and with relative_key_query keys too, say of their distances."""
    states = positional[0] if positional else named["hidden_states"]
    queries, keys = (
        project(states).unflatten(-1, (-1, attention.attention_head_size)).transpose(1, 2)
        for project in (attention.query, attention.key)
    )
    cache = named.get("past_key_values")
    cache = getattr(cache, "self_attention_cache", cache)
    before = cache.get_seq_length(attention.layer_idx) if cache is not None else 0
    if before:
        keys = torch.cat([cache.layers[attention.layer_idx].keys, keys], 2)
    columns = torch.arange(keys.shape[2])
    rows = columns[before:, None] - columns + attention.distance_embedding.num_embeddings // 2
    vectors = attention.distance_embedding(rows)
    terms = torch.einsum("bhld,lrd->bhlr", queries, vectors)
    if attention.both:
        terms = terms + torch.einsum("bhrd,lrd->bhlr", keys, vectors)
    if not isinstance(attention, modeling_albert.AlbertAttention):  # which adds them to scaled scores
        terms = terms / attention.attention_head_size**0.5
    mask = positional[1] if len(positional) > 1 else named.get("attention_mask")
    if mask is None and getattr(attention, "is_causal", False):  # some attentions leave a mask of zeros out
        mask = columns <= columns[before:, None]
    if mask is None:
        mask = terms
    elif mask.dtype == torch.bool:
        mask = terms.masked_fill(~mask, torch.finfo(terms.dtype).min)
    else:
        mask = mask + terms
    return (states,), {key: value for key, value in named.items() if key != "hidden_states"} | {"attention_mask": mask}


def _extend(cls, add):
    usual = cls.__init__

    def init(self, config, *positional, **named):
        usual(self, config, *positional, **named)
        if _kind(config) in ("relative_key", "relative_key_query"):
            add(self, config)

    cls.__init__ = init


def _add_distances(attention, config):
    attention.distance_embedding = nn.Embedding(2 * config.max_position_embeddings - 1, attention.attention_head_size)
    attention.both = _kind(config) == "relative_key_query"
    attention.register_forward_pre_hook(_with_distances, with_kwargs=True)


def _leave_positions_out(embeddings, _):
    embeddings.position_embeddings.register_forward_hook(lambda module, given, found: torch.zeros_like(found))


@functools.cache
def put_back():
    """Changes the classes of transformers, once."""
    for attention in ATTENTIONS:
        _extend(attention, _add_distances)
    for embeddings in EMBEDDINGS:
        _extend(embeddings, _leave_positions_out)
