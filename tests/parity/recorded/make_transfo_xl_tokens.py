# SPDX-License-Identifier: Apache-2.0
"""Makes transfo_xl_tokens.json: vocabularies of whole words, texts, their tokens by TransfoXLTokenizer of transformers
4.40.2 with sacremoses 0.2.0, and texts of drawn ids. Transformers 5 has no such class. Run it where these are
installed:

    TRUST_REMOTE_CODE=True python make_transfo_xl_tokens.py transfo_xl_tokens.json
"""

import json
import random
import sys
import tempfile
from pathlib import Path

import sacremoses
import transformers
from transformers import TransfoXLTokenizer

TEXTS = [
    "",
    " ",
    "Hello, World!",
    "23,000 people are 1.80m tall, 1,2,3 and 4.5.6; 1. 2, x1,2y .5 5.",
    "A well-known, twenty-first-century state-of-the-art e-mail -- - -a b- 1-2",
    "Mr. Smith's dogs' 5,300 bones (or 1,2,3) cost $9.99... No. 5 is O'Neil's; vs. e.g. the U.S. team.",
    'He said "hello", then ``bye\'\' . "Yes." he said “no” «oui» ‘so’ l’été 5 % 3\u00a04 nº\u00a07 20\u00a0ºC',
    "don't can't we've I'm they'll she'd James' 9's 's 'tis",
    "<eos> the <unk> <formula> <UNK> <Eos>'s a<FORMULA>b <eos><eos> x<unk>y <pad>",
    "THISISPROTECTED000 <UNK> THISISPROTECTED <UNK>",
    "The Σίσυφος ΣΑΣ İstanbul straße ﬁ ǅ ẞ",
    "北京 is 日本語テスト mixed中文text。 ！？ １２３ ３.４",
    "emoji 😀 👩‍🚀 tabs\t\tand\nlines\r\nhere\u2028there\x1cx\x01y\x7fz",
    "....a.b.. ... DOTMULTI DOTDOTMULTI MULTI .., ,, ,a,1,b,2, 1,",
    "&amp; &lt;b&gt; [x] {y} | a@b.com #tag 50% £5 €6 ¥7 ¿que? ¡si! @-@ @,@ @.@ a @-@ b 3 @,@ 4",
    "٣٬٤ ٣.٤ १,२ x²,³y",
    "End of 'quote.' and 'another.'",
    'She asked: "Why?" (He knew.) [Note: see p. 12.]',
]
WORDS = ["the", "The", "cat's", "dogs'", "U.S.", "e.g.", "No.", "5", "1,000", "3.14", "1999.", "well-known", "--", "-"]
WORDS += ["'", '"', "``", "''", "“", "”", "’", "‘", "…", "...", "..", "?", "!", "(", ")", "[", "]", "$", "£", "%", "&"]
WORDS += [
    "<eos>",
    "<unk>",
    "<formula>",
    "<UNK>",
    "<Formula>",
    "café",
    "Größe",
    "北京",
    "Привет",
    "😀",
    "@-@",
    "@,@",
    "a",
    "I",
]
WORDS += [
    "can't",
    "o'clock",
    "x,y",
    "x.y",
    "1-2",
    "a-1",
    "3-d",
    "/",
    "\\",
    ";",
    ":",
    "\u00a0",
    "~",
    "^",
    "_",
    "`",
    "«",
    "»",
]
CONFIGS = {
    "english": {},
    "lower": {"lower_case": True},
    "german": {"language": "de", "additional_special_tokens": ["<formula>", "<x>"]},
    "fixed": {"never_split": ["well-known", "1,000"]},
}


def drawn_texts(seed, count):
    rng = random.Random(seed)
    return [
        "".join(rng.choice(WORDS) + rng.choice(["", " ", " ", " "]) for _ in range(rng.randrange(1, 12)))
        for _ in range(count)
    ]


def spelled(value):
    """JSON with a line for each entry of a dictionary."""
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {spelled(entry)}" for key, entry in value.items()) + "\n}"


def main(path):
    found = {"transformers": transformers.__version__, "sacremoses": sacremoses.__version__, "cases": {}}
    for name, settings in CONFIGS.items():
        texts = TEXTS + drawn_texts(name, 250)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "vocab.txt"
            file.write_text("<unk>\n<eos>\n")
            first = TransfoXLTokenizer(vocab_file=str(file), **settings)
            words = dict.fromkeys(word for text in texts for word in first.tokenize(text))
            kept = [word for i, word in enumerate(words) if i % 9 and word not in ("<unk>", "<eos>", "<formula>")]
            file.write_text("".join(f"{word} {i}\n" for i, word in enumerate(["<eos>", "<unk>", *kept])))
            tokenizer = TransfoXLTokenizer(vocab_file=str(file), **settings)
        rng = random.Random(name)
        drawn = [[rng.randrange(len(tokenizer)) for _ in range(20)] for _ in range(60)]
        ids = [tokenizer(text)["input_ids"] for text in texts]

        def joined(all_ids, skip):
            return [
                tokenizer.convert_tokens_to_string(tokenizer.convert_ids_to_tokens(one, skip_special_tokens=skip))
                for one in all_ids
            ]

        found["cases"][name] = {
            "settings": settings,
            "vocabulary": tokenizer.idx2sym,
            "size": len(tokenizer),
            "special": {role: getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "unk", "sep", "pad")},
            "texts": texts,
            "ids": ids,
            "decoded": joined(ids, True),
            "decoded_all": joined(ids, False),
            "drawn": drawn,
            "drawn_decoded": joined(drawn, True),
            "pair": tokenizer("the cat's", "U.S. 1,000", return_token_type_ids=True).data,
        }
    Path(path).write_text(spelled(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
