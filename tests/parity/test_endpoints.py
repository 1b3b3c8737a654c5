# SPDX-License-Identifier: Apache-2.0
"""HTTP endpoints of a real server with two ranks in processes, against transformers' pipelines on the same tiny
checkpoints.
"""

import base64
import io
import json
import struct

import fixtures
import numpy
import pytest
import tokenizers
import torch
import transformers
from PIL import Image
from safetensors.numpy import load as load_bytes
from safetensors.numpy import save as save_bytes
from server import Server
from tokenizers import models, normalizers, pre_tokenizers, processors
from transformers import pipeline

transformers.utils.logging.disable_progress_bar()
transformers.logging.set_verbosity_error()
SEED = 11
CORPUS = [
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
TEXTS = [
    "the cat sat on the mat",
    "Anna Smith saw seven dogs in Paris, over the hills!",
    "a",
    "water  and\tgreen éxtra wörds 日本",
]


def word_pieces():
    """A small WordPiece tokenizer, lower-casing and stripping accents as bert-base-uncased."""
    words = sorted({w.lower() for w in CORPUS})
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    vocab = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *words,
        *letters,
        *("##" + c for c in letters),
        *",.!?",
        "##s",
        "##ing",
    ]
    table = {token: i for i, token in enumerate(dict.fromkeys(vocab))}
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
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def byte_pairs(end="<|endoftext|>", template=None):
    """Byte-level, as GPT-2's, with a few merges."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        tokenizers.decoders.ByteLevel(),
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=[end], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(CORPUS)] * 3, trainer)
    if template:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[(end, tokenizer.token_to_id(end))]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=end, pad_token=end, model_max_length=64
    )


def build(folder, class_name, config, tokenizer=None, processor=None):
    torch.manual_seed(SEED)
    model = getattr(transformers, class_name)(config).eval()
    fixtures.refill(model, SEED)
    model.save_pretrained(folder)
    if tokenizer:
        tokenizer.save_pretrained(folder)
    if processor:
        processor.save_pretrained(folder)
    return model


def bert(**more):
    return transformers.BertConfig(
        vocab_size=len(word_pieces()),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=37,
        max_position_embeddings=64,
        **more,
    )


def gpt2(**more):
    return transformers.GPT2Config(
        vocab_size=300,
        n_embd=20,
        n_head=5,
        n_layer=2,
        n_positions=64,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        **more,
    )


@pytest.fixture
def serve(tmp_path):
    """serve(class_name, config, ...) -> (server, model, tokenizer)"""
    servers = []

    def start(class_name, config, tokenizer=None, processor=None, change=lambda folder: None, options=()):
        folder = tmp_path / class_name
        model = build(folder, class_name, config, tokenizer, processor)
        change(folder)
        servers.append(Server(folder, options=options))
        return servers[-1], model

    yield start
    for server in servers:
        server.close()


def close_to(ours, theirs, keys=("score",), tolerance=2e-5):
    """Equal lists of entries but for scores, which are near."""
    assert type(ours) is type(theirs) and len(ours) == len(theirs), (ours, theirs)
    for a, b in zip(ours, theirs):
        if isinstance(a, list):
            close_to(a, b, keys, tolerance)
            continue
        assert {k: v for k, v in a.items() if k not in keys} == {k: v for k, v in b.items() if k not in keys}
        for key in keys:
            assert a[key] == pytest.approx(float(b[key]), abs=tolerance), (a, b)


def picture(width, height, seed=0):
    random = numpy.random.default_rng(SEED + seed)
    y, x = numpy.mgrid[:height, :width]
    waves = numpy.stack([127 + 90 * numpy.sin((x * (c + 1) + y * (3 - c)) / 9) for c in range(3)], -1)
    return Image.fromarray(numpy.clip(waves + random.normal(0, 10, waves.shape), 0, 255).astype(numpy.uint8))


def in_base64(image, form="PNG"):
    out = io.BytesIO()
    image.save(out, form)
    return base64.b64encode(out.getvalue()).decode()


def encode(tokenizer, *texts, **more):
    return tokenizer(*texts, return_tensors="pt", **more)


def unit(values):
    values = numpy.asarray(values, numpy.float64)
    return values / numpy.linalg.norm(values, axis=-1, keepdims=True)


def mean_of(model, tokenizer, text):
    with torch.no_grad():
        return model(**encode(tokenizer, text)).last_hidden_state[0].mean(0).numpy()


def test_embeddings_of_an_encoder(serve):
    tokenizer = word_pieces()
    server, model = serve("BertModel", bert(), tokenizer)
    expected = [unit(mean_of(model, tokenizer, text)) for text in TEXTS]
    answer = server.ask("/v1/embeddings", {"input": TEXTS, "model": "BertModel"})
    numpy.testing.assert_allclose([one["embedding"] for one in answer["data"]], expected, atol=2e-6)
    assert [one["index"] for one in answer["data"]] == [0, 1, 2, 3] and answer["object"] == "list"
    ids = [tokenizer(text)["input_ids"] for text in TEXTS]
    assert answer["usage"] == {"prompt_tokens": sum(map(len, ids)), "total_tokens": sum(map(len, ids))}
    for given in (ids, [ids[0]], ids[0], TEXTS[0]):
        first = server.ask("/v1/embeddings", {"input": given})["data"][0]["embedding"]
        numpy.testing.assert_allclose(first, expected[0], atol=2e-6)
    packed = server.ask("/v1/embeddings", {"input": TEXTS[0], "encoding_format": "base64", "dimensions": 5})["data"][0][
        "embedding"
    ]
    numpy.testing.assert_allclose(struct.unpack("<5f", base64.b64decode(packed)), unit(expected[0][:5]), atol=2e-6)
    with torch.no_grad():
        outputs = model(**encode(tokenizer, TEXTS[1]))
    states = outputs.last_hidden_state[0].numpy()
    for pooling, plain in (
        ("cls", states[0]),
        ("last", states[-1]),
        ("max", states.max(0)),
        ("mean", states.mean(0)),
        ("pooler", outputs.pooler_output[0].numpy()),
    ):
        raw = server.ask("/v1/embeddings", {"input": TEXTS[1], "pooling": pooling, "normalize": False})["data"][0][
            "embedding"
        ]
        numpy.testing.assert_allclose(raw, plain, atol=2e-5)
    scores = server.ask("/similarity", {"source": TEXTS[0], "sentences": TEXTS})
    numpy.testing.assert_allclose(scores, numpy.stack(expected) @ expected[0], atol=2e-6)
    assert scores == server.ask("/similarity", {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS}})
    error = server.refused("/v1/embeddings", {"input": ["ok", "cat " * 70]}, 413)
    assert "input[1] has 72 tokens" in error["message"] and "at most 64" in error["message"]
    cut = server.ask("/v1/embeddings", {"input": "cat " * 70, "truncate": True})
    with torch.no_grad():
        state = model(**encode(tokenizer, "cat " * 70, truncation=True, max_length=64)).last_hidden_state[0].mean(0)
    numpy.testing.assert_allclose(cut["data"][0]["embedding"], unit(state), atol=2e-6)
    assert "POST /v1/embeddings" in server.refused("/classify", {"inputs": "a"}, 404)["message"]
    assert "dimensions" in server.refused("/v1/embeddings", {"input": "a", "dimensions": 25}, 400)["message"]


def test_the_openai_client_gets_embeddings(serve):
    import openai

    tokenizer = word_pieces()
    server, model = serve("BertModel", bert(), tokenizer)
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none")
    answer = client.embeddings.create(model="BertModel", input=TEXTS)
    numpy.testing.assert_allclose(
        [one.embedding for one in answer.data], [unit(mean_of(model, tokenizer, text)) for text in TEXTS], atol=2e-6
    )
    assert client.models.list().data[0].task == "embed"


def test_embeddings_as_sentence_transformers_asks_for(serve):
    tokenizer = word_pieces()

    def change(folder):
        types = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
        (folder / "modules.json").write_text(
            json.dumps(
                [
                    {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
                    for i, (path, name) in enumerate(types.items())
                ]
            )
        )
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text(
            json.dumps(
                {"word_embedding_dimension": 24, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
            )
        )
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 10, "do_lower_case": False}))
        text = json.loads(
            (folder / "tokenizer.json").read_text()
        )  # as such folders have it; transformers switches both off, and so must we
        text["truncation"] = {"direction": "Right", "max_length": 6, "strategy": "LongestFirst", "stride": 0}
        text["padding"] = {
            "strategy": {"Fixed": 12},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        }
        (folder / "tokenizer.json").write_text(json.dumps(text))

    server, model = serve("BertModel", bert(), tokenizer, change=change)
    with torch.no_grad():
        state = model(**encode(tokenizer, TEXTS[0])).last_hidden_state[0, 0]
    numpy.testing.assert_allclose(
        server.ask("/v1/embeddings", {"input": TEXTS[0] + "  "})["data"][0]["embedding"], unit(state), atol=2e-6
    )
    assert "at most 10" in server.refused("/v1/embeddings", {"input": "cat " * 20}, 413)["message"]


def test_embeddings_of_a_decoder_that_generates(serve):
    tokenizer = byte_pairs()
    server, model = serve("GPT2LMHeadModel", gpt2(), tokenizer)
    for text in TEXTS:
        with torch.no_grad():
            state = model.transformer(**encode(tokenizer, text)).last_hidden_state[0, -1]
        numpy.testing.assert_allclose(
            server.ask("/v1/embeddings", {"input": text})["data"][0]["embedding"], unit(state), atol=2e-6
        )
    assert server.ask("/v1/completions", {"prompt": "the", "max_tokens": 3})["usage"]["completion_tokens"] <= 3


def test_embeddings_of_an_encoder_without_positions(serve):
    tokenizer = byte_pairs("</s>", "$A </s>")
    server, model = serve(
        "T5EncoderModel",
        transformers.T5Config(vocab_size=300, d_model=20, d_kv=6, d_ff=37, num_layers=2, num_heads=5),
        tokenizer,
    )
    for text in TEXTS:
        with torch.no_grad():
            state = model(**encode(tokenizer, text)).last_hidden_state[0].mean(0)
        numpy.testing.assert_allclose(
            server.ask("/v1/embeddings", {"input": text})["data"][0]["embedding"], unit(state), atol=2e-6
        )


LABELS = {0: "sad", 1: "merry", 2: "calm"}


@pytest.mark.parametrize(
    "problem,labels",
    [(None, LABELS), ("multi_label_classification", LABELS), ("regression", {0: "mark"}), (None, {0: "one"})],
)
def test_classes_of_texts_and_pairs(serve, problem, labels):
    tokenizer = word_pieces()
    more = {"problem_type": problem} if problem else {}
    server, model = serve(
        "BertForSequenceClassification",
        bert(id2label=labels, label2id={v: k for k, v in labels.items()}, **more),
        tokenizer,
    )
    oracle = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    theirs = oracle(TEXTS)
    close_to(server.ask("/classify", {"inputs": TEXTS}), theirs)
    close_to(server.ask("/classify", {"inputs": TEXTS[0]}), theirs[0])
    close_to(server.ask("/classify", {"inputs": TEXTS[0], "parameters": {"top_k": 1}}), theirs[0][:1])
    for function in ("none", "sigmoid", "softmax"):
        close_to(
            server.ask("/classify", {"inputs": TEXTS[1], "function_to_apply": function}),
            oracle([TEXTS[1]], function_to_apply=function)[0],
        )
    pair = oracle([{"text": TEXTS[0], "text_pair": TEXTS[1]}])[0]
    for inputs in ([TEXTS[:2]], [{"text": TEXTS[0], "text_pair": TEXTS[1]}]):
        close_to(server.ask("/classify", {"inputs": inputs}), [pair])


def test_classes_of_a_decoder_s_last_token(serve):
    tokenizer = byte_pairs()
    server, model = serve(
        "GPT2ForSequenceClassification", gpt2(id2label=LABELS, label2id={v: k for k, v in LABELS.items()}), tokenizer
    )
    oracle = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    close_to(server.ask("/classify", {"inputs": TEXTS}), oracle(TEXTS))


def test_classes_of_an_encoder_and_decoder(serve):
    tokenizer = byte_pairs("</s>", "$A </s>")
    config = transformers.BartConfig(
        vocab_size=300,
        d_model=20,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=5,
        decoder_attention_heads=4,
        encoder_ffn_dim=37,
        decoder_ffn_dim=31,
        max_position_embeddings=64,
        pad_token_id=1,
        bos_token_id=2,
        eos_token_id=0,
        decoder_start_token_id=0,
        forced_eos_token_id=0,
        id2label=LABELS,
        label2id={v: k for k, v in LABELS.items()},
    )
    server, model = serve("BartForSequenceClassification", config, tokenizer)
    oracle = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    close_to(server.ask("/classify", {"inputs": TEXTS}), [oracle([text])[0] for text in TEXTS])


def test_fill_mask_of_a_model_whose_positions_begin_after_padding(serve):
    tokenizer = word_pieces()
    config = transformers.MPNetConfig(
        vocab_size=len(tokenizer),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=37,
        max_position_embeddings=66,
        pad_token_id=1,
    )
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    server, model = serve("MPNetForMaskedLM", config, tokenizer)
    texts = ["the cat [MASK] on the mat.", "Anna [MASK] in Paris!"]
    close_to(
        server.ask("/fill-mask", {"inputs": texts}), pipeline("fill-mask", model=model, tokenizer=tokenizer)(texts)
    )
    assert "at most 64" in server.refused("/fill-mask", {"inputs": "[MASK] " * 70}, 413)["message"]


def test_entities(serve):
    tokenizer = word_pieces()
    labels = {0: "B-PER", 1: "I-PER", 2: "B-LOC", 3: "O", 4: "I-LOC"}
    server, model = serve(
        "BertForTokenClassification", bert(id2label=labels, label2id={v: k for k, v in labels.items()}), tokenizer
    )
    for strategy in ("none", "simple"):
        oracle = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=strategy)
        theirs = [oracle(text) for text in TEXTS]
        assert sum(map(len, theirs)) > 4
        ours = server.ask("/classify", {"inputs": TEXTS, "aggregation_strategy": strategy})
        close_to(ours, theirs)
        close_to(
            server.ask(
                "/classify", {"inputs": TEXTS[1], "parameters": {"aggregation_strategy": strategy, "ignore_labels": []}}
            ),
            pipeline(
                "token-classification",
                model=model,
                tokenizer=tokenizer,
                aggregation_strategy=strategy,
                ignore_labels=[],
            )(TEXTS[1]),
        )


def test_fill_mask(serve):
    tokenizer = word_pieces()
    server, model = serve("BertForMaskedLM", bert(), tokenizer)
    oracle = pipeline("fill-mask", model=model, tokenizer=tokenizer)
    texts = ["the cat [MASK] on the mat.", "Anna [MASK] in Paris!"]
    close_to(server.ask("/fill-mask", {"inputs": texts[0]}), oracle(texts[0]))
    close_to(server.ask("/fill-mask", {"inputs": texts, "top_k": 3}), oracle(texts, top_k=3))
    close_to(
        server.ask("/fill-mask", {"inputs": texts[1], "targets": ["sat", "ran", "waterfall"]}),
        oracle(texts[1], targets=["sat", "ran", "waterfall"]),
    )
    two = "[MASK] cat [MASK] on"
    close_to(server.ask("/fill-mask", {"inputs": two}), oracle(two))
    assert "[MASK]" in server.refused("/fill-mask", {"inputs": "no mask"}, 400)["message"]


def test_fill_mask_of_a_model_for_pretraining_also_tells_what_follows(serve):
    tokenizer = word_pieces()
    server, model = serve("BertForPreTraining", bert(), tokenizer)
    text = "the cat [MASK] on the mat."
    inputs = encode(tokenizer, text)
    with torch.no_grad():
        logits = model(**inputs).prediction_logits[0, inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)]
        follows = model(**encode(tokenizer, TEXTS[0], TEXTS[1])).seq_relationship_logits[0].softmax(-1)
    best = logits.softmax(-1).topk(5)
    answer = server.ask("/fill-mask", {"inputs": text})
    assert [one["token"] for one in answer] == best.indices.tolist()
    assert [one["score"] for one in answer] == pytest.approx(best.values.tolist(), abs=1e-5)
    scores = {one["label"]: one["score"] for one in server.ask("/classify", {"inputs": [[TEXTS[0], TEXTS[1]]]})[0]}
    assert scores == pytest.approx({"is_next": follows[0].item(), "not_next": follows[1].item()}, abs=1e-5)


def test_what_sentence_follows(serve):
    tokenizer = word_pieces()
    server, model = serve("BertForNextSentencePrediction", bert(), tokenizer)
    with torch.no_grad():
        follows = model(**encode(tokenizer, TEXTS[0], TEXTS[1])).logits[0].softmax(-1)
    scores = {
        one["label"]: one["score"]
        for one in server.ask("/classify", {"inputs": {"text": TEXTS[0], "text_pair": TEXTS[1]}})
    }
    assert scores == pytest.approx({"is_next": follows[0].item(), "not_next": follows[1].item()}, abs=1e-5)


def test_choices(serve):
    tokenizer = word_pieces()
    server, model = serve("BertForMultipleChoice", bert(), tokenizer)
    choices = TEXTS[1:]
    inputs = {name: tensor[None] for name, tensor in encode(tokenizer, [TEXTS[0]] * 3, choices, padding=True).items()}
    with torch.no_grad():
        scores = model(**inputs).logits[0].softmax(-1)
    order = scores.argsort(descending=True).tolist()
    answer = server.ask("/classify", {"prompt": TEXTS[0], "choices": choices})
    assert [one["index"] for one in answer] == order and [one["label"] for one in answer] == [choices[i] for i in order]
    assert [one["score"] for one in answer] == pytest.approx(scores[order].tolist(), abs=1e-5)


def answers_of(model, tokenizer, question, context, top_k=1, longest=15, row=64, stride=32, impossible=False):
    """The question-answering pipeline of transformers 4.57, which version 5 no longer has, for tokenizers that pad on
    the right."""
    encoded = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=row,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding=True,
    )
    answers, nothing = [], 1000000
    for i, encoding in enumerate(encoded.encodings):
        ids, mask = torch.tensor([encoding.ids]), torch.tensor([encoding.attention_mask])
        with torch.no_grad():
            outputs = model(input_ids=ids, attention_mask=mask, token_type_ids=torch.tensor([encoding.type_ids]))
        allowed = numpy.array([part == 1 for part in encoding.sequence_ids]) | (
            ids[0].numpy() == tokenizer.cls_token_id
        )
        allowed &= mask[0].numpy().astype(bool)
        sides = []
        for logits in (outputs.start_logits, outputs.end_logits):
            kept = numpy.where(allowed, logits[0].numpy(), -10000.0)
            odds = numpy.exp(kept - kept.max())
            sides.append(odds / odds.sum())
        nothing = min(nothing, sides[0][0] * sides[1][0])
        sides[0][0] = sides[1][0] = 0
        candidates = numpy.tril(numpy.triu(numpy.outer(*sides)), longest - 1)
        for flat in numpy.argsort(-candidates.flatten())[:top_k]:
            s, e = numpy.unravel_index(flat, candidates.shape)
            if not (allowed[s] and allowed[e]):
                continue
            try:
                start, end = (
                    encoding.word_to_chars(encoding.token_to_word(s), 1)[0],
                    encoding.word_to_chars(encoding.token_to_word(e), 1)[1],
                )
            except Exception:
                start, end = encoding.offsets[s][0], encoding.offsets[e][1]
            text = context[start:end]
            same = next((one for one in answers if one["answer"].lower() == text.lower()), None)
            if same:
                same["score"] += candidates[s, e]
            else:
                answers.append({"answer": text, "score": float(candidates[s, e]), "start": int(start), "end": int(end)})
    if impossible:
        answers.append({"answer": "", "score": float(nothing), "start": 0, "end": 0})
    return sorted(answers, key=lambda one: -one["score"])[:top_k]


def test_question_answering(serve):
    tokenizer = word_pieces()
    server, model = serve("BertForQuestionAnswering", bert(), tokenizer)
    question, short = "who saw the dog?", "Anna Smith saw seven dogs in Paris, over the hills! éxtra wörds"
    long = " ".join(numpy.random.default_rng(SEED).choice(CORPUS, 150))
    for context in (short, long):
        for top_k in (1, 4):
            theirs = answers_of(model, tokenizer, question, context, top_k)
            ours = server.ask("/question-answering", {"question": question, "context": context, "top_k": top_k})
            close_to(ours if isinstance(ours, list) else [ours], theirs)
    question_request = {
        "question": question,
        "context": short,
        "parameters": {"handle_impossible_answer": True, "top_k": 3, "max_answer_len": 4},
    }
    close_to(
        server.ask("/question-answering", question_request),
        answers_of(model, tokenizer, question, short, 3, 4, impossible=True),
    )
    answer = server.ask("/question-answering", {"inputs": {"question": question, "context": short}})
    assert short[answer["start"] : answer["end"]] == answer["answer"]
    assert (
        "leaves none for the context"
        in server.refused("/question-answering", {"question": "cat " * 70, "context": short}, 413)["message"]
    )


def clip():
    text = dict(
        vocab_size=300,
        hidden_size=20,
        num_hidden_layers=2,
        num_attention_heads=5,
        intermediate_size=37,
        max_position_embeddings=40,
        eos_token_id=0,
        bos_token_id=0,
        pad_token_id=0,
    )
    vision = dict(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=31, image_size=16, patch_size=8
    )
    return transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=9)


def test_images_and_texts_of_two_towers(serve):
    tokenizer = byte_pairs("<|endoftext|>", "$A <|endoftext|>")
    processor = transformers.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    server, model = serve("CLIPModel", clip(), tokenizer, processor)
    images = [picture(40, 30), picture(23, 61, 1)]
    pixels = processor(images=images, return_tensors="pt")["pixel_values"]
    texts = TEXTS[:3]
    with torch.no_grad():
        outputs = [model(**encode(tokenizer, text), pixel_values=pixels) for text in texts]
    logits = numpy.concatenate([one.logits_per_image.numpy() for one in outputs], 1)
    answer = server.ask("/similarity", {"texts": texts, "images": [in_base64(image) for image in images]})
    numpy.testing.assert_allclose(answer["logits_per_image"], logits, atol=2e-4)
    numpy.testing.assert_allclose(answer["probabilities"], torch.tensor(logits).softmax(-1), atol=2e-4)
    one = server.ask("/similarity", {"text": texts[1], "image": "data:image/png;base64," + in_base64(images[0])})
    numpy.testing.assert_allclose(one["logits_per_image"], logits[:1, 1:2], atol=2e-4)
    answer = server.ask("/v1/embeddings", {"input": [texts[0], {"image": in_base64(images[1])}, {"text": texts[2]}]})
    theirs = [outputs[0].text_embeds[0], outputs[0].image_embeds[1], outputs[2].text_embeds[0]]
    numpy.testing.assert_allclose([entry["embedding"] for entry in answer["data"]], torch.stack(theirs), atol=1e-5)
    assert (
        "base64" in server.refused("/similarity", {"text": "a", "image": "http://example.com/cat.png"}, 400)["message"]
    )
    assert (
        "PNG"
        in server.refused("/similarity", {"text": "a", "image": base64.b64encode(b"hello").decode()}, 400)["message"]
    )


def test_classes_of_images(serve):
    processor = transformers.ViTImageProcessorPil(size={"height": 16, "width": 16})
    config = transformers.ViTConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=31,
        image_size=16,
        patch_size=8,
        id2label={i: f"kind {i}" for i in range(7)},
        label2id={f"kind {i}": i for i in range(7)},
    )
    server, model = serve("ViTForImageClassification", config, processor=processor)
    oracle = pipeline("image-classification", model=model, image_processor=processor)
    images = [picture(40, 30), picture(23, 61, 1)]
    close_to(
        server.ask("/classify", {"inputs": [in_base64(image) for image in images]}), [oracle(image) for image in images]
    )
    close_to(server.ask("/classify", {"inputs": in_base64(images[0]), "top_k": 2}), oracle(images[0], top_k=2))
    file = io.BytesIO()
    images[1].save(file, "JPEG", quality=95)
    theirs = oracle(Image.open(io.BytesIO(file.getvalue())))
    reply = server.post("/classify", data=file.getvalue(), headers={"Content-Type": "image/jpeg"})
    close_to(reply.json(), theirs, tolerance=1e-3)
    assert "POST /classify" in server.refused("/v1/embeddings", {"input": "text"}, 404)["message"]


def test_forward_gives_every_tensor_as_json_and_as_safetensors(serve):
    tokenizer = word_pieces()
    server, model = serve("BertForSequenceClassification", bert(num_labels=3), tokenizer)
    inputs = encode(tokenizer, TEXTS[:2], padding=True)
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
    body = {
        "inputs": {name: tensor.tolist() for name, tensor in inputs.items()},
        "hidden_states": True,
        "attentions": True,
    }
    answer = server.ask("/forward", body)["outputs"]
    assert sorted(answer) == [
        "attentions.0",
        "attentions.1",
        "hidden_states.0",
        "hidden_states.1",
        "hidden_states.2",
        "logits",
    ]
    assert answer["logits"]["shape"] == [2, 3] and answer["logits"]["dtype"] == "float32"
    numpy.testing.assert_allclose(answer["logits"]["data"], outputs.logits, atol=2e-5)
    mask = inputs["attention_mask"].numpy()[..., None]
    numpy.testing.assert_allclose(
        answer["hidden_states.2"]["data"] * mask, outputs.hidden_states[2].numpy() * mask, atol=2e-5
    )
    reply = server.post(
        "/forward?hidden_states=true&attentions=1",
        data=save_bytes({name: tensor.numpy() for name, tensor in inputs.items()}),
        headers={"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"},
    )
    assert reply.status_code == 200, reply.text
    tensors = load_bytes(reply.content)
    assert sorted(tensors) == sorted(answer)
    for name, tensor in tensors.items():
        numpy.testing.assert_array_equal(tensor, numpy.asarray(answer[name]["data"], numpy.float32))
    assert sorted(
        server.ask("/forward", {**body, "hidden_states": False, "attentions": False, "outputs": ["logits"]})["outputs"]
    ) == ["logits"]
    assert (
        "outputs"
        in server.refused(
            "/forward", {**body, "outputs": ["nonsense"], "hidden_states": False, "attentions": False}, 400
        )["message"]
    )
    assert "ids go from" in server.refused("/forward", {"inputs": {"input_ids": [[1, 100000]]}}, 400)["message"]
    assert "neighbours" in server.refused("/forward", {"inputs": {"input_ids": [[1, 2], [3]]}}, 400)["message"]
    assert "at most 64" in server.refused("/forward", {"inputs": {"input_ids": [[1] * 65]}}, 413)["message"]
