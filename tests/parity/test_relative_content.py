# SPDX-License-Identifier: Apache-2.0
"""Distances of relative positions, and the taps of a convolution, are those of columns: tokens keep them where what
lies between is masked."""

import compare
import fixtures
import inputs
import oracle
import pytest
from cases import BY_NAME
from test_forward import places

CASES = [
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
