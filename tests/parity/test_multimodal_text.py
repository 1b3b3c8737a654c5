# SPDX-License-Identifier: Apache-2.0
"""The text of checkpoints that read images too: images are refused, and what plans are made of knows the text. Images
of any size that do not fit their patches, sizes or tokens are refused by name.
"""

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
    assert towers and all(name.startswith(cases_multimodal.tower_prefixes(case.model_type)) for name in towers)


def test_metadata_for_plans_counts_the_text_alone():
    done = worker.run("inspect", "--model", fixtures.checkpoint(CASES[0]), "--json")
    assert done.returncode == 0, done.stderr
    stored = load_file(fixtures.checkpoint(CASES[0]) / "model.safetensors")
    towers = cases_multimodal.tower_prefixes(CASES[0].model_type)
    text = [tensor.size for name, tensor in stored.items() if not name.startswith(towers)]
    assert json.loads(done.stdout)["parameters"] == sum(text)


def changed(name, value):
    return lambda given: given | {name: value}


def without(name):
    return lambda given: {key: value for key, value in given.items() if key != name}


def grid(*rows):
    return changed("image_grid_thw", numpy.array(rows))


def some_types(given):
    types = given["mm_token_type_ids"].copy()
    types[2] = 0
    return given | {"mm_token_type_ids": types}


QWEN, MISTRAL = "Qwen2_5_VLForConditionalGeneration-all", "Mistral3ForConditionalGeneration-all"


@pytest.mark.parametrize(
    "name, change, why",
    [
        (QWEN, without("image_grid_thw"), 'have "pixel_values" without "image_grid_thw"'),
        (QWEN, grid((1, 2, 6), (1, 2, 2)), "pixel_values has 40 patches, the images of image_grid_thw have 16"),
        (QWEN, grid((1, 3, 4), (1, 2, 2), (1, 6, 4)), "image_grid_thw has 1 x 3 x 4 patches in row 0"),
        (QWEN, grid((2, 2, 3), (1, 2, 2), (1, 6, 4)), "image_grid_thw has 2 x 2 x 3 patches in row 0"),
        (QWEN, grid((1, 2, -6), (1, 2, 2), (1, 6, 4)), "image_grid_thw has 1 x 2 x -6 patches in row 0"),
        (QWEN, grid((1, 2, 6, 1)), "image_grid_thw has the shape [1, 4], expected [images, 3]"),
        (QWEN, changed("pixel_values", numpy.zeros((40, 95), numpy.float32)), "expected [patches, 96]"),
        (QWEN, grid((1, 6, 4), (1, 2, 2), (1, 2, 6)), "mm_token_type_ids has 3 tokens of image 0 beside each other"),
        (QWEN, some_types, "mm_token_type_ids has 1 images, image_grid_thw has 3"),
        (MISTRAL, changed("image_sizes", numpy.array([[8, 16], [8, 8], [16, 12]])), "16 x 12 pixels in row 2"),
        (MISTRAL, changed("image_sizes", numpy.array([[8, 16], [8, 8], [16, 24]])), "16 x 24 pixels in row 2"),
        (MISTRAL, changed("image_sizes", numpy.array([[8, 16], [8, 8]])), "image_sizes has the shape [2, 2]"),
        (MISTRAL, without("image_sizes"), "pixel_values has 3 images of 12 tokens together"),
    ],
)
def test_images_of_any_size_that_do_not_fit_are_refused(runner, tmp_path, name, change, why):
    case = BY_NAME[name]
    given = change(inputs.make(case, "pictured"))
    save_file({key: numpy.ascontiguousarray(value) for key, value in given.items()}, tmp_path / "in.safetensors")
    job = {"model": str(fixtures.checkpoint(case)), "ranks": 1, "inputs": str(tmp_path / "in.safetensors")}
    answer = runner.batch.ask(job | {"outputs": str(tmp_path / "out.safetensors")})
    assert not answer["ok"] and why in answer["error"], answer
