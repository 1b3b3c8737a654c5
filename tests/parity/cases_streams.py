# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for families with two streams that attend to each other: a text and the regions of an image. Plain
data; cases.py collects them."""

LIGHT = (2,)
# as in cases.py
SEEDS = {}
MODEL_TYPES = ("lxmert",)


def cases(family):
    lxmert = family(
        "lxmert",
        "dual",
        "LxmertConfig",
        ("token_type_ids", "regions"),
        hidden_size=30,
        num_attention_heads=5,
        l_layers=3,
        r_layers=2,
        x_layers=3,
        intermediate_size=37,
        vocab_size=101,
        max_position_embeddings=80,
        type_vocab_size=3,
        visual_feat_dim=13,
        visual_pos_dim=5,
        num_qa_labels=7,
        num_object_labels=6,
        num_attr_labels=9,
        pad_token_id=3,
        bos_token_id=4,
        eos_token_id=100,
    )
    return (
        *lxmert("all", "LxmertModel LxmertForPreTraining"),
        *lxmert("light", "LxmertForQuestionAnswering", ranks=LIGHT, l_layers=2, r_layers=1, x_layers=2),
        *lxmert(  # an LM head of its own, no heads of regions
            "untied-relu",
            "LxmertForPreTraining",
            l_layers=1,
            r_layers=3,
            x_layers=1,
            hidden_act="relu",
            tie_word_embeddings=False,
            task_obj_predict=False,
            task_mask_lm=False,
            task_matched=False,
        ),
    )


def regions(case, kind, rows):
    """Features and boxes of regions of `rows` images. Masked ones, but for bare inputs and where padding of the text
    stands on the left."""
    import numpy

    if "regions" not in case.takes:
        return {}
    random, shape = numpy.random.default_rng(case.seed + 17), (rows, 6)
    found = {
        "visual_feats": random.standard_normal((*shape, case.settings["visual_feat_dim"])).astype(numpy.float32),
        "visual_pos": random.random((*shape, case.settings["visual_pos_dim"])).astype(numpy.float32),
    }
    if kind not in ("bare", "left"):
        found["visual_attention_mask"] = random.integers(0, 2, shape)
        found["visual_attention_mask"][:, 3] = 1
    return found


def rows_that_count(case, name, inputs):
    """As inputs.rows_that_count; False where the common rule decides."""
    if case.model_type not in MODEL_TYPES:
        return False
    if name.startswith("vision_"):
        return inputs.get("visual_attention_mask")
    mask = inputs.get("attention_mask")
    if name.startswith(("language_", "cross_encoder_")) or name == "prediction_logits":
        return mask
    return None if mask is None else mask[:, 0]  # of the first column, which may be padding


def stacks(case):
    """The layers of each stack."""
    return {
        f"{name}_": case.settings[f"{letter}_layers"]
        for name, letter in (("language", "l"), ("vision", "r"), ("cross_encoder", "x"))
    }


def shown(case):
    """The hidden states and attentions that transformers shows: not what the first layers read."""
    layers = stacks(case)
    return {
        f"{stream}hidden_states.{i}"
        for stream in ("language_", "vision_")
        for i in range(layers[stream] + layers["cross_encoder_"])
    } | {f"{stack}attentions.{i}" for stack, count in layers.items() for i in range(count)}


def blocks(base):
    """transformers' layers by the name of our stack."""
    encoder = base.encoder
    return {
        "language": list(encoder.layer),
        "vision": list(encoder.r_layers),
        "cross_encoder": list(encoder.x_layers),
    }
