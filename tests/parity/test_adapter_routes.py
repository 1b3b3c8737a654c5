# SPDX-License-Identifier: Apache-2.0
"""Adapters of a real server: every route chooses one by the name of its model, its answers are those of transformers
with the weights into which it is merged, and adapters come and go without a restart.
"""

import concurrent.futures
import dataclasses
import json
import pathlib
import re
import shutil
import time

import fixtures
import numpy
import pytest
import transformers
from cases import BY_NAME
from lora import Recipe, adapter, merged
from oracle import greedy
from server import Server
from test_endpoints import build
from test_serving_routes import pieces

import worker

LLAMA = BY_NAME["LlamaForCausalLM-all"]
ATTENTION = ("q_proj", "v_proj")
RECIPES = {"sql": Recipe(ATTENTION, seed=21), "chat": Recipe(("down_proj", "o_proj"), seed=22, rank=6)}
PROMPT = [(7 * i) % 190 + 5 for i in range(33)]
COUNT = 12


def folder_of(name):
    return str(adapter(LLAMA, RECIPES[name]))


def case_of(name):
    return merged(LLAMA, RECIPES[name]) if name in RECIPES else LLAMA


def wanted(name, prompt=PROMPT):
    return greedy(case_of(name), prompt, COUNT)["sequence"][len(prompt) :]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The folder below which adapters may be loaded, and one beside it."""
    below = tmp_path_factory.mktemp("adapters")
    for name in RECIPES:
        shutil.copytree(folder_of(name), below / "team" / name)
    return below


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "base"
    shutil.copytree(fixtures.checkpoint(LLAMA), folder)
    return folder


@pytest.fixture(scope="module", params=["tensor=2", "pipeline=2", "data=2"])
def server(request, base, root):
    options = ["--served-model-name", "base", "--adapter", f"sql={folder_of('sql')}", "--adapter-updates", root]
    made = Server(base, sizes=request.param, options=[*options, "--max-adapters", "3"])
    yield made
    made.close()


def ids(server, name, prompt=PROMPT, **more):
    body = {"model": name, "prompt": prompt, "max_tokens": COUNT, "temperature": 0, "return_token_ids": True, **more}
    answer = server.ask("/v1/completions", body)
    assert answer["model"] == name
    return answer["choices"][0]["token_ids"]


def loaded(server):
    return [one["id"] for one in server.get("/v1/models").json()["data"]]


def load(server, name, path=None):
    return server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path or f"team/{name}"})


def unload(server, name):
    return server.post("/v1/unload_lora_adapter", {"lora_name": name})


def test_a_request_chooses_an_adapter_by_the_name_of_its_model(server):
    assert ids(server, "sql") == wanted("sql") != wanted("base")
    assert ids(server, "base") == wanted("base")


def test_equal_prompts_share_no_keys_between_adapters(server):
    """The prompt's two whole blocks are in the prefix cache for each of them, and found again."""
    for _ in range(2):
        for name in ("base", "sql"):
            answer = server.ask(
                "/v1/completions",
                {"model": name, "prompt": PROMPT, "max_tokens": COUNT, "temperature": 0, "return_token_ids": True},
            )
            assert answer["choices"][0]["token_ids"] == wanted(name)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 16


def test_models_are_listed_with_their_parent(server):
    models = {one["id"]: one for one in server.get("/v1/models").json()["data"]}
    assert models["base"]["parent"] is None and models["base"]["root"] == "base"
    assert models["sql"]["parent"] == "base" and models["sql"]["root"] == folder_of("sql")
    assert server.get("/v1/models/sql").json() == models["sql"]


def test_an_unknown_name_is_refused_with_those_that_are_served(server):
    error = server.refused("/v1/completions", {"model": "other", "prompt": PROMPT, "max_tokens": 1}, 404)
    assert error["code"] == "model_not_found" and '"base", "sql"' in error["message"]


def test_adapters_come_and_go_without_a_restart(server):
    assert load(server, "chat").status_code == 200
    assert loaded(server) == ["base", "sql", "chat"]
    assert ids(server, "chat") == wanted("chat") != wanted("sql")
    assert ids(server, "sql") == wanted("sql")
    assert unload(server, "chat").status_code == 200
    assert loaded(server) == ["base", "sql"]
    server.refused("/v1/completions", {"model": "chat", "prompt": PROMPT, "max_tokens": 1}, 404)
    assert ids(server, "sql") == wanted("sql") and ids(server, "base") == wanted("base")


def test_a_name_that_is_loaded_again_is_another_adapter(server):
    """The same name and slot with other factors: nothing of the first one's keys may be found."""
    assert load(server, "again", "team/chat").status_code == 200
    assert ids(server, "again") == wanted("chat")
    assert unload(server, "again").status_code == 200
    assert load(server, "again", "team/sql").status_code == 200
    assert ids(server, "again") == wanted("sql")
    assert unload(server, "again").status_code == 200


def test_a_running_request_keeps_its_adapter(server):
    """Its slot is not given to another one before it has ended."""
    assert load(server, "chat").status_code == 200
    body = {"model": "chat", "prompt": PROMPT[:5], "max_tokens": 60, "temperature": 0, "return_token_ids": True}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = [pool.submit(server.ask, "/v1/completions", {**body, "ignore_eos": True}) for _ in range(6)]
        while not any(answer.running() for answer in answers):
            pass
        assert unload(server, "chat").status_code == 200
        assert load(server, "other", "team/sql").status_code == 200
        found = [answer.result() for answer in answers if not isinstance(answer.exception(), AssertionError)]
    alone = greedy(case_of("chat"), PROMPT[:5], COUNT)["sequence"][5:]
    assert found
    for answer in found:  # those that came after the adapter was gone are refused
        assert answer["choices"][0]["token_ids"][:COUNT] == alone
    assert unload(server, "other").status_code == 200


def test_metrics_name_the_adapters_that_requests_have(server):
    def adapters():
        page = server.get("/metrics").text
        [line] = re.findall(r"^vllm:lora_requests_info\{(.*)\} \S+$", page, re.MULTILINE)
        return dict(re.findall(r'(\w+)="([^"]*)"', line))

    end = time.monotonic() + 30  # answers of earlier tests give their adapters back a moment after their last byte
    while adapters()["running_lora_adapters"] and time.monotonic() < end:
        time.sleep(0.05)
    assert adapters() == {
        "model_name": "base",
        "max_lora": "3",
        "running_lora_adapters": "",
        "waiting_lora_adapters": "",
    }
    body = {"model": "sql", "prompt": PROMPT[:5], "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    seen = set()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = [pool.submit(server.ask, "/v1/completions", body) for _ in range(8)]
        while not all(answer.done() for answer in answers):
            seen.add(adapters()["running_lora_adapters"])
    assert "sql" in seen and seen <= {"", "sql"}


def test_more_adapters_than_slots_are_refused(server):
    names = ["one", "two"]
    for name in names:
        assert load(server, name, "team/chat").status_code == 200
    error = server.refused("/v1/load_lora_adapter", {"lora_name": "three", "lora_path": "team/chat"}, 400)
    assert "all 3 slots" in error["message"]
    for name in names:
        assert unload(server, name).status_code == 200


@pytest.mark.parametrize(
    "path", ["/etc", "..", "../served", ".", "", "team/missing", "team/outside", "team/../../adapters0", "team/sql\0"]
)
def test_folders_outside_of_the_root_are_refused(server, root, path):
    link = root / "team" / "outside"
    if not link.exists():
        link.symlink_to(pathlib.Path(folder_of("sql")).parent, target_is_directory=True)
    reply = (
        load(server, "outside", path)
        if path
        else server.post("/v1/load_lora_adapter", {"lora_name": "outside", "lora_path": ""})
    )
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "lora_path", reply.text


def test_names_and_folders_that_cannot_be_loaded_are_refused(server, root):
    assert (
        "another name"
        in server.refused("/v1/load_lora_adapter", {"lora_name": "base", "lora_path": "team/sql"}, 400)["message"]
    )
    assert (
        "loaded already"
        in server.refused("/v1/load_lora_adapter", {"lora_name": "sql", "lora_path": "team/sql"}, 400)["message"]
    )
    error = server.refused("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "team"}, 400)
    assert "no adapter_config.json" in error["message"] and error["param"] == "lora_path"
    assert server.refused("/v1/unload_lora_adapter", {"lora_name": "x"}, 404)["code"] == "model_not_found"
    assert loaded(server) == ["base", "sql"]


def test_without_the_flag_there_are_no_such_routes(base):
    server = Server(base, ranks=1, options=["--adapter", f"sql={folder_of('sql')}"])
    try:
        assert load(server, "chat").status_code == 404
        assert server.get("/v1/models").json()["data"][1]["parent"] == base.name
    finally:
        server.close()


@pytest.mark.parametrize(
    "options, words",
    [
        (["--adapter", "sql"], "NAME=FOLDER"),
        (["--adapter", "base={sql}", "--served-model-name", "base"], "given twice"),
        (["--adapter", "a={sql}", "--adapter", "a={chat}"], "given twice"),
        (["--adapter", "a={sql}", "--adapter", "b={chat}", "--max-adapters", "1"], "raise it"),
        (["--adapter", "a={chat}", "--max-adapter-rank", "4"], "rank 6"),
        (["--adapter", "a=/nowhere"], "no adapter_config.json"),
        (["--adapter-updates", "/nowhere"], "not a folder"),
    ],
)
def test_flags_that_cannot_be_served_are_refused_before_ranks_start(base, options, words):
    with pytest.raises(RuntimeError, match=words):
        Server(base, ranks=1, options=[one.format(**{name: folder_of(name) for name in RECIPES}) for one in options])


def test_an_inspection_counts_the_numbers_of_adapters_and_the_plan_keeps_memory_for_them(base, tmp_path):
    """Every rank keeps each slot in the largest rank for all matrices that any adapter changes."""
    plain, both = (
        worker.run("inspect", "--model", base, "--json", *options)
        for options in ([], ["--adapter", f"sql={folder_of('sql')}", "--adapter", f"chat={folder_of('chat')}"])
    )
    config = transformers.AutoConfig.from_pretrained(base)
    keys = config.num_key_value_heads * config.head_dim
    wide = config.num_attention_heads * config.head_dim
    inputs_and_outputs = (
        (config.hidden_size + wide)  # q_proj
        + (config.hidden_size + keys)  # v_proj
        + (wide + config.hidden_size)  # o_proj
        + (config.intermediate_size + config.hidden_size)  # down_proj
    )
    metadata = json.loads(both.stdout)
    assert metadata.pop("adapters") == 2 * 6 * inputs_and_outputs * config.num_hidden_layers
    assert metadata == json.loads(plain.stdout)


@pytest.mark.parametrize(
    "adapter, words", [("sql", "NAME=FOLDER"), ("a=/nowhere", "no adapter_config.json"), ("a={base}", "adapter_config")]
)
def test_an_inspection_refuses_adapters_that_cannot_be_served(base, tmp_path, adapter, words):
    message = tmp_path / "message"
    done = worker.run(
        "inspect", "--model", base, "--adapter", adapter.format(base=base), "--termination-message", message
    )
    assert done.returncode != 0 and words in done.stderr, done.stderr
    assert words in json.loads(message.read_text())["message"]


@pytest.fixture(scope="module")
def talking(tmp_path_factory):
    """A chat model with a tokenizer, and an adapter that says something else."""
    folder = tmp_path_factory.mktemp("talking") / "gpt2"
    config = transformers.GPT2Config(
        vocab_size=300, n_embd=24, n_head=4, n_layer=2, n_positions=256, pad_token_id=0, bos_token_id=1, eos_token_id=1
    )
    build(folder, "GPT2LMHeadModel", config, pieces())
    case = dataclasses.replace(BY_NAME["GPT2LMHeadModel-all"], folder=str(folder), digest=str(folder))
    recipe = Recipe(("c_attn", "mlp.c_proj"), seed=31, alpha=24)
    made = Server(folder, options=["--served-model-name", "base", "--adapter", f"other={adapter(case, recipe)}"])
    yield made
    made.close()


CHAT = {"messages": [{"role": "user", "content": "the cat"}]}
ROUTES = {
    "/v1/completions": ({"prompt": "the cat", "max_tokens": 8, "temperature": 0}, lambda a: a["choices"][0]["text"]),
    "/v1/chat/completions": (
        {**CHAT, "max_tokens": 8, "temperature": 0},
        lambda answer: answer["choices"][0]["message"]["content"],
    ),
    "/v1/messages": ({**CHAT, "max_tokens": 8, "temperature": 0}, lambda answer: answer["content"][0]["text"]),
    "/v1/responses": (
        {"input": "the cat", "max_output_tokens": 8, "temperature": 0},
        lambda answer: answer["output"][0]["content"][0]["text"],
    ),
    "/v1/embeddings": ({"input": "the cat"}, lambda answer: tuple(answer["data"][0]["embedding"])),
}


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_chooses_by_the_name(talking, route):
    body, text = ROUTES[route]
    answers = {name: talking.ask(route, {**body, "model": name}) for name in ("base", "other")}
    assert {name: answer["model"] for name, answer in answers.items()} == {"base": "base", "other": "other"}
    assert text(answers["base"]) != text(answers["other"])
    assert text(talking.ask(route, body)) == text(answers["base"])


def test_streams_name_the_adapter(talking):
    reply = talking.post(
        "/v1/chat/completions", {**CHAT, "model": "other", "max_tokens": 4, "temperature": 0, "stream": True}
    )
    assert '"model":"other"' in reply.text and '"model":"base"' not in reply.text


def test_tensors_of_forward_choose_by_the_name(talking):
    """Requests of different adapters are never joined to one pass. Those of one are, with sums in another order."""
    body = {"inputs": {"input_ids": [[5, 6, 7, 8]]}, "outputs": ["logits"]}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        names = ["base", "other"] * 8
        answers = list(pool.map(lambda name: talking.ask("/forward", {**body, "model": name}), names))
    logits = numpy.array([answer["outputs"]["logits"]["data"] for answer in answers])
    assert numpy.abs(logits[0] - logits[1]).max() > 1e-2
    for i, of_one in enumerate(logits):
        numpy.testing.assert_allclose(of_one, logits[i % 2], atol=1e-5 * numpy.abs(logits).max())


def test_other_routes(talking):
    assert talking.ask("/generate", {"model": "other", "inputs": "the cat"}) != talking.ask(
        "/generate", {"model": "base", "inputs": "the cat"}
    )
    assert talking.ask("/tokenize", {"model": "other", "prompt": "the cat"})["tokens"]
    error = talking.refused("/similarity", {"model": "other", "source": "the cat", "sentences": ["a dog"]}, 400)
    assert error["param"] == "model" and "takes the base model only" in error["message"]
