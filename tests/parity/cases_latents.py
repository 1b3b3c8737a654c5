# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for families whose learned latents read the input, and are read by queries; cases.py collects them."""

import numpy

LIGHT = (2,)
# as in cases.py
SEEDS = {}
MODEL_TYPES = ("perceiver",)


def layers(case):
    """Returns the number of blocks, and of layers in each."""
    return case.settings["num_blocks"], case.settings["num_self_attends_per_block"]


def shown(case):
    """Returns the names of all hidden states and attentions: the state between two blocks is there twice."""
    blocks, inner = layers(case)
    names = {f"hidden_states.{i}" for i in range(blocks * (inner + 1))}
    return names | {f"attentions.{i}" for i in range(blocks * inner)} | {f"cross_attentions.{i}" for i in range(2)}


def blocks(case, model):
    """Returns transformers' layers in the order in which they run, by the name of our stack."""
    name = {
        "PerceiverForMaskedLM": "text",
        "PerceiverForSequenceClassification": "classified_text",
        "PerceiverForImageClassificationLearned": "learned_pixels",
        "PerceiverForImageClassificationFourier": "fourier_pixels",
        "PerceiverForImageClassificationConvProcessing": "convolved_pixels",
        "PerceiverForOpticalFlow": "flow_pixels",
    }[case.model_class]
    return {name: list(model.perceiver.encoder.self_attends) * layers(case)[0]}


def frames(case, images):
    """Two frames of each image, of each pixel the 3 x 3 around it in three colors."""
    shape = (images, 2, 27, *case.settings["train_size"])
    return numpy.random.default_rng(case.seed + 5).standard_normal(shape).astype(numpy.float32)


def cases(family):
    latents = {
        "d_latents": 30,
        "num_latents": 7,
        "num_blocks": 2,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": 5,
        "num_cross_attention_heads": 3,
        "self_attention_widening_factor": 2,
        "cross_attention_widening_factor": 3,
    }
    perceiver = family(
        "perceiver",
        "encoder",
        "PerceiverConfig",
        d_model=24,
        qk_channels=15,
        v_channels=30,
        vocab_size=101,
        max_position_embeddings=40,
        pad_token_id=3,
        eos_token_id=100,
        **latents,
    )
    of_images = family("perceiver", "vision", "PerceiverConfig", **latents, image_size=6)
    return (
        *perceiver("all", "PerceiverForMaskedLM PerceiverForSequenceClassification"),
        *perceiver(  # keys are wider than values, and the states of latents are those that read the input alone
            "wide-keys",
            "PerceiverForMaskedLM",
            ranks=LIGHT,
            num_blocks=1,
            qk_channels=60,
            use_query_residual=False,
            hidden_act="relu",
        ),
        *perceiver(  # widths of keys follow from those of the input
            "as-wide-as-the-input",
            "PerceiverForMaskedLM PerceiverForSequenceClassification",
            ranks=LIGHT,
            num_blocks=3,
            num_self_attends_per_block=1,
            qk_channels=None,
            v_channels=None,
        ),
        *perceiver(  # or of latents
            "as-wide-as-latents",
            "PerceiverForSequenceClassification",
            ranks=LIGHT,
            num_cross_attention_heads=1,
            cross_attention_shape_for_attention="q",
            qk_channels=None,
            v_channels=None,
        ),
        *perceiver("bf16", "PerceiverForSequenceClassification", ranks=LIGHT, dtype="bfloat16", num_blocks=1),
        *of_images("pixels", "PerceiverForImageClassificationLearned", num_cross_attention_heads=1),
        *of_images("pixels", "PerceiverForImageClassificationFourier", image_size=[9, 7]),
        *of_images(
            "one-row",
            "PerceiverForImageClassificationFourier",
            ranks=LIGHT,
            image_size=[1, 5],
            cross_attention_shape_for_attention="q",
            use_query_residual=False,
        ),
        *of_images(
            "pixels",
            "PerceiverForImageClassificationConvProcessing",
            ranks=LIGHT,
            image_size=[29, 22],
            num_cross_attention_heads=2,
        ),
        *of_images("pixels", "PerceiverForOpticalFlow", num_cross_attention_heads=2, train_size=[6, 5], num_blocks=1),
        *of_images(
            "as-wide-as-pixels",
            "PerceiverForOpticalFlow",
            ranks=LIGHT,
            num_cross_attention_heads=1,
            train_size=[5, 4],
            cross_attention_shape_for_attention="q",
        ),
    )
