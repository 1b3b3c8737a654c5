# SPDX-License-Identifier: Apache-2.0
"""Generation without a KV cache: what each step appends and reads shows in the answers, and requests over HTTP."""

import contextlib
import json
import shutil

import compare
import fixtures
import inputs
import mutations as m
import oracle
import pytest
from cases import BY_NAME
from server import Server
from test_generate import COUNT, check_answer, rows_of
from test_mutations import stored

import worker

SERVED = "XLMWithLMHeadModel-all"
REMEMBERING = "TransfoXLLMHeadModel-all"  # steps of which begin with a memory of zeros


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "model"
    shutil.copytree(fixtures.checkpoint(BY_NAME[SERVED]), folder)
    with contextlib.closing(Server(folder, 2, "tensor=2")) as running:
        yield running


MUTANTS = {
    "another token appended": ("XLMWithLMHeadModel-all", m.config(mask_token_id=8)),
    "no token appended": (
        "XLMWithLMHeadModel-all",
        m.policy('recompute: {append: "mask_token_id ?? 0"}', "recompute: {}"),
    ),
    "another language": ("XLMWithLMHeadModel-all", m.config(lang_id=3)),
    "no language": ("XLMWithLMHeadModel-all", m.policy('          generation_row: "lang_id ?? 0"\n', "")),
    "another token appended by FlauBERT": ("FlaubertWithLMHeadModel-light", m.config(mask_token_id=8)),
}


@pytest.mark.parametrize("what", MUTANTS)
def test_a_changed_step_says_other_tokens(runner, tmp_path, what):
    name, change = MUTANTS[what]
    case = BY_NAME[name]
    folder = shutil.copytree(fixtures.checkpoint(case), tmp_path / "model")
    model = stored(case)
    change(model)
    (folder / "config.json").write_text(json.dumps(model.config))
    (folder / "policy.yaml").write_text(model.policy)
    with pytest.raises(compare.Difference):
        for row in rows_of(case):
            check_answer(runner, case, folder, 2, row, policy=str(folder / "policy.yaml"))


@pytest.mark.parametrize("name", [SERVED, REMEMBERING])
def test_prompts_that_a_step_cannot_hold_together_are_answered_one_after_another(runner, name):
    """A step has 512 tokens; these have more."""
    case = BY_NAME[name]
    folder, rows = fixtures.checkpoint(case), inputs.prompts(case, [37, 51, 44] * 5, seed=6)
    together = runner.generate(folder, 2, rows, max_new_tokens=COUNT, do_sample=False, sizes="pipeline=2")
    alone = [runner.generate(folder, 1, [row], max_new_tokens=COUNT, do_sample=False)[0] for row in rows]
    assert together == alone
    for row, answer in zip(rows[:3], together):
        check_answer(runner, case, folder, 1, row, answer)


@pytest.mark.parametrize("name", [SERVED, REMEMBERING])
@pytest.mark.parametrize("sizes", ["pipeline=2", "data=2", "tensor=2,pipeline=2"])
def test_beams_equal_those_of_transformers(runner, sizes, name):
    case = BY_NAME[name]
    rows, options = inputs.prompts(case, [30, 21, 44], seed=31), {"num_beams": 3, "num_return_sequences": 2}
    ranks = 4 if "," in sizes else 2
    answer = runner.batch.run(
        {
            "model": str(fixtures.checkpoint(case)),
            "ranks": ranks,
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


def test_completions_over_http_have_the_tokens_and_their_probabilities(server):
    import torch

    case = BY_NAME[SERVED]
    row = inputs.prompts(case, [9], seed=4)[0]
    wanted = oracle.greedy(case, row, 12)["sequence"]
    request_body = {
        "input_ids": row,
        "max_new_tokens": 12,
        "do_sample": False,
        "details": True,
        "return_token_ids": True,
    }
    answer = server.ask("/generate", request_body)
    assert answer["sequence"] == wanted
    tokens = answer["details"]["tokens"]
    assert [token["id"] for token in tokens] == wanted[len(row) :]
    model, mask, language = oracle.model(case), case.settings["mask_token_id"], case.settings["lang_id"]
    for i, token in enumerate(tokens):
        ids = torch.tensor([[*wanted[: len(row) + i], mask]])
        with torch.no_grad():
            scores = model(ids, langs=torch.full_like(ids, language)).logits[0, -1].log_softmax(0)
        assert token["logprob"] == pytest.approx(scores[token["id"]].item(), abs=1e-4)
    lines = server.post("/generate", {**request_body, "stream": True}).content.splitlines()
    events = [json.loads(line[5:]) for line in lines if line[:5] == b"data:" and b"{" in line]
    assert [event["token"]["id"] for event in events if event.get("token")] == wanted[len(row) :]


def test_a_server_that_generates_also_answers_as_its_task_does(server):
    routes = server.get("/").json()["routes"]
    assert {"POST /fill-mask", "POST /v1/completions", "POST /generate", "POST /forward"} <= set(routes)
    row = inputs.prompts(BY_NAME[SERVED], [5], seed=4)[0]
    usage = server.ask("/v1/completions", {"prompt": row, "max_tokens": 3})["usage"]
    assert usage["prompt_tokens"] == 5 and 1 <= usage["completion_tokens"] <= 3
    too_long = server.refused("/v1/completions", {"prompt": row, "max_tokens": 76}, 400)["message"]
    assert "the context window is 80 tokens" in too_long


def test_a_plan_has_no_bytes_for_keys_and_values():
    folder = fixtures.checkpoint(BY_NAME[SERVED])
    done = worker.run("plan", "--model", folder, "--devices", 2, "--device-memory", "2Gi", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["kvBlocks"] == 0
    assert [rank["predicted"]["kv"] for rank in plan["ranks"]] == [0, 0]


def test_a_language_or_a_mask_that_there_is_not_is_refused(tmp_path):
    folder = shutil.copytree(fixtures.checkpoint(BY_NAME[SERVED]), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    for change, said in (
        ({"lang_id": 4}, "generation_row is 4, the table has 4"),
        ({"mask_token_id": 101}, "the token that each step appends is 101, the vocabulary has 101"),
    ):
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        run = worker.run("inspect", "--model", folder)
        assert run.returncode != 0 and said in run.stderr, run.stderr


def test_answers_differ_by_language(runner, tmp_path):
    """Else equal tokens would prove little about languages."""
    case = BY_NAME[SERVED]
    answers = []
    for language in range(case.settings["n_langs"]):
        folder = shutil.copytree(fixtures.checkpoint(case), tmp_path / str(language))
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "lang_id": language}))
        answers.append(runner.generate(folder, 2, rows_of(case), max_new_tokens=COUNT, do_sample=False))
    assert len({json.dumps(answer) for answer in answers}) == 4
