# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_latents.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    reader, query, last = r"encoder\.cross_attention\.", r"decoding_cross_attention\.", r"self_attends\.1\."
    return (
        *of(
            "PerceiverForMaskedLM-all",
            ("input.token", "rows shifted", m.rolled(r"preprocessor\.embeddings\.weight")),
            ("input.position", "shifted by one", m.rolled(r"preprocessor\.position_embeddings\.weight")),
            ("input.latents", "shifted", m.rolled(r"embeddings\.latents", 1)),
            ("latents.attn", "dropped", m.dropped(reader + r"attention\.output\.dense\.weight")),
            ("latents.mlp", "dropped", m.dropped(reader + r"mlp\.dense2\.weight")),
            ("latents.adds_queries", "they are not", m.config(use_query_residual=False)),
            ("attn.source_norm", "bias dropped", m.dropped(reader + r"attention\.self\.layernorm2\.bias")),
            ("attn.heads", "one", m.config(num_cross_attention_heads=1)),
            (
                "layer.repeats_state",
                "never",
                m.policy("l > 0 and l % inner == 0", "l < 0"),
                "right",
                ("hidden_states.3",),
            ),
            ("layers", "each twice in a row", m.policy("{l % inner}", "{l // inner}")),
            ("attn.norm", "bias dropped", m.dropped(last + r"attention\.self\.layernorm1\.bias")),
            ("attn.q", "two heads change places", m.blocks_swapped(last + r"attention\.self\.query", 5, 0, 4)),
            ("attn.k", "two heads change places", m.blocks_swapped(last + r"attention\.self\.key", 5, 0, 4)),
            ("attn.v", "bias dropped", m.dropped(last + r"attention\.self\.value\.bias")),
            ("attn.out", "bias dropped", m.dropped(last + r"attention\.output\.dense\.bias")),
            ("mlp.norm", "weight dropped", m.ones(last + r"layernorm\.weight")),
            ("mlp.up", "columns shifted", m.rolled(last + r"mlp\.dense1\.weight")),
            ("mlp.down", "bias dropped", m.dropped(last + r"mlp\.dense2\.bias")),
            ("mlp.act", "relu", m.config(hidden_act="relu")),
            ("output.latent_queries", "shifted by one", m.rolled(r"output_position_encodings\.position_embeddings")),
            (
                "latent_queries.attn",
                "two heads change places",
                m.blocks_swapped(query + r"attention\.self\.key", 8, 0, 7),
            ),
            ("latent_queries.mlp", "bias dropped", m.dropped(query + r"mlp\.dense1\.bias")),
            ("latent_queries.adds_queries", "they are", m.policy("adds_queries: false", "adds_queries: true", 2)),
            ("head.logits", "bias dropped", m.dropped(r"embedding_decoder\.bias")),
            ("eps", "that of config.json", m.policy("eps: 1e-5", "eps: 0.1")),
        ),
        *of(
            "PerceiverForSequenceClassification-all",
            ("head.classes", "shifted", m.rolled(r"final_layer\.weight")),
        ),
        *of(
            "PerceiverForImageClassificationLearned-pixels",
            ("input.pixels", "bias dropped", m.dropped(r"convnet_1x1\.bias")),
            ("pixels.kernel", "colors change places", m.rolled(r"convnet_1x1\.weight", 1)),
            ("pixels.positions", "shifted by one", m.rolled(r"preprocessor\.position_embeddings")),
            ("pixels.position_projection", "bias dropped", m.dropped(r"positions_projection\.bias")),
            ("head.pool", "of all latents", m.dropped(r"decoding_cross_attention\.attention\.self\.query\.bias")),
        ),
        *of(
            "PerceiverForImageClassificationFourier-pixels",
            ("pixels.fourier", "of half the size", m.policy("resolution: 224", "resolution: 112")),
            ("fourier.resolution", "of a row", m.policy("resolution: 224", 'resolution: "[224, 112]"')),
        ),
        *of(
            "PerceiverForImageClassificationConvProcessing-pixels",
            ("pixels.convolution", "shifted", m.rolled(r"convnet\.conv\.weight", 2)),
            ("convolution.kernel", "dropped", m.dropped(r"convnet\.conv\.weight")),
            ("convolution.batch_norm", "mean dropped", m.dropped(r"batchnorm\.running_mean")),
            ("convolution.stride", "one", m.policy("stride: 2", "stride: 1")),
        ),
        *of(
            "PerceiverForOpticalFlow-pixels",
            ("pixels.projection", "bias dropped", m.dropped(r"conv_after_patches\.bias")),
            ("pixels.frames", "change places", m.blocks_swapped(r"conv_after_patches\.weight", 2, 0, 1, 1)),
            ("fourier.resolution", "another one", m.policy("fourier: {resolution: size}", "fourier: {resolution: 7}")),
            ("classes.divisor", "one", m.policy("divisor: 100", "divisor: 1")),
            ("classes.per_pixel", "in one row", m.policy("per_pixel: true", "per_pixel: false")),
        ),
    )
