# SPDX-License-Identifier: Apache-2.0
"""Inputs that a few classes have: masked patches, the token that scores a choice. What does not fit is refused, and
over HTTP the answers are those of a forward pass.
"""

import shutil

import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
from cases import BY_NAME
from safetensors.numpy import load_file, save_file
from server import Server, forward_body

MASKED, HALVES = (BY_NAME[f"ViTForMaskedImageModeling-{name}"] for name in ("masked", "halves"))
CHOICES, READER = BY_NAME["GPT2DoubleHeadsModel-choices"], BY_NAME["DPRReader-reader"]
_PATCHES = inputs.make(MASKED, "masked")
_ROWS = inputs.make(CHOICES, "right")


def _token(columns):
    return {**_ROWS, "mc_token_ids": numpy.array(columns)}


def refusal(runner, folder, case, given):
    save_file(given, folder / "in.safetensors")
    answer = runner.batch.ask(
        {
            "model": str(fixtures.checkpoint(case)),
            "ranks": 2,
            "sizes": "tensor=2",
            "inputs": str(folder / "in.safetensors"),
            "outputs": str(folder / "out.safetensors"),
        }
    )
    assert not answer["ok"], answer
    return answer["error"]


@pytest.mark.parametrize(
    "case, given, words",
    [
        (MASKED, {**_PATCHES, "bool_masked_pos": _PATCHES["bool_masked_pos"][:, 1:].copy()}, "expected [3, 16]"),
        (MASKED, {**_PATCHES, "bool_masked_pos": _PATCHES["bool_masked_pos"] * 2}, "other values than 0 and 1"),
        (
            HALVES,
            {**inputs.make(HALVES, "images"), "bool_masked_pos": numpy.zeros((3, 9), numpy.int64)},
            "patches of 4 x 6 pixels, and the model fills in squares of 2",
        ),
        (
            BY_NAME["ViTModel-all"],
            {**inputs.make(BY_NAME["ViTModel-all"], "images"), "bool_masked_pos": numpy.zeros((3, 16), numpy.int64)},
            '"bool_masked_pos" is not an input of ViTModel',
        ),
        (CHOICES, _token([[0, 0, 0]]), "mc_token_ids names 3 tokens, expected one for each of 6 rows"),
        (CHOICES, _token([[0, 0, 0], [0, 33, 0]]), "mc_token_ids has 33; columns of input_ids go from 0 to 32"),
        (CHOICES, _token([[4, 0, 0], [0, 0, 2]]), "row 5 of input_ids has padding in column 2, which mc_token_ids"),
        (
            CHOICES,
            {name: array for name, array in _ROWS.items() if name != "mc_token_ids"},
            "row 0 of input_ids has padding in column 32, the last one; name a token by mc_token_ids",
        ),
        (
            READER,
            {
                **inputs.make(READER, "bare"),
                "token_type_ids": numpy.zeros_like(inputs.make(READER, "bare")["input_ids"]),
            },
            '"token_type_ids" is not an input of DPRReader',
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused(runner, tmp_path, case, given, words):
    assert words in refusal(runner, tmp_path, case, given)


def test_rows_that_are_no_choices_have_one_score_each(runner):
    rows = {name: array.reshape(6, *array.shape[2:]) for name, array in _ROWS.items()}
    theirs = oracle.forward(CHOICES, _ROWS)
    ours = runner.forward(fixtures.checkpoint(CHOICES), 2, rows)
    compare.tensors({"mc_logits": ours["mc_logits"]}, {"mc_logits": theirs["mc_logits"].reshape(6)})


def test_a_checkpoint_without_a_mask_token_fills_in_images_that_are_not_masked(runner, tmp_path):
    shutil.copytree(fixtures.checkpoint(MASKED), tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["vit.embeddings.mask_token"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    bare = inputs.make(MASKED, "images")
    compare.tensors(runner.forward(tmp_path, 2, bare), oracle.forward(MASKED, bare), names=["reconstruction"])
    save_file(_PATCHES, tmp_path / "in.safetensors")
    answer = runner.batch.ask(
        {
            "model": str(tmp_path),
            "ranks": 1,
            "inputs": str(tmp_path / "in.safetensors"),
            "outputs": str(tmp_path / "out.safetensors"),
        }
    )
    assert not answer["ok"] and "the checkpoint has no mask_token" in answer["error"], answer


def test_each_named_token_and_each_mask_counts():
    """Else the comparisons would say little."""
    other = {**_ROWS, "mc_token_ids": numpy.zeros((2, 3), numpy.int64)}
    assert (oracle.forward(CHOICES, _ROWS)["mc_logits"] != oracle.forward(CHOICES, other)["mc_logits"]).sum() > 2
    bare = inputs.make(MASKED, "images")
    masked, whole = (oracle.forward(MASKED, given)["reconstruction"] for given in (_PATCHES, bare))
    assert masked.shape == bare["pixel_values"].shape and numpy.abs(masked - whole).max() > 0.1 * numpy.abs(whole).max()


@pytest.mark.parametrize("case, given, name", [(MASKED, _PATCHES, "reconstruction"), (CHOICES, _ROWS, "mc_logits")])
def test_over_http_the_outputs_are_those_of_transformers(case, given, name):
    server = Server(fixtures.checkpoint(case))
    try:
        found = server.ask("/forward", {**forward_body(given), "outputs": [name]})["outputs"]
        assert list(found) == [name]
        ours = numpy.array(found[name]["data"], numpy.float32)
        compare.tensors({name: ours}, {name: oracle.forward(case, given)[name]})
        assert "POST /forward" in server.refused("/classify", {"inputs": "text"}, 404)["message"]
    finally:
        server.close()
