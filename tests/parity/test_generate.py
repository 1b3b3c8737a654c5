# SPDX-License-Identifier: Apache-2.0
"""Greedy tokens of batched prompts equal those of transformers for each prompt alone; sampled tokens depend on their
seed alone.
"""

import json
import shutil

import compare
import fixtures
import inputs
import oracle
import pytest
from cases import BY_NAME, CASES, RANKS

import worker

COUNT = 24
GENERATING = [case for case in CASES if case.generates]


def rows_of(case):
    return inputs.media(case) if case.media else inputs.prompts(case, case.lengths, seed=2)


def check_answer(runner, case, folder, ranks, row, answer=None, **options):
    """Raises compare.Difference unless the answer to one prompt (generated where it is not given) equals the
    oracle's, up to near-ties.
    """
    wanted, given = oracle.greedy(case, row, COUNT), [answer] if answer else []

    def generate(prompt, left):  # compares the given answer first and generates again only after a near-tie
        return (
            given.pop()
            if given
            else runner.generate(folder, ranks, [prompt], max_new_tokens=left, do_sample=False, **options)[0]
        )

    if not case.decodes:
        return compare.greedy(generate, row, wanted)
    # what the decoder has said already cannot be given, so these oracles have no near-ties
    assert min(wanted["gaps"]) > compare.NEAR_TIE, "choose another seed"
    found = generate(row, COUNT)
    if found != wanted["sequence"]:
        raise compare.Difference(f"{found} is not the oracle's {wanted['sequence']}")
    return 0


@pytest.mark.parametrize(
    "case, ranks",
    [pytest.param(case, ranks, id=f"{case.name}-n{ranks}") for case in GENERATING for ranks in case.ranks],
)
def test_greedy_tokens_of_batched_prompts_equal_transformers_row_by_row(runner, case, ranks):
    folder, rows = fixtures.checkpoint(case), rows_of(case)
    together = runner.generate(folder, ranks, rows, max_new_tokens=COUNT, do_sample=False)
    assert len(together) == len(rows)
    for row, answer in zip(rows, together):
        check_answer(runner, case, folder, ranks, row, answer)


@pytest.mark.parametrize("case", GENERATING, ids=lambda case: case.name)
def test_greedy_answers_differ_from_prompt_to_prompt(case):
    """Else equal tokens would prove little."""
    answers = [tuple(oracle.greedy(case, row, COUNT)["sequence"][-COUNT:]) for row in rows_of(case)]
    assert len(set(answers)) == len(answers)
    assert len({token for answer in answers for token in answer}) > 12


OPTIONS = [
    {"repetition_penalty": 1.7},
    {"repetition_penalty": 0.6},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "min_new_tokens": 20},
]


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(
    "name",
    [
        "GPT2LMHeadModel-all",
        "LlamaForCausalLM-all",
        "T5ForConditionalGeneration-all",
        "XLMWithLMHeadModel-causal-relu-one-language",
    ],
)
def test_options_of_greedy_decoding_act_as_in_transformers_alone_and_beside_others(runner, name, ranks):
    """Every option on its own sequence of one busy batch; bad_words are the tokens that the plain answer is made of."""
    case = BY_NAME[name]
    folder, row = fixtures.checkpoint(case), inputs.prompts(case, [9], seed=11)[0]
    plain = oracle.greedy(case, row, COUNT)["sequence"]
    words = [[plain[-COUNT]], plain[-COUNT + 1 : -COUNT + 3], plain[-3:]]
    changed = 0
    for options in [{}, *OPTIONS, {"bad_words_ids": words}]:
        wanted = oracle.greedy(case, row, COUNT, **options)
        assert min(wanted["gaps"]) > compare.NEAR_TIE, "choose another seed"
        changed += wanted["sequence"] != plain
        answers = runner.generate(folder, ranks, [row, row[:3], row], max_new_tokens=COUNT, do_sample=False, **options)
        assert answers[0] == answers[2] == wanted["sequence"], options
        assert runner.generate(folder, ranks, [row], max_new_tokens=COUNT, do_sample=False, **options) == [
            wanted["sequence"]
        ], options
    assert changed >= 4, "most options change the answer, else equal tokens prove little"


@pytest.mark.parametrize("name", ["BartForConditionalGeneration-all", "T5ForConditionalGeneration-all"])
def test_forced_tokens_of_the_checkpoint_come_where_transformers_puts_them(runner, tmp_path, name):
    case = BY_NAME[name]
    forced = {"forced_bos_token_id": 17, "forced_eos_token_id": 23}
    shutil.copytree(fixtures.checkpoint(case), tmp_path, dirs_exist_ok=True)
    config = tmp_path / "generation_config.json"
    config.write_text(json.dumps({**(json.loads(config.read_text()) if config.exists() else {}), **forced}))
    row = inputs.prompts(case, [9], seed=12)[0]
    for count in (2, 8):
        wanted = oracle.greedy(case, row, count, **forced)["sequence"]
        assert wanted[1] == 17 and wanted[-1] == 23
        assert runner.generate(tmp_path, 2, [row], max_new_tokens=count, do_sample=False) == [wanted]


def test_an_id_outside_the_vocabulary_is_refused_before_it_is_looked_up(runner, tmp_path):
    shutil.copytree(fixtures.checkpoint(BY_NAME["T5ForConditionalGeneration-all"]), tmp_path, dirs_exist_ok=True)
    (tmp_path / "generation_config.json").write_text(json.dumps({"decoder_start_token_id": 10**6}))
    answer = runner.batch.ask({"model": str(tmp_path), "generate": {"input_ids": [[1, 2]]}})
    assert not answer["ok"] and "decoder_start_token_id is 1000000" in answer["error"], answer


def test_prompts_have_the_vocabulary_of_the_encoder(runner):
    """That of the decoder is smaller in the first case, larger in the second."""
    case = BY_NAME["EncoderDecoderModel-bert2bert"]
    row = [130, 17, 101, 64, 119]
    assert max(row) < case.settings["encoder"]["vocab_size"] and max(row) > case.settings["decoder"]["vocab_size"]
    check_answer(runner, case, fixtures.checkpoint(case), 2, row)
    case = BY_NAME["EncoderDecoderModel-roberta2gpt2"]
    folder = fixtures.checkpoint(case)
    answer = runner.batch.ask({"model": str(folder), "generate": {"input_ids": [[5, 131]]}})
    assert not answer["ok"] and "token id 131 is outside the vocabulary of 131" in answer["error"], answer


@pytest.mark.parametrize(
    "name",
    [
        "GPT2LMHeadModel-inverse-layer-scale",
        "LlamaForCausalLM-all",
        "T5ForConditionalGeneration-all",
        "XLMWithLMHeadModel-all",
        "ReformerModelWithLMHead-all",
    ],
)
def test_sampled_tokens_depend_on_the_seed_and_on_nothing_else(runner, name):
    """The same seed samples the same tokens on any number of ranks, alone and in a batch; another seed samples
    others.
    """
    case = BY_NAME[name]
    folder, rows = fixtures.checkpoint(case), inputs.prompts(case, [5, 17, 9], seed=5)
    drawn = {
        "max_new_tokens": 16,
        "ignore_eos": True,
        "do_sample": True,
        "temperature": 0.9,
        "top_k": 50,
        "top_p": 0.95,
        "min_p": 0.01,
        "repetition_penalty": 1.1,
    }
    alone = [runner.generate(folder, 1, [row], seed=7, **drawn)[0] for row in rows]
    for ranks in RANKS:
        assert runner.generate(folder, ranks, rows, seed=7, **drawn) == alone
    assert runner.generate(folder, 2, rows, seed=8, **drawn) != alone


@pytest.mark.parametrize(
    "name", ["GPT2LMHeadModel-all", "BartForConditionalGeneration-all", "FlaubertWithLMHeadModel-light"]
)
def test_generate_prints_the_ids_that_transformers_returns(name):
    case = BY_NAME[name]
    row = inputs.prompts(case, [12], seed=3)[0]
    done = worker.run(
        "generate",
        "--model",
        fixtures.checkpoint(case),
        "--ranks",
        2,
        "--strategy",
        "Tensor",
        "--input-ids",
        ",".join(map(str, row)),
        "--max-new-tokens",
        10,
        "--json",
    )
    assert done.returncode == 0, done.stderr
    wanted = oracle.greedy(case, row, 10)
    assert min(wanted["gaps"]) > compare.NEAR_TIE, "choose another seed"
    assert json.loads(done.stdout)["sequences"] == [wanted["sequence"]]


def test_more_sequences_than_the_plan_counts_have_states_of_their_own():
    case = BY_NAME["Qwen3_5ForCausalLM-all"]
    rows = inputs.prompts(case, [5] * 9, seed=3)
    ids = [word for row in rows for word in ("--input-ids", ",".join(map(str, row)))]
    together = cli_sequences(fixtures.checkpoint(case), *ids, "--max-new-tokens", 6, "--max-concurrency", 2)
    for row, found in zip(rows, together, strict=True):
        wanted = oracle.greedy(case, row, 6)
        assert found == wanted["sequence"] or min(wanted["gaps"]) <= compare.NEAR_TIE


def cli_sequences(folder, *flags):
    done = worker.run("generate", "--model", folder, "--ranks", 2, "--strategy", "Tensor", "--json", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["sequences"]


def flags_of(row, **options):
    return [
        "--input-ids",
        ",".join(map(str, row)),
        *(item for name, value in options.items() for item in ("--" + name.replace("_", "-"), value)),
    ]


def with_defaults(case, folder, **defaults):
    """Copies the checkpoint of a case, with these values in its generation_config.json."""
    shutil.copytree(fixtures.checkpoint(case), folder)
    config = folder / "generation_config.json"
    config.write_text(json.dumps({**(json.loads(config.read_text()) if config.exists() else {}), **defaults}))
    return folder


@pytest.mark.parametrize(
    "name, defaults",
    [
        ("GPT2LMHeadModel-all", {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2}),
        ("BartForConditionalGeneration-all", {"num_beams": 3, "length_penalty": 0.5}),
        ("LlamaForCausalLM-all", {"bad_words_ids": [[7], [3, 4]], "min_new_tokens": 9}),
    ],
)
def test_generate_has_the_defaults_of_the_checkpoint_and_flags_go_before_them(tmp_path, name, defaults):
    case = BY_NAME[name]
    row = inputs.prompts(case, [10], seed=31)[0]
    folder = with_defaults(case, tmp_path / "model", **defaults, max_new_tokens=12)
    if "num_beams" in defaults:
        wanted = oracle.beams(case, row, 12, **defaults)["sequences"][:1]
        plain = oracle.greedy(case, row, 12)["sequence"]
    else:
        wanted = [oracle.greedy(case, row, 12, **defaults)["sequence"]]
        plain = None
    assert cli_sequences(folder, *flags_of(row)) == wanted
    shorter = cli_sequences(folder, *flags_of(row, max_length=len(wanted[0]) - 5))
    assert len(shorter[0]) <= len(wanted[0]) - 5, "--max-length goes before max_new_tokens of the file"
    if plain:
        assert cli_sequences(folder, *flags_of(row, num_beams=1)) == [plain]


def test_generate_adds_the_biases_of_its_flag():
    case = BY_NAME["GPT2LMHeadModel-all"]
    row = inputs.prompts(case, [12], seed=3)[0]
    bias = {oracle.greedy(case, row, 10)["sequence"][len(row)]: -100.0, 7: 0.25}
    wanted = oracle.greedy(case, row, 10, sequence_bias=[[[id], value] for id, value in bias.items()])["sequence"]
    flags = [f"--logit-bias={id}={value}" for id, value in bias.items()]
    assert cli_sequences(fixtures.checkpoint(case), *flags_of(row, max_new_tokens=10), *flags) == [wanted]


def test_generate_ends_at_the_end_tokens_of_its_flag():
    case = BY_NAME["GPT2LMHeadModel-all"]
    row = inputs.prompts(case, [12], seed=3)[0]
    answer = oracle.greedy(case, row, 10)["sequence"][len(row) :]
    end = answer[5]
    wanted = [*row, *answer[: answer.index(end) + 1]]
    folder = fixtures.checkpoint(case)
    assert cli_sequences(folder, *flags_of(row, max_new_tokens=10, eos_token_id=f"{end},9999")) == [wanted]
    for flag in ("--eos-token-id=x", "--stop=", "--bad-words=a", "--stop=a", "--logit-bias=5", "--logit-bias=5=1x"):
        done = worker.run("generate", "--model", folder, *flags_of(row), flag)
        assert done.returncode != 0 and flag.split("=")[0] in done.stderr, done.stderr
