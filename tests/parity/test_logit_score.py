# SPDX-License-Identifier: Apache-2.0
"""Rerankers that are causal models: folders with the module LogitScore rank as sentence-transformers' CrossEncoder."""

import contextlib
import json

import numpy
import peft
import pytest
import sentence_transformers
import tokenizers
import torch
import transformers
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from server import Server
from test_endpoints import CORPUS, build, gpt2
from tokenizers import models, pre_tokenizers, processors

ROLES = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")
# as Qwen3-Reranker's: it judges, and has the empty thoughts behind the texts
TEMPLATE = """\
{%- macro text(role) -%}{{ (messages | selectattr("role", "eq", role) | first).content }}{%- endmacro -%}
<|im_start|>system
Judge whether the Document meets the Query and the Instruct. The answer can only be "yes" or "no".<|im_end|>
<|im_start|>user
<Instruct>: {{ text("system") if messages[0].role == "system" else "find what answers" }}
<Query>: {{ text("query") }}
<Document>: {{ text("document") }}<|im_end|>
{% if add_generation_prompt %}<|im_start|>assistant
<think>

</think>

{% endif %}"""
IN_PARTS = TEMPLATE.replace(".content", ".content[0].text")
PROMPTS = {"web": "given a search, find texts that answer it", "twins": "find texts that say the same"}
QUERY = "Where does the cat sit?"
DOCUMENTS = [
    "the cat sat on the mat",
    "a",
    "Anna Smith saw seven dogs in Paris, over the hills! " * 3,
    "water  and\tgreen éxtra wörds 日本 <|im_end|>",
]
MOST = 256


def byte_level(template="", begin=""):
    """Byte-level tokens with those of the answer and of the roles. `begin` stands before a text and a pair."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|endoftext|>", *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(CORPUS) + " yes no yes no yes no yesyes nono"] * 3, trainer)
    tokenizer.add_tokens(["yes", "no"])
    if begin:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, tokenizer.token_to_id(begin))]
        )
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", pad_token="<|endoftext|>", model_max_length=MOST
    )
    if template:
        made.chat_template = template
    return made


SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
}


def qwen3(**more):
    return transformers.Qwen3Config(vocab_size=336, **SIZES, **more)


def saved(tmp_path, config, tokenizer, processing=None, true="yes", false="no", **settings):
    """Returns the folder that sentence-transformers saves for a model of these, and what it loads from there."""
    name = type(config).__name__.replace("Config", "ForCausalLM").replace("GPT2ForCausalLM", "GPT2LMHeadModel")
    build(tmp_path / "plain", name, config, tokenizer)
    made = Transformer(str(tmp_path / "plain"), transformer_task="text-generation", processing_kwargs=processing)
    ids = [tokenizer.convert_tokens_to_ids(token) if token else None for token in (true, false)]
    folder = tmp_path / "saved"
    sentence_transformers.CrossEncoder(modules=[made, LogitScore(*ids)], device="cpu", **settings).save(str(folder))
    return folder, sentence_transformers.CrossEncoder(str(folder), device="cpu")


def same(ours, theirs):
    numpy.testing.assert_allclose(ours, theirs, atol=2e-5, rtol=2e-5)


def scores(server, queries, documents, **more):
    reply = server.ask("/score", {"queries": queries, "documents": documents, **more})
    assert [one["index"] for one in reply["data"]] == list(range(len(reply["data"])))
    return [one["score"] for one in reply["data"]]


def pairs(documents):
    return [(QUERY, one) for one in documents]


def check(server, model, documents=DOCUMENTS, **options):
    """Scores and ranks are those of the package, and differ."""
    expected = model.predict(pairs(documents), **options)
    assert numpy.ptp(expected) > 1e-3
    same(scores(server, QUERY, documents), expected)
    same(scores(server, [QUERY] * len(documents), documents), expected)
    reply = server.ask("/rerank", {"query": QUERY, "documents": documents, "top_n": 3, "return_documents": True})
    ranked = model.rank(QUERY, documents, top_k=3, return_documents=True, **options)
    assert [one["index"] for one in reply["results"]] == [one["corpus_id"] for one in ranked]
    assert [one["document"]["text"] for one in reply["results"]] == [one["text"] for one in ranked]
    same([one["relevance_score"] for one in reply["results"]], [one["score"] for one in ranked])


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    """As Qwen3-Reranker is published for sentence-transformers: a template of roles, instructions, two tokens."""
    tokenizer = byte_level(TEMPLATE)
    processing = {"chat_template": {"add_generation_prompt": True}}
    settings = {"prompts": PROMPTS, "default_prompt_name": "web"}
    return *saved(tmp_path_factory.mktemp("model"), qwen3(), tokenizer, processing, **settings), tokenizer


LAYOUTS = {
    "one rank": {"ranks": 1},
    "tensor=2": {},
    "pipeline=2": {"sizes": "pipeline=2"},
    "data=2": {"sizes": "data=2"},
    "Sharded": {"sizes": "data=2", "strategy": "Sharded"},
    "Offload": {"ranks": 1, "strategy": "Offload"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pairs_are_scored_by_two_tokens_behind_the_chat_template(reranker, layout):
    folder, model, _ = reranker
    with contextlib.closing(Server(folder, **LAYOUTS[layout])) as server:
        check(server, model)
        check(server, model, DOCUMENTS * 20)  # of several steps


def test_instructions_by_name(reranker):
    folder, model, tokenizer = reranker
    with contextlib.closing(Server(folder)) as server:
        documents, seen = DOCUMENTS, []
        for options in ({}, {"prompt_name": "web"}, {"prompt_name": "twins"}, {"prompt": "another"}, {"prompt": ""}):
            expected = model.predict(pairs(documents), **options)
            same(scores(server, QUERY, documents, **options), expected)
            body = {"query": QUERY, "documents": documents, **options}
            ranked = model.rank(QUERY, documents, **options)
            same(
                [one["relevance_score"] for one in server.ask("/v1/rerank", body)["results"]],
                [one["score"] for one in ranked],
            )
            seen.append(expected)
        same(seen[0], seen[1])
        assert all(numpy.abs(seen[0] - other).max() > 1e-4 for other in seen[2:])
        error = server.refused("/rerank", {"query": "a", "documents": ["b"], "prompt_name": "no"}, 400)
        assert "twins, web" in error["message"]
        error = server.refused("/score", {"queries": "a", "documents": "b", "prompt_name": "web", "prompt": "c"}, 400)
        assert "exclude each other" in error["message"]
        assert (
            "input_type"
            in server.refused("/score", {"queries": "a", "documents": "b", "input_type": "query"}, 400)["message"]
        )
        for path in ("/rerank", "/score"):
            document = server.get("/openapi.json").json()
            body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
            assert {"twins", "web"} <= set(body["properties"]["prompt_name"]["enum"]), body["properties"]
        usage = server.ask("/score", {"queries": QUERY, "documents": documents[0]})["usage"]
        messages = [
            {"role": role, "content": text}
            for role, text in (("system", PROMPTS["web"]), ("query", QUERY), ("document", documents[0]))
        ]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
        assert usage["prompt_tokens"] == len(prompt["input_ids"])


def test_adapters_by_name(reranker, tmp_path):
    folder = reranker[0]
    base = sentence_transformers.CrossEncoder(str(folder), device="cpu")  # PEFT changes it
    made = peft.get_peft_model(base[0].model, peft.LoraConfig(target_modules=["q_proj", "down_proj"], r=4))
    generator = torch.Generator().manual_seed(5)
    for name, parameter in made.named_parameters():
        if "lora_" in name:  # B is zero at the beginning
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) / parameter.shape[1] ** 0.5)
    made.save_pretrained(tmp_path / "lora")
    model = sentence_transformers.CrossEncoder(str(folder), device="cpu")
    plain = model.predict(pairs(DOCUMENTS))
    model[0].model = peft.PeftModel.from_pretrained(model[0].model, tmp_path / "lora").merge_and_unload()
    adapted = model.predict(pairs(DOCUMENTS))
    assert numpy.abs(plain - adapted).max() > 1e-2
    with contextlib.closing(Server(folder, options=["--adapter", f"lora={tmp_path / 'lora'}"])) as server:
        same(scores(server, QUERY, DOCUMENTS, model="lora"), adapted)
        same(scores(server, QUERY, DOCUMENTS), plain)


def test_the_model_generates_as_before(reranker):
    folder, _, _ = reranker
    with contextlib.closing(Server(folder, ranks=1)) as server:
        routes = server.get("/").json()["routes"]
        assert {"POST /rerank", "POST /v1/rerank", "POST /score", "POST /v1/score", "POST /v1/completions"} <= set(
            routes
        )
        assert server.ask("/v1/completions", {"prompt": "the cat", "max_tokens": 3})["usage"]["completion_tokens"] == 3
    with contextlib.closing(Server(folder.parent / "plain", ranks=1)) as server:
        assert not {"POST /rerank", "POST /score"} & set(server.get("/").json()["routes"])


def test_prompts_that_are_too_long(reranker):
    """They are refused, or cut as the package cuts them: what the template has behind the texts stays."""
    folder, model, tokenizer = reranker
    with contextlib.closing(Server(folder)) as server:
        for count in range(20, 90, 3):  # some are cut within the texts, some within the template
            document = "the cat sat on " * count
            expected = model.predict([(QUERY, document)])
            tokens = model.preprocess([(QUERY, document)], prompt=PROMPTS["web"])["input_ids"].shape[1]
            assert tokens <= MOST
            same(scores(server, QUERY, document, truncate=True), expected)
        error = server.refused("/rerank", {"query": QUERY, "documents": ["a", document]}, 413)
        assert "documents[1]" in error["message"] and f"at most {MOST}" in error["message"]
        assert error["code"] == "context_length_exceeded"
        at_suffix = [text for text in ("x" * n for n in range(1, 60))]
        same(scores(server, QUERY, at_suffix, truncate=True), model.predict(pairs(at_suffix)))


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_side_of_truncation_and_the_suffix_are_the_folders(tmp_path, side):
    tokenizer = byte_level(TEMPLATE)
    tokenizer.truncation_side = side
    processing = {
        "chat_template": {"add_generation_prompt": True, "restore_suffix": side == "left"},
        "text": {"max_length": 150},
    }
    folder, model = saved(tmp_path, qwen3(), tokenizer, processing)
    documents = ["the cat sat on " * count for count in range(0, 40, 3)]
    with contextlib.closing(Server(folder)) as server:
        same(scores(server, QUERY, documents[1:], truncate=True), model.predict(pairs(documents[1:])))
        assert "at most 150" in server.refused("/score", {"queries": QUERY, "documents": documents[-1]}, 413)["message"]


# structured messages, one token, a score that is no probability, scores with a cap
def test_messages_of_parts_and_one_token(tmp_path):
    config = transformers.Gemma2Config(vocab_size=336, **SIZES, final_logit_softcapping=4.0, sliding_window=32)
    tokenizer, settings = byte_level(IN_PARTS), {"prompts": PROMPTS, "activation_fn": torch.nn.Identity()}
    folder, model = saved(tmp_path, config, tokenizer, {"chat_template": {"other": "unused"}}, false=None, **settings)
    transformer = json.loads((folder / "sentence_bert_config.json").read_text())
    assert transformer["modality_config"]["message"]["format"] == "structured"
    with contextlib.closing(Server(folder)) as server:
        check(server, model)
        same(
            scores(server, QUERY, DOCUMENTS[0], prompt_name="twins"),
            model.predict(pairs(DOCUMENTS[:1]), prompt_name="twins"),
        )
        logits = server.ask(
            "/forward",
            {
                "inputs": {"input_ids": [[5, 6, 7], [8, 9, 3]], "attention_mask": [[1, 1, 1], [1, 0, 0]]},
                "outputs": ["logits", "last_logits"],
            },
        )["outputs"]
        whole, last = (numpy.array(logits[name]["data"]) for name in ("logits", "last_logits"))
        assert whole.shape == (2, 3, 336) and last.shape == (2, 336)
        same(last, [whole[0, 2], whole[1, 0]])


def llama(**more):
    return transformers.LlamaConfig(vocab_size=336, **SIZES, **more)


@pytest.mark.parametrize(
    "config, begin", [(llama(tie_word_embeddings=True), "<think>"), (qwen3(), "")], ids=["llama", "qwen3"]
)
def test_pairs_without_a_chat_template_are_joined_by_the_tokenizer(tmp_path, config, begin):
    settings = {"prompts": PROMPTS, "default_prompt_name": "twins"}
    folder, model = saved(tmp_path, config, byte_level(begin=begin), **settings)
    with contextlib.closing(Server(folder)) as server:
        check(server, model)
        same(scores(server, QUERY, DOCUMENTS, prompt=""), model.predict(pairs(DOCUMENTS), prompt=""))
        for first, second in ((70, 10), (10, 70), (71, 70), (70, 71), (72, 73), (65, 66), (30, 300), (300, 300)):
            query, document = "ab " * first, "xy " * second
            expected = model.predict([(query, document)])
            same(scores(server, query, document, truncate=True), expected)
        assert f"at most {MOST}" in server.refused("/score", {"queries": query, "documents": document}, 413)["message"]


def test_learned_positions_begin_with_the_text(tmp_path):
    """Of a padded batch transformers counts them from the padding, so that the package's scores depend on the batch."""
    config = gpt2()
    config.vocab_size, config.n_positions = 336, MOST
    folder, model = saved(tmp_path, config, byte_level())
    with contextlib.closing(Server(folder)) as server:
        check(server, model, batch_size=1)
    alone, together = (model.predict(pairs(DOCUMENTS), batch_size=size) for size in (1, 4))
    assert numpy.abs(alone - together).max() > 1e-4


def test_half_precision(tmp_path):
    folder, model = saved(tmp_path, qwen3(), byte_level(TEMPLATE))
    with contextlib.closing(Server(folder, options=["--precision", "BF16"])) as server:
        expected = model.predict(pairs(DOCUMENTS))
        numpy.testing.assert_allclose(scores(server, QUERY, DOCUMENTS), expected, atol=3e-2)


def changed(name, **entries):
    def change(folder):
        path = folder / name
        data = json.loads(path.read_text())
        data.update(entries)
        path.write_text(json.dumps(data))

    return change


REFUSED = {
    "an id beyond the vocabulary": (
        changed("1_LogitScore/config.json", true_token_id=336),
        ["1_LogitScore/config.json", "true_token_id 336", "0 to 335"],
    ),
    "no token": (changed("1_LogitScore/config.json", true_token_id=None), ["no true_token_id"]),
    "an unknown option": (changed("1_LogitScore/config.json", temperature=2), ["temperature", "false_token_id"]),
    "a template without the roles": (
        lambda folder: (folder / "chat_template.jinja").write_text(
            "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
        ),
        ["chat template", "query"],
    ),
    "an activation": (
        changed("config_sentence_transformers.json", activation_fn="torch.nn.modules.activation.Tanh"),
        ["activation_fn", "Tanh", "Sigmoid"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_folders_that_cannot_be_served_so_are_refused_at_the_start(tmp_path, case):
    change, words = REFUSED[case]
    folder, _ = saved(tmp_path, qwen3(), byte_level(TEMPLATE))
    change(folder)
    with pytest.raises(RuntimeError) as refusal:
        Server(folder, ranks=1)
    for word in words:
        assert word in str(refusal.value)
