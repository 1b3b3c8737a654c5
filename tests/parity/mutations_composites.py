# SPDX-License-Identifier: Apache-2.0
"""Mutations of the composites of cases_composites.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "EncoderDecoderModel-roberta2gpt2",
            (
                "cross.kv",
                "keys and values change places",
                m.blocks_swapped(r"h\.2\.crossattention\.c_attn", 2, 0, 1, -1),
            ),
            ("cross.kv", "bias dropped", m.dropped(r"h\.2\.crossattention\.c_attn\.bias")),
            ("cross.q", "bias dropped", m.dropped(r"h\.2\.crossattention\.q_attn\.bias")),
            ("cross.out", "bias added twice", m.twice(r"h\.2\.crossattention\.c_proj\.bias")),
            ("cross.norm", "weight dropped", m.ones(r"h\.2\.ln_cross_attn\.weight")),
            ("compose.projection", "bias dropped", m.dropped(r"enc_to_dec_proj\.bias")),
            ("compose.projection", "columns shifted", m.rolled(r"enc_to_dec_proj\.weight", 1)),
            ("compose.encoder", "another epsilon", m.config(encoder__layer_norm_eps=1e-5)),
            (
                "compose.decoder",
                "scores of all layers scaled alike",
                m.config(decoder__scale_attn_by_inverse_layer_idx=False),
            ),
        ),
        *of(
            "VisionEncoderDecoderModel-vit2gpt2",
            ("compose.projection", "columns shifted", m.rolled(r"enc_to_dec_proj\.weight", 1)),
            ("compose.encoder", "another epsilon", m.config(encoder__layer_norm_eps=0.1)),
            ("compose.decoder", "another activation", m.config(decoder__activation_function="relu")),
            ("input.patches", "columns change places", m.tensors(r"projection\.weight", lambda t: t[..., ::-1])),
            ("cross.out", "bias added twice", m.twice(r"h\.2\.crossattention\.c_proj\.bias")),
        ),
        *of(
            "SpeechEncoderDecoderModel-wav2vec2-stable2bart",
            (
                "compose.states",
                "those before the projection",
                m.policy("states: projected", "states: own"),
                "",
                ("encoder_last_hidden_state",),
            ),
            ("compose.projection", "bias dropped", m.dropped(r"enc_to_dec_proj\.bias")),
            ("compose.encoder", "norms behind the blocks", m.config(encoder__do_stable_layer_norm=False)),
            ("compose.decoder", "another activation", m.config(decoder__activation_function="relu")),
            ("convolutions.kernel", "turned round", m.tensors(r"layers\.2\.conv\.weight", lambda t: t[..., ::-1])),
        ),
        *of(
            "EncoderDecoderModel-bert2bert",
            ("compose.encoder", "as many heads as the decoder", m.config(encoder__num_attention_heads=9)),
            ("compose.encoder", "a causal mask", m.config(encoder__is_decoder=True)),
            ("compose.decoder", "another activation", m.config(decoder__hidden_act="relu")),
            ("input.tables", "types of the decoder shifted", m.rolled(r"decoder\.bert\.embeddings\.token_type")),
            (
                "cross.norm",
                "that of the attention itself",
                m.swapped("crossattention.output.LayerNorm", "attention.output.LayerNorm"),
            ),
        ),
        *of(
            "EncoderDecoderModel-bert-generation-seven-heads-untied",
            (
                "cross.k",
                "two heads change places",
                m.blocks_swapped(r"decoder\..*layer\.2\.crossattention\.self\.key\.weight", 7, 1, 3),
            ),
            ("cross.v", "bias dropped", m.dropped(r"decoder\..*layer\.2\.crossattention\.self\.value\.bias")),
        ),
    )
