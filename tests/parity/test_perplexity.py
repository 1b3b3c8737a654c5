# SPDX-License-Identifier: Apache-2.0
"""What each precision costs a trained model: the perplexity of the example on stories that it has not seen, which come
from its grammar with a seed of their own. bench/quality.sh prints the table.
"""

import importlib.util
import random
import shutil
from contextlib import closing

import numpy
import pytest
from server import Server
from tokenizers import Tokenizer

import worker

FOLDER = worker.REPOSITORY / "examples/tiny-stories"
STORIES, WIDTH = 24, 192
# the most that a precision may add to the perplexity of fp32, as a factor
BOUNDS = {"F16": 1.0005, "BF16": 1.002, "I8": 1.001, "I4": 1.01, "I8A8": 1.01}
KV_BOUNDS = {"F32": 1.0005, "BF16": 1.002, "I8": 1.001}  # the same with a KV cache in I8


@pytest.fixture(scope="module")
def given():
    """Unseen stories: ids and mask [stories, width], the end token in place of what is beyond a story."""
    spec = importlib.util.spec_from_file_location("stories", FOLDER / "stories.py")
    stories = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stories)
    rng, tokenizer = random.Random(2026), Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    rows = [tokenizer.encode(stories.story(rng)).ids[:WIDTH] for _ in range(STORIES)]
    ids, mask = numpy.zeros((2, STORIES, WIDTH), numpy.int64)
    for row, own_ids, own_mask in zip(rows, ids, mask, strict=True):
        own_ids[: len(row)], own_mask[: len(row)] = row, 1
    return {"input_ids": ids, "attention_mask": mask}


def perplexity(runner, given, precision):
    """exp of the mean of -log p of each token but the first of a story."""
    scores = runner.forward(FOLDER, 1, given, precision=precision)["logits"].astype(numpy.float64)[:, :-1]
    scores -= scores.max(2, keepdims=True)
    log_p = scores - numpy.log(numpy.exp(scores).sum(2, keepdims=True))
    ids, mask = given["input_ids"][:, 1:], given["attention_mask"][:, 1:].astype(bool)
    return float(numpy.exp(-numpy.take_along_axis(log_p, ids[..., None], 2)[..., 0][mask].mean()))


def test_quantizing_costs_a_trained_model_little(runner, given):
    exact = perplexity(runner, given, "F32")
    found = {precision: perplexity(runner, given, precision) for precision in BOUNDS}
    print(f"\nperplexity of {given['attention_mask'].sum()} tokens of unseen stories, and its factor over F32")
    for precision, value in {"F32": exact, **found}.items():
        print(f"{precision:5} {value:9.5f} {value / exact:9.5f}")
    assert 1 < exact < 5, "a model that has learned its grammar"
    assert {precision for precision, value in found.items() if value > exact * BOUNDS[precision]} == set()
    assert len({exact, *found.values()}) == len(found) + 1, "each precision has scores of its own"


def perplexity_of_steps(folder, given, precision, *options):
    """The same of prompts that a server reads in steps, with a KV cache."""
    rows = [ids[: mask.sum()].tolist() for ids, mask in zip(given["input_ids"], given["attention_mask"], strict=True)]
    with closing(Server(folder, ranks=1, options=["--precision", precision, *options])) as server:
        body = {"prompt": rows, "max_tokens": 1, "prompt_logprobs": 0}
        choices = server.ask("/v1/completions", body)["choices"]
    log_p = [
        entry[str(token)]["logprob"]
        for row, choice in zip(rows, choices, strict=True)
        for token, entry in zip(row[1:], choice["prompt_logprobs"][1:], strict=True)
    ]
    return float(numpy.exp(-numpy.mean(log_p)))


def test_a_kv_cache_of_integers_costs_a_trained_model_little(runner, given, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "model")
    exact = perplexity_of_steps(tmp_path / "model", given, "F32")
    assert exact == pytest.approx(perplexity(runner, given, "F32"), rel=1e-6)
    options = ["--kv-precision", "I8"]
    found = {kind: perplexity_of_steps(tmp_path / "model", given, kind, *options) for kind in KV_BOUNDS}
    print("\nthe same with a KV cache in I8")
    for precision, value in found.items():
        print(f"{precision:5} {value:9.5f} {value / exact:9.5f}")
    assert {precision for precision, value in found.items() if value > exact * KV_BOUNDS[precision]} == set()
    assert len({exact, *found.values()}) == len(found) + 1, "rounding shows"
