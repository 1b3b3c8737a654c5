# SPDX-License-Identifier: Apache-2.0
"""With `precision: I4` a checkpoint of symmetric codes of four bits keeps these codes: products are those of code *
scale, which the dense type of the checkpoint rounds; CPUs that multiply bf16 numbers round it again. Other checkpoints
are quantised again."""

import json
import shutil

import numpy
import pytest
import stored_formats as formats
import torch
from safetensors.torch import load_file, save_file
from test_codes import dequantized
from test_stored_formats import TOKENS, formula_weights, pair, sources  # noqa: F401 (fixtures)

CODES = {  # the scales of a matrix as the checkpoint stores them, [out, groups]
    "compressed-int4-group": lambda stored, module: stored[f"{module}.weight_scale"],
    "compressed-int4-channel": lambda stored, module: stored[f"{module}.weight_scale"],
}
LAYOUTS = {
    "one": dict(ranks=1),
    "tensor": dict(ranks=2),
    "tensor-3": dict(ranks=3),
    "pipeline": dict(ranks=2, sizes="pipeline=2"),
    "sharded": dict(ranks=2, strategy="Sharded", sizes="data=2"),
    "offload": dict(ranks=1, strategy="Offload", offload_to="File", sizes="data=1"),
}


def dense_twin(stored, dense, decoded, target, dtype="float32"):
    """A dense checkpoint of `decoded(parts, module, w)`, with an LM head as I4 has it, which is I8."""
    target.mkdir()
    for path in dense.iterdir():
        if path.suffix == ".json":
            shutil.copy(path, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"dtype": dtype}))
    parts, weights = load_file(stored / "model.safetensors"), load_file(dense / "model.safetensors")
    for name, w in weights.items():
        w, module = w.float(), name.removesuffix(".weight")
        if name == "lm_head.weight":
            w = torch.from_numpy(dequantized(w.numpy(), 32))
        elif f"{module}.weight_packed" in parts or f"{module}.qweight" in parts:
            w = decoded(parts, module, w)
        weights[name] = w.to(getattr(torch, dtype)).contiguous()
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target


def code_times(scales_of):
    def decoded(parts, module, w):
        scale = scales_of(parts, module).float()
        scale = scale.repeat_interleave(w.shape[1] // scale.shape[1], 1)
        codes = (w / scale).round()
        assert codes.min() >= -8 and codes.max() <= 7 and codes.unique().numel() == 16
        return codes * scale

    return decoded


def quantised_again(parts, module, w):
    return torch.from_numpy(dequantized(w.numpy(), 32, 4))


def off(ours, wanted):
    """The largest difference of scores, as a share of the largest score."""
    return max(numpy.abs(ours[key] - wanted[key]).max() / numpy.abs(wanted[key]).max() for key in wanted)


@pytest.fixture(scope="module")
def twins(pair, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("exact")
    return {
        (name, dtype): dense_twin(*pair(name), code_times(scales), folder / f"{name}-{dtype}", dtype)
        for name, scales in CODES.items()
        for dtype in ("float32", "bfloat16")
    }


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CODES)
def test_codes_and_scales_stay_those_of_the_checkpoint(pair, twins, runner, name, layout):  # noqa: F811
    stored, _ = pair(name)
    ours = runner.forward(stored, inputs=TOKENS, precision="I4", **LAYOUTS[layout])
    exact = runner.forward(twins[name, "float32"], inputs=TOKENS, precision="F32", ranks=1)
    rounded = runner.forward(twins[name, "bfloat16"], inputs=TOKENS, precision="BF16", ranks=1)
    # products in fp32, and on CPUs with AVX2 of activations as integers of 16 bits; or where the CPU has them in bf16
    assert off(ours, exact) < 1e-3 or off(ours, rounded) < 1e-4


def test_scales_of_f16_are_rounded_to_bf16_and_their_codes_stay(sources, runner, tmp_path):  # noqa: F811
    values = {}
    quantise, config = formats.gptq(symmetric=True, values=values)
    source, stored = sources("llama"), tmp_path / "stored"
    formats.write(source, stored, lambda name, w: quantise(name, 1.003 * w), config)  # scales that BF16 does not have
    dense = formula_weights(source, values, tmp_path / "dense")
    ours = runner.forward(stored, inputs=TOKENS, precision="I4", ranks=2)
    exact, again = (
        runner.forward(dense_twin(stored, dense, decoded, tmp_path / name), inputs=TOKENS, precision="F32", ranks=1)
        for name, decoded in (
            ("exact", code_times(lambda parts, module: parts[f"{module}.scales"].T)),
            ("again", quantised_again),
        )
    )
    assert 1e-5 < off(ours, exact) < off(again, exact) / 4


def test_codes_with_zero_points_are_quantised_again(pair, runner):  # noqa: F811
    stored, dense = pair("compressed-int4-asymmetric")
    ours = runner.forward(stored, inputs=TOKENS, precision="I4", ranks=1)
    twin = runner.forward(dense, inputs=TOKENS, precision="I4", ranks=1)
    assert all(numpy.array_equal(ours[key], twin[key]) for key in ours)
    assert off(ours, runner.forward(dense, inputs=TOKENS, precision="F32", ranks=1)) > 0.02
