# SPDX-License-Identifier: Apache-2.0
"""Inputs of models that read audio, and which rows of their outputs count; inputs.py uses them."""

import numpy


def frames(case, lengths):
    """The numbers of frames that the convolutions make of these lengths."""
    settings, counts = case.settings.get("encoder", case.settings), numpy.asarray(lengths)
    if case.model_type == "speech_to_text":
        for _ in range(settings.get("num_conv_layers", 2)):
            counts = (counts - 1) // 2 + 1
        return counts
    for taps, stride in zip(settings["conv_kernel"], settings["conv_stride"], strict=True):
        counts = (counts - taps) // stride + 1
    return counts


def audio(case, kind):
    """right: rows of several lengths, with what is no silence behind them. bare: rows of one length and no mask."""
    settings, random = case.settings, numpy.random.default_rng(case.seed + 11)
    lengths = numpy.array(case.lengths if kind == "right" else case.lengths[:1] * 2)
    shape = (len(lengths), max(lengths))
    if case.model_type == "speech_to_text":
        shape += (settings["input_feat_per_channel"] * settings.get("input_channels", 1),)
    if case.model_type == "whisper":
        shape = (shape[0], settings["num_mel_bins"], shape[1])
    name = "input_features" if len(shape) == 3 else "input_values"
    found = {name: random.standard_normal(shape).astype(numpy.float32)}
    if kind == "right":
        found["attention_mask"] = (numpy.arange(max(lengths)) < lengths[:, None]).astype(numpy.int64)
    return found


def rows_that_count(case, name, given):
    """As inputs.rows_that_count, for outputs of what reads audio."""
    if name.startswith(("decoder_", "cross_attentions")) or (case.decodes and name in ("logits", "last_hidden_state")):
        return given.get("decoder_attention_mask")
    whole = case.model_class.endswith(("XVector", "PreTraining"))  # which read what stands behind the audio too
    whole = whole or case.model_type == "whisper"  # which reads no mask
    if "attention_mask" not in given or whole or name == "codevector_perplexity":
        return None
    if name == "logits" and case.one_per_row:
        return None
    mask = given["attention_mask"]
    return (numpy.arange(frames(case, mask.shape[1])) < frames(case, mask.sum(1))[:, None]).astype(numpy.int64)
