# SPDX-License-Identifier: Apache-2.0
"""Classes that transformers no longer has answer as they did in the last release that had them."""

import json
import pathlib

import numpy
import pytest
import removed_transfo_xl
import torch
from safetensors import safe_open

RECORDED = pathlib.Path(__file__).parent / "recorded" / "transfo_xl.safetensors"


def recorded():
    with safe_open(RECORDED, "pt") as file:
        return json.loads(file.metadata()["configs"]), {name: file.get_tensor(name) for name in file.keys()}


@pytest.mark.parametrize("name", recorded()[0])
def test_two_segments_of_transformer_xl_are_answered_as_by_transformers_4_35(name):
    configs, tensors = recorded()
    tensors = {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}
    model = removed_transfo_xl.TransfoXLLMHeadModel(removed_transfo_xl.TransfoXLConfig(**configs[name])).eval()
    parameters = {key.removeprefix("parameter."): value for key, value in tensors.items() if "parameter." in key}
    found = model.load_state_dict(parameters, strict=False)
    assert not found.missing_keys and set(found.unexpected_keys) <= {"transformer.pos_emb.inv_freq"}
    mems = None
    for part, segment in enumerate(tensors["ids"].split([6, 5], 1)):
        with torch.no_grad():
            answer = model(segment, mems=mems, output_hidden_states=True, output_attentions=True)
        mems = answer.mems
        wanted = {key.removeprefix(f"{part}."): value for key, value in tensors.items() if key.startswith(f"{part}.")}
        assert len(wanted) == 1 + 3 + 2 + (2 if configs[name]["mem_len"] else 0)
        for key, value in wanted.items():
            kind, _, number = key.partition(".")
            ours = answer[kind][int(number)] if number else answer[kind]
            numpy.testing.assert_allclose(ours, value, rtol=0, atol=2e-6 * max(1, value.abs().max()), err_msg=key)
