# SPDX-License-Identifier: Apache-2.0
"""Beam search gives the sequences and scores of transformers.generate, alone and in a batch, on any number of ranks."""

import json
import shutil

import compare
import fixtures
import inputs
import oracle
import pytest
from cases import BY_NAME

COUNT = 20
OPTIONS = [
    {"num_beams": 4, "num_return_sequences": 4},
    {"num_beams": 3, "num_return_sequences": 2, "early_stopping": True},
    {"num_beams": 3, "num_return_sequences": 3, "early_stopping": "never", "length_penalty": 2.0},
    {"num_beams": 4, "num_return_sequences": 4, "length_penalty": -1.5},
    {"num_beams": 2, "num_return_sequences": 1, "length_penalty": 0.0, "early_stopping": "never"},
    {"num_beams": 5, "num_return_sequences": 5, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3},
    {"num_beams": 3, "num_return_sequences": 3, "min_new_tokens": 8, "early_stopping": True},
]
NAMES = [
    "GPT2LMHeadModel-all",
    "LlamaForCausalLM-all",
    "BloomForCausalLM-all",
    "T5ForConditionalGeneration-all",
    "BartForConditionalGeneration-all",
    "ProphetNetForConditionalGeneration-all",
    "EncoderDecoderModel-bert2bert",
    "XLMWithLMHeadModel-all",
    "ReformerModelWithLMHead-in-order-of-tokens",
]


def check_answer(found, wanted, options):
    assert found["sequences"] == wanted["sequences"], options
    assert found["scores"] == pytest.approx(wanted["scores"], rel=1e-4, abs=1e-4), options


def found_by(runner, folder, ranks, rows, **options):
    return runner.batch.run(
        {
            "model": str(folder),
            "ranks": ranks,
            "sizes": f"tensor={ranks}",
            "generate": {"input_ids": rows, "max_new_tokens": COUNT, **options},
        }
    )


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_beams_and_their_scores_equal_transformers(runner, name, ranks):
    case = BY_NAME[name]
    folder, compared = fixtures.checkpoint(case), 0
    for seed in (21, 22, 23):
        row = inputs.prompts(case, [9], seed=seed)[0]
        for options in OPTIONS:
            wanted = oracle.beams(case, row, COUNT, **options)
            if wanted["gap"] < compare.NEAR_TIE:
                continue
            compared += 1
            check_answer(found_by(runner, folder, ranks, [row], **options), wanted, options)
    assert compared >= 12, "most searches have clear orders, else choose other seeds"


@pytest.mark.parametrize("name", ["GPT2LMHeadModel-all", "T5ForConditionalGeneration-all"])
def test_beams_that_end_at_end_tokens_end_and_count_as_in_transformers(runner, tmp_path, name):
    """The end tokens are ids that likely answers contain, so that beams end at different lengths, some searches
    early."""
    case = BY_NAME[name]
    lengths, compared = set(), 0
    for seed in (41, 42, 43):
        row = inputs.prompts(case, [9], seed=seed)[0]
        likely = oracle.beams(case, row, COUNT, num_beams=4, num_return_sequences=4)["sequences"]
        ends = sorted({sequence[place] for sequence, place in zip(likely, (-3, -9, -14, -6))})
        folder = tmp_path / str(seed)
        shutil.copytree(fixtures.checkpoint(case), folder)
        config = folder / "generation_config.json"
        config.write_text(
            json.dumps({**(json.loads(config.read_text()) if config.exists() else {}), "eos_token_id": ends})
        )
        for options in OPTIONS:
            wanted = oracle.beams(case, row, COUNT, eos_token_id=ends, **options)
            if wanted["gap"] < compare.NEAR_TIE:
                continue
            compared += 1
            lengths |= {len(sequence) for sequence in wanted["sequences"]}
            check_answer(found_by(runner, folder, 2, [row], **options), wanted, options)
    assert compared >= 10 and len(lengths) >= 4, (compared, lengths)


@pytest.mark.parametrize("name", ["GPT2LMHeadModel-all", "T5ForConditionalGeneration-all"])
def test_beams_of_batched_prompts_are_those_of_each_alone(runner, name):
    case = BY_NAME[name]
    folder, rows = fixtures.checkpoint(case), inputs.prompts(case, [5, 17, 9, 30, 2, 12], seed=31)
    for options in (
        {"num_beams": 4, "num_return_sequences": 2},
        {"num_beams": 3, "num_return_sequences": 3, "no_repeat_ngram_size": 2, "early_stopping": True},
    ):
        together = found_by(runner, folder, 2, rows, **options)
        each = options["num_return_sequences"]
        compared = 0
        for i, row in enumerate(rows):
            wanted = oracle.beams(case, row, COUNT, **options)
            if wanted["gap"] < compare.NEAR_TIE:
                continue
            compared += 1
            check_answer(
                {key: together[key][i * each : (i + 1) * each] for key in ("sequences", "scores")}, wanted, options
            )
        assert compared >= 3


def test_beams_that_are_drawn_depend_on_the_seed_alone(runner):
    case = BY_NAME["GPT2LMHeadModel-all"]
    folder, rows = fixtures.checkpoint(case), inputs.prompts(case, [5, 17], seed=5)
    options = {"num_beams": 3, "num_return_sequences": 2, "do_sample": True, "temperature": 0.9, "top_k": 40}
    first = found_by(runner, folder, 1, rows, seed=3, **options)
    assert found_by(runner, folder, 3, rows, seed=3, **options)["sequences"] == first["sequences"]
    assert found_by(runner, folder, 1, rows[:1], seed=3, **options)["sequences"] == first["sequences"][:2]
    assert found_by(runner, folder, 1, rows, seed=4, **options)["sequences"] != first["sequences"]


def test_sequences_sampled_for_one_prompt_differ_and_the_first_is_the_only_one_of_a_request_for_one(runner):
    case = BY_NAME["LlamaForCausalLM-all"]
    folder, rows = fixtures.checkpoint(case), inputs.prompts(case, [20, 7], seed=6)
    drawn = {"do_sample": True, "temperature": 1.5, "seed": 9, "ignore_eos": True}
    several = found_by(runner, folder, 2, rows, num_return_sequences=4, **drawn)["sequences"]
    assert len({tuple(sequence) for sequence in several}) == 8
    assert several[0::4] == found_by(runner, folder, 2, rows, **drawn)["sequences"]


def test_a_search_that_cannot_be_is_refused_by_name(runner):
    folder = fixtures.checkpoint(BY_NAME["GPT2LMHeadModel-all"])
    answer = runner.batch.ask(
        {"model": str(folder), "generate": {"input_ids": [[1, 2]], "num_beams": 2, "num_return_sequences": 3}}
    )
    assert not answer["ok"] and "num_return_sequences is 3 but num_beams is 2" in answer["error"], answer
