# SPDX-License-Identifier: Apache-2.0
"""Attention to some of the keys equals transformers however the layers lie on ranks, and with beams."""

import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
from cases import BY_NAME
from test_forward import places
from test_generate import COUNT, check_answer, rows_of

NAMES = (
    "LongformerModel-all",
    "LEDForConditionalGeneration-all",
    "BigBirdForQuestionAnswering-light",
    "BigBirdPegasusForConditionalGeneration-all",
)
LAYOUTS = [
    {"sizes": "pipeline=2"},
    {"sizes": "data=2"},
    {"strategy": "Sharded", "sizes": "data=3"},
    {"strategy": "Offload", "sizes": "data=1"},
]


def ranks_of(layout):
    return int(layout["sizes"].rpartition("=")[2])


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: "-".join(layout.values()))
@pytest.mark.parametrize("name", NAMES)
def test_all_outputs_equal_those_of_transformers(runner, name, layout):
    """Bare inputs of Longformer have no global tokens: their weights are gathered all the same. Attentions are as wide
    as the most global tokens of any row, which parts of a batch do not know of each other."""
    case = BY_NAME[name]
    for kind in ("right", "bare"):
        given = inputs.make(case, kind)
        found = runner.forward(fixtures.checkpoint(case), ranks_of(layout), given, attentions=False, **layout)
        theirs = oracle.forward(case, given)
        names = [name for name in theirs if "attentions." not in name]
        compare.tensors(found, theirs, places(case, given), names)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: "-".join(layout.values()))
@pytest.mark.parametrize("name", [name for name in NAMES if BY_NAME[name].generates])
def test_greedy_tokens_equal_those_of_transformers(runner, name, layout):
    case = BY_NAME[name]
    folder, rows, ranks = fixtures.checkpoint(case), rows_of(case), ranks_of(layout)
    together = runner.generate(folder, ranks, rows, max_new_tokens=COUNT, do_sample=False, **layout)
    for row, answer in zip(rows, together, strict=True):
        check_answer(runner, case, folder, ranks, row, answer, **layout)


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("name", [name for name in NAMES if BY_NAME[name].generates])
def test_beams_equal_those_of_transformers(runner, name, ranks):
    case = BY_NAME[name]
    row = rows_of(case)[-1]
    wanted = oracle.beams(case, row, 8, num_beams=3, num_return_sequences=3)
    assert wanted["gap"] > compare.NEAR_TIE, "choose another prompt"
    found = runner.generate(
        fixtures.checkpoint(case), ranks, [row], max_new_tokens=8, num_beams=3, num_return_sequences=3
    )
    assert found == wanted["sequences"]


@pytest.mark.parametrize("name", ["LongformerModel-all", "BigBirdForQuestionAnswering-light"])
def test_a_row_does_not_depend_on_the_padding_of_others(runner, name):
    """The window and the blocks of a row are those of its own columns; the last block is that of the batch."""
    case = BY_NAME[name]
    folder, given = fixtures.checkpoint(case), inputs.make(case, "right")
    longest = int(given["attention_mask"].sum(1).argmax())
    alone = {key: array[longest : longest + 1] for key, array in given.items()}
    together, one = runner.forward(folder, 1, given), runner.forward(folder, 1, alone)
    for key in ("last_hidden_state", "start_logits", "hidden_states.2"):
        if key in together:
            assert numpy.abs(together[key][longest] - one[key][0]).max() < 1e-5
