# SPDX-License-Identifier: Apache-2.0
"""The trained example model tells the same stories as transformers, in whole English sentences."""

import hashlib
import json
import random
import re
import sys

import compare
import oracle
import pytest
from cases import Case
from tokenizers import Tokenizer

import worker

FOLDER = worker.REPOSITORY / "examples/tiny-stories"
PROMPTS = [
    "Once upon a time",
    "Once upon a time, a brave owl",
    "There once was a shy",
    "Long ago, a clever boy named",
    "Anna was a kind girl.",
]
RANKS = [1, 2, 3, 5]
NEW = 160


@pytest.fixture(scope="module")
def case():
    digest = hashlib.sha256(
        b"".join(
            (FOLDER / name).read_bytes() for name in ("model.safetensors", "config.json", "generation_config.json")
        )
    ).hexdigest()
    return Case("tiny-stories", "GPT2LMHeadModel", "GPT2Config", "{}", 0, folder=str(FOLDER), digest=digest)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


@pytest.mark.parametrize("ranks", RANKS)
def test_greedy_stories_equal_transformers_to_the_end_token(runner, case, tokenizer, ranks):
    rows = [tokenizer.encode(prompt).ids for prompt in PROMPTS]
    together = runner.generate(FOLDER, ranks, rows, max_new_tokens=NEW, do_sample=False)
    for row, answer in zip(rows, together):
        first = [answer]
        compare.greedy(
            lambda prompt, left: (
                first.pop()
                if first
                else runner.generate(FOLDER, ranks, [prompt], max_new_tokens=left, do_sample=False)[0]
            ),
            row,
            oracle.greedy(case, row, NEW),
        )


def test_stories_are_whole_sentences_of_the_words_that_it_learned_and_end(case, tokenizer):
    sys.path.insert(0, str(FOLDER))
    import stories

    generator = random.Random(1)
    known = {word for _ in range(4000) for word in re.findall(r"[A-Za-z]+", stories.story(generator))}
    end = tokenizer.token_to_id("<|endoftext|>")
    for prompt in PROMPTS:
        sequence = oracle.greedy(case, tokenizer.encode(prompt).ids, NEW)["sequence"]
        text = tokenizer.decode(sequence)
        assert sequence[-1] == end and text[-1] in '."', text
        assert set(re.findall(r"[A-Za-z]+", text)) <= known, set(re.findall(r"[A-Za-z]+", text)) - known
        assert len(re.findall(r"[.!?]", text)) >= 6, text


def test_generate_prints_the_story(case, tokenizer):
    done = worker.run(
        "generate",
        "--model",
        FOLDER,
        "--ranks",
        2,
        "--strategy",
        "Tensor",
        "--prompt",
        PROMPTS[0],
        "--max-new-tokens",
        NEW,
    )
    assert done.returncode == 0, done.stderr
    sequence = oracle.greedy(case, tokenizer.encode(PROMPTS[0]).ids, NEW)["sequence"]
    assert done.stdout.strip() == tokenizer.decode(sequence).strip()


@pytest.mark.parametrize("flag", ["--stop", "--stop-strings"])
def test_generate_ends_its_text_before_a_stop_string(case, tokenizer, flag):
    """The sequence ends with the token that completes the stop string."""
    sequence = oracle.greedy(case, tokenizer.encode(PROMPTS[0]).ids, NEW)["sequence"]
    answer = tokenizer.decode(sequence)[len(PROMPTS[0]) :]
    stop = answer[25:29]
    done = worker.run(
        "generate", "--model", FOLDER, "--prompt", PROMPTS[0], "--max-new-tokens", NEW, "--json", f"{flag}={stop}"
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["text"] == [PROMPTS[0] + answer[: answer.index(stop)]]
    kept = said["sequences"][0]
    assert kept == sequence[: len(kept)]
    assert stop in tokenizer.decode(kept)[len(PROMPTS[0]) :]
    assert stop not in tokenizer.decode(kept[:-1])[len(PROMPTS[0]) :]
