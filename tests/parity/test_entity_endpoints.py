# SPDX-License-Identifier: Apache-2.0
"""Texts with entities over HTTP, with two ranks in processes, against transformers' LukeTokenizer and model."""

import numpy
import pytest
import torch
import transformers
from test_endpoints import serve  # noqa: F401 (a fixture)
from test_entity_tokenizers import CASES, ENTITIES, written

TEXT = "The quick brown fox jumps over the 北京 café."
SIZES = {
    "vocab_size": 420,
    "entity_vocab_size": len(ENTITIES),
    "entity_emb_size": 11,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 37,
    "max_position_embeddings": 66,
    "type_vocab_size": 1,
    "num_labels": 4,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
# class -> (case of the tokenizer, spans, titles, outputs)
MODELS = {
    "LukeForEntityClassification": ("classification", [[10, 19]], None, ["logits"]),
    "LukeForEntityPairClassification": ("pair", [[35, 37], [4, 9]], None, ["logits"]),
    "LukeForEntitySpanClassification": ("spans", [[4, 9], [10, 15], [16, 19]], None, ["logits"]),
    "LukeForMaskedLM": ("plain", [[16, 19], [35, 37]], ["fox", "Nobody"], ["entity_logits", "logits"]),
}


def served(start, model_class, folder):
    oracle = written(MODELS[model_class][0], folder)

    def with_tokenizer(checkpoint):
        for file in folder.glob("*.*"):
            (checkpoint / file.name).write_bytes(file.read_bytes())

    server, model = start(model_class, transformers.LukeConfig(**SIZES), change=with_tokenizer)
    return server, model, oracle


@pytest.mark.parametrize("model_class", MODELS)
def test_a_text_with_entities_is_answered_as_by_transformers(model_class, serve, tmp_path):  # noqa: F811
    (tmp_path / "tokenizer").mkdir()
    server, model, oracle = served(serve, model_class, tmp_path / "tokenizer")
    _, spans, titles, names = MODELS[model_class]
    given = oracle(TEXT, entity_spans=[tuple(span) for span in spans], entities=titles, return_tensors="pt")
    with torch.no_grad():
        wanted = model(**given)
    body = {"text": TEXT, "entity_spans": spans, **({"entities": titles} if titles else {}), "outputs": names}
    answer = server.ask("/forward", body)["outputs"]
    assert sorted(answer) == names
    for name in names:
        numpy.testing.assert_allclose(answer[name]["data"], wanted[name].numpy(), atol=1e-4)
    assert (
        "43 characters" in server.refused("/forward", {**body, "entity_spans": [[0, 99]] * len(spans)}, 400)["message"]
    )
    assert (
        "start below end" in server.refused("/forward", {**body, "entity_spans": [[3, 3]] * len(spans)}, 400)["message"]
    )
    if CASES[MODELS[model_class][0]][1]:
        message = server.refused("/forward", {**body, "entity_spans": [[0, 3]] * 3}, 400)["message"]
        assert f"send {len(spans)}" in message


def test_a_mask_in_a_text_is_filled(serve, tmp_path):  # noqa: F811
    (tmp_path / "tokenizer").mkdir()
    server, model, oracle = served(serve, "LukeForMaskedLM", tmp_path / "tokenizer")
    text = "The quick <mask> fox"
    given = oracle(text, return_tensors="pt")
    with torch.no_grad():
        scores = model(**given).logits[0, given["input_ids"][0].tolist().index(oracle.mask_token_id)]
    best = scores.softmax(-1).topk(3)
    answer = server.ask("/fill-mask", {"inputs": text, "top_k": 3})
    assert [one["token"] for one in answer] == best.indices.tolist()
    assert [one["score"] for one in answer] == pytest.approx(best.values.tolist(), abs=2e-5)
