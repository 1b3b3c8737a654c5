# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of Japanese BERT against transformers, whose words come from MeCab through fugashi: ids, types, special
ids and decoded text over sentences and random lines.
"""

import json
import random
import shutil
from pathlib import Path

import ipadic
import pytest
import transformers
import unidic_lite
from japanese_text import SENTENCES, random_lines
from test_tokenizers import LINES, dumped, sentence_piece
from transformers.models.bert_japanese.tokenization_bert_japanese import MecabTokenizer

DICTIONARIES = {"ipadic": Path(ipadic.DICDIR), "unidic_lite": Path(unidic_lite.DICDIR)}
TEXTS = [*SENTENCES, *LINES, "前\0後", *random_lines("japanese", 3000)]
PAIRS = [["どこに住んでいますか", "東京都に住んでいます。"], ["😀", "second 二番目"]]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# name -> (tokenizer_config.json, lines of text)
CASES = {
    "basic": ({}, TEXTS),
    "basic-lower": ({"do_lower_case": True}, TEXTS),
    "basic-fixed": ({"do_lower_case": True, "never_split": ["iPhone15", "a_b"]}, TEXTS),
    "characters": ({"subword_tokenizer_type": "character"}, TEXTS),
    "whole-text": ({"do_word_tokenize": False}, TEXTS),
    "whole-words": ({"do_subword_tokenize": False}, TEXTS),
    "added": ({"do_lower_case": True, "additional_special_tokens": ["日本", "<x>"]}, TEXTS),
    "sentencepiece": ({"subword_tokenizer_type": "sentencepiece", "do_word_tokenize": False}, TEXTS),
    "sentencepiece-words": ({"subword_tokenizer_type": "sentencepiece", "word_tokenizer_type": "basic"}, TEXTS),
    **{
        f"mecab-{dictionary}-{kind}": (
            {"word_tokenizer_type": "mecab", "subword_tokenizer_type": kind, "mecab_kwargs": {"mecab_dic": dictionary}},
            TEXTS,
        )
        for dictionary in DICTIONARIES
        for kind in ("wordpiece", "character")
    },
    "mecab-default": ({"word_tokenizer_type": "mecab", "do_lower_case": True}, TEXTS),
    "mecab-as-written": (
        {"word_tokenizer_type": "mecab", "mecab_kwargs": {"mecab_dic": "ipadic", "normalize_text": False}},
        TEXTS,
    ),
}


@pytest.fixture(scope="module", autouse=True)
def dictionaries(tmp_path_factory):
    """A folder of dictionaries as `pip install --target` makes it."""
    folder = tmp_path_factory.mktemp("dictionaries")
    for name, path in DICTIONARIES.items():
        (folder / name).mkdir()
        (folder / name / "dicdir").symlink_to(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MECAB_DICTIONARIES", str(folder))
        yield folder


def vocabulary():
    """Pieces of one to three characters, and some that cover only a part of a word."""
    rng = random.Random(5)
    text = "".join(TEXTS[:400])
    starts = [rng.randrange(len(text)) for _ in range(1500)]
    pieces = sorted({text[at : at + 1 + at % 3] for at in starts} - {"\n", "\r"})
    lower = [piece.lower() for piece in pieces]
    words = [piece for piece in [*pieces, *lower] if not set(piece) & set("\n\r")]
    return list(dict.fromkeys([*SPECIAL, *words, *("##" + word for word in words)]))


def written(case, folder, tokens=None):
    settings, _ = CASES[case]
    if settings.get("subword_tokenizer_type") == "sentencepiece":
        sentence_piece("spiece.model", size=330)(folder)
    (folder / "vocab.txt").write_text("\n".join(tokens or vocabulary()) + "\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertJapaneseTokenizer", "additional_special_tokens": [], **settings})
    )
    return transformers.BertJapaneseTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("case", CASES)
def test_japanese_is_split_as_transformers_does(case, tmp_path):
    oracle, texts = written(case, tmp_path), CASES[case][1]
    ours = dumped(tmp_path, texts)
    assert "texts" in ours, ours
    assert ours["size"] == len(oracle)
    assert ours["special"] == {role: getattr(oracle, f"{role}_token_id") for role in ours["special"]}
    for text, own in zip(texts, ours["texts"], strict=True):
        wanted = oracle(text)["input_ids"]
        assert own["ids"] == wanted, repr(text)
        assert own["same"] and own["plain"] == oracle(text, add_special_tokens=False)["input_ids"], repr(text)
        assert own["decoded"] == oracle.decode(wanted, skip_special_tokens=True), repr(text)
        assert own["decoded_all"] == oracle.decode(wanted), repr(text)
        assert own["streamed"].rstrip() == own["decoded"].rstrip(), repr(text)


@pytest.mark.parametrize("case", ["basic", "mecab-ipadic-wordpiece"])
def test_pairs_have_the_types_of_bert(case, tmp_path):
    oracle = written(case, tmp_path)
    for pair, own in zip(PAIRS, dumped(tmp_path, [], PAIRS)["pairs"], strict=True):
        wanted = oracle(*pair, return_token_type_ids=True)
        assert (own["ids"], own["types"]) == (wanted["input_ids"], wanted["token_type_ids"])


@pytest.mark.parametrize("dictionary", DICTIONARIES)
def test_every_word_is_that_of_mecab(dictionary, tmp_path):
    """The vocabulary has every word, so that ids show each place where a line is split."""
    texts = random_lines(dictionary, 4000)
    mecab = MecabTokenizer(mecab_dic=dictionary)
    words = dict.fromkeys(word for text in texts for word in mecab.tokenize(text))
    case = f"mecab-{dictionary}-wordpiece"
    settings, _ = CASES[case]
    assert len(words) > 5000
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CASES, case, ({**settings, "do_subword_tokenize": False}, texts))
        oracle = written(case, tmp_path, list(dict.fromkeys([*SPECIAL, *words])))
    for text, own in zip(texts, dumped(tmp_path, texts)["texts"], strict=True):
        assert own["ids"] == oracle(text)["input_ids"], repr(text)


def test_a_dictionary_in_the_checkpoints_folder_is_taken_first(tmp_path, dictionaries, monkeypatch):
    oracle = written("mecab-ipadic-wordpiece", tmp_path)
    (tmp_path / "ipadic").symlink_to(DICTIONARIES["ipadic"])
    monkeypatch.setenv("MECAB_DICTIONARIES", str(tmp_path / "none"))
    own = dumped(tmp_path, TEXTS[:1])["texts"][0]
    assert own["ids"] == oracle(TEXTS[0])["input_ids"]


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"word_tokenizer_type": "sudachi"}, "sudachi"),
        ({"word_tokenizer_type": "jumanpp"}, "jumanpp"),
        ({"word_tokenizer_type": "kytea"}, "kytea"),
        ({"subword_tokenizer_type": "bytes"}, "bytes"),
        ({"subword_tokenizer_type": "sentencepiece"}, "spiece.model"),
        ({"word_tokenizer_type": "mecab", "mecab_kwargs": {"mecab_dic": "unidic"}}, "pip install --target"),
        ({"word_tokenizer_type": "mecab", "mecab_kwargs": {"mecab_dic": "neologd"}}, "neologd"),
        ({"word_tokenizer_type": "mecab", "mecab_kwargs": {"mecab_dic": None}}, "mecab_dic"),
        ({"word_tokenizer_type": "mecab", "mecab_kwargs": {"mecab_option": "-d /x"}}, "mecab_option"),
    ],
)
def test_what_is_not_built_is_ids_only_and_says_so(settings, reason, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertJapaneseTokenizer", **settings})
    )
    assert reason in dumped(tmp_path)["ids_only"]


FILES = ("sys.dic", "unk.dic", "char.bin", "matrix.bin")


def own_dictionary(folder):
    """Writes a checkpoint with a dictionary of its own, whose files may be changed."""
    written("mecab-ipadic-wordpiece", folder)
    (folder / "ipadic").mkdir()
    for name in FILES:
        shutil.copy(DICTIONARIES["ipadic"] / name, folder / "ipadic" / name)


def other_charset(content):
    return content[:40] + b"EUC-JP".ljust(32, b"\0") + content[72:]


def costless_word(content):
    first = 72 + int.from_bytes(content[24:28], "little")
    return content[:first] + b"\xff\xff" + content[first + 2 :]


@pytest.mark.parametrize(
    "name, damage, reason",
    [
        ("sys.dic", lambda content: content[:-1], "not a compiled dictionary"),
        ("sys.dic", lambda content: b"", "not a compiled dictionary"),
        ("sys.dic", other_charset, "EUC-JP"),
        ("unk.dic", lambda content: content[:4] + b"\x65" + content[5:], "version 101"),
        ("unk.dic", lambda content: content[:24] + b"\xff\xff\xff\xff" + content[28:], "parts of"),
        ("unk.dic", costless_word, "without costs"),
        ("matrix.bin", lambda content: content[:-2], "is no matrix"),
        ("matrix.bin", lambda content: b"\1\0\1\0\0\0", "different dictionaries"),
        ("char.bin", lambda content: content[4:], "categories"),
        ("char.bin", lambda content: content.replace(b"KANJI", b"KANJY"), 'category "KANJY"'),
    ],
)
def test_a_broken_dictionary_is_refused_by_name(name, damage, reason, tmp_path):
    own_dictionary(tmp_path)
    path = tmp_path / "ipadic" / name
    changed = damage(path.read_bytes())
    assert changed != path.read_bytes()
    path.write_bytes(changed)
    refused = dumped(tmp_path)["refused"]
    assert reason in refused and str(path.parent) in refused
