# SPDX-License-Identifier: Apache-2.0
"""Experts that lie in one tensor, with precision I8: each expert's matrices become integers as if they lay alone."""

import dataclasses
import hashlib
import pathlib
import re
import shutil

import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
from cases import BY_NAME
from safetensors.numpy import load_file, save_file
from test_codes import LAYER, OUT, SCORES, dequantized
from test_forward import places

CASE = BY_NAME["GptOssForCausalLM-all"]


@pytest.fixture(scope="module")
def quantised(tmp_path_factory):
    """The case with a checkpoint of its weights after quantising."""
    folder = tmp_path_factory.mktemp("quantised")
    shutil.copytree(fixtures.checkpoint(CASE), folder, dirs_exist_ok=True)
    tensors, stacked = load_file(folder / "model.safetensors"), 0
    for name, w in tensors.items():
        if w.ndim == 3:  # [experts, in, out]
            w = numpy.stack([dequantized(numpy.ascontiguousarray(one.T), 32).T for one in w])
            stacked += 1
        elif w.ndim == 2 and re.search(f"{LAYER}|{SCORES}", name):
            w = dequantized(w, CASE.settings["head_dim"] if re.search(OUT, name) else 32)
        tensors[name] = numpy.ascontiguousarray(w)
    assert stacked == 2 * CASE.settings["num_hidden_layers"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return dataclasses.replace(CASE, name=CASE.name + "-int8", folder=str(folder), digest=pathlib.Path(folder).name)


@pytest.mark.parametrize("strategy, sizes", [("Tensor", "tensor=1"), ("Tensor", "tensor=2"), ("Sharded", "data=2")])
def test_stacked_experts_become_integers_one_by_one(runner, quantised, strategy, sizes):
    given = inputs.make(CASE, inputs.kinds(CASE)[0])
    ours = runner.forward(
        fixtures.checkpoint(CASE), int(sizes[-1]), given, strategy=strategy, sizes=sizes, precision="I8"
    )
    compare.tensors(ours, oracle.forward(quantised, given), places(CASE, given))
    with pytest.raises(compare.Difference):  # the weights before quantising are others
        compare.tensors(ours, oracle.forward(CASE, given), places(CASE, given))


@pytest.mark.parametrize("ranks", [1, 3])
def test_experts_in_one_tensor_or_in_many_are_the_same_experts(runner, tmp_path, ranks):
    """Qwen3.5's own files have one tensor for all experts of a layer, those that transformers writes one for each."""
    case = BY_NAME["Qwen3_5MoeForCausalLM-all"]
    shutil.copytree(fixtures.checkpoint(case), tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    of_layers = {}
    for name in [name for name in tensors if ".mlp.experts." in name]:
        layer, expert, part = re.fullmatch(r"(.*\.mlp\.experts\.)(\d+)\.(\w+)\.weight", name).groups()
        of_layers.setdefault(layer, {}).setdefault(part, {})[int(expert)] = tensors.pop(name)
    assert len(of_layers) == 3
    for layer, parts in of_layers.items():
        gate, up, down = (
            numpy.stack([tensor for _, tensor in sorted(parts[part].items())])
            for part in ("gate_proj", "up_proj", "down_proj")
        )
        tensors[f"{layer}gate_up_proj"], tensors[f"{layer}down_proj"] = numpy.concatenate([gate, up], 1), down
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    given = inputs.make(case, "right")
    compare.tensors(runner.forward(tmp_path, ranks, given), oracle.forward(case, given), places(case, given))


@pytest.mark.parametrize(
    "part, strategy, sizes",
    [
        ("", "Tensor", "tensor=1"),
        ("", "Tensor", "tensor=3"),
        ("", "Sharded", "data=2"),
        ("gate_up_proj", "Tensor", "tensor=2"),
        ("down_proj", "Tensor", "tensor=2"),
    ],
)
def test_experts_are_read_by_their_shape(runner, tmp_path, part, strategy, sizes):
    """The published files of Qwen3-VL have matrices of experts as [in, out], those that transformers writes as
    [out, in]; each tensor is read by its own shape."""
    case = BY_NAME["Qwen3VLMoeForConditionalGeneration-all"]
    shutil.copytree(fixtures.checkpoint(case), tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    turned = [name for name in tensors if f".mlp.experts.{part}" in name]
    assert len(turned) == (2 if part else 4)
    for name in turned:
        tensors[name] = numpy.ascontiguousarray(tensors[name].transpose(0, 2, 1))
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    digest = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
    published = dataclasses.replace(case, name=f"{case.name}-turned-{part}", folder=str(tmp_path), digest=digest)
    for kind in ("right", "pictured"):
        given = inputs.make(case, kind)
        theirs = oracle.forward(case, given)
        compare.tensors(oracle.forward(published, given), theirs, places(case, given))
        ours = runner.forward(tmp_path, int(sizes[-1]), given, strategy=strategy, sizes=sizes)
        compare.tensors(ours, theirs, places(case, given))
