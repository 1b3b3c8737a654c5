# SPDX-License-Identifier: Apache-2.0
"""On a GPU the error of 16-bit results against Hugging Face's fp32 is hardly more than that of Hugging Face's own 16
bits (compare.sixteen_bit), in forward passes and, as far as tokens show it, in decoding."""

import dataclasses

import compare
import fixtures
import machine
import numpy
import oracle
import pytest
from cases import OF_KINDS
from test_devices import KERNELS, test_the_cuda_kernels_decode_in_16_bits_what_the_cpu_decodes  # noqa: F401
from test_generate import rows_of
from test_model_kinds import (
    test_sixteen_bit_error_is_within_that_of_transformers as error_is_within_that_of_transformers,
)

CASES = list({case.name: case for case in (*OF_KINDS, *KERNELS)}.values())
DTYPES = ["bfloat16", "float16"]
COUNT = 4 if machine.REHEARSAL else 12  # tokens; the emulation is slow


class WithoutAttentions:
    """Requests no attention weights, so that the kernels compute attention and not ATen."""

    def __init__(self, runner):
        self.runner = runner

    def forward(self, *arguments, **options):
        return self.runner.forward(*arguments, attentions=False, **options)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_error_is_within_that_of_transformers(device, case, dtype, ranks):
    error_is_within_that_of_transformers(device, case, dtype, ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_error_of_the_cuda_kernels_is_within_that_of_transformers(kernels, case, dtype, ranks):
    error_is_within_that_of_transformers(WithoutAttentions(kernels), case, dtype, ranks)


def near_tie(case, dtype, begin, sequence):
    """Returns how near two scores of the sequence's tokens from `begin` on have to be for an error within the rule to
    swap them, which moves both: in standard deviations of the logits."""
    given = {"input_ids": numpy.array([sequence]), "attention_mask": numpy.ones((1, len(sequence)), numpy.int64)}
    exact, rounded = (
        oracle.forward(case, given, of)["logits"][0, begin - 1 : -1].astype(numpy.float64) for of in ("float32", dtype)
    )
    return 2 * 2 * numpy.abs(rounded - exact).max() / exact.std(1).min()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", KERNELS[:4], ids=lambda case: case.name)
def test_greedy_tokens_are_those_of_fp32_where_the_error_within_the_rule_leaves_no_choice(kernels, case, dtype, ranks):
    case = dataclasses.replace(case, name=f"{case.name}-{dtype}", dtype=dtype)
    folder, ties, tokens = fixtures.checkpoint(case), 0, 0

    def generate(prompt, left):
        return kernels.generate(folder, ranks, [prompt], max_new_tokens=left, do_sample=False)[0]

    for row in rows_of(case)[:3]:
        wanted = oracle.greedy(case, row, COUNT)
        ties += compare.greedy(generate, row, wanted, near_tie(case, dtype, len(row), wanted["sequence"]))
        tokens += len(wanted["gaps"])
    assert ties < tokens / 4, "with many near-ties equal tokens would prove little"
