# SPDX-License-Identifier: Apache-2.0
"""Models that read a memory of earlier tokens: a text in segments over HTTP, requests that run together, 16 bits."""

import concurrent.futures
import contextlib
import dataclasses
import shutil

import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
import torch
from cases import BY_NAME
from server import Server, forward_body

import worker

CASE = BY_NAME["TransfoXLLMHeadModel-all"]
LAYERS = CASE.settings["n_layer"]
MEMORIES = [f"mems.{i}" for i in range(LAYERS)]


@pytest.fixture(scope="module", params=["tensor=2", "pipeline=3"])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    shutil.copytree(fixtures.checkpoint(CASE), folder)
    with contextlib.closing(Server(folder, int(request.param[-1]), request.param)) as running:
        yield running


def outputs_of(server, given, outputs):
    found = server.ask("/forward", {**forward_body(given), "outputs": outputs})["outputs"]
    return {name: numpy.array(found[name]["data"], numpy.float32).reshape(found[name]["shape"]) for name in outputs}


def answers(segments):
    """What the model says of the segments of a text, each of which reads the memory of those before."""
    mems, found = None, []
    for segment in segments:
        with torch.no_grad():
            said = oracle.model(CASE)(torch.from_numpy(segment), mems=mems)
        mems = said.mems
        found.append({name: mems[i].transpose(0, 1).numpy() for i, name in enumerate(MEMORIES)})
        found[-1]["prediction_scores"] = said.prediction_scores.numpy()
    return found


def test_a_text_in_segments_is_answered_as_by_the_model(server):
    """Segments are shorter than the memory, longer, and one token; their rows are several."""
    ids = numpy.array(inputs.prompts(CASE, [18, 18, 18]))
    segments, mems = numpy.split(ids, [4, 15, 16], axis=1), {}
    for segment, wanted in zip(segments, answers(segments), strict=True):
        found = outputs_of(server, {"input_ids": segment, **mems}, ["prediction_scores", *MEMORIES])
        compare.tensors(found, wanted)
        mems = {name: found[name] for name in MEMORIES}


def test_rows_of_different_lengths_have_the_memories_of_their_own_tokens(server):
    rows = inputs.prompts(CASE, [3, 12, 7])
    padded = inputs.padded(rows, "right", CASE.settings["pad_token_id"])
    found = outputs_of(server, padded, ["prediction_scores", *MEMORIES])
    for i, row in enumerate(rows):
        [wanted] = answers([numpy.array([row])])
        scores = found["prediction_scores"][i, : len(row)]
        compare.tensors({"scores": scores}, {"scores": wanted["prediction_scores"][0]})
        for name in MEMORIES:
            compare.tensors({name: found[name][i]}, {name: wanted[name][0]})


def test_requests_with_and_without_memories_run_together(server):
    given = [inputs.make(CASE, kind) for kind in ("bare", "given", "bare", "given")]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for each, found in zip(
            given * 4, pool.map(lambda one: outputs_of(server, one, ["prediction_scores"]), given * 4), strict=True
        ):
            compare.tensors(found, oracle.forward(CASE, each), names=["prediction_scores"])


def test_memories_that_do_not_fit_are_refused(server):
    given = inputs.make(CASE, "given")

    def refused(changed):
        tensors = {name: values for name, values in {**given, **changed}.items() if values is not None}
        return server.refused("/forward", forward_body(tensors), 400)["message"]

    assert "mems.1 has the shape [2, 6, 30]" in refused({"mems.1": given["mems.1"][:, 1:]})
    assert 'without "mems.2"' in refused({"mems.2": None})
    assert "mems.3" in refused({"mems.3": given["mems.2"]})


def test_completions_have_the_tokens_and_probabilities_of_a_model_that_reads_one_token_after_another(server):
    row = inputs.prompts(CASE, [19], seed=4)[0]
    wanted = oracle.greedy(CASE, row, 16)["sequence"]
    body = {"input_ids": row, "max_new_tokens": 16, "do_sample": False, "details": True, "return_token_ids": True}
    answer = server.ask("/generate", body)
    assert answer["sequence"] == wanted
    model, mems, ids = oracle.model(CASE), None, torch.tensor([row])
    for token in answer["details"]["tokens"]:
        with torch.no_grad():
            output = model(ids, mems=mems)
        mems, ids = output.mems, torch.tensor([[token["id"]]])
        logprob = output.prediction_scores[0, -1, token["id"]].item()
        assert token["logprob"] == pytest.approx(logprob, abs=1e-4)


def test_sampled_tokens_are_those_of_their_seed(server):
    row = inputs.prompts(CASE, [9], seed=5)[0]
    body = {"input_ids": row, "max_new_tokens": 12, "do_sample": True, "temperature": 0.9, "return_token_ids": True}
    answers = [server.ask("/generate", {**body, "seed": seed})["sequence"] for seed in (3, 3, 4)]
    assert answers[0] == answers[1] != answers[2]


def test_a_model_whose_prompts_see_more_than_its_answers_does_not_generate():
    """Prompts of transformers see the whole memory and all tokens before them, answers as many as the memory holds."""
    case = BY_NAME["TransfoXLLMHeadModel-whole-memory"]
    model, row = oracle.model(case), torch.tensor(inputs.prompts(case, [12], seed=4))
    with torch.no_grad():
        whole = model(row).prediction_scores[0, -1]
        behind = model(row[:, -1:], mems=model(row[:, :-1]).mems).prediction_scores[0, -1]
    assert (whole - behind).abs().max() > 1e-3
    run = worker.run("generate", "--model", fixtures.checkpoint(case), "--input-ids", "5,6,7")
    assert run.returncode != 0 and "TransfoXLLMHeadModel" in run.stderr and "cannot generate" in run.stderr, run.stderr


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bit_error_is_within_that_of_the_model(runner, dtype, ranks):
    case = dataclasses.replace(CASE, name=f"{CASE.name}-{dtype}", dtype=dtype)
    given = inputs.make(case, "given")
    theirs = oracle.forward(case, given)
    names = [name for name, tensor in theirs.items() if "attentions." not in name and tensor.size > 500]
    assert "prediction_scores" in names
    ours = runner.forward(fixtures.checkpoint(case), ranks, given)
    compare.sixteen_bit(ours, oracle.forward(case, given, dtype), theirs, names)
