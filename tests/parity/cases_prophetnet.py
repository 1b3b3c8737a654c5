# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for ProphetNet, whose decoder has streams beside the main one; cases.py collects them. Distances share
buckets within texts of 33 tokens. Encoders have as many layers as decoders at least: transformers' cache has those of
the encoder.
"""

import numpy

LIGHT = (2,)
MODEL_TYPES = ("prophetnet", "xlm-prophetnet")
# as in cases.py
SEEDS = {}
# as in cases_neighbors.py
SMALLER = dict.fromkeys(
    MODEL_TYPES, {"attn.out_proj.weight": 4, "output.weight": 4, "relative_pos_embeddings.weight": 2}
)
_SIZES = {
    "hidden_size": 30,
    "num_encoder_attention_heads": 5,
    "num_decoder_attention_heads": 6,
    "num_encoder_layers": 3,
    "num_decoder_layers": 2,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 43,
    "vocab_size": 211,
    "max_position_embeddings": 80,
    "num_buckets": 9,
    "relative_max_distance": 14,
    "decoder_start_token_id": 1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def cases(family):
    prophetnet = family("prophetnet", "encoder-decoder", "ProphetNetConfig", **_SIZES)
    xlm = family("xlm-prophetnet", "encoder-decoder", "XLMProphetNetConfig", **_SIZES)
    return (
        *prophetnet("all", "ProphetNetForConditionalGeneration ProphetNetModel ProphetNetForCausalLM"),
        *prophetnet("all", "ProphetNetEncoder ProphetNetDecoder", ranks=LIGHT, add_cross_attention=False),
        *prophetnet(
            "three-streams-seven-heads-untied",
            "ProphetNetForConditionalGeneration",
            hidden_size=35,
            num_encoder_attention_heads=7,
            num_decoder_attention_heads=7,
            num_encoder_layers=1,
            num_decoder_layers=1,
            ngram=3,
            num_buckets=8,
            activation_function="relu",
            tie_word_embeddings=False,
        ),
        *prophetnet(
            "one-stream",
            "ProphetNetForCausalLM",
            ranks=LIGHT,
            ngram=1,
            num_decoder_attention_heads=3,
            num_buckets=32,
            relative_max_distance=128,
            add_cross_attention=False,
        ),
        *xlm("all", "XLMProphetNetForConditionalGeneration", ranks=LIGHT),
        *xlm(
            "light",
            "XLMProphetNetModel XLMProphetNetForCausalLM XLMProphetNetEncoder XLMProphetNetDecoder",
            ranks=LIGHT,
            num_encoder_layers=1,
            num_decoder_layers=1,
        ),
    )


def encodes_alone(case):
    return case.model_class.endswith("ProphetNetEncoder")


def decodes_alone(case):
    return case.model_class.endswith(("ProphetNetDecoder", "ProphetNetForCausalLM"))


def is_of_streams(name):
    """Returns whether an output is that of streams, which other decoders do not have."""
    return "ngram" in name


def rows_that_count(case, name, mask):
    """The mask [rows, length] for an output whose queries are those of streams: of all, or of all but the main one."""
    if case.model_type not in MODEL_TYPES or mask is None or not (is_of_streams(name) or name.startswith("cross_")):
        return mask
    streams = case.settings.get("ngram", 2)
    if name == "logits_ngram":
        return numpy.repeat(mask[:, None], streams - 1, 1)
    if "attentions." in name and is_of_streams(name):
        return mask
    return numpy.tile(mask, (1, streams + name.startswith("cross_")))
