# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for families whose layers read a memory; cases.py collects them."""

import numpy

LIGHT = (2,)
# as in cases.py
SEEDS = {"TransfoXLLMHeadModel-all": 10038, "TransfoXLLMHeadModel-no-memory": 9038}
MODEL_TYPES = ("transfo-xl",)
_TRANSFO_XL = {
    "d_model": 30,
    "d_embed": 30,
    "n_head": 5,
    "d_head": 8,
    "d_inner": 37,
    "n_layer": 3,
    "vocab_size": 101,
    "cutoffs": [23, 54],
    "div_val": 2,
    "tie_projs": [False, True, False],
    "mem_len": 7,
    "clamp_len": 4,
    "layer_norm_epsilon": 1e-3,
    "pad_token_id": 3,
    "eos_token_id": 100,
}


def memory(case, kind, rows):
    """The memories of all layers, where this kind gives them: [rows, length, width], as the worker takes them."""
    if case.model_type not in MODEL_TYPES or kind != "given":
        return {}
    settings, random = case.settings, numpy.random.default_rng(case.seed + 17)
    shape = (rows, settings["mem_len"], settings["d_model"])
    return {f"mems.{i}": random.standard_normal(shape).astype(numpy.float32) for i in range(settings["n_layer"])}


def cases(family):
    rows = family("transfo-xl", "encoder", "TransfoXLConfig", ("memory",), **_TRANSFO_XL)
    none = family("transfo-xl", "encoder", "TransfoXLConfig", (), **_TRANSFO_XL)
    return (
        *rows("all", "TransfoXLLMHeadModel"),
        *rows("light", "TransfoXLModel TransfoXLForSequenceClassification", ranks=LIGHT, pre_lnorm=True, untie_r=False),
        *rows("whole-memory", "TransfoXLModel", ranks=LIGHT, same_length=False, clamp_len=-1),
        *rows("whole-memory", "TransfoXLLMHeadModel", ranks=LIGHT, speaks=False, same_length=False, n_layer=1),
        *none(  # one cluster, which is projected too
            "no-memory",
            "TransfoXLLMHeadModel",
            ranks=LIGHT,
            d_embed=20,
            cutoffs=[],
            tie_projs=[False],
            mem_len=0,
            same_length=False,
            tie_word_embeddings=False,
        ),
    )
