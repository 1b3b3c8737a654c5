# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for models that read audio; cases.py collects them. Lengths are samples, or frames of filter banks;
one of them gives one frame.
"""

LIGHT = (2,)
SEEDS = {
    "Wav2Vec2ForSequenceClassification-mixed": 1760,
    "Speech2TextForConditionalGeneration-three-convolutions-unscaled": 3504,
}
MODEL_TYPES = ("wav2vec2", "hubert", "speech_to_text", "speech-encoder-decoder", "whisper")
SAMPLES = (275, 23, 90, 260, 531)
_SPOKEN = (275, 150, 90, 260, 531)  # with as many frames as a time delay network needs
_FRAMES = (34, 1, 16, 33, 67)
_SPECTROGRAMS = (40, 1, 16, 33, 25)  # of which the masks say so; all have the length of the longest
WAV2VEC2 = {
    "hidden_size": 30,
    "num_attention_heads": 5,
    "num_hidden_layers": 3,
    "intermediate_size": 37,
    "vocab_size": 41,
    "conv_dim": [12, 14, 10],
    "conv_kernel": [7, 3, 2],
    "conv_stride": [4, 2, 2],
    "num_conv_pos_embeddings": 6,
    "num_conv_pos_embedding_groups": 3,
    "layer_norm_eps": 1e-3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WHISPER = {
    "d_model": 30,
    "encoder_attention_heads": 5,
    "decoder_attention_heads": 6,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 43,
    "vocab_size": 101,
    "max_source_positions": 20,
    "max_target_positions": 80,
    "num_mel_bins": 11,
    "classifier_proj_size": 11,
    "bos_token_id": 2,
    "pad_token_id": 2,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
    "begin_suppress_tokens": None,
}
_SPEAKERS = {
    "tdnn_dim": [9, 8, 11],
    "tdnn_kernel": [3, 2, 1],
    "tdnn_dilation": [1, 3, 1],
    "xvector_output_dim": 13,
}
_CODES = {
    "num_codevectors_per_group": 7,
    "num_codevector_groups": 2,
    "codevector_dim": 8,
    "proj_codevector_dim": 6,
}


def cases(family):
    wav2vec2 = family("wav2vec2", "encoder", "Wav2Vec2Config", **WAV2VEC2)
    hubert = family("hubert", "encoder", "HubertConfig", **WAV2VEC2)
    speech = family(
        "speech_to_text",
        "encoder-decoder",
        "Speech2TextConfig",
        d_model=30,
        encoder_attention_heads=5,
        decoder_attention_heads=6,
        encoder_layers=2,
        decoder_layers=3,
        encoder_ffn_dim=37,
        decoder_ffn_dim=43,
        vocab_size=101,
        max_source_positions=80,
        max_target_positions=80,
        conv_channels=14,
        input_feat_per_channel=11,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
    )
    whisper = family("whisper", "encoder-decoder", "WhisperConfig", **WHISPER)
    spectrograms = family("whisper", "encoder", "WhisperConfig", **WHISPER)
    stable = {"do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True}
    return (
        *wav2vec2("all", "Wav2Vec2ForCTC Wav2Vec2Model", lengths=SAMPLES),
        *wav2vec2("stable", "Wav2Vec2ForCTC Wav2Vec2Model", lengths=SAMPLES, **stable),
        *wav2vec2(
            "light",
            "Wav2Vec2ForSequenceClassification Wav2Vec2ForAudioFrameClassification",
            ranks=LIGHT,
            lengths=SAMPLES,
            num_hidden_layers=2,
            classifier_proj_size=11,
        ),
        *wav2vec2("speaker", "Wav2Vec2ForXVector", ranks=LIGHT, lengths=_SPOKEN, num_hidden_layers=2, **_SPEAKERS),
        *wav2vec2("codes", "Wav2Vec2ForPreTraining", ranks=LIGHT, lengths=SAMPLES, num_hidden_layers=2, **_CODES),
        *wav2vec2(
            "mixed",
            "Wav2Vec2ForSequenceClassification Wav2Vec2ForAudioFrameClassification",
            ranks=(3,),
            lengths=SAMPLES,
            classifier_proj_size=11,
            use_weighted_layer_sum=True,
            **stable,
        ),
        *wav2vec2(
            "mixed-speaker",
            "Wav2Vec2ForXVector",
            ranks=(3,),
            lengths=_SPOKEN,
            num_hidden_layers=2,
            use_weighted_layer_sum=True,
            **stable,
            **_SPEAKERS,
        ),
        *wav2vec2(
            "seven-heads-odd-taps-relu",
            "Wav2Vec2ForCTC",
            ranks=LIGHT,
            lengths=SAMPLES,
            hidden_size=35,
            num_attention_heads=7,
            num_hidden_layers=1,
            num_conv_pos_embeddings=5,
            num_conv_pos_embedding_groups=7,
            feat_extract_activation="relu",
            hidden_act="relu",
            mask_time_prob=0.0,
        ),
        *hubert("all", "HubertForCTC", lengths=SAMPLES),
        *hubert("no-norm-stable", "HubertModel", ranks=LIGHT, lengths=SAMPLES, feat_proj_layer_norm=False, **stable),
        *hubert(
            "batch-norm",
            "HubertForSequenceClassification",
            ranks=LIGHT,
            lengths=SAMPLES,
            num_hidden_layers=2,
            classifier_proj_size=11,
            conv_pos_batch_norm=True,
            use_weighted_layer_sum=True,
        ),
        *speech("all", "Speech2TextForConditionalGeneration", lengths=_FRAMES),
        *speech("light", "Speech2TextModel", ranks=LIGHT, lengths=_FRAMES, encoder_layers=1, decoder_layers=1),
        *speech(
            "three-convolutions-unscaled",
            "Speech2TextForConditionalGeneration",
            ranks=LIGHT,
            lengths=_FRAMES,
            encoder_layers=1,
            decoder_layers=1,
            num_conv_layers=3,
            conv_kernel_sizes=[3, 5, 1],
            input_channels=2,
            scale_embedding=False,
            activation_function="gelu",
            pad_token_id=4,
        ),
        *whisper("all", "WhisperForConditionalGeneration", lengths=_SPECTROGRAMS),
        *whisper(
            "light",
            "WhisperModel",
            ranks=LIGHT,
            lengths=_SPECTROGRAMS,
            encoder_layers=1,
            decoder_layers=1,
            activation_function="relu",
            tie_word_embeddings=False,
        ),
        *spectrograms("classes", "WhisperForAudioClassification", ranks=LIGHT, lengths=_SPECTROGRAMS),
        *spectrograms(
            "mixed",
            "WhisperForAudioClassification",
            ranks=(3,),
            lengths=_SPECTROGRAMS,
            use_weighted_layer_sum=True,
        ),
    )


def blocks(model):
    """transformers' layers in the order in which they run, by the name of our stack."""
    base = model.base_model
    return {name: list(getattr(base, name).layers) for name in ("encoder", "decoder") if hasattr(base, name)}
