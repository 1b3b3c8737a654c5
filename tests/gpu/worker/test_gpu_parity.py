# SPDX-License-Identifier: Apache-2.0
"""On a GPU models give the fp32 results of the CPU: ranks as threads, up to three on one GPU, through the in-process
communicator.

The tests are those of the fake device (tests/parity/test_devices.py), whose fixtures mean a GPU here, and some that are
too slow for the fake device or cannot fail on it.
"""

import dataclasses
import json

import compare
import fixtures
import inputs
import oracle
import pytest
from device_fixtures import answering
from test_devices import (  # noqa: F401
    CASES,
    KERNELS,
    decoded,
    test_gathered_weights_say_what_transformers_says,
    test_greedy_tokens_equal_those_of_transformers,
    test_hidden_states_and_outputs_equal_those_of_transformers,
    test_replayed_cuda_graphs_decode_what_the_cpu_decodes,
    test_steps_that_cannot_be_captured_are_not,
    test_the_cuda_kernels_decode_what_the_cpu_decodes,
    test_the_devices_sampler_draws_what_the_processors_does,
)
from test_forward import places
from test_generate import COUNT, rows_of
from test_generate import (
    test_options_of_greedy_decoding_act_as_in_transformers_alone_and_beside_others as options_of_greedy_decoding_act,
)
from test_generate import (
    test_sampled_tokens_depend_on_the_seed_and_on_nothing_else as sampled_tokens_depend_on_the_seed,
)


def said_by_kernels(kernels, case, ranks, kind):
    """Requests no attention weights, because ATen computes them and not the kernels."""
    given = inputs.make(case, kind)
    expected = {name: values for name, values in oracle.forward(case, given).items() if "attentions." not in name}
    compare.tensors(
        kernels.forward(fixtures.checkpoint(case), ranks, given, attentions=False), expected, places(case, given)
    )


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_cuda_kernels_say_what_transformers_says(kernels, case, ranks):
    said_by_kernels(kernels, case, ranks, inputs.kinds(case)[0])


# sizes that libraries have their fastest products for, and more rows than our own product takes
ALIGNED = dataclasses.replace(
    KERNELS[1],
    name="LlamaForCausalLM-aligned",
    config=json.dumps(
        {
            **KERNELS[1].settings,
            "hidden_size": 256,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 32,
            "intermediate_size": 512,
            "vocab_size": 256,
            "eos_token_id": 255,
        },
        sort_keys=True,
    ),
)


@pytest.mark.parametrize("ranks", [1, 2])
def test_fp32_has_no_tf32_in_it_whatever_the_environment_says(hardware, tmp_path, ranks):
    """Some container images enable TF32 by this variable. Products of 10 bits are off by 50 times the tolerance."""
    with answering(hardware, tmp_path, kernels=True, TORCH_ALLOW_TF32_CUBLAS_OVERRIDE="1") as kernels:
        said_by_kernels(kernels, ALIGNED, ranks, "right")


def test_sampled_tokens_and_beams_are_those_of_the_cpu(device, runner):
    folder, rows = fixtures.checkpoint(KERNELS[1]), rows_of(KERNELS[1])
    for options in ({"do_sample": True, "seed": 7, "num_return_sequences": 3}, {"num_beams": 3}):
        assert device.generate(folder, 1, rows, max_new_tokens=COUNT, **options) == runner.generate(
            folder, 1, rows, max_new_tokens=COUNT, **options
        )


@pytest.mark.parametrize(
    "name", ["GPT2LMHeadModel-inverse-layer-scale", "LlamaForCausalLM-all", "T5ForConditionalGeneration-all"]
)
def test_sampled_tokens_depend_on_the_seed_and_on_nothing_else(device, name):
    sampled_tokens_depend_on_the_seed(device, name)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("name", ["GPT2LMHeadModel-all", "LlamaForCausalLM-all", "T5ForConditionalGeneration-all"])
def test_options_of_greedy_decoding_act_as_in_transformers_alone_and_beside_others(device, name, ranks):
    options_of_greedy_decoding_act(device, name, ranks)


@pytest.fixture(scope="module")
def uncaptured(hardware, tmp_path_factory):
    with answering(hardware, tmp_path_factory.mktemp("tensors"), "--no-graphs", kernels=True, graphs=True) as runner:
        yield runner


def test_capturable_steps_are_captured_and_others_are_not(captured, uncaptured):
    """Without this check equal tokens would prove nothing."""
    for runner, wanted in ((captured, True), (uncaptured, False)):
        decoded(runner, KERNELS[1])
        assert runner.batch.says("captured the CUDA graph of a decode step", patience=5 if wanted else 0) == wanted


@pytest.mark.parametrize(
    "case, precision",
    [*((case, "F32") for case in KERNELS[:4]), (KERNELS[1], "F16"), (KERNELS[1], "BF16"), (KERNELS[1], "I8")],
    ids=lambda value: getattr(value, "name", value),
)
def test_replayed_cuda_graphs_decode_what_others_decode(captured, uncaptured, case, precision):
    assert decoded(captured, case, precision=precision) == decoded(uncaptured, case, precision=precision)
