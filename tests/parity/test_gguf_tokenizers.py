# SPDX-License-Identifier: Apache-2.0
"""Tokenizers in GGUF files: ids, offsets, special ids and text equal those of the tokenizer that was written, as
published models of the family have it. Files are written by the format's own package.
"""

import json

import gguf
import pytest
import tokenizers
import transformers
from gguf import TokenType
from test_chat_templates import CONVERSATIONS, TEMPLATES, ours, theirs
from test_tokenizers import CORPUS, assert_equal, dumped, sentence_piece

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
LETTERS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{LETTERS[0]}*{LETTERS[1]}+|[^\r\n\p{{L}}\p{{N}}]?{LETTERS[0]}+{LETTERS[1]}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
USER = ["<think>", "</think>"]


def split_by(pattern):
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def digits_and_words():
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def words():
    return tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)


# The name that llama.cpp has for a pre-tokenizer, and how the published tokenizer.json of such a model spells it.
BYTE_LEVEL = {
    "llama-bpe": dict(split=lambda: split_by(LLAMA3), ignore_merges=True, adds_bos=True),
    "smaug-bpe": dict(split=lambda: split_by(LLAMA3)),
    "qwen2": dict(split=lambda: split_by(QWEN2), normalizer=True),
    "deepseek-r1-qwen": dict(split=lambda: split_by(QWEN2)),
    "tekken": dict(split=lambda: split_by(TEKKEN), ignore_merges=True, adds_bos=True),
    "gpt-4o": dict(split=lambda: split_by(gpt_4o())),
    "refact": dict(split=digits_and_words),
    "gpt-2": dict(split=words),
}


def gpt_4o():
    contraction = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    first, second, rest = TEKKEN.split("|[^\\r", 1)[0], "[^\\r" + TEKKEN.split("|[^\\r", 1)[1].split("|\\p{N}")[0], None
    rest = r"|\p{N}{1,3}" + TEKKEN.split(r"|\p{N}", 1)[1]
    return first + contraction + "|" + second + contraction + rest


def byte_level(pre):
    """A tokenizer of byte-level pairs with special tokens and tokens of users at its end."""
    row = BYTE_LEVEL[pre]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=row.get("ignore_merges", False)))
    made.pre_tokenizer = row["split"]()
    made.decoder = tokenizers.decoders.ByteLevel()
    if row.get("normalizer"):
        made.normalizer = tokenizers.normalizers.NFC()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(CORPUS, trainer)
    if row.get("ignore_merges"):  # a token that no merge makes
        spelled = json.loads(made.to_str())
        spelled["model"]["vocab"]["ĠunbelievableĠ"[:-1]] = len(spelled["model"]["vocab"])
        made = tokenizers.Tokenizer.from_str(json.dumps(spelled))
    made.add_special_tokens([tokenizers.AddedToken(token, normalized=False) for token in SPECIAL])
    made.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in USER])
    return made


def with_bos(made, token):
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token}:1 $B:1", special_tokens=[(token, made.token_to_id(token))]
    )
    return made


def as_library(made, **roles):
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, clean_up_tokenization_spaces=False, **roles)


def write_file(path, architecture, add):
    """A GGUF file without tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer, model, tokens, types, pre=None):
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)


def write_tokens(writer, made, pre):
    vocabulary = made.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.get)
    kinds = {**dict.fromkeys(SPECIAL, TokenType.CONTROL), **dict.fromkeys(USER, TokenType.USER_DEFINED)}
    add_vocabulary(writer, "gpt2", tokens, [kinds.get(token, TokenType.NORMAL) for token in tokens], pre)
    writer.add_token_merges([" ".join(merge) for merge in json.loads(made.to_str())["model"]["merges"]])
    writer.add_bos_token_id(vocabulary[SPECIAL[0]])
    writer.add_eos_token_id(vocabulary[SPECIAL[1]])


def write_byte_level(folder, made, pre, add=lambda writer: None):
    write_file(folder / "model.gguf", "llama", lambda writer: [write_tokens(writer, made, pre), add(writer)])


ROLES = dict(bos_token=SPECIAL[0], eos_token=SPECIAL[1])


@pytest.mark.parametrize("pre", BYTE_LEVEL)
def test_byte_level_pairs_are_split_as_the_family_does(pre, tmp_path):
    made = byte_level(pre)
    write_byte_level(tmp_path, made, pre)
    if BYTE_LEVEL[pre].get("adds_bos"):
        with_bos(made, SPECIAL[0])
    oracle = as_library(made, **ROLES)
    assert_equal(dumped(tmp_path), oracle)
    texts = [f"{SPECIAL[2]} don't {USER[0]}12345 Unbelievable{USER[1]} unbelievable cafe\u0301", *CORPUS]
    for text, found in zip(texts, dumped(tmp_path, texts, [])["texts"], strict=True):
        assert found["ids"] == oracle(text)["input_ids"], text


@pytest.mark.parametrize("adds", [True, False])
def test_the_file_says_whether_a_text_begins_with_a_token(adds, tmp_path):
    made = byte_level("llama-bpe")
    write_byte_level(tmp_path, made, "llama-bpe", lambda writer: writer.add_add_bos_token(adds))
    oracle = as_library(with_bos(made, SPECIAL[0]) if adds else made, **ROLES)
    assert_equal(dumped(tmp_path), oracle)


def write_pieces(folder, architecture="llama", add=lambda writer: None, **options):
    """A SentencePiece model with bytes for what it lacks; the package says its pieces, scores and types."""
    (folder / "spm").mkdir()
    sentence_piece("tokenizer.model", "bpe", 700, byte_fallback=True, **options)(folder / "spm")
    pieces = list(gguf.vocab.SentencePieceVocab(folder / "spm").all_tokens())

    def more(writer):
        add_vocabulary(writer, "llama", [text for text, _, _ in pieces], [kind for _, _, kind in pieces])
        writer.add_token_scores([score for _, score, _ in pieces])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        add(writer)

    (folder / "gguf").mkdir()
    write_file(folder / "gguf" / "model.gguf", architecture, more)
    return folder / "gguf"


def by_loader(folder):
    return transformers.AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf")


def test_pieces_are_those_of_the_sentencepiece_model(tmp_path):
    folder = write_pieces(tmp_path)
    oracle = transformers.LlamaTokenizer.from_pretrained(tmp_path / "spm", add_bos_token=True)
    assert_equal(dumped(folder), oracle)


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gemma3", "phi3"])
def test_pieces_are_split_as_the_loader_of_transformers_does(architecture, tmp_path):
    more = {}
    if architecture.startswith("gemma"):  # its class adds tokens that a vocabulary lacks
        more = {"control_symbols": ["<pad>", "<mask>"], "add": lambda writer: writer.add_pad_token_id(3)}
    folder = write_pieces(tmp_path, architecture, **more)
    assert_equal(dumped(folder), by_loader(folder))


def test_a_file_may_ask_for_no_space_before_a_text(tmp_path):
    folder = write_pieces(tmp_path, add=lambda writer: writer.add_add_space_prefix(False))
    found = dumped(folder, ["hello"], [])["texts"][0]
    oracle = transformers.LlamaTokenizer.from_pretrained(tmp_path / "spm", add_bos_token=True, add_prefix_space=False)
    assert found["ids"] == oracle("hello")["input_ids"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_chat_template_of_the_file_is_rendered(name, tmp_path):
    made = byte_level("llama-bpe")
    write_byte_level(tmp_path, made, "llama-bpe", lambda writer: writer.add_chat_template(TEMPLATES[name]))
    oracle = as_library(made, chat_template=TEMPLATES[name], **ROLES)
    texts = 0
    for conversation, answer in zip(CONVERSATIONS, ours(tmp_path, CONVERSATIONS), strict=True):
        wanted, _ = theirs(oracle, conversation)
        if wanted is not None:
            texts += 1
            assert answer == {"text": wanted}, conversation
    assert texts > 0


def test_tokenizer_json_beside_the_file_comes_first(tmp_path):
    made = byte_level("qwen2")
    write_byte_level(tmp_path, byte_level("gpt-2"), "gpt-2")
    oracle = as_library(made, **ROLES)
    oracle.save_pretrained(tmp_path)
    assert_equal(dumped(tmp_path), oracle)


def test_unknown_tokenizers_are_ids_only_and_say_so(tmp_path):
    made = byte_level("gpt-2")
    for pre, reason in (("deepseek-llm", 'pre-tokenizer "deepseek-llm"'), (None, 'pre-tokenizer ""')):
        write_byte_level(tmp_path, made, pre)
        found = dumped(tmp_path)
        assert reason in found["ids_only"], found
    write_file(
        tmp_path / "model.gguf", "bert", lambda writer: add_vocabulary(writer, "bert", ["a"], [TokenType.NORMAL])
    )
    assert 'the model "bert"' in dumped(tmp_path)["ids_only"]
    write_file(tmp_path / "model.gguf", "llama", lambda writer: None)
    assert "has no tokenizer (tokenizer.ggml.model)" in dumped(tmp_path)["ids_only"]


BROKEN = {
    "an id without a token": (lambda w: w.add_eos_token_id(9000), "tokenizer.ggml.eos_token_id of 9000"),
    "fewer scores": (lambda w: w.add_token_scores([0.5, 1.0]), "2 items in tokenizer.ggml.scores"),
    "types that are no numbers": (lambda w: w.add_array("tokenizer.ggml.merges", [1, 2]), "tokenizer.ggml.merges"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_metadata_is_refused_by_its_key(name, tmp_path):
    add, reason = BROKEN[name]
    found = three_tokens(tmp_path, add)
    assert reason in found["refused"], found


def three_tokens(folder, add):
    def write(writer):
        add_vocabulary(writer, "gpt2", ["a", "b", "c"], [TokenType.NORMAL] * 3, "gpt-2")
        add(writer)

    write_file(folder / "model.gguf", "llama", write)
    return dumped(folder)


def test_merges_of_unknown_tokens_are_refused(tmp_path):
    found = three_tokens(tmp_path, lambda writer: writer.add_token_merges(["a z"]))
    assert "no tokenizer can be built from the GGUF file" in found["refused"]
