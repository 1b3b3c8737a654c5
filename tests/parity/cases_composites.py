# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for models of two families, an encoder and a decoder; cases.py collects them. Both vocabularies, both
widths, both numbers of heads and of layers differ where a pair of families allows it.
"""

import cases_audio

LIGHT = (2,)
# as in cases.py
SEEDS = {
    "EncoderDecoderModel-bert2bert-relative-keys": 4515,
    "VisionEncoderDecoderModel-deit2bert": 3217,
    "SpeechEncoderDecoderModel-hubert2bert": 19185,
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


_GPT2 = {
    "n_embd": 30,
    "n_head": 5,
    "n_layer": 3,
    "n_inner": 77,
    "n_positions": 80,
    "vocab_size": 211,
    "layer_norm_epsilon": 1e-3,
    "is_decoder": True,
    "add_cross_attention": True,
    **IDS,
}
_BART = {
    "d_model": 36,
    "decoder_attention_heads": 9,
    "decoder_layers": 3,
    "decoder_ffn_dim": 43,
    "is_decoder": True,
    "add_cross_attention": True,
    **IDS,
    "vocab_size": 101,
    "max_position_embeddings": 80,
    "tie_word_embeddings": False,
}
_PATCHES = {
    "num_hidden_layers": 2,
    "intermediate_size": 37,
    "image_size": [12, 20],
    "patch_size": 4,
    "layer_norm_eps": 1e-3,
}
# what decoders add to their states, so that the last token does not drown (fixtures.py)
SMALLER = {
    "vision-encoder-decoder": {"output.dense.weight": 6, "c_proj.weight": 6, "out_proj.weight": 6, "fc2.weight": 6},
    "speech-encoder-decoder": {"output.dense.weight": 6, "c_proj.weight": 6, "out_proj.weight": 6, "fc2.weight": 6},
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
    special = {"decoder_start_token_id": 4, **IDS}
    vision = family("vision-encoder-decoder", "encoder-decoder", "VisionEncoderDecoderConfig", **special)
    speech = family("speech-encoder-decoder", "encoder-decoder", "SpeechEncoderDecoderConfig", **special)
    heard = {**cases_audio.WAV2VEC2, "num_hidden_layers": 2}
    return (
        *vision(
            "vit2gpt2",
            "VisionEncoderDecoderModel",
            encoder=of("vit", _PATCHES, hidden_size=35, num_attention_heads=7),
            decoder=of("gpt2", _GPT2),
        ),
        *vision(
            "deit2bert",
            "VisionEncoderDecoderModel",
            ranks=LIGHT,
            encoder=of("deit", _PATCHES, hidden_size=36, num_attention_heads=6, image_size=12),
            decoder=of("bert", _BERT, **_DECODES),
        ),
        *speech(
            "wav2vec2-stable2bart",
            "SpeechEncoderDecoderModel",
            lengths=cases_audio.SAMPLES,
            encoder=of("wav2vec2", heard, do_stable_layer_norm=True, feat_extract_norm="layer", conv_bias=True),
            decoder=of("bart", _BART),
        ),
        *speech(
            "hubert2bert",
            "SpeechEncoderDecoderModel",
            ranks=LIGHT,
            lengths=cases_audio.SAMPLES,
            encoder=of("hubert", heard, hidden_size=36, num_attention_heads=6),
            decoder=of("bert", _BERT, **_DECODES),
        ),
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
            decoder=of("gpt2", _GPT2, scale_attn_by_inverse_layer_idx=True),
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
            decoder=of("bart", _BART),
        ),
        *pair(
            "bert2bert-relative-keys",
            "EncoderDecoderModel",
            takes=("token_type_ids",),
            ranks=LIGHT,
            encoder=of("bert", _BERT, position_embedding_type="relative_key"),
            decoder=of("bert", _BERT, **_DECODES, position_embedding_type="relative_key_query"),
        ),
    )
