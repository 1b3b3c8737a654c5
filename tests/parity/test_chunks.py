# SPDX-License-Identifier: Apache-2.0
"""Attention in chunks: requests over HTTP, what is refused, and texts that are alone or beside longer ones."""

import contextlib
import json
import shutil

import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
from cases import BY_NAME
from server import Server, forward_body
from test_forward import places

import worker

SERVED = "ReformerModelWithLMHead-all"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    shutil.copytree(fixtures.checkpoint(BY_NAME[SERVED]), folder)
    with contextlib.closing(Server(folder, 2, "tensor=2")) as running:
        yield running


def test_requests_over_http_are_answered(server):
    case = BY_NAME[SERVED]
    given = inputs.make(case, "right")
    answer = server.ask("/forward", forward_body(given))["outputs"]
    assert set(answer) == {"logits"}
    ours = numpy.array(answer["logits"]["data"], numpy.float32)
    compare.tensors({"logits": ours}, {"logits": oracle.forward(case, given)["logits"]}, places(case, given))


def test_attentions_are_refused(server):
    given = inputs.make(BY_NAME[SERVED], "right")
    said = server.refused("/forward", {**forward_body(given), "attentions": True}, 400)["message"]
    assert said.startswith("attentions are not put out by this model")


@pytest.mark.parametrize("length", [3, 4, 5, 12, 13])
def test_texts_of_any_number_of_chunks_equal_those_of_transformers(runner, length):
    """Of at most a chunk, of less than all chunks together, and of one token more."""
    case = BY_NAME["ReformerModel-all"]
    given = {name: values[:, :length].copy() for name, values in inputs.make(case, "right").items()}
    given["attention_mask"][:] = 1
    given["attention_mask"][0, length - 1] = 0
    ours = runner.forward(fixtures.checkpoint(case), 2, given, attentions=False)
    compare.tensors(ours, oracle.forward(case, given), places(case, given))


@pytest.mark.parametrize(
    "name, is_decoder", [("ReformerModelWithLMHead-all", False), ("ReformerForMaskedLM-light", True)]
)
def test_a_head_that_goes_with_the_other_mask_is_refused(tmp_path, name, is_decoder):
    shutil.copytree(fixtures.checkpoint(BY_NAME[name]), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "is_decoder": is_decoder}))
    run = worker.run("inspect", "--model", tmp_path)
    assert run.returncode != 0 and f"is served with is_decoder: {str(not is_decoder).lower()} in" in run.stderr
