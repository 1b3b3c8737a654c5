# SPDX-License-Identifier: Apache-2.0
"""LUKE's tokenizer against transformers: texts alone, and texts with the entities that they mention."""

import json
import random

import pytest
import transformers
from test_tokenizers import LINES, assert_equal, byte_pairs, dumped

ENTITIES = {"[MASK]": 0, "[PAD]": 1, "[UNK]": 2, "[MASK2]": 3, "fox": 4, "Los Angeles": 5, "北京": 6}
TITLES = [*ENTITIES, "Nobody"]
# name -> (tokenizer_config.json, number of spans; 0: any)
CASES = {
    "plain": ({}, 0),
    "short-mentions": ({"max_mention_length": 3, "max_entity_length": 2}, 0),
    "prefix-space": ({"add_prefix_space": True}, 0),
    "classification": ({"task": "entity_classification"}, 1),
    "pair": ({"task": "entity_pair_classification"}, 2),
    "pair-named": ({"task": "entity_pair_classification", "entity_token_1": "<a>", "entity_token_2": "<b>"}, 2),
    "spans": ({"task": "entity_span_classification", "max_entity_length": 3}, 0),
}


def written(case, folder):
    byte_pairs(folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    (folder / "entity_vocab.json").write_text(json.dumps(ENTITIES))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LukeTokenizer", **CASES[case][0]}))
    return transformers.LukeTokenizer.from_pretrained(folder)


def mentions(case, seed):
    """Random spans of lines, at words' ends and inside of words, with titles or without, cut or whole."""
    rng, spans = random.Random(seed), CASES[case][1]
    found = []
    for text in [line for line in LINES if len(line) > 2] * 4:
        text = text[:200]
        places = [i for i in range(len(text) + 1) if rng.random() < 0.2 or text[i - 1 : i] == " "] + [0, len(text)]
        drawn = []
        while len(drawn) < (spans or rng.randrange(1, 6)):
            begin, end = sorted(rng.choices(places, k=2))
            if begin < end:
                drawn.append((begin, end))
        one = {"text": text, "entity_spans": drawn}
        if "task" not in CASES[case][0] and rng.random() < 0.6:
            one["entities"] = rng.choices(TITLES, k=len(drawn))
        if rng.random() < 0.4:
            one["max_tokens"] = rng.randrange(3, 40)
        found.append(one)
    return found


def answered(folder, given):
    """What the worker's tool says of mentions."""
    return dumped(folder, [], [], mentions=given)["mentions"]


@pytest.mark.parametrize("case", ["plain", "prefix-space"])
def test_texts_alone_are_tokenized_as_transformers_does(case, tmp_path):
    oracle = written(case, tmp_path)
    ours = dumped(tmp_path)
    assert_equal(ours, oracle, offsets=case == "plain")
    assert ours["size"] == len(oracle)


def test_without_a_named_class_the_models_type_decides(tmp_path):
    oracle = written("plain", tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "luke"}))
    assert [own["ids"] for own in dumped(tmp_path)["texts"]] == [oracle(text)["input_ids"] for text in LINES]


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_entities_are_those_of_transformers(case, saved, tmp_path, monkeypatch):
    # transformers 5 calls it and has it for tokenizers in Python only
    cuts = transformers.tokenization_python.PythonBackend.truncate_sequences
    monkeypatch.setattr(transformers.LukeTokenizer, "truncate_sequences", cuts, raising=False)
    oracle, given = written(case, tmp_path), mentions(case, case)
    if saved:  # with tokenizer.json, and the titles in tokenizer_config.json
        oracle.save_pretrained(tmp_path / "saved")
        tmp_path /= "saved"
    assert len(given) > 100
    for one, own in zip(given, answered(tmp_path, given), strict=True):
        cut = {"truncation": True, "max_length": one["max_tokens"]} if "max_tokens" in one else {}
        wanted = oracle(one["text"], entity_spans=one["entity_spans"], entities=one.get("entities"), **cut)
        assert own["input_ids"] == wanted["input_ids"], one
        assert own["entity_ids"] == wanted["entity_ids"], one
        assert own["mentions"] == [i for row in wanted["entity_position_ids"] for i in row], one
        assert own["has_places"] == ("entity_start_positions" in wanted)
        if own["has_places"]:
            assert own["starts"] == wanted["entity_start_positions"], one
            assert own["ends"] == wanted["entity_end_positions"], one


TEXT = "The quick brown fox"


@pytest.mark.parametrize(
    "case, given, reason",
    [
        ("plain", {"entity_spans": []}, "no span"),
        ("plain", {"entity_spans": [(4, 4)]}, "entity_spans[0] is [4, 4]"),
        ("plain", {"entity_spans": [(0, 3), (9, 4)]}, "entity_spans[1] is [9, 4]"),
        ("plain", {"entity_spans": [(4, 20)]}, "19 characters"),
        ("plain", {"entity_spans": [(0, 3)], "entities": ["fox", "fox"]}, "2 titles for 1 spans"),
        ("classification", {"entity_spans": [(0, 3), (4, 9)]}, "send 1"),
        ("pair", {"entity_spans": [(0, 3)]}, "send 2"),
        ("spans", {"entity_spans": [(0, 3)], "entities": ["fox"]}, "masked"),
    ],
)
def test_bad_spans_are_refused_by_name(case, given, reason, tmp_path):
    written(case, tmp_path)
    assert reason in answered(tmp_path, [{"text": TEXT, **given}])[0]["refused"]


@pytest.mark.parametrize(
    "file, content, reason",
    [
        ("entity_vocab.json", "[]", "not a JSON object"),
        ("entity_vocab.json", "{", "not a JSON object"),
        ("entity_vocab.json", '{"[UNK]": -1}', 'gives "[UNK]" no id'),
        ("entity_vocab.json", '{"[UNK]": 0, "[PAD]": 1, "[MASK]": 2}', 'lacks the entity "[MASK2]"'),
        ("tokenizer_config.json", '{"tokenizer_class": "LukeTokenizer", "task": "ner"}', "another task"),
        ("tokenizer_config.json", '{"tokenizer_class": "LukeTokenizer", "max_mention_length": 0}', "1 to 1024"),
    ],
)
def test_broken_titles_and_settings_are_refused_by_name(file, content, reason, tmp_path):
    written("plain", tmp_path)
    (tmp_path / file).write_text(content)
    refused = dumped(tmp_path, [], [], mentions=[{"text": TEXT, "entity_spans": [(0, 3)]}])["refused"]
    assert reason in refused and str(tmp_path) in refused


def test_without_titles_there_are_the_special_entities(tmp_path):
    written("plain", tmp_path)
    (tmp_path / "entity_vocab.json").unlink()
    oracle = transformers.LukeTokenizer.from_pretrained(tmp_path)
    own = answered(tmp_path, [{"text": TEXT, "entity_spans": [(0, 3), (4, 9)], "entities": ["[MASK2]", "fox"]}])[0]
    assert own["entity_ids"] == oracle(TEXT, entity_spans=[(0, 3), (4, 9)], entities=["[MASK2]", "fox"])["entity_ids"]
