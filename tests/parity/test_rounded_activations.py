# SPDX-License-Identifier: Apache-2.0
"""With precision I8A8 a model gives the results of transformers with weights of one scale for each row, whose products
read activations that are rounded to integers, with one scale for each token.

Rounding has steps: where sums in another order differ in the last bit, an integer may differ by one. So results are
held to be much nearer to that oracle than the oracle is to one without the rounding.
"""

import re

import fixtures
import inputs
import numpy
import oracle
import pytest
from test_codes import LAYER, WITHOUT_ROUTERS, of_case, quantized_case
from test_forward import places
from test_generate import rows_of

GENERATING = [case for case in WITHOUT_ROUTERS if case.generates and not case.decodes]


def rounded(x):
    """x with integers from -127 to 127 times the largest magnitude of a token / 127 in place of numbers."""
    largest = x.abs().amax(-1, keepdim=True)
    scale = largest.clamp(min=1e-30) / 127
    return (x * (127 / largest.clamp(min=1e-30))).round() * scale


def scores(case, given):
    """Scores of transformers with quantized weights and rounded activations."""
    import torch

    loaded = oracle.model.__wrapped__(quantized_case(case, "I8A8"))  # not the one that others share: it gets hooks
    hooked = 0
    for name, module in loaded.named_modules():
        if re.search(LAYER, f"{name}.weight") and getattr(module, "weight", torch.empty(0)).ndim == 2:
            module.register_forward_pre_hook(lambda _, positional: (rounded(positional[0]), *positional[1:]))
            hooked += 1
    assert hooked > 4
    with torch.no_grad():
        named = {name: torch.from_numpy(array) for name, array in given.items()}
        return loaded(**named, **({"use_cache": False} if case.generates else {})).logits.float().numpy()


def distance(case, given, a, b):
    """The root of the mean square of the difference of scores that are given."""
    keep = places(case, given)("logits").astype(bool)
    return float(numpy.sqrt(((a[keep].astype(numpy.float64) - b[keep]) ** 2).mean()))


def ours(runner, case, given, ranks=1, **layout):
    return runner.forward(fixtures.checkpoint(case), ranks, given, precision="I8A8", **layout)["logits"]


ONE_CUT = {
    "alone": (1, {}),
    "pipeline": (2, {"sizes": "pipeline=2"}),
    "sharded": (2, {"strategy": "Sharded", "sizes": "data=2"}),
    "offload": (1, {"strategy": "Offload", "sizes": "data=1"}),
}


@pytest.mark.parametrize("layout", ONE_CUT)
@pytest.mark.parametrize("case", WITHOUT_ROUTERS, ids=of_case)
def test_scores_are_those_of_transformers_with_rounded_activations(runner, case, layout):
    given = inputs.make(case, inputs.kinds(case)[0])
    ranks, how = ONE_CUT[layout]
    found, exact = ours(runner, case, given, ranks, **how), scores(case, given)
    weights_alone = oracle.forward(quantized_case(case, "I8A8"), given)["logits"]
    off, of_rounding = distance(case, given, found, exact), distance(case, given, weights_alone, exact)
    print(f"{case.name}: {off:.6f} from the oracle, whose activations' rounding moves scores by {of_rounding:.6f}")
    assert off < 0.25 * of_rounding


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("case", WITHOUT_ROUTERS, ids=of_case)
def test_ranks_that_round_their_own_inputs_are_as_near_to_the_original_weights(runner, case, ranks):
    """Columns of a rank have scales of their own, and so do its activations: the errors are others, not larger."""
    given = inputs.make(case, inputs.kinds(case)[0])
    exact = oracle.forward(case, given)["logits"]
    alone = distance(case, given, ours(runner, case, given), exact)
    together = distance(case, given, ours(runner, case, given, ranks, sizes=f"tensor={ranks}"), exact)
    print(f"{case.name}: {together:.5f} on {ranks} ranks, {alone:.5f} on one")
    assert 0 < together < 1.3 * alone


@pytest.mark.parametrize("case", WITHOUT_ROUTERS, ids=of_case)
def test_scores_do_not_depend_on_company(runner, case):
    """A scale belongs to a token: one for the whole of x would move scores by as much as the rounding does."""
    given = inputs.make(case, inputs.kinds(case)[0])
    together = ours(runner, case, given)
    exact = oracle.forward(quantized_case(case, "I8A8"), given)["logits"]
    for row in range(len(together)):
        alone_given = {name: array[row : row + 1] for name, array in given.items()}
        alone = ours(runner, case, alone_given)
        own = slice(row, row + 1)
        of_rounding = distance(case, alone_given, together[own], exact[own])
        assert distance(case, alone_given, alone, together[own]) < 0.25 * of_rounding


@pytest.mark.parametrize("case", GENERATING, ids=of_case)
def test_a_token_that_is_decoded_has_the_scores_that_it_has_in_a_prompt(runner, case):
    folder, rows = fixtures.checkpoint(case), rows_of(case)[:3]
    answers = runner.generate(folder, 1, rows, precision="I8A8", max_new_tokens=24, do_sample=False)
    for row, answer in zip(rows, answers, strict=True):
        given = {
            "input_ids": numpy.array([answer[:-1]]),
            "attention_mask": numpy.ones((1, len(answer) - 1), numpy.int64),
        }
        following = ours(runner, case, given)[0, len(row) - 1 :]
        chosen = following[numpy.arange(len(answer) - len(row)), answer[len(row) :]]
        assert (following.max(1) - chosen <= 0.01 * following.std()).all()
