# SPDX-License-Identifier: Apache-2.0
"""On a GPU precision I8 gives the results of transformers with the same weights after quantizing. The rule, the models
and the tests are those of tests/parity/test_codes.py."""

import pytest
from test_codes import CASES
from test_codes import (
    test_greedy_tokens_are_those_of_transformers_with_the_quantized_weights as greedy_tokens_are_those_of_transformers,
)
from test_codes import test_quantizing_to_int8_changes_scores_by_little as quantizing_changes_scores_by_little
from test_codes import (
    test_states_and_scores_are_those_of_transformers_with_the_quantized_weights as states_and_scores_equal_those,
)
from test_devices import (  # noqa: F401
    test_int8_weights_are_on_the_device,
    test_the_cuda_kernels_decode_int8_as_the_processor_does,
    test_the_cuda_kernels_decode_int8_of_a_16_bit_checkpoint_as_the_processor_does,
)


@pytest.mark.parametrize("layout", ["tensor=1", "tensor=2", "tensor=3", "pipeline=2"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_states_and_scores_are_those_of_transformers_with_the_quantized_weights(device, case, layout):
    states_and_scores_equal_those(device, case, "I8", layout)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_quantizing_changes_scores_by_little(device, case):
    quantizing_changes_scores_by_little(device, case)


@pytest.mark.parametrize("layout", ["tensor=1", "tensor=3", "data=2"])
@pytest.mark.parametrize("case", [case for case in CASES if case.generates], ids=lambda case: case.name)
def test_greedy_tokens_are_those_of_transformers_with_the_quantized_weights(device, case, layout):
    greedy_tokens_are_those_of_transformers(device, case, "I8", layout)
