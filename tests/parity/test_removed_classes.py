# SPDX-License-Identifier: Apache-2.0
"""Classes that transformers no longer has answer as they did in the last release that had them."""

import json
import pathlib

import numpy
import pytest
import removed_relative_keys
import removed_transfo_xl
import torch
import transformers
from safetensors import safe_open

RECORDED = pathlib.Path(__file__).parent / "recorded"


def recorded(file="transfo_xl.safetensors"):
    with safe_open(RECORDED / file, "pt") as file:
        return json.loads(file.metadata()["configs"]), {name: file.get_tensor(name) for name in file.keys()}


def of_case(name, tensors):
    return {key.removeprefix(f"{name}/"): value for key, value in tensors.items() if key.startswith(f"{name}/")}


@pytest.mark.parametrize("name", recorded()[0])
def test_two_segments_of_transformer_xl_are_answered_as_by_transformers_4_35(name):
    configs, tensors = recorded()
    tensors = of_case(name, tensors)
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


@pytest.mark.parametrize("name", recorded()[0])
def test_transformer_xl_generates_with_its_memory_as_in_transformers_4_35(name):
    configs, tensors = recorded()
    tensors = of_case(name, tensors)
    model = removed_transfo_xl.TransfoXLLMHeadModel(removed_transfo_xl.TransfoXLConfig(**configs[name])).eval()
    model.load_state_dict(
        {key.removeprefix("parameter."): tensors[key] for key in tensors if "parameter." in key}, False
    )
    ids = tensors["ids"]
    given = {"return_dict_in_generate": True, "output_scores": True, "pad_token_id": 0}
    greedy = model.generate(ids, max_new_tokens=14, do_sample=False, **given)
    assert greedy.sequences.tolist() == tensors["greedy"].tolist()
    numpy.testing.assert_allclose(torch.stack(greedy.scores), tensors["greedy.scores"], rtol=0, atol=2e-5)
    beams = model.generate(ids[:1], max_new_tokens=9, num_beams=3, num_return_sequences=2, pad_token_id=0)
    assert beams.tolist() == tensors["beams"].tolist()


@pytest.mark.parametrize("name", recorded("relative_keys.safetensors")[0])
def test_relative_position_keys_are_those_of_transformers_4_57(name):
    removed_relative_keys.put_back()
    configs, tensors = recorded("relative_keys.safetensors")
    tensors, (model_class, config_class, settings) = of_case(name, tensors), configs[name]
    config = getattr(transformers, config_class)(**settings, attn_implementation="eager")
    model = getattr(transformers, model_class)(config).eval()
    parameters = {key.removeprefix("parameter."): value for key, value in tensors.items() if "parameter." in key}
    found = model.load_state_dict(parameters, strict=False)
    assert not found.missing_keys and not found.unexpected_keys
    cached = {"use_cache": False} if settings.get("is_decoder") else {}
    given = {"attention_mask": tensors["mask"], "output_hidden_states": True, "output_attentions": True, **cached}
    with torch.no_grad():
        answer = model(tensors["ids"], **given)
    for key, value in (("last", answer.hidden_states[-1]), ("attention", answer.attentions[-1])):
        seen = tensors["mask"].bool()  # rows of padding have no meaning
        ours, wanted = (x if key == "last" else x.transpose(1, 2) for x in (value, tensors[key]))
        numpy.testing.assert_allclose(ours[seen], wanted[seen], rtol=0, atol=3e-6 * wanted.abs().max(), err_msg=key)
    if "greedy" in tensors:
        for use_cache in (False, True):  # here a cache changes nothing
            ids = model.generate(tensors["ids"][:1, :4], max_new_tokens=7, do_sample=False, use_cache=use_cache)
            assert ids.tolist() == tensors["greedy"].tolist()
