# SPDX-License-Identifier: Apache-2.0
"""What is read out of Nsight Compute's output, on launches like those of a model of two layers."""

import ncu
import pytest

LAYER = ["gemv_kernel", "rotary_kernel", "decode_kernel", "gemv_kernel"]


def launches(*names):
    return [{"Kernel Name": f"void pm::ops::cuda::(anonymous namespace)::{name}<float, 1>(Gemv)"} for name in names]


@pytest.mark.parametrize("attention", ["decode_kernel", "decode_mma_kernel"])
def test_one_step_is_found_between_the_attention_of_two_steps(attention):
    layer = [name.replace("decode_kernel", attention) for name in LAYER]
    step = [*layer, *layer, "sample_kernel"]
    found = ncu.one_step(launches("load_kernel", "prefill_kernel", *step, *step, *step), layers=2)
    assert sorted(ncu.short(row["Kernel Name"]) for row in found) == sorted(f"{name}<float, 1>" for name in step)


def test_too_few_steps_are_an_error():
    with pytest.raises(SystemExit, match="two steps of 2 layers"):
        ncu.one_step(launches(*LAYER, *LAYER), layers=2)


def test_cases_that_are_profiled_exist():
    import run

    names = (run.REPOSITORY / "bench/gpu_kernels").glob("cases*.cpp")
    source = "".join(path.read_text() for path in names)
    for case in ncu.CASES:
        assert case.split()[0] in source
