# SPDX-License-Identifier: Apache-2.0
"""Transformer-XL's tokenizer of whole words against what transformers 4 said (recorded/make_transfo_xl_tokens.py), from
vocab.txt and from pickles, which are read without running them.
"""

import collections
import json
import pickle
import random
import re
from pathlib import Path

import pytest
import sacremoses
import torch
from test_tokenizers import decoded, dumped

RECORDED = json.loads((Path(__file__).parent / "recorded/transfo_xl_tokens.json").read_text())["cases"]


def text_file(folder, tokens):
    (folder / "vocab.txt").write_text("".join(f"{token} 3\n" for token in tokens))


def pickled(protocol, **more):
    """As `save_vocabulary` writes it: all that the tokenizer has. Beside the vocabulary that is of no use here."""

    def write(folder, tokens):
        contents = {
            "counter": collections.Counter(tokens),
            "special": ["<eos>"],
            "min_freq": 0,
            "max_size": None,
            "lower_case": False,
            "idx2sym": tokens,
            "sym2idx": collections.OrderedDict((token, i) for i, token in enumerate(tokens)),
            "unk_idx": tokens.index("<unk>"),
            "pattern": re.compile(r"[^\s][!]"),
            "moses": sacremoses.MosesPunctNormalizer("en"),
            "numbers": [1.5, -3, 70000, 2**40, 2**80, True, {1, 2}, (1, 2, 3, 4), frozenset([1]), b"x", object()],
            **more,
        }
        (folder / "vocab.pkl").write_bytes(pickle.dumps(contents, protocol))

    return write


def written(case, folder, write=text_file):
    recorded = RECORDED[case]
    write(folder, recorded["vocabulary"])
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "TransfoXLTokenizer", **recorded["settings"]})
    )
    return recorded


@pytest.mark.parametrize("case", RECORDED)
def test_texts_are_split_into_the_words_of_transformers_4(case, tmp_path):
    recorded = written(case, tmp_path)
    ours = dumped(tmp_path, recorded["texts"], [["the cat's", "U.S. 1,000"]])
    assert ours["size"] == recorded["size"]
    assert {role: ours["special"][role] for role in recorded["special"]} == recorded["special"]
    assert sum(ids.count(recorded["special"]["unk"]) for ids in recorded["ids"]) > 20
    for i, (text, own) in enumerate(zip(recorded["texts"], ours["texts"], strict=True)):
        assert own["ids"] == own["plain"] == recorded["ids"][i], repr(text)
        assert own["decoded"] == recorded["decoded"][i], repr(text)
        assert own["decoded_all"] == recorded["decoded_all"][i], repr(text)
        assert own["streamed"].rstrip() == own["decoded"].rstrip(), repr(text)
    pair = recorded["pair"]
    assert (ours["pairs"][0]["ids"], ours["pairs"][0]["types"]) == (pair["input_ids"], pair["token_type_ids"])


@pytest.mark.parametrize("case", RECORDED)
def test_any_words_are_joined_as_by_transformers_4(case, tmp_path):
    recorded = written(case, tmp_path)
    for ids, text in zip(recorded["drawn"], recorded["drawn_decoded"], strict=True):
        own = decoded(tmp_path, ids)
        assert own["decoded"] == text, ids
        assert own["streamed"].rstrip() == text.rstrip(), ids


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_gives_the_same_as_the_text(protocol, tmp_path):
    recorded = written("english", tmp_path, pickled(protocol))
    assert [own["ids"] for own in dumped(tmp_path, recorded["texts"])["texts"]] == recorded["ids"]


def test_without_a_named_class_the_models_type_decides(tmp_path):
    recorded = written("english", tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "transfo-xl"}))
    assert [own["ids"] for own in dumped(tmp_path, recorded["texts"])["texts"]] == recorded["ids"]


def test_vocab_txt_counts_before_the_pickle(tmp_path):
    recorded = written("english", tmp_path)
    pickled(4)(tmp_path, ["<unk>", "x"])
    assert dumped(tmp_path, recorded["texts"][:9])["texts"][2]["ids"] == recorded["ids"][2]


class Touches:
    """Its pickle writes a file where it is run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_runs_code_runs_none(protocol, tmp_path):
    touched = tmp_path / "touched"
    recorded = written("english", tmp_path, pickled(protocol, harm=Touches(touched)))
    assert [own["ids"] for own in dumped(tmp_path, recorded["texts"])["texts"]] == recorded["ids"]
    assert not touched.exists()
    pickle.loads((tmp_path / "vocab.pkl").read_bytes())
    assert touched.exists()  # Python's reader runs it


def of_torch(old):
    def write(folder, tokens):
        torch.save({"sym2idx": {}, "idx2sym": []}, folder / "vocab.pkl", _use_new_zipfile_serialization=not old)

    return write


def of_bytes(content):
    return lambda folder, tokens: (folder / "vocab.pkl").write_bytes(content)


def of_object(value):
    return of_bytes(pickle.dumps(value))


@pytest.mark.parametrize(
    "write, reason",
    [
        (of_torch(False), "torch.save"),
        (of_torch(True), "torch.save"),
        (of_bytes(b""), "ends inside"),
        (of_bytes(b"\x80\x04."), "empty stack"),
        (of_bytes(b"\x80\x04\xff"), "0xff"),
        (of_bytes(b"\x80\x04P1\n."), "0x50"),
        (of_bytes(b"cos\nsystem\n(S'x'\ntR."), "no dictionary in front"),
        (of_bytes(b"cos\nsystem\n)R."), "no dictionary in front"),
        (of_bytes(b"\x80\x04h\x05."), "recalls"),
        (of_bytes(b"X\xff\xff\xff\xffabc"), "ends inside"),
        (of_bytes(b"(" + b"}" * 9_000_000), "more than 8388608 values"),
        (of_object({"sym2idx": {"a": 0}}), "sym2idx and idx2sym"),
        (of_object({"sym2idx": {"a": -1}, "idx2sym": ["a"]}), "something else than texts and their ids"),
        (of_object({"sym2idx": {3: 0}, "idx2sym": ["a"]}), "something else than texts and their ids"),
        (of_object({"sym2idx": {"<unk>": 0}, "idx2sym": [3]}), "something else than texts in idx2sym"),
        (of_object({"sym2idx": {"a": 0}, "idx2sym": ["a"]}), "neither <unk> nor <UNK>"),
        (lambda folder, tokens: (folder / "vocab.txt").write_text("a\n"), "neither <unk> nor <UNK>"),
        (lambda folder, tokens: (folder / "vocab.txt").write_text("<unk>\n\n"), "empty line"),
    ],
)
def test_other_vocabularies_are_refused_by_name(write, reason, tmp_path):
    written("english", tmp_path, write)
    refused = dumped(tmp_path)["refused"]
    assert reason in refused and str(tmp_path) in refused


@pytest.mark.parametrize("settings, reason", [({"language": "fi"}, '"fi"'), ({"delimiter": ""}, "delimiter")])
def test_settings_that_are_not_built_are_refused_by_name(settings, reason, tmp_path):
    written("english", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TransfoXLTokenizer", **settings}))
    assert reason in dumped(tmp_path)["refused"]


def test_a_vocabulary_of_torch_alone_is_ids_only(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "transfo-xl"}))
    (tmp_path / "vocab.bin").write_bytes(b"")
    assert "vocab.txt, vocab.pkl" in dumped(tmp_path)["ids_only"]


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_changed_bytes_of_a_pickle_are_read_or_refused(protocol, tmp_path):
    written("english", tmp_path, lambda folder, tokens: pickled(protocol)(folder, tokens[:40]))
    file, rng, seen = tmp_path / "vocab.pkl", random.Random(protocol), set()
    sound = file.read_bytes()
    for _ in range(40):
        changed = bytearray(sound)
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(len(changed))] = rng.choice(b"().02}]ustaeRbc\x85\x94qh\x8c\x93N")
        file.write_bytes(changed)
        seen.add("refused" in dumped(tmp_path, ["the cat"]))  # dumped fails where the process dies
    assert True in seen
