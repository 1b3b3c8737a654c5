# SPDX-License-Identifier: Apache-2.0
"""RAG-Token and RAG-Sequence from an index of passages: passages, scores and answers equal those of transformers and of
torch's exact search, on one and on several ranks, on the command line and over HTTP. Broken indices are refused.
"""

import json
import shutil

import pytest
import torch
from rag_models import EMBEDDING_WIDTH, MODELS, NO_REPEAT_NGRAM_SIZE, PASSAGES, QUESTIONS, Rag
from safetensors.torch import save_file
from server import Server

import worker

NEW_TOKENS = 14
NO_REPEAT = {"no_repeat_ngram_size": NO_REPEAT_NGRAM_SIZE}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    models = {}

    def get(name):
        if name not in models:
            marginal, kind, settings = MODELS[name]
            models[name] = Rag(tmp_path_factory.mktemp("rag") / name, marginal, kind, **settings)
        return models[name]

    return get


@pytest.fixture
def copied(made, tmp_path):
    def get(name):
        """A model whose folder the test may change."""
        rag = made(name)
        shutil.copytree(rag.folder, tmp_path / name)
        copy = Rag.__new__(Rag)
        copy.__dict__ = {**rag.__dict__, "folder": tmp_path / name}
        return copy

    return get


def generate(folder, questions, ranks=1, beams=1, count=1, options=()):
    run = worker.run(
        "generate",
        "--model",
        folder,
        "--ranks",
        ranks,
        "--json",
        "--num-beams",
        beams,
        "--num-return-sequences",
        count,
        "--max-new-tokens",
        NEW_TOKENS,
        "--no-repeat-ngram-size",
        NO_REPEAT_NGRAM_SIZE,
        *(part for question in questions for part in ("--prompt", question)),
        *options,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def check_passages(rag, question, found):
    numbers, scores = rag.retrieve(question)
    assert [one["number"] for one in found] == numbers
    assert [one["score"] for one in found] == pytest.approx(scores[0].tolist(), abs=2e-5)
    assert [{key: one[key] for key in ("title", "text")} for one in found] == [
        {key: rag.passages[number][key] for key in ("title", "text")} for number in numbers
    ]


LAYOUTS = {"n1": (1, ()), "n2": (2, ("--sizes", "tensor=2")), "p2": (2, ("--sizes", "pipeline=2"))}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("beams, count", [(1, 1), (3, 2)])
@pytest.mark.parametrize("name", MODELS)
def test_answers_and_passages_equal_transformers_and_an_exact_search(made, name, beams, count, layout):
    rag, (ranks, options) = made(name), LAYOUTS[layout]
    found = generate(rag.folder, QUESTIONS, ranks, beams, count, options)
    assert len(found["sequences"]) == len(QUESTIONS) * count
    for row, question in enumerate(QUESTIONS):
        rows, scores = rag.scored_answers(question, NEW_TOKENS, beams, count)
        assert found["sequences"][row * count : (row + 1) * count] == rows
        assert ("scores" in found) == (scores is not None)
        if scores:
            assert found["scores"][row * count : (row + 1) * count] == pytest.approx(scores, abs=1e-4)
        check_passages(rag, question, found["passages"][row * count])
        assert found["text"][row * count] == rag.generator.decode(
            found["sequences"][row * count], skip_special_tokens=True
        )


@pytest.mark.parametrize("name", MODELS)
def test_answers_differ_from_question_to_question(made, name):
    """Else equal answers would prove little."""
    answers = [tuple(made(name).answers(question, NEW_TOKENS, 3)[0]) for question in QUESTIONS]
    assert len(set(answers)) == len(QUESTIONS)
    assert len({token for answer in answers for token in answer}) > 5


CHANGES = [{"title_sep": " // "}, {"doc_sep": " ! "}, {"n_docs": 2}, {"max_combined_length": 31}]


@pytest.mark.parametrize("name", ["token-bart", "token-t5", "sequence-bart", "sequence-t5-all"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_a_changed_option_changes_answers_or_their_scores(made, copied, name, change):
    mutant = copied(name)
    mutant.change_config(**change)
    ours, others = (generate(rag.folder, QUESTIONS, 2, beams=3) for rag in (made(name), mutant))
    apart = max(abs(one - other) for one, other in zip(ours["scores"], others["scores"]))
    assert ours["sequences"] != others["sequences"] or apart > 1e-3


@pytest.mark.parametrize("name", ["token-bart", "token-t5", "sequence-bart-shards"])
def test_the_scores_of_passages_count(made, name):
    """Answers of transformers with equal scores of all passages are others: an answer that leaves them out is seen."""
    rag = made(name)
    equal = torch.zeros(1, rag.model.config.n_docs)
    weighted, unweighted = (
        [rag.scored_answers(question, NEW_TOKENS, 3, scores=scores) for question in QUESTIONS]
        for scores in (None, equal)
    )
    apart = max(abs(one[1][0] - other[1][0]) for one, other in zip(weighted, unweighted))
    assert [one[0] for one in weighted] != [one[0] for one in unweighted] or apart > 1e-2


def test_several_samples_of_a_question_follow_their_seeds(made):
    rag = made("token-bart")
    options = ("--do-sample", "--seed", "7", "--top-k", "0")
    first = generate(rag.folder, QUESTIONS[:1], 1, count=3, options=options)["sequences"]
    assert first == generate(rag.folder, QUESTIONS[:1], 2, count=3, options=options)["sequences"]
    assert len({tuple(answer) for answer in first}) == 3


def refused(folder, *options):
    run = worker.run("generate", "--model", folder, "--prompt", QUESTIONS[0], "--max-new-tokens", 3, *options)
    assert run.returncode != 0, run.stdout
    return run.stderr


def rewrite_passages(folder, change):
    path = folder / "index/passages.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(change(lines)) + "\n")


BROKEN_LINES = {
    "other-count": (lambda lines: lines[:-2], f"has {PASSAGES - 2} passages and {PASSAGES} embeddings"),
    "no-json": (lambda lines: [*lines[:4], "{", *lines[5:]], "passages.jsonl line 5 is not a JSON object"),
    "empty-line": (lambda lines: [*lines[:2], "", *lines[3:]], "passages.jsonl line 3 is not a JSON object"),
    "no-text": (lambda lines: ['{"title": "x"}', *lines[1:]], 'passages.jsonl line 1 has no string "text"'),
    "number": (lambda lines: ['{"title": 3, "text": ""}', *lines[1:]], 'passages.jsonl line 1 has no string "title"'),
}


@pytest.mark.parametrize("broken", BROKEN_LINES)
def test_broken_passages_are_refused_with_their_line(copied, broken):
    rag, (change, words) = copied("token-bart"), BROKEN_LINES[broken]
    rewrite_passages(rag.folder, change)
    assert words in refused(rag.folder)


EMBEDDINGS = torch.zeros(PASSAGES, EMBEDDING_WIDTH)
BROKEN_TENSORS = {
    "width": ({"embeddings": torch.zeros(PASSAGES, 7)}, f"the width 7, the vector of a question has {EMBEDDING_WIDTH}"),
    "name": ({"vectors": EMBEDDINGS}, 'has the tensor "vectors"'),
    "two": ({"embeddings": EMBEDDINGS, "more": EMBEDDINGS + 1}, 'has the tensor "more"'),
    "type": ({"embeddings": EMBEDDINGS.to(torch.int8)}, "has the element type I8, expected F32, F16 or BF16"),
    "shape": ({"embeddings": EMBEDDINGS[0].clone()}, f'"embeddings" has the shape [{EMBEDDING_WIDTH}]'),
    "few": ({"embeddings": EMBEDDINGS[:2].clone()}, "has 2 passages, config.json asks for n_docs 3"),
}


@pytest.mark.parametrize("broken", BROKEN_TENSORS)
def test_broken_embeddings_are_refused_by_inspect(copied, broken):
    rag, (tensors, words) = copied("token-bart"), BROKEN_TENSORS[broken]
    save_file(tensors, rag.folder / "index/embeddings.safetensors")
    run = worker.run("inspect", "--model", rag.folder)
    assert run.returncode != 0
    assert words in run.stderr


def test_missing_files_are_refused_by_name(copied):
    rag = copied("sequence-bart-shards")
    (rag.folder / "index/embeddings-00002-of-00003.safetensors").unlink()
    assert "has 2 of the 3 shards of embeddings.safetensors; number 2 is missing" in refused(rag.folder)
    for path in (rag.folder / "index").glob("embeddings*"):
        path.unlink()
    assert "has no embeddings.safetensors" in refused(rag.folder)


@pytest.mark.parametrize("folder", ["question_encoder_tokenizer", "generator_tokenizer"])
def test_both_tokenizers_are_needed(copied, folder):
    rag = copied("token-bart")
    shutil.rmtree(rag.folder / folder)
    assert folder in refused(rag.folder)


def test_other_classes_and_strategies_are_refused(copied):
    rag = copied("sequence-bart")
    assert "searches an index of passages where it lies" in refused(rag.folder, "--ranks", 2, "--strategy", "Sharded")
    assert "give 3 candidates" in refused(rag.folder, "--num-return-sequences", 9)
    rag.change_config(max_combined_length=121)
    assert "encoder of questions has 120 positions" in refused(rag.folder)
    rag.change_config(max_combined_length=100, label_smoothing=0.1)
    assert "label_smoothing" in refused(rag.folder)
    rag.change_config(architectures=["RagModel"])
    assert "RagModel is not served" in refused(rag.folder)


def test_each_rank_holds_its_share_of_the_index(made):
    rag = made("token-bart-shards")
    plan = worker.run("plan", "--model", rag.folder, "--ranks", 2, "--sizes", "tensor=2", "--json")
    assert plan.returncode == 0, plan.stderr
    ranges = {}
    for rank in json.loads(plan.stdout)["ranks"]:
        for row in rank["rows"]:
            if row["axis"] == "passages":
                ranges.setdefault(row["units"], []).append(row["range"])
    assert sorted(ranges) == [11, 12], "one entry for each file"
    for passages, ((first, middle), (also, last)) in ranges.items():
        assert first == 0 and 0 < middle == also < last == passages


@pytest.fixture(scope="module", params=["token-bart", "sequence-bart"])
def served(request, made):
    rag = made(request.param)
    server = Server(rag.folder)
    yield rag, server
    server.close()


def test_completions_tell_the_passages(served):
    rag, server = served
    for question in QUESTIONS:
        reply = server.ask(
            "/v1/completions",
            {
                "model": rag.folder.name,
                "prompt": question,
                "max_tokens": NEW_TOKENS,
                "temperature": 0,
                **NO_REPEAT,
                "return_token_ids": True,
            },
        )
        (choice,) = reply["choices"]
        assert [rag.model.config.generator.decoder_start_token_id, *choice["token_ids"]] == rag.answers(
            question, NEW_TOKENS
        )[0]
        check_passages(rag, question, choice["passages"])
        assert reply["usage"]["prompt_tokens"] == len(rag.question(question)["input_ids"])


def test_generate_searches_with_beams(served):
    rag, server = served
    body = {
        "inputs": QUESTIONS[1],
        "parameters": {
            "num_beams": 3,
            "max_new_tokens": NEW_TOKENS,
            "do_sample": False,
            **NO_REPEAT,
            "return_token_ids": True,
        },
    }
    reply = server.ask("/generate", body)
    assert reply["sequence"] == rag.answers(QUESTIONS[1], NEW_TOKENS, 3)[0]
    check_passages(rag, QUESTIONS[1], reply["passages"])


def test_streams_end_with_the_passages(served):
    rag, server = served
    body = {"model": rag.folder.name, "prompt": QUESTIONS[0], "max_tokens": NEW_TOKENS, "temperature": 0, **NO_REPEAT}
    whole = server.ask("/v1/completions", body)["choices"][0]
    lines = server.post("/v1/completions", {**body, "stream": True}).content.splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert "".join(choice["text"] for choice in choices) == whole["text"]
    assert [choice["passages"] for choice in choices if "passages" in choice] == [whole["passages"]]


def test_forward_gives_the_outputs_of_both_halves(served):
    rag, server = served
    numbers, scores = rag.retrieve(QUESTIONS[0])
    question = rag.question(QUESTIONS[0])["input_ids"]
    found = server.ask("/forward", {"inputs": {"input_ids": [question]}, "outputs": ["doc_scores", "doc_ids"]})[
        "outputs"
    ]
    assert found["doc_ids"]["data"] == [numbers]
    assert found["doc_scores"]["data"][0] == pytest.approx(scores[0].tolist(), abs=2e-5)
    ids, mask, _ = rag.contexts(QUESTIONS[0])
    answer = torch.tensor([rag.answers(QUESTIONS[0], NEW_TOKENS)[0]] * len(ids))
    inputs = {"context_input_ids": ids, "context_attention_mask": mask, "decoder_input_ids": answer}
    body = {"inputs": {name: values.tolist() for name, values in inputs.items()}, "outputs": ["logits"]}
    with torch.no_grad():
        expected = rag.model.generator(input_ids=ids, attention_mask=mask, decoder_input_ids=answer).logits
    logits = torch.tensor(server.ask("/forward", body)["outputs"]["logits"]["data"])
    assert torch.allclose(logits, expected, atol=2e-5), (logits - expected).abs().max()


def test_texts_are_tokenised_as_questions_and_ids_detokenised_as_answers(served):
    rag, server = served
    tokens = rag.question(QUESTIONS[0])["input_ids"]
    assert server.ask("/tokenize", {"prompt": QUESTIONS[0]})["tokens"] == tokens
    answer = rag.answers(QUESTIONS[0], NEW_TOKENS)[0]
    assert server.ask("/detokenize", {"tokens": answer})["prompt"] == rag.generator.decode(answer)


def test_requests_that_the_model_cannot_answer_are_refused(served):
    rag, server = served
    embeddings = server.refused("/v1/embeddings", {"model": rag.folder.name, "input": "x"}, 404)
    assert "is not served" in embeddings["message"]
    body = {"model": rag.folder.name, "prompt": QUESTIONS[0], "max_tokens": 5, "logprobs": 1}
    if rag.marginal == "sequence":
        assert "has no logprobs" in server.refused("/v1/completions", body, 400)["message"]
    else:
        assert server.ask("/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"]
    long = {"model": rag.folder.name, "prompt": [5] * 121, "max_tokens": 5}
    server.refused("/v1/completions", long, 400)
    many = {"inputs": QUESTIONS[0], "num_beams": 100, "max_new_tokens": 5}
    assert "concurrent sequences" in server.refused("/generate", many, 400)["message"]


def test_many_requests_at_once_get_the_answers_that_they_get_alone(served):
    import concurrent.futures

    rag, server = served
    body = {"model": rag.folder.name, "max_tokens": NEW_TOKENS, "temperature": 0, **NO_REPEAT}

    def ask(question):
        return server.ask("/v1/completions", {**body, "prompt": question})["choices"][0]["text"]

    alone = [ask(question) for question in QUESTIONS]
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        assert list(pool.map(ask, QUESTIONS * 6)) == alone * 6
