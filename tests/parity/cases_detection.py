# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for models that detect objects in images; cases.py collects them. Images have odd sizes, and are
padded by different amounts, so that cells of their last row and column are partly padding."""

LIGHT = (2,)
# as in cases.py
SEEDS = {}
MODEL_TYPES = ("detr",)
# by what parameters with these endings are divided: the sums of residual blocks grow from stage to stage, and
# scores of cells with them
SMALLER = {"convolution.weight": 1.5, "input_projection.weight": 12, "self_attn.q_proj.weight": 2}
_FEATURES = ["stage1", "stage2", "stage3", "stage4"]


def _resnet(**settings):
    return {
        "model_type": "resnet",
        "embedding_size": 6,
        "hidden_sizes": [8, 12, 12, 20],
        "depths": [1, 2, 1, 2],
        "layer_type": "bottleneck",
        "out_features": ["stage4"],
        **settings,
    }


def cases(family):
    detr = family(
        "detr",
        "encoder-decoder",
        "DetrConfig",
        d_model=60,
        encoder_attention_heads=5,
        decoder_attention_heads=6,
        encoder_layers=2,
        decoder_layers=3,
        encoder_ffn_dim=37,
        decoder_ffn_dim=43,
        num_queries=7,
        num_labels=5,
        backbone_config=_resnet(),
    )
    return (
        *detr("all", "DetrForObjectDetection"),
        *detr("light", "DetrModel", ranks=LIGHT),
        *detr(  # ResNets of 18 and 34 layers, which begin with a stride here
            "basic-blocks",
            "DetrForObjectDetection",
            ranks=LIGHT,
            activation_function="gelu",
            backbone_config=_resnet(layer_type="basic", downsample_in_first_stage=True, hidden_act="gelu"),
        ),
        *detr(
            "learned-positions",
            "DetrForObjectDetection",
            position_embedding_type="learned",
            backbone_config=_resnet(downsample_in_bottleneck=True, num_channels=2),
        ),
        *detr(
            "masks",
            "DetrForSegmentation",
            d_model=32,
            encoder_attention_heads=8,
            decoder_attention_heads=4,
            num_queries=11,
            backbone_config=_resnet(out_features=_FEATURES),
        ),
    )


def blocks(model):
    """transformers' layers by the name of our stack."""
    base = next(module for module in model.modules() if type(module).__name__ == "DetrModel")
    return {name: list(getattr(base, name).layers) for name in ("encoder", "decoder")}


def heads(attention):
    return attention.q_proj.out_features // attention.head_dim


def images(case, kind):
    """Three images of one size, of which two are padded; bare ones have no mask."""
    import numpy

    height, width = 70, 50
    shape = (3, case.settings["backbone_config"].get("num_channels", 3), height, width)
    found = {"pixel_values": numpy.random.default_rng(case.seed + 5).standard_normal(shape).astype(numpy.float32)}
    if kind == "bare":
        return found
    mask = numpy.ones((3, height, width), numpy.int64)
    mask[0, 41:] = mask[0, :, 37:] = mask[2, :, 23:] = 0
    return {**found, "pixel_mask": mask}


def rows_that_count(case, name, inputs):
    """As in inputs.py; False for models of other kinds. Cells of the encoder that are no padding."""
    import numpy

    if case.model_type not in MODEL_TYPES:
        return False
    if not name.startswith("encoder_") or "pixel_mask" not in inputs:
        return None
    mask, halvings = inputs["pixel_mask"], 5
    if case.settings["backbone_config"].get("downsample_in_first_stage"):
        halvings += 1
    sides = []
    for size in mask.shape[1:]:
        cells = size
        for _ in range(halvings):
            cells = (cells + 1) // 2
        sides.append(numpy.floor(numpy.arange(cells) * numpy.float32(size / cells)).astype(numpy.int64))
    return mask[:, sides[0][:, None], sides[1][None]].reshape(len(mask), -1)
