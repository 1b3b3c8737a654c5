# SPDX-License-Identifier: Apache-2.0
"""The served task of one family per kind of model over HTTP, with two ranks in processes, against transformers on
the same tiny checkpoints: an encoder, decoders, encoder-decoders that translate with tokenizers of older files,
images, documents, vectors of images, spans.
"""

import json

import numpy
import pytest
import requests
import tokenizers
import torch
import transformers
from safetensors.numpy import load as load_bytes
from safetensors.numpy import save as save_bytes
from server import Server
from test_endpoints import (  # noqa: F401 (serve is a fixture)
    CORPUS,
    LABELS,
    TEXTS,
    answers_of,
    build,
    close_to,
    encode,
    in_base64,
    picture,
    serve,
    unit,
    word_pieces,
)
from test_tokenizers import own_numbers, sentence_piece, two_models
from tokenizers import models, pre_tokenizers, processors
from transformers import pipeline

SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 37,
    "max_position_embeddings": 66,
}
NAMED = {"id2label": LABELS, "label2id": {name: i for i, name in LABELS.items()}}


def roberta_pieces():
    """Byte-level, its ends and its mask as RoBERTa's."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        tokenizers.decoders.ByteLevel(),
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(CORPUS)] * 3, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token=transformers.AddedToken("<mask>", lstrip=True),
        model_max_length=64,
        model_input_names=["input_ids", "attention_mask"],
    )


def roberta(tokenizer, **more):
    return transformers.RobertaConfig(
        vocab_size=len(tokenizer), type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2, **SIZES, **more
    )


def test_roberta_classifies(serve):
    tokenizer = roberta_pieces()
    server, model = serve("RobertaForSequenceClassification", roberta(tokenizer, **NAMED), tokenizer)
    oracle = pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None)
    close_to(server.ask("/classify", {"inputs": TEXTS}), oracle(TEXTS))
    close_to(server.ask("/classify", {"inputs": [TEXTS[:2]]}), [oracle([{"text": TEXTS[0], "text_pair": TEXTS[1]}])[0]])


def test_roberta_fills_masks_and_embeds(serve):
    tokenizer = roberta_pieces()
    server, model = serve("RobertaForMaskedLM", roberta(tokenizer), tokenizer)
    texts = ["the cat<mask> on the mat.", "Anna <mask> in Paris!"]
    close_to(
        server.ask("/fill-mask", {"inputs": texts}), pipeline("fill-mask", model=model, tokenizer=tokenizer)(texts)
    )
    for text in TEXTS:
        with torch.no_grad():
            state = model.roberta(**encode(tokenizer, text)).last_hidden_state[0].mean(0)
        numpy.testing.assert_allclose(
            server.ask("/v1/embeddings", {"input": text})["data"][0]["embedding"], unit(state), atol=2e-6
        )


def test_roberta_answers_questions(serve):
    tokenizer = roberta_pieces()
    server, model = serve("RobertaForQuestionAnswering", roberta(tokenizer), tokenizer)
    question, context = "who saw the dog?", "Anna Smith saw seven dogs in Paris, over the hills! éxtra wörds"
    for top_k in (1, 4):
        ours = server.ask("/question-answering", {"question": question, "context": context, "top_k": top_k})
        close_to(ours if isinstance(ours, list) else [ours], answers_of(model, tokenizer, question, context, top_k))


def decoder_pieces():
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        tokenizers.decoders.ByteLevel(),
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(CORPUS)] * 3, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", model_max_length=64
    )


DECODERS = {
    "OPTForCausalLM": lambda: transformers.OPTConfig(
        vocab_size=300,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        ffn_dim=37,
        max_position_embeddings=64,
        word_embed_proj_dim=24,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
    ),
    "DeepseekV3ForCausalLM": lambda: transformers.DeepseekV3Config(
        vocab_size=300,
        num_key_value_heads=SIZES["num_attention_heads"],
        **SIZES,
        q_lora_rank=10,
        kv_lora_rank=14,
        qk_nope_head_dim=6,
        qk_rope_head_dim=4,
        v_head_dim=8,
        moe_intermediate_size=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        num_mtp_layers=0,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
    ),
    "Qwen2ForCausalLM": lambda: transformers.Qwen2Config(
        vocab_size=300, num_key_value_heads=1, **SIZES, pad_token_id=0, bos_token_id=1, eos_token_id=1
    ),
}


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_complete_and_generate(serve, name):
    tokenizer = decoder_pieces()
    server, model = serve(name, DECODERS[name](), tokenizer)
    for text in TEXTS:
        ids = encode(tokenizer, text)
        with torch.no_grad():
            plain = model.generate(**ids, max_new_tokens=12, do_sample=False)[0].tolist()
            beams = model.generate(**ids, max_new_tokens=8, num_beams=3, no_repeat_ngram_size=2)[0].tolist()
        answer = server.ask("/v1/completions", {"prompt": text, "max_tokens": 12, "temperature": 0})
        assert answer["choices"][0]["text"] == tokenizer.decode(plain, skip_special_tokens=True)[len(text) :]
        found = server.ask(
            "/generate",
            {
                "inputs": text,
                "parameters": {
                    "max_new_tokens": 8,
                    "num_beams": 3,
                    "no_repeat_ngram_size": 2,
                    "return_token_ids": True,
                },
            },
        )
        assert found["sequence"] == beams and found["generated_text"] == tokenizer.decode(
            beams, skip_special_tokens=True
        )


TINY = {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 31,
    "max_position_embeddings": 64,
}
# -> what writes the tokenizer's older files, its class, its settings; class of the model and of its configuration; what
# a request forces
TRANSLATORS = {
    "mbart": (
        sentence_piece("sentencepiece.bpe.model"),
        "MBartTokenizer",
        {"src_lang": "ro_RO"},
        "MBartForConditionalGeneration",
        "MBartConfig",
        "de_DE",
    ),
    "mbart50": (
        sentence_piece("sentencepiece.bpe.model"),
        "MBart50Tokenizer",
        {"src_lang": "gl_ES"},
        "MBartForConditionalGeneration",
        "MBartConfig",
        "sl_SI",
    ),
    "m2m100": (
        own_numbers("unigram"),
        "M2M100Tokenizer",
        {"src_lang": "fr", "additional_special_tokens": ["__af__", "__am__", "__ar__"]},
        "M2M100ForConditionalGeneration",
        "M2M100Config",
        "__ar__",
    ),
    "marian": (two_models(), "MarianTokenizer", {}, "MarianMTModel", "MarianConfig", None),
}


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translators_read_the_language_of_the_tokenizer_and_write_the_one_that_is_forced(tmp_path, name):
    write, tokenizer_class, settings, model_class, config_class, language = TRANSLATORS[name]
    folder = tmp_path / name
    folder.mkdir()
    write(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class, **settings}))
    tokenizer = getattr(transformers, tokenizer_class).from_pretrained(folder)
    size = tokenizer.vocab_size + 100 if name == "m2m100" else len(tokenizer)  # its languages stand behind its tokens
    config = getattr(transformers, config_class)(
        vocab_size=size,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=0,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=None,
        **({"decoder_vocab_size": size} if name == "marian" else {}),
        **TINY,
    )
    model = build(folder, model_class, config)
    model.generation_config = transformers.GenerationConfig(
        pad_token_id=config.pad_token_id,
        eos_token_id=config.eos_token_id,
        decoder_start_token_id=config.decoder_start_token_id,
    )
    model.generation_config.save_pretrained(folder)
    forced = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(language)} if language else {}
    server = Server(folder)
    try:
        answers = []
        for text in ("hello world", "The quick brown fox, Привет мир 北京!", ">>fr<< jumps over", ""):
            for parameters in ({"max_new_tokens": 10}, {"max_new_tokens": 8, "num_beams": 3}):
                with torch.no_grad():
                    theirs = model.generate(
                        **tokenizer(text, return_tensors="pt"), do_sample=False, **parameters, **forced
                    )[0].tolist()
                ours = (
                    server.ask(
                        "/generate", {"inputs": text, "parameters": {**parameters, **forced, "return_token_ids": True}}
                    )
                    if text
                    else None
                )
                if not text:  # nothing but what the tokenizer puts around it
                    ids = tokenizer(text)["input_ids"]
                    ours = server.ask(
                        "/generate",
                        {"input_ids": ids, "parameters": {**parameters, **forced, "return_token_ids": True}},
                    )
                assert ours["sequence"] == theirs
                assert ours["generated_text"] == tokenizer.decode(
                    theirs, skip_special_tokens=True, clean_up_tokenization_spaces=False
                )
                answers.append(tuple(theirs))
                assert not language or theirs[1] == forced["forced_bos_token_id"]
        assert len(set(answers)) > 4
        assert (
            "forced_bos_token_id is 100000"
            in server.refused("/generate", {"inputs": "a", "forced_bos_token_id": 100000}, 400)["message"]
        )
        if language:
            assert server.ask("/tokenize", {"prompt": language, "add_special_tokens": False})["tokens"] == list(
                forced.values()
            )
    finally:
        server.close()


def test_deit_classifies_images(serve):
    processor = transformers.ViTImageProcessorPil(size={"height": 16, "width": 16})
    kinds = {i: f"kind {i}" for i in range(7)}
    config = transformers.DeiTConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=31,
        image_size=16,
        patch_size=8,
        id2label=kinds,
        label2id={name: i for i, name in kinds.items()},
    )
    server, model = serve("DeiTForImageClassificationWithTeacher", config, processor=processor)
    images = [picture(40, 30), picture(23, 61, 1)]
    with torch.no_grad():
        scores = model(**processor(images=images, return_tensors="pt")).logits.softmax(-1)
    for ours, theirs in zip(
        server.ask("/classify", {"inputs": [in_base64(image) for image in images], "top_k": 7}), scores
    ):
        assert [one["label"] for one in ours] == [kinds[i] for i in theirs.argsort(descending=True).tolist()]
        assert [one["score"] for one in ours] == pytest.approx(theirs.sort(descending=True).values.tolist(), abs=2e-5)


def forward_equals(server, model, inputs, names):
    """As JSON and as safetensors."""
    with torch.no_grad():
        wanted = model(**{name: torch.tensor(values) for name, values in inputs.items()})
    answer = server.ask("/forward", {"inputs": {name: values.tolist() for name, values in inputs.items()}})["outputs"]
    assert sorted(answer) == sorted(names)
    reply = requests.post(
        f"http://127.0.0.1:{server.port}/forward",
        data=save_bytes(inputs),
        headers={"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"},
        timeout=60,
    )
    assert reply.status_code == 200, reply.text
    for name, tensor in load_bytes(reply.content).items():
        theirs = getattr(wanted, name).numpy()
        assert answer[name]["shape"] == list(theirs.shape)
        numpy.testing.assert_allclose(answer[name]["data"], theirs, atol=3e-5)
        numpy.testing.assert_array_equal(numpy.asarray(answer[name]["data"], tensor.dtype), tensor)


def test_layoutlm_reads_boxes(serve):
    tokenizer = word_pieces()
    config = transformers.LayoutLMConfig(vocab_size=len(tokenizer), max_2d_position_embeddings=100, **NAMED, **SIZES)
    server, model = serve("LayoutLMForTokenClassification", config, tokenizer)
    ids = numpy.array([tokenizer(TEXTS[0])["input_ids"]])
    random = numpy.random.default_rng(5)
    boxes = numpy.sort(random.integers(0, 100, (*ids.shape, 2, 2)), -1).swapaxes(-1, -2).reshape(*ids.shape, 4)
    forward_equals(server, model, {"input_ids": ids, "bbox": boxes}, ["logits"])
    message = server.refused("/forward", {"inputs": {"input_ids": ids.tolist(), "bbox": (boxes + 90).tolist()}}, 400)[
        "message"
    ]
    assert "numbers of column" in message and "0 to 99" in message
    # texts alone stand at 0, 0, as in transformers
    with torch.no_grad():
        scores = model(**encode(tokenizer, TEXTS[0])).logits[0].softmax(-1).max(-1)
    ours = server.ask("/classify", {"inputs": TEXTS[0], "aggregation_strategy": "none", "ignore_labels": []})
    assert [one["score"] for one in ours] == pytest.approx(scores.values[1:-1].tolist(), abs=2e-5)


def visual_bert(**more):
    return transformers.VisualBertConfig(vocab_size=60, visual_embedding_dim=11, **SIZES, **more)


def test_visual_bert_answers_by_vectors_of_an_image(serve):
    server, model = serve("VisualBertForQuestionAnswering", visual_bert(num_labels=5))
    random = numpy.random.default_rng(6)
    inputs = {
        "input_ids": random.integers(0, 60, (2, 7)),
        "attention_mask": numpy.array([[1] * 7, [1] * 5 + [0] * 2]),
        "visual_embeds": random.standard_normal((2, 3, 11)).astype(numpy.float32),
        "visual_attention_mask": numpy.array([[1, 1, 1], [1, 0, 1]]),
    }
    forward_equals(server, model, inputs, ["logits"])
    forward_equals(
        server,
        model,
        {
            **inputs,
            "image_text_alignment": random.integers(-1, 7, (2, 3, 2)),
            "visual_token_type_ids": random.integers(0, 2, (2, 3)),
        },
        ["logits"],
    )
    given = {name: values.tolist() for name, values in inputs.items()}
    for change, said in (
        (
            {"visual_embeds": [[[0.5] * 10] * 3] * 2},
            "visual_embeds has the shape [2, 3, 10], expected [2 rows, vectors, 11]",
        ),
        ({"visual_attention_mask": [[1, 1], [1, 1]]}, "visual_attention_mask has the shape [2, 2], expected [2, 3]"),
        ({"visual_attention_mask": [[1, 1, 2], [1, 1, 1]]}, "visual_attention_mask has other values than 0 and 1"),
        ({"visual_token_type_ids": [[0, 0, 2], [0, 0, 0]]}, "visual_token_type_ids has 2; they go from 0 to 1"),
        ({"image_text_alignment": [[[66]] * 3] * 2}, "image_text_alignment has 66; positions go from -1 to 65"),
        ({"input_ids": [[1], [2]], "attention_mask": [[1], [1]]}, "has one token"),
        ({"visual_scores": [[1]]}, "visual_scores"),
    ):
        assert said in server.refused("/forward", {"inputs": {**given, **change}}, 400)["message"], change
    del given["visual_embeds"]
    assert (
        "visual_attention_mask is given without visual_embeds"
        in server.refused("/forward", {"inputs": given}, 400)["message"]
    )


def test_visual_bert_aligns_phrases_and_regions(serve):
    server, model = serve("VisualBertForRegionToPhraseAlignment", visual_bert())
    random = numpy.random.default_rng(11)
    inputs = {
        "input_ids": random.integers(0, 60, (2, 7)),
        "attention_mask": numpy.ones((2, 7), numpy.int64),
        "visual_embeds": random.standard_normal((2, 3, 11)).astype(numpy.float32),
        "visual_attention_mask": numpy.ones((2, 3), numpy.int64),
        "region_to_phrase_position": random.integers(-1, 10, (2, 4)),
    }
    forward_equals(server, model, inputs, ["logits"])
    given = {name: values.tolist() for name, values in inputs.items()}
    assert (
        "region_to_phrase_position"
        in server.refused(
            "/forward",
            {"inputs": {name: values for name, values in given.items() if name != "region_to_phrase_position"}},
            400,
        )["message"]
    )
    assert (
        "columns go from -1 to 9"
        in server.refused("/forward", {"inputs": {**given, "region_to_phrase_position": [[10], [0]]}}, 400)["message"]
    )


def test_xlm_searches_spans(serve):
    config = transformers.XLMConfig(
        vocab_size=60,
        emb_dim=24,
        n_layers=2,
        n_heads=3,
        n_langs=1,
        max_position_embeddings=64,
        start_n_top=3,
        end_n_top=2,
        pad_token_id=2,
    )
    server, model = serve("XLMForQuestionAnswering", config)
    random = numpy.random.default_rng(8)
    inputs = {
        "input_ids": random.integers(3, 60, (2, 9)),
        "p_mask": numpy.array([[1, 0, 0, 0, 0, 0, 0, 0, 1]] * 2, numpy.float32),
        "cls_index": numpy.array([0, 3]),
    }
    names = ["start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index", "cls_logits"]
    forward_equals(server, model, inputs, names)
    given = {name: values.tolist() for name, values in inputs.items()}
    for change, said in (
        ({"cls_index": [0, 9]}, "cls_index has 9; columns go from 0 to 8"),
        ({"p_mask": [[0] * 8] * 2}, "p_mask has the shape [2, 8], expected [2, 9]"),
        ({"input_ids": [[3, 4], [5, 6]]}, "the 3 best places of each row"),
    ):
        assert said in server.refused("/forward", {"inputs": {**given, **change}}, 400)["message"], change
