# SPDX-License-Identifier: Apache-2.0
"""With --kv-precision I8 a server gives the scores of transformers whose cache holds keys and values as integers of
eight bits, with one scale for each token and head: on every layout, in chunks or whole, from the prefix cache, with
drafts, and for each kind of attention.

Rounding has steps: where sums in another order differ in the last bit, an integer may differ by one. So scores are
held to be much nearer to that oracle than the oracle is to one without the rounding.
"""

import contextlib
import re
import shutil
from contextlib import closing

import fixtures
import inputs
import numpy
import oracle
import pytest
import requests
import test_speculation
import torch
from cases import BY_NAME
from server import Server
from test_endpoints import build
from test_prompt_logprobs import LONGEST, llama, prompt_of

import worker

I8 = ["--kv-precision", "I8"]
COUNT = 10
CASES = {
    "gqa": "LlamaForCausalLM-internlm3",
    "multi-query": "FalconForCausalLM-alibi-multi-query-parallel",
    "alibi": "BloomForCausalLM-all",
    "window": "MistralForCausalLM-all",
    "norms of heads": "Qwen3ForCausalLM-one-kv-head-bias-tied-window",
    "soft caps": "Gemma2ForCausalLM-all",
    "sinks": "GptOssForCausalLM-all",
    "layers that share keys": "Gemma4ForCausalLM-all",
    "recurrent layers too": "Qwen3NextForCausalLM-all",
    "buckets and cross-attention": "T5ForConditionalGeneration-all",
    "cross-attention": "BartForConditionalGeneration-all",
}
LAYOUTS = {
    "alone": dict(ranks=1),
    "tensor 2": dict(ranks=2),
    "tensor 3": dict(ranks=3),
    "tensor 4": dict(ranks=4),
    "pipeline": dict(ranks=2, sizes="pipeline=2"),
    "tensor and pipeline": dict(ranks=4, sizes="tensor=2,pipeline=2"),
    "sharded": dict(ranks=2, strategy="Sharded", sizes="data=2"),
    "offload": dict(ranks=1, strategy="Offload", sizes="tensor=1"),
}
EVERY_LAYOUT = ("gqa", "sinks", "cross-attention")
RUNS = [
    (case, layout) for case in CASES for layout in LAYOUTS if case in EVERY_LAYOUT or layout in ("alone", "tensor 3")
]


def rounded(x):
    """x [batch, heads, tokens, d] as integers times a scale for each token and head."""
    scale = x.float().abs().amax(-1, keepdim=True) / 127
    return (torch.round(x.float() / scale.clamp(min=1e-38)) * scale).to(x.dtype)


@contextlib.contextmanager
def rounding_caches():
    """transformers' caches hold rounded keys and values, and return them."""
    from transformers import cache_utils

    kinds = [cache_utils.DynamicLayer, cache_utils.DynamicSlidingWindowLayer]
    before = [kind.update for kind in kinds]

    def rounding(update):
        return lambda self, keys, values, *more, **named: update(self, rounded(keys), rounded(values), *more, **named)

    try:
        for kind in kinds:
            kind.update = rounding(kind.update)
        yield
    finally:
        for kind, update in zip(kinds, before):
            kind.update = update


def log_probabilities(model, row, answer, is_encoder_decoder):
    """Those of the tokens of the prompt from the second on, and of the answer; of an encoder-decoder of the answer."""
    from transformers import DynamicCache, EncoderDecoderCache

    with torch.no_grad():
        if is_encoder_decoder:
            fed = [model.config.decoder_start_token_id, *answer[:-1]]
            caches = EncoderDecoderCache(DynamicCache(), DynamicCache())
            scores = model(
                input_ids=torch.tensor([row]),
                decoder_input_ids=torch.tensor([fed]),
                past_key_values=caches,
                use_cache=True,
            ).logits[0]
            named = answer
        else:
            scores = model(torch.tensor([row + answer[:-1]]), use_cache=True).logits[0]
            named = row[1:] + answer
    return scores.float().log_softmax(-1).gather(1, torch.tensor(named)[:, None])[:, 0].numpy()


def served(server, rows, with_prompts, count=COUNT):
    """Answers, and the log-probabilities of each prompt and its answer."""
    body = {"prompt": rows, "max_tokens": count, "temperature": 0, "logprobs": 0, "ignore_eos": True}
    body |= {"return_token_ids": True, **({"prompt_logprobs": 0} if with_prompts else {})}
    found = []
    for row, choice in zip(rows, server.ask("/v1/completions", body)["choices"], strict=True):
        prompt = [
            entry[str(token)]["logprob"] for token, entry in zip(row[1:], (choice.get("prompt_logprobs") or [])[1:])
        ]
        found.append((choice["token_ids"], numpy.array(prompt + choice["logprobs"]["token_logprobs"])))
    return found


def rms(difference):
    return float(numpy.sqrt((numpy.concatenate(difference).astype(numpy.float64) ** 2).mean()))


def compare(server, model, rows, is_encoder_decoder=False, count=COUNT):
    """Returns how far the server's scores are from those of the rounding oracle, and how far these are from scores
    without rounding."""
    off, of_rounding = [], []
    for row, (answer, scores) in zip(rows, served(server, rows, not is_encoder_decoder, count)):
        exact = log_probabilities(model, row, answer, is_encoder_decoder)
        with rounding_caches():
            wanted = log_probabilities(model, row, answer, is_encoder_decoder)
        off.append(scores - wanted)
        of_rounding.append(wanted - exact)
    return rms(off), rms(of_rounding)


def copied(case, folder):
    shutil.copytree(fixtures.checkpoint(case), folder)
    return folder


@pytest.mark.parametrize("name, layout", RUNS, ids=lambda value: value.replace(" ", "-"))
def test_scores_are_those_of_transformers_with_a_rounded_cache(tmp_path, name, layout):
    case = BY_NAME[CASES[name]]
    rows = inputs.prompts(case, (5, 1, 16, 17, 33), seed=4)
    with closing(Server(copied(case, tmp_path / "model"), options=I8, **LAYOUTS[layout])) as server:
        off, of_rounding = compare(server, oracle.model(case), rows, case.kind == "encoder-decoder")
        measured = requests.get(f"http://127.0.0.1:{server.admin_port}/memory", timeout=20).json()["ranks"]
        status = requests.get(f"http://127.0.0.1:{server.admin_port}/status", timeout=20).json()
    print(f"{name}, {layout}: {off:.7f} from the oracle, whose rounding moves scores by {of_rounding:.7f}")
    assert off < 0.1 * of_rounding
    assert status["kvPrecision"] == "I8"
    for rank in measured:  # the bytes of the plan, but for the alignment of tensors
        predicted, held = rank["predicted"]["kv"], rank["measured"]["kv"]
        assert predicted <= held < predicted + 64 * 64, rank


def test_without_it_scores_are_those_of_an_exact_cache(tmp_path):
    case = BY_NAME[CASES["gqa"]]
    rows = inputs.prompts(case, (5, 16, 33), seed=4)
    with closing(Server(copied(case, tmp_path / "model"), ranks=1)) as server:
        off, of_rounding = compare(server, oracle.model(case), rows)
        status = requests.get(f"http://127.0.0.1:{server.admin_port}/status", timeout=20).json()
    assert 0.8 * of_rounding < off < 1.25 * of_rounding
    assert "kvPrecision" not in status


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long") / "llama"
    return folder, build(folder, *llama())


@pytest.mark.parametrize("layout", ["alone", "tensor 2", "pipeline", "sharded"])
def test_prompts_of_several_chunks_have_the_scores_of_whole_ones(long, layout):
    folder, model = long
    with closing(Server(folder, options=I8, **LAYOUTS[layout])) as server:
        off, of_rounding = compare(server, model, [prompt_of(length) for length in (40, 700, LONGEST)], count=4)
    print(f"{off:.7f} from the oracle, whose rounding moves scores by {of_rounding:.7f}")
    assert off < 0.1 * of_rounding


def hits(server):
    return int(re.search(r"^parallelmodel_prefix_cache_hits_total (\d+)", server.get("/metrics").text, re.M)[1])


@pytest.mark.parametrize("layout", ["alone", "tensor 2"])
def test_a_prefix_that_is_found_gives_the_answer_of_one_that_is_computed(long, layout):
    folder, _ = long
    rows = [prompt_of(300) + prompt_of(length) for length in (40, 41, 200)]
    with closing(Server(folder, options=I8, **LAYOUTS[layout])) as server:
        before = [served(server, [row], False, 20)[0] for row in rows[:1]]
        assert hits(server) == 0
        after = [served(server, [row], False, 20)[0] for row in rows]
        assert hits(server) >= 3 * 288
    with closing(Server(folder, options=I8, **LAYOUTS[layout])) as server:
        fresh = [served(server, [row], False, 20)[0] for row in rows[1:]]
    for (tokens, scores), (other_tokens, other_scores) in zip(before + fresh, after, strict=True):
        assert tokens == other_tokens
        assert numpy.abs(scores - other_scores).max() < 1e-4


def test_beams_that_share_and_copy_blocks_are_those_of_transformers(tmp_path):
    case = BY_NAME[CASES["gqa"]]
    rows = inputs.prompts(case, (5, 17, 33), seed=6)
    runner = worker.Batch()
    with closing(runner):
        found = runner.run(
            {
                "model": str(fixtures.checkpoint(case)),
                "ranks": 2,
                "sizes": "tensor=2",
                "kv_precision": "I8",
                "generate": {"input_ids": rows, "max_new_tokens": 20, "num_beams": 4},
            }
        )["sequences"]
    model = oracle.model(case)
    for row, sequence in zip(rows, found, strict=True):
        with rounding_caches(), torch.no_grad():
            wanted = model.generate(
                torch.tensor([row]), max_new_tokens=20, num_beams=4, do_sample=False, pad_token_id=0
            )
        assert sequence == wanted[0].tolist()


speculating = pytest.fixture(scope="module", name="folder")(test_speculation.folder.__wrapped__)


@pytest.mark.parametrize("layout", ["one", "tensor 3", "pipeline", "data"])
def test_answers_with_drafts_are_those_without(folder, layout):
    with closing(Server(folder, ranks=1, options=I8)) as server:
        expected = test_speculation.answers(server)
    with closing(
        Server(folder, options=[*test_speculation.SPECULATION, *I8], **test_speculation.LAYOUTS[layout])
    ) as server:
        for found, wanted in zip(test_speculation.answers(server), expected, strict=True):
            test_speculation.expect_equal(found, wanted)
        assert test_speculation.counters(server)["num_accepted_tokens"] > 5


REFUSED = {
    "DeepseekV3ForCausalLM-all": "a KV cache in I8 is not served for latent attention",
    "BertModel-all": "which caches no keys and values",
    "ReformerModelWithLMHead-all": "which caches no keys and values",
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_cannot_have_it_are_refused_by_name(name):
    folder = fixtures.checkpoint(BY_NAME[name])
    for subcommand in ("plan", "serve"):
        more = ["--devices", 1, "--device-memory", "1Gi"] if subcommand == "plan" else ["--ranks", 1]
        done = worker.run(subcommand, "--model", folder, *more, *I8)
        assert done.returncode == 2 and REFUSED[name] in done.stderr, done.stderr
