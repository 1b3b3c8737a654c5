# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints with tokenizers, one for each kind of serving, with random parameters as in
tests/parity/fixtures.py; and requests for them.
"""

import random

import fixtures
import tokenizers
import torch
import transformers
from clients import Ask
from tokenizers import models, normalizers, pre_tokenizers, processors

transformers.utils.logging.disable_progress_bar()
SEED = 23
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "saw",
    "Anna",
    "Smith",
    "in",
    "Paris",
    "while",
    "the",
    "dog",
    "of",
    "John",
    "ran",
    "over",
    "seven",
    "green",
    "hills",
    "to",
    "find",
    "some",
    "water",
]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt "
    "%}assistant:{% endif %}"
)


def byte_pairs(end="<|endoftext|>", template=None):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        tokenizers.decoders.ByteLevel(),
    )
    tokenizer.train_from_iterator(
        [" ".join(WORDS)] * 3,
        tokenizers.trainers.BpeTrainer(
            vocab_size=300,
            special_tokens=[end],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if template:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[(end, tokenizer.token_to_id(end))]
        )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, pad_token=end)


def word_pieces():
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    vocab = dict.fromkeys(
        [
            "[PAD]",
            "[UNK]",
            "[CLS]",
            "[SEP]",
            "[MASK]",
            *(w.lower() for w in WORDS),
            *letters,
            *("##" + c for c in letters),
            ",",
            ".",
        ]
    )
    table = {token: i for i, token in enumerate(vocab)}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(table, unk_token="[UNK]", max_input_chars_per_word=40))
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        normalizers.BertNormalizer(lowercase=True),
        pre_tokenizers.BertPreTokenizer(),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", table["[CLS]"]), ("[SEP]", table["[SEP]"])],
    )
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def save(folder, class_name, config, tokenizer):
    torch.manual_seed(SEED)
    model = getattr(transformers, class_name)(config).eval()
    fixtures.refill(model, SEED)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def decoder(folder, positions=512, width=20):
    config = transformers.GPT2Config(
        vocab_size=300,
        n_embd=width,
        n_head=5,
        n_layer=2,
        n_positions=positions,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
    )
    tokenizer = byte_pairs()
    tokenizer.chat_template = TEMPLATE
    return save(folder, "GPT2LMHeadModel", config, tokenizer)


CHATML = """{% if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def agent(folder):
    """A decoder of a family whose calls of tools are known."""
    config = transformers.Qwen2Config(
        vocab_size=300,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=0,
        eos_token_id=0,
    )
    tokenizer = byte_pairs()
    tokenizer.chat_template = CHATML
    return save(folder, "Qwen2ForCausalLM", config, tokenizer)


def encoder(folder, head="ForMaskedLM", **more):
    tokenizer = word_pieces()
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=37,
        max_position_embeddings=128,
        **more,
    )
    return save(folder, "Bert" + head, config, tokenizer)


def encoder_decoder(folder):
    config = transformers.T5Config(
        vocab_size=300,
        d_model=20,
        d_kv=6,
        d_ff=37,
        num_layers=2,
        num_heads=5,
        pad_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=0,
    )
    return save(folder, "T5ForConditionalGeneration", config, byte_pairs(template="$A <|endoftext|>"))


def text_of(rng, least=1, most=14):
    return " ".join(rng.choices(WORDS, k=rng.randrange(least, most)))


WAYS = [
    {},
    {"temperature": 0},
    {"temperature": 0.9, "seed": 5},
    {"temperature": 1.3, "top_k": 40, "top_p": 0.9, "seed": 6},
    {"temperature": 1, "min_p": 0.05, "seed": 7, "presence_penalty": 0.7},
    {"temperature": 0, "repetition_penalty": 1.4},
    {"temperature": 0, "frequency_penalty": 0.9, "min_tokens": 6},
    {"temperature": 0.7, "seed": 8, "repetition_penalty": 1.2, "stop": [" the", "q"]},
]


def completions(rng, count=40, longest=80):
    """Returns completions with all kinds of parameters, about a third of them streamed. Token ids are returned, so
    that a single wrong token shows.
    """
    asks = []
    for i in range(count):
        body = {"max_tokens": rng.randrange(1, longest), "return_token_ids": True, **WAYS[i % len(WAYS)]}
        if i % 5 == 0:
            body["prompt"] = [rng.randrange(1, 300) for _ in range(rng.randrange(1, 60))]
        elif i % 7 == 0:
            body["prompt"] = [text_of(rng) for _ in range(3)]
        else:
            body["prompt"] = text_of(rng, most=60 if i % 6 == 0 else 14)
        if rng.random() < 0.4:
            body.update(stream=True, stream_options={"include_usage": True})
        asks.append(Ask(f"completion-{i}", "/v1/completions", body))
    return asks


def generate_texts(rng, count=4):
    return [
        Ask(
            f"generate-text-{i}", f"/generate_text/{text_of(rng).replace(' ', '%20')}?max_tokens={rng.randrange(2, 20)}"
        )
        for i in range(count)
    ]


def generates(rng, count=12, longest=24):
    """Hugging Face's parameters: beams, several sequences, bans of repetition; some streamed, with
    log-probabilities."""
    ways = [
        {"num_beams": 4, "num_return_sequences": 2},
        {"num_beams": 5, "no_repeat_ngram_size": 4},
        {"do_sample": True, "seed": 3, "num_return_sequences": 3},
        {"repetition_penalty": 1.3, "stream": True, "details": True},
        {"num_beams": 3, "early_stopping": True, "length_penalty": 0.5},
        {"do_sample": True, "seed": 4, "temperature": 0.8, "typical_p": 0.9, "stream": True},
        {"num_beams": 2, "do_sample": True, "seed": 5},
    ]
    return [
        Ask(
            f"generate-{i}",
            "/generate",
            {
                "inputs": [text_of(rng), text_of(rng)] if i % 4 == 1 else text_of(rng),
                "max_new_tokens": rng.randrange(2, longest),
                "return_token_ids": True,
                **ways[i % len(ways)],
            },
        )
        for i in range(count)
    ]


def chats(rng, count=8):
    ways = [
        {"temperature": 0},
        {"temperature": 0, "stream": True},
        {"temperature": 0.8, "seed": 9, "n": 2},
        {"temperature": 0, "logprobs": True, "top_logprobs": 2},
    ]
    return [
        Ask(
            f"chat-{i}",
            "/v1/chat/completions",
            {
                "messages": [{"role": "system", "content": text_of(rng)}, {"role": "user", "content": text_of(rng)}],
                "max_tokens": rng.randrange(2, 24),
                **ways[i % len(ways)],
            },
        )
        for i in range(count)
    ]


def embeddings(rng, count=5):
    return [
        Ask(f"embedding-{i}", "/v1/embeddings", {"input": [text_of(rng) for _ in range(rng.randrange(1, 5))]})
        for i in range(count)
    ] + [
        Ask(f"similarity-{i}", "/similarity", {"source": text_of(rng), "sentences": [text_of(rng) for _ in range(3)]})
        for i in range(2)
    ]


def forwards(rng, vocabulary, count=4, **more):
    return [
        Ask(
            f"forward-{i}",
            "/forward",
            {"inputs": {"input_ids": [[rng.randrange(5, vocabulary) for _ in range(5 + 7 * i)]], **more}},
        )
        for i in range(count)
    ]


def tokens(rng, count=2):
    return [Ask(f"tokenize-{i}", "/tokenize", {"prompt": text_of(rng)}) for i in range(count)] + [
        Ask(f"detokenize-{i}", "/detokenize", {"tokens": [rng.randrange(5, 50) for _ in range(9)]})
        for i in range(count)
    ]


def of_decoder():
    rng = random.Random(SEED)
    return (
        completions(rng)
        + generate_texts(rng)
        + generates(rng)
        + chats(rng)
        + embeddings(rng)
        + forwards(rng, 300)
        + tokens(rng)
    )


PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "Anna", "green hills"]},
        "days": {"type": "integer", "minimum": 0, "maximum": 99},
        "near": {"type": "boolean"},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "find", "parameters": PLACE, "strict": True}},
    {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "maxProperties": 0}}},
]


def constrained(rng, count=24):
    """Answers that follow a schema, a pattern or a choice, and calls of tools; some of the answers are streamed."""
    held = [
        {"json": PLACE},
        {"regex": "(the|a) (cat|dog)( ran){1,6}"},
        {"choice": ["the green hills", "the dog", "seven"]},
    ]
    ways = [{"temperature": 0}, {"temperature": 0.9, "seed": 5}, {"temperature": 1.2, "seed": 6, "n": 2}]
    choices = ["required", "auto", {"type": "function", "function": {"name": "find"}}, "none"]
    asks = []
    for i in range(count):
        body = {"max_tokens": 80, **ways[i % len(ways)], "stream": i % 4 == 1}
        if i % 2:
            body |= {"prompt": text_of(rng), "structured_outputs": held[i // 2 % len(held)]}
            asks.append(Ask(f"held-{i}", "/v1/completions", body | {"return_token_ids": True}))
        else:
            messages = [{"role": "user", "content": text_of(rng)}]
            body |= {"messages": messages, "tools": TOOLS, "tool_choice": choices[i // 2 % len(choices)]}
            asks.append(Ask(f"tools-{i}", "/v1/chat/completions", body))
    return asks


def of_agent():
    rng = random.Random(SEED)
    return constrained(rng) + completions(rng, 16) + chats(rng, 4)


def of_encoder():
    rng = random.Random(SEED)
    masked = [
        Ask(f"fill-mask-{i}", "/fill-mask", {"inputs": f"{text_of(rng)} [MASK] {text_of(rng)}", "top_k": 3})
        for i in range(8)
    ]
    return masked + embeddings(rng, 10) + forwards(rng, 60) + tokens(rng)


def of_classifier():
    rng = random.Random(SEED)
    return [
        Ask(f"classify-{i}", "/classify", {"inputs": [text_of(rng) for _ in range(1 + i % 3)]}) for i in range(12)
    ] + forwards(rng, 60)


def of_encoder_decoder():
    rng = random.Random(SEED)
    return completions(rng, 24) + generate_texts(rng) + generates(rng) + embeddings(rng)
