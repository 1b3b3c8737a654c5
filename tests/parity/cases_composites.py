# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for models of two families, an encoder and a decoder; cases.py collects them. Both vocabularies, both
widths, both numbers of heads and of layers differ where a pair of families allows it.
"""

LIGHT = (2,)
# as in cases.py
SEEDS = {
    "EncoderDecoderModel-bert2bert": 3507,
    "EncoderDecoderModel-distilbert2electra": 5511,
    "EncoderDecoderModel-albert2camembert": 48512,
    "EncoderDecoderModel-electra2roformer": 227513,
}
IDS = {"pad_token_id": 3, "bos_token_id": 4, "eos_token_id": 100}
_BERT = {
    "hidden_size": 36,
    "num_attention_heads": 6,
    "num_hidden_layers": 3,
    "intermediate_size": 37,
    "vocab_size": 131,
    "max_position_embeddings": 80,
    "type_vocab_size": 3,
    "layer_norm_eps": 1e-3,
    **IDS,
}
_GENERATION = {key: value for key, value in _BERT.items() if key != "type_vocab_size"}
_DECODES = {
    "is_decoder": True,
    "add_cross_attention": True,
    "num_attention_heads": 9,
    "num_hidden_layers": 3,
    "intermediate_size": 43,
    "vocab_size": 101,
}


def of(kind, settings, **more):
    """A section of config.json."""
    return {"model_type": kind, **settings, **more}


def layers(settings):
    """Returns the number of layers of a section."""
    return next(
        settings[name] for name in ("num_hidden_layers", "n_layer", "n_layers", "decoder_layers") if name in settings
    )


def blocks(part):
    """transformers' layers of a part in the order in which they run."""
    base = part.base_model
    if hasattr(getattr(base, "encoder", None), "albert_layer_groups"):
        return [base.encoder.albert_layer_groups[0].albert_layers[0]] * base.config.num_hidden_layers
    while True:
        for name in ("h", "layer", "layers"):
            if hasattr(base, name):
                return list(getattr(base, name))
        base = next(getattr(base, name) for name in ("encoder", "transformer", "decoder") if hasattr(base, name))


def cases(family):
    pair = family(
        "encoder-decoder",
        "encoder-decoder",
        "EncoderDecoderConfig",
        decoder_start_token_id=4,
        **IDS,
    )
    types = ("token_type_ids", "position_ids")
    return (
        *pair(
            "bert2bert",
            "EncoderDecoderModel",
            takes=types,
            encoder=of("bert", _BERT),
            decoder=of("bert", _BERT, **_DECODES),
        ),
        *pair(
            "roberta2gpt2",
            "EncoderDecoderModel",
            takes=types,
            encoder=of("roberta", _BERT, hidden_size=35, num_attention_heads=7),
            decoder=of(
                "gpt2",
                {"n_embd": 30, "n_head": 5, "n_layer": 3, "n_inner": 77, "n_positions": 80, "vocab_size": 211},
                **IDS,
                layer_norm_epsilon=1e-3,
                scale_attn_by_inverse_layer_idx=True,
                is_decoder=True,
                add_cross_attention=True,
            ),
        ),
        *pair(
            "bert-generation-seven-heads-untied",
            "EncoderDecoderModel",
            takes=("position_ids",),
            encoder=of("bert-generation", _GENERATION, hidden_size=35, num_attention_heads=7),
            decoder=of(
                "bert-generation",
                _GENERATION,
                **{**_DECODES, "hidden_size": 35, "num_attention_heads": 7, "tie_word_embeddings": False},
            ),
        ),
        *pair(
            "xlm-roberta2roberta",
            "EncoderDecoderModel",
            takes=types,
            encoder=of("xlm-roberta", _BERT, hidden_act="relu"),
            decoder=of("roberta", _BERT, **_DECODES),
        ),
        *pair(
            "distilbert2electra",
            "EncoderDecoderModel",
            takes=("position_ids",),
            ranks=LIGHT,
            encoder=of(
                "distilbert",
                {"dim": 35, "n_heads": 7, "n_layers": 2, "hidden_dim": 37, "vocab_size": 131},
                max_position_embeddings=80,
                pad_token_id=3,
            ),
            decoder=of("electra", _BERT, embedding_size=13, **_DECODES),
        ),
        *pair(
            "albert2camembert",
            "EncoderDecoderModel",
            takes=types,
            ranks=LIGHT,
            encoder=of("albert", _BERT, embedding_size=13, num_hidden_groups=1),
            decoder=of("camembert", _BERT, **_DECODES),
        ),
        *pair(
            "electra2roformer",
            "EncoderDecoderModel",
            takes=types,
            ranks=LIGHT,
            encoder=of("electra", _BERT, embedding_size=13),
            decoder=of("roformer", _BERT, **{**_DECODES, "hidden_size": 72}),
        ),
        *pair(
            "bert2bart",
            "EncoderDecoderModel",
            takes=types,
            ranks=LIGHT,
            encoder=of("bert", _BERT),
            decoder=of(
                "bart",
                {"d_model": 36, "decoder_attention_heads": 9, "decoder_layers": 3, "decoder_ffn_dim": 43},
                **{**IDS, "vocab_size": 101, "max_position_embeddings": 80, "tie_word_embeddings": False},
                is_decoder=True,
                add_cross_attention=True,
            ),
        ),
    )
