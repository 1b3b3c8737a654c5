# SPDX-License-Identifier: Apache-2.0
"""Mutations of the models of cases_audio.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "Wav2Vec2ForCTC-all",
            ("input.convolutions", "channels shifted", m.rolled(r"conv_layers\.1\.conv\.weight", 1)),
            ("convolutions.kernel", "turned round", m.tensors(r"conv_layers\.2\.conv\.weight", lambda t: t[..., ::-1])),
            ("convolutions.stride", "of the first, five", m.config(conv_stride=[5, 2, 2]), "bare"),
            ("convolutions.norm", "weight dropped", m.ones(r"conv_layers\.0\.layer_norm\.weight")),
            (
                "convolutions.norm_over_time",
                "over channels",
                m.policy("norm_over_time: \"frame_norm == 'group'\"", "norm_over_time: false"),
            ),
            ("norm.eps", "that of the layers", m.policy("eps: 1e-5, when", "eps: 0.1, when")),
            (
                "convolutions.act",
                "tanh",
                m.policy("        act: frame_act\n      norm:", "        act: tanh\n      norm:"),
            ),
            ("input.norm", "weight dropped", m.ones(r"feature_projection\.layer_norm\.weight")),
            ("input.projection", "bias dropped", m.dropped(r"feature_projection\.projection\.bias")),
            ("input.position", "gone", m.dropped(r"pos_conv_embed\.conv\.(parametrizations\.weight\.original0|bias)")),
            ("position.convolution", "bias dropped", m.dropped(r"pos_conv_embed\.conv\.bias")),
            ("position.convolution", "turned round", m.tensors(r"weight\.original1", lambda t: t[..., ::-1])),
            ("convolution.gain", "ones", m.ones(r"weight\.original0")),
            ("convolution.gain", "of the next tap", m.rolled(r"weight\.original0", 2)),
            ("convolution.act", "relu", m.policy("          act: frame_act\n", "          act: relu\n")),
            ("convolution.norm", "weight dropped", m.ones(r"encoder\.layer_norm\.weight")),
            ("layer.order", "norms before", m.policy("\"stable ? 'pre' : 'post'\"", "pre")),
            ("head.logits", "bias dropped", m.dropped(r"lm_head\.bias")),
        ),
        *of(
            "Wav2Vec2Model-stable",
            ("output.norm", "weight dropped", m.ones(r"encoder\.layer_norm\.weight")),
            ("output.states", "normed", m.policy(", states: raw}", "}"), "", ("hidden_states.3",)),
            (
                "convolutions.norm",
                "of time",
                m.policy("norm_over_time: \"frame_norm == 'group'\"", "norm_over_time: true"),
            ),
        ),
        *of(
            "Wav2Vec2ForSequenceClassification-mixed",
            ("head.layer_weights", "dropped", m.dropped(r"^layer_weights")),
            ("head.pool", "the first frame", m.policy("pool: mean", "pool: first")),
            ("head.dense", "bias dropped", m.dropped(r"projector\.bias")),
        ),
        *of(
            "Wav2Vec2ForXVector-speaker",
            ("head.time_delay", "shifted", m.rolled(r"tdnn\.1\.kernel\.weight", 1)),
            ("time_delay.linear", "bias dropped", m.dropped(r"tdnn\.0\.kernel\.bias")),
            ("time_delay.dilation", "neighbours", m.config(tdnn_dilation=[1, 1, 1])),
            (
                "time_delay.vector",
                "mean and deviation change places",
                m.blocks_swapped(r"^feature_extractor\.weight", 2, 0, 1, 1),
            ),
            ("time_delay.classes", "bias dropped", m.dropped(r"^classifier\.bias")),
            (
                "head.output",
                "each has the other's name",
                m.policy("output: [logits, embeddings]", "output: [embeddings, logits]"),
            ),
        ),
        *of(
            "Wav2Vec2ForPreTraining-codes",
            ("head.codebook", "other scores", m.rolled(r"quantizer\.weight_proj\.weight")),
            ("codebook.states", "bias dropped", m.dropped(r"project_hid\.bias")),
            ("codebook.scores", "bias dropped", m.dropped(r"quantizer\.weight_proj\.bias")),
            ("codebook.entries", "shifted", m.rolled(r"quantizer\.codevectors", 1)),
            ("codebook.quantized", "bias dropped", m.dropped(r"project_q\.bias")),
        ),
        *of(
            "HubertForSequenceClassification-batch-norm",
            ("convolution.batch_norm", "mean dropped", m.dropped(r"batch_norm\.running_mean")),
            ("convolution.batch_norm", "variance one", m.ones(r"batch_norm\.running_var")),
            ("convolution.batch_norm", "weight one", m.ones(r"batch_norm\.weight")),
            ("convolution.batch_norm", "bias dropped", m.dropped(r"batch_norm\.bias")),
        ),
        *of(
            "Speech2TextForConditionalGeneration-all",
            ("convolutions.gated", "both halves change places", m.blocks_swapped(r"conv_layers\.1\.", 2, 0, 1)),
            (
                "convolutions.padding",
                "none",
                m.policy('padding: "(conv_kernel_sizes[l] ?? 5) // 2"', "padding: 0"),
                "bare",
            ),
            ("input.scale", "one", m.config(scale_embedding=False)),
            ("position.sinusoidal", "paper", m.policy("sinusoidal: tensor2tensor", "sinusoidal: paper")),
            (
                "position.offset",
                "one less",
                m.policy('offset: "(pad_token_id ?? 1) + 1"', 'offset: "(pad_token_id ?? 1)"'),
            ),
            ("output.norm", "of the encoder, bias dropped", m.dropped(r"encoder\.layer_norm\.bias")),
            ("cross.source", "dropped", m.dropped(r"encoder_attn\.out_proj\.weight")),
        ),
        *of(
            "WhisperForConditionalGeneration-all",
            ("convolutions.act", "relu", m.policy("act: gelu", "act: relu")),
            ("convolutions.stride", "of both, one", m.policy('stride: "l + 1"', "stride: 1")),
            ("position.learned", "shifted", m.rolled(r"encoder\.embed_positions\.weight", 0)),
            ("head.logits", "shifted", m.rolled(r"decoder\.embed_tokens\.weight", 0)),
        ),
        *of(
            "WhisperForAudioClassification-mixed",
            ("head.layer_weights", "dropped", m.dropped(r"^layer_weights")),
            ("head.dense", "bias dropped", m.dropped(r"projector\.bias")),
        ),
        *of(  # a model that generates needs its mask
            "Speech2TextModel-light",
            ("attn.mask", "full", m.policy("attn: {mask: causal}", "attn: {mask: full}")),
        ),
    )
