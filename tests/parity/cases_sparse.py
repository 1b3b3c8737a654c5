# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for families whose attention sees some of the keys only; cases.py collects them. Windows and blocks
are so small that texts of 33 tokens have several.
"""

LIGHT = (2,)
# as in cases.py
SEEDS = {
    "LEDModel-light": 2310,
    "LEDForQuestionAnswering-light": 1311,
    "LEDForConditionalGeneration-all": 18309,
    "BigBirdForCausalLM-causal": 8827,
    "BigBirdPegasusForConditionalGeneration-all": 8578,
    "BigBirdPegasusModel-unscaled-with-bias": 583,
}
ENCODERS = ("longformer", "big_bird")
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
    "sep_token_id": 7,
}
_BART = {
    "d_model": 30,
    "encoder_attention_heads": 5,
    "decoder_attention_heads": 6,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 43,
    "vocab_size": 211,
    "bos_token_id": 0,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
_TYPES = ("token_type_ids", "position_ids")
_GLOBAL = "global_attention_mask"


def cases(family):
    longformer = family("longformer", "encoder", "LongformerConfig", (*_TYPES, _GLOBAL), **_BERT)
    led = family(
        "led",
        "encoder-decoder",
        "LEDConfig",
        (_GLOBAL,),
        **_BART,
        max_encoder_position_embeddings=90,
        max_decoder_position_embeddings=70,
    )
    big_bird = family("big_bird", "encoder", "BigBirdConfig", _TYPES, **_BERT, block_size=2, num_random_blocks=1)
    pegasus = family(
        "bigbird_pegasus",
        "encoder-decoder",
        "BigBirdPegasusConfig",
        **_BART,
        max_position_embeddings=80,
        block_size=2,
        num_random_blocks=1,
    )
    return (
        *longformer("all", "LongformerModel", attention_window=[4, 8, 4]),
        *longformer(
            "light",
            "LongformerForMaskedLM LongformerForSequenceClassification LongformerForTokenClassification "
            "LongformerForMultipleChoice LongformerForQuestionAnswering",
            ranks=LIGHT,
            attention_window=[4, 6],
            num_hidden_layers=2,
            hidden_act="relu",
        ),
        *longformer("one-window", "LongformerModel", num_hidden_layers=2, attention_window=70, ranks=LIGHT),
        *led("all", "LEDForConditionalGeneration", attention_window=[4, 8]),
        *led("light", "LEDModel LEDForQuestionAnswering", ranks=LIGHT, attention_window=6, activation_function="relu"),
        *big_bird("all", "BigBirdModel"),
        *big_bird(
            "light",
            "BigBirdForMaskedLM BigBirdForPreTraining BigBirdForSequenceClassification BigBirdForMultipleChoice "
            "BigBirdForTokenClassification BigBirdForQuestionAnswering",
            ranks=LIGHT,
            num_hidden_layers=2,
        ),
        *big_bird(
            "rescaled-without-bias",
            "BigBirdModel",
            ranks=LIGHT,
            num_hidden_layers=2,
            block_size=3,
            num_random_blocks=2,
            rescale_embeddings=True,
            use_bias=False,
            hidden_act="relu",
        ),
        *big_bird("full", "BigBirdModel", ranks=LIGHT, num_hidden_layers=2, attention_type="original_full"),
        *big_bird("causal", "BigBirdForCausalLM", is_decoder=True, attention_type="original_full"),
        *pegasus("all", "BigBirdPegasusForConditionalGeneration"),
        *pegasus(
            "light",
            "BigBirdPegasusModel BigBirdPegasusForSequenceClassification BigBirdPegasusForQuestionAnswering "
            "BigBirdPegasusForCausalLM",
            ranks=LIGHT,
        ),
        *pegasus(
            "unscaled-with-bias",
            "BigBirdPegasusModel",
            ranks=LIGHT,
            scale_embedding=False,
            use_bias=True,
            block_size=3,
            num_random_blocks=2,
            activation_function="relu",
        ),
    )
