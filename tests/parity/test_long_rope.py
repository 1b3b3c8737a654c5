# SPDX-License-Identifier: Apache-2.0
"""LongRoPE where sequences cross the original length: transformers computes the whole sequence again, by the factors of
long ones, and so do we. Each sequence goes by its own length, where transformers goes by the longest of a batch.
"""

import dataclasses
import json

import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
import torch
from cases import BY_NAME
from test_generate import check_answer

ORIGINAL = 20  # tokens


def crossing(name, original=ORIGINAL, **settings):
    """The case with an original length within that of its texts."""
    case = BY_NAME[name]
    changed = case.settings | {"original_max_position_embeddings": original} | settings
    if "original_max_position_embeddings" in changed["rope_parameters"]:
        changed["rope_parameters"] = {**changed["rope_parameters"], "original_max_position_embeddings": original}
    return dataclasses.replace(case, name=f"{case.name}-{original}", config=json.dumps(changed, sort_keys=True))


PHI3, PHIMOE = crossing("Phi3ForCausalLM-longrope-long"), crossing("PhimoeForCausalLM-longrope-long")
LENGTHS = (3, 16, 19, 20, 21, 33)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("case", [PHI3, PHIMOE], ids=lambda case: case.model_type)
def test_the_factors_are_those_of_the_length(runner, case, ranks):
    for row in inputs.prompts(case, LENGTHS, seed=4):
        given = {"input_ids": numpy.array([row])}
        compare.tensors(runner.forward(fixtures.checkpoint(case), ranks, given), oracle.forward(case, given))


def test_rows_of_a_batch_go_by_their_own_length(runner):
    rows = inputs.prompts(PHI3, (16, 33), seed=4)
    together = runner.forward(fixtures.checkpoint(PHI3), 2, inputs.padded(rows, "right"))["logits"]
    for i, row in enumerate(rows):
        alone = oracle.forward(PHI3, {"input_ids": numpy.array([row])})["logits"]
        compare.tensors({"logits": together[i : i + 1, : len(row)]}, {"logits": alone})


@pytest.mark.parametrize("ranks, sizes", [(1, {}), (3, {}), (2, {"strategy": "Pipeline", "sizes": "pipeline=2"})])
@pytest.mark.parametrize("case", [PHI3, PHIMOE], ids=lambda case: case.model_type)
def test_answers_that_cross_the_original_length_equal_transformers(runner, case, ranks, sizes):
    folder, rows = fixtures.checkpoint(case), inputs.prompts(case, LENGTHS, seed=6)
    together = runner.generate(folder, ranks, rows, max_new_tokens=24, do_sample=False, **sizes)
    for row, answer in zip(rows, together):
        check_answer(runner, case, folder, ranks, row, answer, **sizes)


def test_beams_that_cross_equal_transformers(runner):
    folder, row = fixtures.checkpoint(PHI3), inputs.prompts(PHI3, (15,), seed=8)[0]
    wanted = oracle.model(PHI3).generate(
        torch.tensor([row]), attention_mask=torch.ones(1, 15), max_new_tokens=12, num_beams=3, do_sample=False
    )
    assert runner.generate(folder, 2, [row], max_new_tokens=12, do_sample=False, num_beams=3) == wanted.tolist()


def test_samples_of_one_prompt_cross_together(runner):
    folder, row = fixtures.checkpoint(PHI3), inputs.prompts(PHI3, (15,), seed=8)[0]
    options = {"max_new_tokens": 12, "do_sample": True, "seed": 5}
    three = runner.generate(folder, 2, [row], num_return_sequences=3, **options)
    assert len(set(map(tuple, three))) == 3
    assert runner.generate(folder, 1, [row, row[:4]], num_return_sequences=3, **options)[:3] == three


def test_a_long_prompt_comes_in_chunks_that_know_its_length(runner):
    case = crossing("Phi3ForCausalLM-longrope-long", 600, max_position_embeddings=800)
    row = inputs.prompts(case, (640,), seed=9)[0]
    folder = fixtures.checkpoint(case)
    answer = runner.generate(folder, 2, [row], max_new_tokens=24, do_sample=False)[0]
    check_answer(runner, case, folder, 2, row, answer)
