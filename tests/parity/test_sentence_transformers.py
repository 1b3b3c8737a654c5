# SPDX-License-Identifier: Apache-2.0
"""Folders that sentence-transformers saves, served by two ranks, answer as the package does."""

import json

import numpy
import pytest
import sentence_transformers
import torch
from sentence_transformers.sentence_transformer import modules
from sentence_transformers.sparse_encoder.modules import SpladePooling
from server import Server
from test_endpoints import TEXTS, bert, build, word_pieces

PROMPTS = {"query": "find some ", "passage": "the ", "anything": "over the hills and "}
POOLINGS = ("mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens")


def saved(tmp_path, make, **settings):
    """Returns the folder and the model whose modules behind the tiny BERT are those of `make(width)`."""
    torch.manual_seed(5)
    build(tmp_path / "plain", "BertModel", bert(), word_pieces())
    transformer = modules.Transformer(str(tmp_path / "plain"))
    width = transformer.get_embedding_dimension()
    model = sentence_transformers.SentenceTransformer(modules=[transformer, *make(width)], device="cpu", **settings)
    model.save(str(tmp_path / "saved"))
    return tmp_path / "saved", model


def vectors(server, texts, **more):
    reply = server.ask("/v1/embeddings", {"input": texts, **more})
    return numpy.array([one["embedding"] for one in reply["data"]])


def same(ours, theirs):
    """A value near 0 may be off by what the largest may."""
    largest = numpy.abs(numpy.asarray(theirs)).max()
    numpy.testing.assert_allclose(ours, theirs, atol=max(3e-6, 1e-5 * largest), rtol=3e-5)


@pytest.fixture
def many_modules(tmp_path):
    """Six poolings, dense modules with and without bias and residual, and both norms."""

    def make(width):
        return [
            modules.Pooling(width, pooling_mode=POOLINGS),
            modules.Dense(width * len(POOLINGS), 20, use_residual=True),
            modules.Normalize(),
            modules.LayerNorm(20),
            modules.Dense(20, 20, bias=False, activation_function=torch.nn.GELU(), use_residual=True),
            modules.Normalize(),
        ]

    settings = {"prompts": PROMPTS, "default_prompt_name": "anything", "similarity_fn_name": "euclidean"}
    folder, model = saved(tmp_path, make, **settings)
    server = Server(folder)
    yield server, model
    server.close()


def test_modules_prompts_and_similarities_are_those_of_the_folder(many_modules):
    server, model = many_modules
    plain = model.encode(TEXTS)
    assert plain.shape == (len(TEXTS), 20)
    same(vectors(server, TEXTS), plain)
    same(vectors(server, TEXTS, input_type="query"), model.encode_query(TEXTS))
    same(vectors(server, TEXTS, input_type="document"), model.encode_document(TEXTS))
    same(vectors(server, TEXTS, prompt_name="passage"), model.encode(TEXTS, prompt_name="passage"))
    same(vectors(server, TEXTS, prompt="cat "), model.encode(TEXTS, prompt="cat "))
    same(vectors(server, TEXTS, prompt=""), model.encode(TEXTS, prompt=""))
    same(vectors(server, TEXTS, dimensions=7), model.encode(TEXTS, truncate_dim=7, normalize_embeddings=True))

    distances = model.similarity(plain[:1], plain)[0]
    same(server.ask("/similarity", {"source": TEXTS[0], "sentences": TEXTS}), distances)
    ranked = model.similarity(model.encode_query(TEXTS[:1]), model.encode_document(TEXTS))[0].tolist()
    results = server.ask("/rerank", {"query": TEXTS[0], "documents": TEXTS})["results"]
    same([one["relevance_score"] for one in results], sorted(ranked, reverse=True))
    scored = server.ask("/score", {"queries": TEXTS[0], "documents": TEXTS})
    same([one["score"] for one in scored["data"]], ranked)
    assert scored["object"] == "list" and [one["index"] for one in scored["data"]] == [0, 1, 2, 3]
    assert "sentence" not in json.dumps(server.refused("/v1/embeddings", {"input": "a", "prompt_name": "no"}, 400))


def test_a_prompt_that_is_not_pooled(tmp_path):
    def make(width):
        return [modules.Pooling(width, pooling_mode=("weightedmean", "mean", "cls"), include_prompt=False)]

    folder, model = saved(tmp_path, make, prompts=PROMPTS)
    server = Server(folder)
    try:
        same(vectors(server, TEXTS), model.encode(TEXTS))
        for name in PROMPTS:
            same(vectors(server, TEXTS, prompt_name=name), model.encode(TEXTS, prompt_name=name))
        with_prompt = vectors(server, TEXTS, prompt_name="query")
        assert numpy.abs(with_prompt - vectors(server, ["find some " + text for text in TEXTS])).max() > 1e-2
    finally:
        server.close()


def test_scores_of_a_cross_encoder(tmp_path):
    folder = tmp_path / "cross"
    build(folder, "BertForSequenceClassification", bert(num_labels=1), word_pieces())
    server, model = Server(folder), sentence_transformers.CrossEncoder(str(folder), device="cpu")
    try:
        query, documents = TEXTS[0], TEXTS[1:]
        expected = model.predict([(query, one) for one in documents])
        for path in ("/score", "/v1/score"):
            reply = server.ask(path, {"text_1": query, "text_2": documents})
            same([one["score"] for one in reply["data"]], expected)
        pairs = server.ask("/score", {"data_1": documents, "data_2": documents})
        same([one["score"] for one in pairs["data"]], model.predict([(one, one) for one in documents]))
        same([server.ask("/score", {"queries": query, "documents": documents[0]})["data"][0]["score"]], expected[:1])
        error = server.refused("/score", {"queries": documents, "documents": TEXTS}, 400)
        assert "3 texts" in error["message"] and "documents 4" in error["message"]
    finally:
        server.close()


def test_prompts_and_activation_of_a_saved_cross_encoder(tmp_path):
    build(tmp_path / "plain", "BertForSequenceClassification", bert(num_labels=1), word_pieces())
    settings = {"prompts": PROMPTS, "default_prompt_name": "anything", "activation_fn": torch.nn.Identity()}
    sentence_transformers.CrossEncoder(str(tmp_path / "plain"), device="cpu", **settings).save(str(tmp_path / "saved"))
    server, model = (
        Server(tmp_path / "saved"),
        sentence_transformers.CrossEncoder(str(tmp_path / "saved"), device="cpu"),
    )
    try:
        query, documents = TEXTS[0], TEXTS[1:]
        for options in ({}, {"prompt_name": "query"}, {"prompt": "cat "}, {"prompt": ""}):
            expected = model.predict([(query, one) for one in documents], **options)
            reply = server.ask("/score", {"queries": query, "documents": documents, **options})
            same([one["score"] for one in reply["data"]], expected)
            ranked = server.ask("/rerank", {"query": query, "documents": documents, **options})["results"]
            same([one["relevance_score"] for one in ranked], sorted(expected.tolist(), reverse=True))
        pairs = [(query, one) for one in documents]
        assert numpy.abs(expected - model.predict(pairs, prompt="", activation_fn=torch.nn.Sigmoid())).max() > 1e-2
        for first, second in ((40, 39), (39, 40), (70, 3), (3, 70), (30, 30), (31, 31)):
            expected = model.predict([("the " * first, "cat " * second)])
            body = {"queries": "the " * first, "documents": "cat " * second, "truncate": True}
            same([server.ask("/score", body)["data"][0]["score"]], expected)
    finally:
        server.close()


def sparse(reply):
    """Returns the weights of one text as a dictionary."""
    weights = {one["index"]: one["value"] for one in reply}
    assert len(weights) == len(reply) and list(weights) == sorted(weights)
    return weights


@pytest.mark.parametrize("pooling, activation", [("max", "relu"), ("sum", "log1p_relu")])
def test_sparse_embeddings_of_splade(tmp_path, pooling, activation):
    build(tmp_path / "plain", "BertForMaskedLM", bert(), word_pieces())
    scores = modules.Transformer(str(tmp_path / "plain"), transformer_task="fill-mask")
    pool = SpladePooling(pooling_strategy=pooling, activation_function=activation)
    model = sentence_transformers.SparseEncoder(modules=[scores, pool], device="cpu")
    model.save(str(tmp_path / "saved"))
    server = Server(tmp_path / "saved")
    try:
        expected = model.encode(TEXTS, convert_to_tensor=True).to_dense().numpy()
        for reply, dense in zip(server.ask("/embed_sparse", {"inputs": TEXTS}), expected, strict=True):
            weights = sparse(reply)
            assert set(weights) == set(dense.nonzero()[0].tolist())
            same(list(weights.values()), dense[dense != 0])
        assert server.ask("/embed_sparse", {"inputs": TEXTS[0]}) == server.ask("/embed_sparse", {"inputs": TEXTS})[:1]
    finally:
        server.close()


def test_sparse_embeddings_of_a_head_beside_the_model(tmp_path):
    """As of BGE-M3: relu(w state + b) of each token, the greatest of equal tokens, none of special ones."""
    tokenizer, texts = word_pieces(), [*TEXTS, "the the cat the"]
    model = build(tmp_path / "m3", "BertModel", bert(), tokenizer)
    torch.manual_seed(3)
    head = torch.nn.Linear(24, 1)
    torch.save(head.state_dict(), tmp_path / "m3/sparse_linear.pt")
    server = Server(tmp_path / "m3")
    try:
        seen = 0
        for reply, text in zip(server.ask("/embed_sparse", {"inputs": texts}), texts, strict=True):
            inputs = tokenizer(text, return_tensors="pt")
            with torch.no_grad():
                found = torch.relu(head(model(**inputs).last_hidden_state))[0, :, 0].tolist()
            expected = {}
            for token, weight in zip(inputs["input_ids"][0].tolist(), found, strict=True):
                if weight > 0 and token not in tokenizer.all_special_ids:
                    expected[token] = max(weight, expected.get(token, 0))
            weights = sparse(reply)
            assert set(weights) == set(expected)
            same([weights[token] for token in expected], list(expected.values()))
            seen += len(expected)
        assert seen > 10
        assert server.ask("/v1/embeddings", {"input": texts})["data"][0]["embedding"]
    finally:
        server.close()
