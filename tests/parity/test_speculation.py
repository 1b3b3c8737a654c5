# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding of real servers: with it, every answer has the tokens, texts and log-probabilities that it has
without it, on every layout; what it drafted and what was accepted are metrics; models that cannot do it say so.
"""

import concurrent.futures
import re
from contextlib import closing

import pytest
import requests
import transformers
from server import Server
from test_endpoints import build
from test_prompt_logprobs import delta_net
from test_serving_routes import pieces

LAYOUTS = {
    "one": dict(ranks=1),
    "tensor 2": dict(ranks=2),
    "tensor 3": dict(ranks=3),
    "tensor 4": dict(ranks=4),
    "pipeline": dict(ranks=2, sizes="pipeline=2"),
    "tensor and pipeline": dict(ranks=4, sizes="tensor=2,pipeline=2"),
    "data": dict(ranks=2, sizes="data=2"),
    "sharded": dict(ranks=2, strategy="Sharded", sizes="data=2"),
    "offload": dict(ranks=1, strategy="Offload", sizes="tensor=1"),
}
SPECULATION = ["--speculation", "ngram", "--speculation-tokens", 6, "--speculation-min-ngram", 1]
CODE = "for (i = 0; i < n; ++i) total += a[i]; for (j = 0; j < n; ++j) total += b[j]; for (k = 0;"
OBJECT = {
    "type": "object",
    "properties": {name: {"type": "integer", "minimum": 10, "maximum": 99} for name in ("first", "second", "third")},
    "required": ["first", "second", "third"],
    "additionalProperties": False,
}
TREE = {"type": "array", "items": OBJECT, "minItems": 2, "maxItems": 2}


def bodies():
    """Requests whose answers repeat themselves more or less, by what they ask for."""
    plain = {"prompt": CODE, "max_tokens": 48, "temperature": 0, "return_token_ids": True, "ignore_eos": True}
    sampled = plain | {"temperature": 0.4, "seed": 5}
    return {
        "greedy": plain,
        "greedy of another prompt": plain | {"prompt": "total += a[i]; total += b[j]; total"},
        "one token": plain | {"max_tokens": 1},
        "two tokens": plain | {"max_tokens": 2},
        "sampled": sampled,
        "sampled hot": plain | {"temperature": 1.5, "seed": 8},
        "nucleus": sampled | {"top_p": 0.8, "top_k": 20, "min_p": 0.01, "temperature": 0.9},
        "several": sampled | {"n": 4},
        "best of several": sampled | {"n": 2, "best_of": 4},
        "penalties": plain | {"repetition_penalty": 1.05, "frequency_penalty": 0.2, "presence_penalty": 0.1},
        "bias": sampled | {"logit_bias": {"17": 3.0, "40": -5.0}},
        "bad words": plain | {"bad_words": ["for", "0;"]},
        "log-probabilities": plain | {"logprobs": 3},
        "log-probabilities sampled": sampled | {"logprobs": 1, "n": 2},
        "end token": plain | {"ignore_eos": False, "logit_bias": {"1": 1.5}, "min_tokens": 5},
        "end token sampled": sampled | {"ignore_eos": False, "logit_bias": {"1": 1.0}, "n": 3},
        "stop string": plain | {"stop": ["e", "t", "7"]},
        "schema": plain | {"structured_outputs": {"json": TREE}, "ignore_eos": False, "max_tokens": 200},
        "schema sampled": sampled | {"structured_outputs": {"json": TREE}, "ignore_eos": False, "max_tokens": 200},
        "choice": plain | {"structured_outputs": {"choice": ["for for for", "for for"]}, "ignore_eos": False},
        "pattern": sampled | {"structured_outputs": {"regex": "(ab?){4,12};"}, "ignore_eos": False, "n": 3},
    }


def answers(server):
    """Returns what every request is answered, sent alone and then all at once."""

    def ask(body):
        choices = server.ask("/v1/completions", body)["choices"]
        kept = ("text", "token_ids", "finish_reason", "stop_reason", "logprobs", "prompt_logprobs")
        return [{name: choice.get(name) for name in kept} for choice in choices]

    all_bodies = list(bodies().values())
    alone = [ask(body) for body in all_bodies]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, all_bodies))
    return alone, together


def counters(server):
    found = re.findall(r"^parallelmodel_spec_decode_(\w+)_total (\d+)", server.get("/metrics").text, re.M)
    return {name: int(value) for name, value in found}


def expect_same(found, expected, where):
    """Log-probabilities may differ in their last bits, as layouts do, and rows beside those of other requests."""
    if isinstance(expected, float):
        assert found == pytest.approx(expected, abs=2e-4), where
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for index, (one, other) in enumerate(zip(found, expected, strict=True)):
            expect_same(one, other, f"{where}[{index}]")
    elif isinstance(expected, dict):
        assert list(found) == list(expected), where
        for name, other in expected.items():
            expect_same(found[name], other, f"{where}.{name}")
    else:
        assert found == expected, where


def expect_equal(found, expected):
    for name, one, other in zip(bodies(), found, expected, strict=True):
        expect_same(one, other, name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = transformers.GPT2Config(
        vocab_size=305, n_embd=24, n_head=4, n_layer=2, n_positions=512, pad_token_id=0, bos_token_id=1, eos_token_id=1
    )
    made = tmp_path_factory.mktemp("speculation") / "tiny-gpt2"
    build(made, "GPT2LMHeadModel", config, pieces())
    return made


@pytest.fixture(scope="module")
def expected(folder):
    with closing(Server(folder, ranks=1)) as server:
        found = answers(server)
        assert set(counters(server).values()) == {0}
        return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_answers_are_those_without_speculation(folder, expected, layout):
    with closing(Server(folder, options=SPECULATION, **LAYOUTS[layout])) as server:
        for found, wanted in zip(answers(server), expected, strict=True):
            expect_equal(found, wanted)
        counted = counters(server)
        print(layout, counted)
        assert counted["num_accepted_tokens"] > 5
        assert counted["num_draft_tokens"] > counted["num_accepted_tokens"], "some are rejected"
        assert counted["num_drafts"] <= counted["num_draft_tokens"]
        exposed = server.get("/metrics").text
        name = f'vllm:spec_decode_num_accepted_tokens_total{{model_name="{folder.name}"}}'
        assert f"{name} {counted['num_accepted_tokens']}\n" in exposed


def test_streams_have_the_same_tokens(folder, expected):
    body = bodies()["sampled"] | {"stream": True}
    with closing(Server(folder, ranks=1, options=SPECULATION)) as server:
        text = server.post("/v1/completions", body).text
    ids = [
        int(id) for part in re.findall(r'"token_ids":\s*\[([\d, ]*)\]', text) for id in part.split(",") if id.strip()
    ]
    assert ids == expected[0][list(bodies()).index("sampled")][0]["token_ids"]


def status(server):
    return requests.get(f"http://127.0.0.1:{server.admin_port}/status", timeout=20).json()["speculation"]


def test_status_says_what_is_done(folder):
    with closing(Server(folder, ranks=1)) as server:
        assert status(server) == "off"
    with closing(Server(folder, ranks=1, options=SPECULATION)) as server:
        assert status(server) == "ngram"


def test_a_model_with_recurrent_layers_serves_without_and_says_why(tmp_path):
    class_name, config = delta_net()
    build(tmp_path / "delta-net", class_name, config)
    with closing(Server(tmp_path / "delta-net", ranks=1, options=SPECULATION)) as server:
        body = {"prompt": [5, 6, 7] * 9, "max_tokens": 20, "temperature": 0}
        assert server.ask("/v1/completions", body)["usage"]["completion_tokens"] > 0
        assert counters(server)["num_drafts"] == 0
        assert status(server).startswith("off: the model has recurrent layers")


def test_an_encoder_decoder_answers_as_without(tmp_path):
    config = transformers.BartConfig(
        vocab_size=305,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=37,
        decoder_ffn_dim=37,
        max_position_embeddings=256,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=1,
        forced_eos_token_id=1,
    )
    build(tmp_path / "bart", "BartForConditionalGeneration", config, pieces())
    all_bodies = [
        {"prompt": list(range(20 + i, 60)), "max_tokens": 40 + i, "ignore_eos": True, "return_token_ids": True}
        | ({"temperature": 0} if i % 2 else {"temperature": 0.5, "seed": i, "n": 2})
        for i in range(6)
    ]
    found = []
    for options in ((), SPECULATION):
        with closing(Server(tmp_path / "bart", ranks=2, options=options)) as server:
            replies = [server.ask("/v1/completions", body)["choices"] for body in all_bodies]
            found.append([[choice["token_ids"] for choice in choices] for choices in replies])
            accepted = counters(server)["num_accepted_tokens"]
    assert found[0] == found[1]
    assert accepted > 5


@pytest.mark.parametrize(
    ("precision", "layout"),
    [
        ("F32", "tensor 3"),
        ("BF16", "one"),
        ("BF16", "tensor 2"),
        ("BF16", "sharded"),
        ("BF16", "offload"),
        ("I8", "pipeline"),
        ("I4", "one"),
        ("I8A8", "one"),
    ],
)
def test_drafts_change_no_bit(tmp_path, precision, layout):
    """Samples of one request, with up to eight drafts each, have more rows than those that kernels compute as a single
    one; and what differs in the last bit of fp32 is rounded otherwise now and then.
    """
    config = transformers.LlamaConfig(
        vocab_size=305,
        hidden_size=96,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=1,
    )
    folder = tmp_path / "llama"
    build(folder, "LlamaForCausalLM", config, pieces()).bfloat16().save_pretrained(folder)
    sampled = {"prompt": CODE, "max_tokens": 60, "seed": 3, "ignore_eos": True, "return_token_ids": True, "logprobs": 1}
    sampled["logit_bias"] = {"17": 8.0, "40": 8.0}  # most of an answer is one of the two, which many drafts guess
    all_bodies = [sampled | {"temperature": heat, "n": n} for heat in (0.2, 0.4) for n in (1, 4, 8)]
    found, options = [], ["--precision", precision, "--speculation-min-ngram", 1]
    for more in ((), ("--speculation", "ngram")):
        with closing(Server(folder, options=[*options, *more], **LAYOUTS[layout])) as server:
            replies = [server.ask("/v1/completions", body)["choices"] for body in all_bodies]
            counted = counters(server)
        found.append([[(one["token_ids"], one["logprobs"]["token_logprobs"]) for one in each] for each in replies])
    assert counted["num_accepted_tokens"] > 20, counted
    assert found[0] == found[1]


def test_lengths_that_contradict_each_other_are_refused(folder):
    with pytest.raises(RuntimeError, match="--speculation-min-ngram is 5 and --speculation-max-ngram 4"):
        Server(folder, ranks=1, options=["--speculation", "ngram", "--speculation-min-ngram", 5])
