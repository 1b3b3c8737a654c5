# SPDX-License-Identifier: Apache-2.0
"""Scores after the worker's logits processors equal those of transformers: one at a time and combined, on peaked and
flat distributions.
"""

import json
import random
import subprocess

import numpy
import pytest
import torch
import transformers

import worker

DUMP = worker.TOOLS / "processed_dump"
VOCABULARY, EOS = 97, [5, 11]
WARPERS = {
    "temperature": lambda v: transformers.TemperatureLogitsWarper(v),
    "top_k": lambda v: transformers.TopKLogitsWarper(v),
    "top_p": lambda v: transformers.TopPLogitsWarper(v),
    "min_p": lambda v: transformers.MinPLogitsWarper(v),
    "typical_p": lambda v: transformers.TypicalLogitsWarper(v),
}
EDITS = {
    "repetition_penalty": lambda v, n: transformers.RepetitionPenaltyLogitsProcessor(v),
    "no_repeat_ngram_size": lambda v, n: transformers.NoRepeatNGramLogitsProcessor(v),
    "bad_words_ids": lambda v, n: transformers.NoBadWordsLogitsProcessor(v, eos_token_id=torch.tensor(EOS)),
    "min_new_tokens": lambda v, n: transformers.MinNewTokensLengthLogitsProcessor(n, v, eos_token_id=torch.tensor(EOS)),
}
CASES = [
    {"temperature": 0.3},
    {"temperature": 2.5},
    {"top_k": 1},
    {"top_k": 13},
    {"top_k": 500},
    {"top_p": 0.05},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"min_p": 0.01},
    {"min_p": 0.5},
    {"min_p": 1.0},
    {"typical_p": 0.02},
    {"typical_p": 0.5},
    {"typical_p": 0.97},
    {"repetition_penalty": 1.8},
    {"repetition_penalty": 0.5},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"min_new_tokens": 4},
    {"min_new_tokens": 30},
    {"bad_words_ids": [[3], [5], [1, 2], [2, 1, 2]]},
    {
        "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 2,
        "bad_words_ids": [[7], [1, 2]],
        "min_new_tokens": 9,
        "temperature": 0.7,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.02,
        "typical_p": 0.9,
    },
]


def theirs(options, tokens, prompt, logits):
    processors = [make(options[name], prompt) for name, make in EDITS.items() if name in options]
    processors += [make(options[name]) for name, make in WARPERS.items() if name in options]
    scores = torch.tensor([logits])
    for processor in processors:
        scores = processor(torch.tensor([tokens]), scores)
    return scores[0].numpy()


def situations():
    """(tokens, length of the prompt, scores): few distinct tokens, so that n-grams repeat."""
    chance = random.Random(4)
    for scale in (0.1, 1, 5, 30):
        for length in (2, 3, 9, 40):
            tokens = [chance.choice([1, 2, 3, 60]) for _ in range(length)]
            yield tokens, min(length, 8), [chance.gauss(0, scale) for _ in range(VOCABULARY)]


@pytest.mark.parametrize("options", CASES, ids=json.dumps)
def test_scores_are_those_of_transformers(options):
    given = list(situations())
    jobs = [
        {
            **options,
            "do_sample": bool(WARPERS.keys() & options.keys()),
            "logits": logits,
            "tokens": tokens,
            "prompt": prompt,
            "eos_token_id": EOS,
        }
        for tokens, prompt, logits in given
    ]
    done = subprocess.run(
        [DUMP],
        input="".join(json.dumps(job) + "\n" for job in jobs),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for (tokens, prompt, logits), line in zip(given, done.stdout.splitlines(), strict=True):
        ours = numpy.array([-numpy.inf if score is None else score for score in json.loads(line)], numpy.float32)
        wanted = theirs(options, tokens, prompt, logits)
        assert (numpy.isinf(ours) == numpy.isinf(wanted)).all(), (
            tokens,
            numpy.flatnonzero(numpy.isinf(ours) != numpy.isinf(wanted)),
        )
        kept = ~numpy.isinf(wanted)
        assert numpy.allclose(ours[kept], wanted[kept], rtol=1e-6, atol=1e-6)
