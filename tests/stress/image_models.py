# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints that detect objects, one with their masks, and pictures for them."""

import fixtures
import numpy
import torch
import transformers
from PIL import Image
from small_models import SEED

SIDES = {"shortest_edge": 60, "longest_edge": 90}


def settings(**more):
    return {
        "d_model": 60,
        "encoder_attention_heads": 5,
        "decoder_attention_heads": 6,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 37,
        "decoder_ffn_dim": 43,
        "num_queries": 7,
        "id2label": {i: f"kind {i}" for i in range(5)},
        "label2id": {f"kind {i}": i for i in range(5)},
        "backbone_config": {
            "model_type": "resnet",
            "embedding_size": 6,
            "hidden_sizes": [8, 12, 12, 20],
            "depths": [1, 1, 1, 1],
            "out_features": ["stage4"],
        },
        **more,
    }


def written(folder, model_class, config):
    torch.manual_seed(SEED)
    model = getattr(transformers, model_class)(transformers.DetrConfig(**config)).eval()
    fixtures.refill(model, SEED)
    model.save_pretrained(folder)
    transformers.DetrImageProcessorPil(size=SIDES).save_pretrained(folder)
    return folder


def detector(folder):
    """DETR with a small ResNet."""
    return written(folder, "DetrForObjectDetection", settings())


def segmenter(folder):
    """DETR with masks, which read the features of all stages."""
    backbone = settings()["backbone_config"] | {"out_features": [f"stage{i}" for i in range(1, 5)]}
    config = settings(d_model=32, encoder_attention_heads=8, decoder_attention_heads=4, backbone_config=backbone)
    return written(folder, "DetrForSegmentation", config)


def picture(seed, width=140, height=70):
    pixels = numpy.random.default_rng(seed).integers(0, 256, (height // 10, width // 10, 3), dtype=numpy.uint8)
    return Image.fromarray(pixels).resize((width, height))
