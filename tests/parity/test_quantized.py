# SPDX-License-Identifier: Apache-2.0
"""Models that compute in integers, beside what every case of parity is tested for (cases_quantized.py): their results
do not depend on the layout, and what makes no integers of transformers is refused.
"""

import json
import re
import shutil

import fixtures
import inputs
import numpy
import pytest
from cases import BY_NAME
from safetensors.numpy import load_file, save_file

import worker

CASE = BY_NAME["IBertForMaskedLM-quantized"]
LAYOUTS = [
    *((ranks, {"sizes": f"tensor={ranks}"}) for ranks in (2, 3, 4)),
    (2, {"sizes": "pipeline=2"}),
    (3, {"sizes": "data=3", "strategy": "Sharded"}),
    (1, {"sizes": "data=1", "strategy": "Offload"}),
]


def test_hidden_states_are_equal_in_every_layout(runner):
    """Bit for bit: integers add up to the same sums in any order. What heads make of them in floating point may not."""
    folder, given = fixtures.checkpoint(CASE), inputs.make(CASE, "left")
    alone = runner.forward(folder, 1, given)
    states = [name for name in alone if name.startswith(("hidden_states", "attentions"))]
    assert len(states) == 4 + 3
    for ranks, options in LAYOUTS:
        found = runner.forward(folder, ranks, given, **options)
        for name in states:
            numpy.testing.assert_array_equal(found[name], alone[name], err_msg=f"{options}: {name}")


def test_states_are_integers_of_eight_bits(runner):
    folder = fixtures.checkpoint(CASE)
    states = runner.forward(folder, 3, inputs.make(CASE, "right"))
    tensors = load_file(folder / "model.safetensors")
    for layer, name in enumerate(["embeddings", *(f"encoder.layer.{l}.output" for l in range(3))]):
        ends = [tensors[f"ibert.{name}.output_activation.x_{end}"] for end in ("min", "max")]
        integers = states[f"hidden_states.{layer}"] / (numpy.abs(ends).max() / 127)
        numpy.testing.assert_allclose(integers, integers.round(), atol=1e-4)
        assert 90 < numpy.abs(integers).max() < 128.001


def test_a_model_before_its_calibration_is_refused(runner, tmp_path):
    """With the ranges that transformers begins with, keys of padding would count."""
    shutil.copytree(fixtures.checkpoint(CASE), tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    name = "ibert.encoder.layer.1.attention.self.softmax.act.x_"
    tensors |= {name + "min": numpy.float32([-1e-5]), name + "max": numpy.float32([1e-5])}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    paths = {"inputs": str(tmp_path / "in.safetensors"), "outputs": str(tmp_path / "out.safetensors")}
    save_file(inputs.make(CASE, "bare"), paths["inputs"])
    answer = runner.batch.ask({"model": str(tmp_path), "ranks": 2, "sizes": "tensor=2", **paths})
    assert not answer["ok"], answer
    assert re.search(rf"range of exponents in {re.escape(name)}max is too small .* before calibration", answer["error"])


@pytest.mark.parametrize("precision", ["F16", "BF16", "I8"])
def test_other_precisions_than_f32_are_refused_before_a_plan(precision):
    done = worker.run("plan", "--model", fixtures.checkpoint(CASE), "--precision", precision, "--json")
    assert done.returncode != 0
    assert f"{precision} is not served for this model, which computes in integers" in done.stderr


def test_a_checkpoint_of_sixteen_bits_is_served_in_f32(tmp_path):
    shutil.copytree(fixtures.checkpoint(CASE), tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    halves = {name: tensor.astype(numpy.float16) for name, tensor in tensors.items() if "softmax" not in name}
    save_file({**tensors, **halves}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    done = worker.run("plan", "--model", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["precision"] == "F32"
