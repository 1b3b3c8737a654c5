# SPDX-License-Identifier: Apache-2.0
"""What experts may have and no family of transformers that is served has: biases, which ranks share or add once."""

import shutil

import compare
import fixtures
import inputs
import numpy
import pytest
from cases import BY_NAME
from mutations import policy_of
from safetensors.numpy import load_file, save_file

CASE = BY_NAME["MixtralForCausalLM-all"]


@pytest.fixture(scope="module")
def biased(tmp_path_factory):
    """The checkpoint with a bias for each matrix of an expert, and the policy that reads it."""
    folder = tmp_path_factory.mktemp("biased")
    shutil.copytree(fixtures.checkpoint(CASE), folder, dirs_exist_ok=True)
    tensors, random = load_file(folder / "model.safetensors"), numpy.random.default_rng(3)
    for name in [name for name in tensors if ".experts." in name]:
        rows = tensors[name].shape[0]
        tensors[name.replace(".weight", ".bias")] = random.standard_normal(rows).astype(numpy.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    text = policy_of(CASE)
    for key, name in (("gate", "w1"), ("up", "w3"), ("down", "w2")):
        assert f"{key}: {name}\n" in text
        text = text.replace(f"{key}: {name}\n", f"{key}: {{from: {name}, bias: true}}\n")
    (folder / "policy.yaml").write_text(text)
    return folder


@pytest.mark.parametrize("ranks", [2, 3])
def test_biases_of_experts_count_once_however_many_ranks_there_are(runner, biased, ranks):
    given = inputs.make(CASE, inputs.kinds(CASE)[0])
    policy = str(biased / "policy.yaml")
    alone = runner.forward(biased, 1, given, policy=policy)
    compare.tensors(runner.forward(biased, ranks, given, policy=policy), alone)
    with pytest.raises(compare.Difference):  # they change the answer
        compare.tensors(runner.forward(fixtures.checkpoint(CASE), 1, given), alone)
