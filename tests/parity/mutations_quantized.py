# SPDX-License-Identifier: Apache-2.0
"""Mutations of the cases of cases_quantized.py; collected by mutations.py."""

import numpy

_LAST = r"layer\.2\."


def _with_one_scale(matrix):
    """A matrix in integers whose scale is that of all rows."""
    scale = numpy.abs(matrix).max() / 127
    return (numpy.round(matrix / scale) * scale).astype(numpy.float32)


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""

    def twice(name):
        return m.twice(name + r"\.x_(min|max)")

    def narrow(name):
        return m.tensors(name + r"\.x_(min|max)", lambda bound: bound / 100)

    def shifted(name):
        return m.tensors(name + r"LayerNorm\.shift", lambda shift: shift + 5)

    return of(
        "IBertForMaskedLM-quantized",
        ("input.quantized", "in floating point", m.config(quant_mode=False)),
        ("quantized.sum", "of the input: twice as wide", twice("embeddings_act1")),
        ("quantized.sum", "of attention: too narrow", narrow(_LAST + r"attention\.output\.ln_input_act")),
        ("quantized.sum", "of the MLP: too narrow", narrow(_LAST + r"output\.ln_input_act")),
        ("quantized.output", "of the input: twice as wide", twice(r"embeddings\.output_activation")),
        ("quantized.output", "of attention: twice as wide", twice(_LAST + r"attention\.output\.output_activation")),
        ("quantized.output", "of the MLP: twice as wide", twice(_LAST + r"output\.output_activation")),
        (
            "quantized.output",
            "of the MLP: by its smallest value",
            m.dropped(_LAST + r"output\.output_activation\.x_max"),
        ),
        ("quantized.shift", "of the input: five more", shifted(r"embeddings\.")),
        ("quantized.shift", "of attention: five more", shifted(_LAST + r"attention\.output\.")),
        ("quantized.shift", "of the MLP: five more", shifted(_LAST + r"output\.")),
        ("quantized.shift", "norms in floating point", m.config(force_dequant="layernorm")),
        (
            "attn.quantized",
            "ranges of the layer before",
            m.swapped("layer.2.attention.self.output_activation", "layer.1.attention.self.output_activation"),
        ),
        ("attn.out", "one scale for all rows", m.tensors(_LAST + r"attention\.output\.dense\.weight", _with_one_scale)),
        ("quantized.query", "twice as wide", twice(_LAST + r"attention\.self\.query_activation")),
        ("quantized.key", "twice as wide", twice(_LAST + r"attention\.self\.key_activation")),
        ("quantized.value", "twice as wide", twice(_LAST + r"attention\.self\.value_activation")),
        ("quantized.heads", "twice as wide", twice(_LAST + r"attention\.self\.output_activation")),
        (
            "quantized.exponents",
            "too narrow",
            m.tensors(_LAST + r"attention\.self\.softmax\.act\.x_max", lambda bound: bound / 3),
        ),
        ("quantized.exponents", "a softmax in floating point", m.config(force_dequant="softmax")),
        (
            "mlp.quantized",
            "ranges of the layer before",
            m.swapped("layer.2.intermediate.output_activation", "layer.1.intermediate.output_activation"),
        ),
        ("mlp.down", "one scale for all rows", m.tensors(_LAST + r"output\.dense\.weight", _with_one_scale)),
        ("mlp.up", "one scale for all rows", m.tensors(_LAST + r"intermediate\.dense\.weight", _with_one_scale)),
        ("quantized.input", "twice as wide", twice(_LAST + "pre_intermediate_act")),
        ("quantized.activation", "twice as wide", twice(_LAST + r"intermediate\.output_activation")),
        ("quantized.float_activation", "true", m.config(force_dequant="gelu")),
        ("quantized.down", "twice as wide", twice(_LAST + "pre_output_act")),
    )
