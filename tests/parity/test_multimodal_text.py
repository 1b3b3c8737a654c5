# SPDX-License-Identifier: Apache-2.0
"""The text of checkpoints that read images too: images are refused, and what plans are made of knows the text."""

import json

import cases_multimodal
import fixtures
import inputs
import numpy
import pytest
from cases import BY_NAME
from safetensors.numpy import load_file, save_file

import worker

CASES = [BY_NAME[f"{name}-all"] for name in ("LlavaNextForConditionalGeneration", "LlavaNextModel")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_request_with_an_image_is_refused(runner, tmp_path, case):
    given = inputs.make(case, "bare") | {"pixel_values": numpy.zeros((1, 3, 8, 8), numpy.float32)}
    save_file(given, tmp_path / "in.safetensors")
    job = {"model": str(fixtures.checkpoint(case)), "ranks": 1, "inputs": str(tmp_path / "in.safetensors")}
    answer = runner.batch.ask(job | {"outputs": str(tmp_path / "out.safetensors")})
    assert not answer["ok"]
    assert f'"pixel_values" is not an input of {case.model_class}' in answer["error"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_inspection_says_the_sizes_of_the_text_and_what_is_not_loaded(case):
    done = worker.run("inspect", "--model", fixtures.checkpoint(case))
    assert done.returncode == 0, done.stderr
    said, text = done.stdout, case.text
    assert f"{text['num_hidden_layers']} layers, hidden {text['hidden_size']}, heads 6 (kv 2)" in said
    assert f"vocabulary {text['vocab_size']}, positions {text['max_position_embeddings']}" in said
    towers = said.partition("not loaded:")[2].split()
    assert towers and all(name.startswith(cases_multimodal.TOWERS) for name in towers)


def test_metadata_for_plans_counts_the_text_alone():
    done = worker.run("inspect", "--model", fixtures.checkpoint(CASES[0]), "--json")
    assert done.returncode == 0, done.stderr
    stored = load_file(fixtures.checkpoint(CASES[0]) / "model.safetensors")
    text = [tensor.size for name, tensor in stored.items() if not name.startswith(cases_multimodal.TOWERS)]
    assert json.loads(done.stdout)["parameters"] == sum(text)
