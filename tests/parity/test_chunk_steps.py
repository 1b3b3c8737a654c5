# SPDX-License-Identifier: Apache-2.0
"""Generation by attention in chunks: tokens that come one after another, as steps with a cache of states and buckets
have them, are computed again in each step behind their prompt."""

import contextlib
import json
import shutil

import compare
import fixtures
import inputs
import mutations as m
import oracle
import pytest
import torch
from cases import BY_NAME
from server import Server
from test_generate import COUNT, check_answer, rows_of
from test_mutations import stored

import worker

SERVED = "ReformerModelWithLMHead-all"
BY_TOKENS = "ReformerModelWithLMHead-in-order-of-tokens"
BY_HASHES = "ReformerModelWithLMHead-in-order-of-hashes"
TWO_ROUNDS = "ReformerModelWithLMHead-two-rounds"
WITHOUT_BUCKETS = "ReformerModelWithLMHead-causal-hashed-alone"
NAMES = [SERVED, BY_TOKENS, BY_HASHES, TWO_ROUNDS]
# of less than a chunk, a chunk, a token more, several chunks, and what is padded or not
LENGTHS = [3, 8, 9, 12, 24, 31]


def answered(case, ids, cached=True):
    """Returns transformers' tokens behind a prompt, and the log-probability of each."""
    with torch.no_grad():
        answer = oracle.model(case).generate(
            torch.tensor([ids]),
            max_new_tokens=16,
            do_sample=False,
            use_cache=cached,
            output_logits=True,
            return_dict_in_generate=True,
        )
    tokens = answer.sequences[0, len(ids) :].tolist()
    return tokens, [step[0].log_softmax(0)[token].item() for step, token in zip(answer.logits, tokens)]


@pytest.fixture(scope="module", params=[(SERVED, 1), (SERVED, 3), (TWO_ROUNDS, 2), (BY_TOKENS, 2), (BY_HASHES, 2)])
def server(request, tmp_path_factory):
    name, ranks = request.param
    folder = tmp_path_factory.mktemp("model") / "model"
    shutil.copytree(fixtures.checkpoint(BY_NAME[name]), folder)
    with contextlib.closing(Server(folder, ranks, f"tensor={ranks}")) as running:
        yield running, BY_NAME[name]


def test_answers_over_http_have_the_tokens_and_probabilities_of_transformers(server):
    running, case = server
    for row in inputs.prompts(case, LENGTHS, seed=8):
        tokens, logprobs = answered(case, row)
        body = {"input_ids": row, "max_new_tokens": 16, "do_sample": False, "details": True, "return_token_ids": True}
        found = running.ask("/generate", body)["details"]["tokens"]
        assert [token["id"] for token in found] == tokens, len(row)
        assert [token["logprob"] for token in found] == pytest.approx(logprobs, abs=1e-4), len(row)
    routes = running.get("/").json()["routes"]
    assert {"POST /v1/completions", "POST /generate", "POST /forward"} <= set(routes)
    usage = running.ask("/v1/completions", {"prompt": row, "max_tokens": 5})["usage"]
    assert usage["prompt_tokens"] == len(row) and usage["completion_tokens"] == 5


@pytest.mark.parametrize("name", [SERVED, BY_HASHES, TWO_ROUNDS, BY_TOKENS])
def test_steps_of_transformers_say_otherwise_than_whole_sequences(name):
    """Else equal answers would prove little."""
    case, apart = BY_NAME[name], 0
    for row in inputs.prompts(case, LENGTHS, seed=8):
        (tokens, logprobs), (others, whole) = answered(case, row), answered(case, row, cached=False)
        apart += tokens != others or max(abs(a - b) for a, b in zip(logprobs, whole)) > 1e-2
    assert apart >= 3


def test_rows_of_a_batch_of_transformers_read_the_states_of_the_first():
    """So that answers are compared with those of each prompt alone, and beams with those of a model that is mended."""
    case = BY_NAME[BY_HASHES]
    first, second = inputs.prompts(case, [20, 20], seed=9)
    as_published = fixtures.library(case.model_class).from_pretrained(fixtures.checkpoint(case)).eval()
    options = {"max_new_tokens": 12, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    together = as_published.generate(torch.tensor([first, second]), **options).logits
    alone = as_published.generate(torch.tensor([second]), **options).logits
    assert (together[0][1] - alone[0][0]).abs().max() < 1e-4  # a prompt is computed by itself
    assert (together[1][1] - alone[1][0]).abs().max() > 1e-2
    mended = oracle.model(case).generate(torch.tensor([first, second]), **options).logits
    assert (mended[1][1] - alone[1][0]).abs().max() < 1e-4


@pytest.mark.parametrize(
    "layout", [{"sizes": "pipeline=2"}, {"sizes": "data=2"}, {"strategy": "Sharded", "sizes": "data=2"}], ids=str
)
@pytest.mark.parametrize("name", NAMES)
def test_prompts_that_a_step_cannot_hold_together_are_answered_one_after_another(runner, name, layout):
    """A step has 512 tokens; these have more."""
    case = BY_NAME[name]
    folder, rows = fixtures.checkpoint(case), inputs.prompts(case, [29, 40, 7, 33] * 5, seed=6)
    together = runner.generate(folder, 2, rows, max_new_tokens=COUNT, do_sample=False, **layout)
    for row, answer in list(zip(rows, together))[:4]:
        check_answer(runner, case, folder, 2, row, answer, **layout)
    alone = [runner.generate(folder, 1, [row], max_new_tokens=COUNT, do_sample=False)[0] for row in rows[4:]]
    assert together[4:] == alone


@pytest.mark.parametrize("sizes", ["tensor=1", "tensor=3", "pipeline=2", "data=2"])
@pytest.mark.parametrize("name", NAMES)
def test_beams_equal_those_of_transformers_whose_rows_read_their_own_states(runner, sizes, name):
    case = BY_NAME[name]
    rows, options = inputs.prompts(case, [20, 5, 33], seed=31), {"num_beams": 3, "num_return_sequences": 2}
    answer = runner.batch.run(
        {
            "model": str(fixtures.checkpoint(case)),
            "ranks": int(sizes[-1]),
            "sizes": sizes,
            "generate": {"input_ids": rows, "max_new_tokens": 20, **options},
        }
    )
    compared = 0
    for i, row in enumerate(rows):
        wanted = oracle.beams(case, row, 20, **options)
        if wanted["gap"] < compare.NEAR_TIE:
            continue
        compared += 1
        assert answer["sequences"][2 * i : 2 * i + 2] == wanted["sequences"]
        assert answer["scores"][2 * i : 2 * i + 2] == pytest.approx(wanted["scores"], rel=1e-4, abs=1e-4)
    assert compared >= 2


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_ends_at_the_end_token(runner, tmp_path, name):
    case = BY_NAME[name]
    folder, row = shutil.copytree(fixtures.checkpoint(case), tmp_path / "model"), rows_of(case)[3]
    end = oracle.greedy(case, row, COUNT)["sequence"][len(row) + 4]
    for file in ("config.json", "generation_config.json"):
        if (folder / file).exists():
            config = json.loads((folder / file).read_text())
            (folder / file).write_text(json.dumps({**config, "eos_token_id": end}))
    wanted = oracle.greedy(case, row, COUNT, eos_token_id=end)["sequence"]
    assert wanted[-1] == end and len(wanted) - len(row) <= 5
    assert runner.generate(folder, 2, [row], max_new_tokens=COUNT, do_sample=False) == [wanted]


MUTANTS = {
    "a chunk less before": (SERVED, m.config(local_num_chunks_before=0)),
    "a chunk less before, by hashes": (SERVED, m.config(lsh_num_chunks_before=0)),
    "shorter chunks": (BY_TOKENS, m.config(local_attn_chunk_length=4)),
    "longer chunks by hashes": (BY_HASHES, m.config(lsh_attn_chunk_length=9)),
    "a round less": (TWO_ROUNDS, m.config(num_hashes=1)),
    "other rotations": (BY_HASHES, m.config(hash_seed=8)),
    "fewer buckets": (SERVED, m.config(num_buckets=[4, 4])),
}


@pytest.mark.parametrize("what", MUTANTS)
def test_changed_chunks_say_other_tokens(runner, tmp_path, what):
    name, change = MUTANTS[what]
    case, model = BY_NAME[name], stored(BY_NAME[name])
    folder = shutil.copytree(fixtures.checkpoint(case), tmp_path / "model")
    change(model)
    (folder / "config.json").write_text(json.dumps(model.config))
    with pytest.raises(compare.Difference):
        for row in rows_of(case):
            check_answer(runner, case, folder, 2, row)


def test_a_model_without_a_number_of_buckets_does_not_generate():
    """That of transformers is the number of its first text, and fails at a short one."""
    case = BY_NAME[WITHOUT_BUCKETS]
    with pytest.raises(TypeError):
        oracle.model(case).generate(torch.tensor([[5, 6, 7]]), max_new_tokens=8, do_sample=False)
    run = worker.run("generate", "--model", fixtures.checkpoint(case), "--input-ids", "5,6,7")
    assert run.returncode != 0 and "ReformerModelWithLMHead" in run.stderr and "cannot generate" in run.stderr
