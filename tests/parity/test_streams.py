# SPDX-License-Identifier: Apache-2.0
"""Models of two streams: 16 bits, requests over HTTP, and requests that run together."""

import contextlib
import dataclasses
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

MODEL, SERVED = "LxmertModel-all", "LxmertForPreTraining-untied-relu"


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bit_error_is_within_that_of_transformers(runner, dtype, ranks):
    case = BY_NAME[MODEL]
    case = dataclasses.replace(case, name=f"{case.name}-{dtype}", dtype=dtype)
    given = inputs.make(case, "right")
    theirs = oracle.forward(case, given)
    names = [name for name, tensor in theirs.items() if "attentions." not in name and tensor.size > 500]
    assert {"language_output", "vision_output"} < set(names)
    ours = runner.forward(fixtures.checkpoint(case), ranks, given)
    compare.sixteen_bit(ours, oracle.forward(case, given, dtype), theirs, names, places(case, given))


def test_regions_that_the_mask_leaves_out_change_nothing(runner):
    case = BY_NAME[MODEL]
    given = inputs.make(case, "right")
    assert (given["visual_attention_mask"] == 0).any()
    other = {**given, "visual_feats": given["visual_feats"].copy()}
    other["visual_feats"][given["visual_attention_mask"] == 0] = 1e3
    one, two = (runner.forward(fixtures.checkpoint(case), 2, each) for each in (given, other))
    for name, values in one.items():
        numpy.testing.assert_array_equal(values, two[name], err_msg=name)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    shutil.copytree(fixtures.checkpoint(BY_NAME[SERVED]), folder)
    with contextlib.closing(Server(folder, 2, "tensor=2")) as running:
        yield running


def test_requests_over_http_are_answered(server):
    case = BY_NAME[SERVED]
    given = inputs.make(case, "given")
    theirs = oracle.forward(case, given)
    answer = server.ask("/forward", forward_body(given))["outputs"]
    assert {name for name in theirs if "states." not in name and "attentions." not in name} == set(answer)
    for name in ("cross_relationship_score", "prediction_logits"):
        ours = numpy.array(answer[name]["data"], numpy.float32)
        compare.tensors({name: ours}, {name: theirs[name]}, places(case, given))
    chosen = server.ask("/forward?outputs=vision_output&hidden_states=true", forward_body(given))["outputs"]
    assert {"vision_output", "vision_hidden_states.0"} < set(chosen) and "prediction_logits" not in chosen


def test_requests_that_lack_or_misshape_regions_are_refused(server):
    given = inputs.make(BY_NAME[SERVED], "given")
    for change, said in (
        ({"visual_pos": None}, 'the inputs have no tensor "visual_pos"'),
        ({"input_ids": None, "attention_mask": None, "token_type_ids": None}, "got no inputs of the stack"),
        ({"visual_pos": given["visual_pos"][:, :, 1:]}, "visual_pos has the shape"),
        ({"visual_attention_mask": 0 * given["visual_attention_mask"]}, "row 0 of visual_attention_mask is all zero"),
    ):
        changed = {name: values for name, values in {**given, **change}.items() if values is not None}
        assert said in server.refused("/forward", forward_body(changed), 400)["message"], change
