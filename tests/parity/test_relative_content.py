# SPDX-License-Identifier: Apache-2.0
"""Distances of relative positions, and the taps of a convolution, are those of columns: tokens keep them where what
lies between is masked."""

import dataclasses

import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
from cases import BY_NAME
from test_forward import places
from test_generate import COUNT, check_answer

CASES = [
    "BertForMaskedLM-relative-key-query",
    "AlbertForMaskedLM-relative-key-query",
    "DebertaForMaskedLM-all",
    "DebertaV2Model-convolution",
    "DebertaV2Model-convolution-in-groups",
    "XLNetLMHeadModel-all",
]


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_masked_columns_between_tokens_keep_their_distance(runner, name, ranks):
    case = BY_NAME[name]
    given = inputs.make(case, "left")
    given["attention_mask"][:, -4:-1] = 0
    found = runner.forward(fixtures.checkpoint(case), ranks, given)
    compare.tensors(found, oracle.forward(case, given), places(case, given))
    closed = {**given, "attention_mask": inputs.make(case, "left")["attention_mask"]}
    with pytest.raises(compare.Difference):
        compare.tensors(
            runner.forward(fixtures.checkpoint(case), ranks, closed), oracle.forward(case, given), places(case, given)
        )


VECTORS = ["BertForMaskedLM-relative-key-query", "AlbertForMaskedLM-relative-key-query"]


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", VECTORS)
def test_sixteen_bit_error_of_relative_keys_is_within_that_of_transformers(runner, name, dtype, ranks):
    case = dataclasses.replace(BY_NAME[name], name=f"{name}-{dtype}", dtype=dtype)
    given = inputs.make(case, inputs.kinds(case)[0])
    theirs = oracle.forward(case, given)
    names = [name for name, tensor in theirs.items() if "attentions." not in name and tensor.size > 1000]
    ours = runner.forward(fixtures.checkpoint(case), ranks, given)
    compare.sixteen_bit(ours, oracle.forward(case, given, dtype), theirs, names, places(case, given))


@pytest.mark.parametrize("name", VECTORS)
def test_a_text_as_long_as_the_positions_reads_the_farthest_distances(runner, name):
    case = BY_NAME[name]
    given = {"input_ids": numpy.array(inputs.prompts(case, [case.settings["max_position_embeddings"]] * 2))}
    found = runner.forward(fixtures.checkpoint(case), 2, given)
    compare.tensors(found, oracle.forward(case, given))


def test_prompts_in_parts_read_the_distances_of_the_whole_sequence(runner):
    """A step has 512 tokens; the prompts have more, so that some begin in one step and end in the next."""
    case = BY_NAME["BertLMHeadModel-relative-key-query"]
    folder, rows = fixtures.checkpoint(case), inputs.prompts(case, [37, 51, 44] * 5, seed=6)
    together = runner.generate(folder, 2, rows, max_new_tokens=COUNT, do_sample=False)
    for row, answer in zip(rows[:6] + rows[-3:], together[:6] + together[-3:], strict=True):
        check_answer(runner, case, folder, 2, row, answer)
