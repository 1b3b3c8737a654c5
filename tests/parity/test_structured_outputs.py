# SPDX-License-Identifier: Apache-2.0
"""Structured outputs of real servers with random models: every answer follows its constraint, the same on every layout,
streamed or not; what cannot be held is refused.
"""

import concurrent.futures
import json
import re

import jsonschema_rs
import pytest
import tokenizers
import transformers
from server import Server
from test_endpoints import build
from test_serving_routes import CHAT, pieces
from tokenizers import decoders, models

WORD = {"type": "string", "maxLength": 8}
TREE = {
    "type": "object",
    "properties": {"value": {"type": "integer", "minimum": 0, "maximum": 9}, "next": {"$ref": "#/$defs/end"}},
    "required": ["value", "next"],
    "additionalProperties": False,
}
SCHEMAS = {
    "object": {"type": "object", "properties": {"b": WORD, "a": {"type": "boolean"}}, "required": ["b", "a"]}
    | {"additionalProperties": False},
    "nested": {
        "type": "object",
        "properties": {
            "user": {
                "type": "object",
                "properties": {
                    "name": WORD,
                    "address": {"type": "object", "properties": {"city": WORD}, "additionalProperties": False},
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
        "required": ["user"],
        "additionalProperties": False,
    },
    "array": {
        "type": "array",
        "items": {"type": "integer", "minimum": -5, "maximum": 120},
        "minItems": 2,
        "maxItems": 4,
    },
    "tuple": {"type": "array", "prefixItems": [{"const": "x"}, {"type": "null"}], "items": False, "minItems": 2},
    "enum": {"enum": ["red", 'é"\\\n日本', 7, None, [1, {"a": 2}]]},
    "number": {"type": "number", "minimum": 0.5, "exclusiveMaximum": 2},
    "multiple": {"type": "integer", "minimum": 1, "maximum": 99, "multipleOf": 7},
    "any": {
        "anyOf": [
            {"type": "integer", "minimum": 100, "maximum": 999},
            {"type": "object", "properties": {"k": WORD}} | {"required": ["k"], "additionalProperties": False},
        ]
    },
    "all": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]},
            {"properties": {"a": {"maximum": 3}}, "additionalProperties": False},
        ]
    },
    "reference": {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": TREE,
            "end": {
                "anyOf": [{"type": "null"}, TREE | {"properties": {"value": {"const": 1}, "next": {"type": "null"}}}]
            },
        },
    },
    "pattern": {"type": "string", "pattern": "^[a-c]{2}-\\d{3}$"},
    "date": {"type": "string", "format": "date"},
    "unicode keys": {"type": "object", "properties": {'ключ "q"': {"type": "boolean"}}, "required": ['ключ "q"']}
    | {"additionalProperties": False},
    "types": {"type": ["boolean", "null"]},
    "optional": {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}}
    | {"additionalProperties": False, "required": ["b"]},
    "lengths": {"type": "string", "minLength": 3, "maxLength": 5},
}
GRAMMAR = """start: "let " NAME " = " sum ";"
sum: NUMBER (("+" | "-") NUMBER)~0..2
NAME: /[a-z]{1,4}/
NUMBER: /[1-9][0-9]{0,2}/"""
SUM = re.compile(r"let [a-z]{1,4} = [1-9]\d{0,2}([+-][1-9]\d{0,2}){0,2};")
LAYOUTS = {
    "one": dict(ranks=1),
    "tensor": dict(ranks=2),
    "pipeline": dict(ranks=2, sizes="pipeline=2"),
    "data": dict(ranks=2, sizes="data=2"),
    "sharded": dict(ranks=2, strategy="Sharded", sizes="data=2"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = transformers.GPT2Config(
        vocab_size=305, n_embd=24, n_head=4, n_layer=2, n_positions=2048, pad_token_id=0, bos_token_id=1, eos_token_id=1
    )
    made = tmp_path_factory.mktemp("structured") / "tiny-gpt2"
    build(made, "GPT2LMHeadModel", config, pieces())
    return made


@pytest.fixture(scope="module")
def server(folder):
    made = Server(folder)
    yield made
    made.close()


def schema_format(schema, **more):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **more}}


def completion(server, **body):
    return server.ask("/v1/completions", {"prompt": "the cat sat", "max_tokens": 1900, **body})["choices"]


def answers(server):
    """The texts of every schema, greedy and sampled, which are sent at once and share steps with free requests."""
    bodies = [dict(response_format=schema_format(schema), temperature=0) for schema in SCHEMAS.values()]
    bodies += [
        dict(response_format=schema_format(schema), seed=7, n=2, **how)
        for schema, how in zip(
            SCHEMAS.values(),
            [
                dict(temperature=1),
                dict(temperature=1.5, top_k=20),
                dict(temperature=1, top_p=0.7, min_p=0.01),
                dict(temperature=1, logprobs=3),
                dict(temperature=1, repetition_penalty=1.2, frequency_penalty=0.1),
            ]
            * 4,
        )
    ]
    bodies += [dict(max_tokens=9, temperature=0), dict(max_tokens=9, temperature=1, seed=3)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda body: completion(server, **body), bodies))


def check(choices, schema):
    for choice in choices:
        assert choice["finish_reason"] == "stop", choice
        value = json.loads(choice["text"])
        assert jsonschema_rs.is_valid(schema, value), (choice["text"], schema)


@pytest.fixture(scope="module")
def answered():
    return {}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_answers_follow_their_schemas_and_are_the_same_on_every_layout(folder, layout, answered):
    made = Server(folder, **LAYOUTS[layout])
    try:
        found = answers(made)
    finally:
        made.close()
    for choices, (name, schema) in zip(found, list(SCHEMAS.items()) * 2):
        try:
            check(choices, schema)
        except (AssertionError, ValueError) as error:
            raise AssertionError(f"{name}: {error}") from error
    texts = [[choice["text"] for choice in choices] for choices in found]
    assert answered.setdefault("texts", texts) == texts


def test_any_object_or_length(server):
    for form in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
        [choice] = completion(server, **form, temperature=1, seed=1)
        assert choice["text"].lstrip().startswith("{")
        if choice["finish_reason"] == "stop":
            json.loads(choice["text"])
    [cut] = completion(server, response_format=schema_format(SCHEMAS["nested"]), max_tokens=3)
    assert cut["finish_reason"] == "length"


def test_regular_expression_choice_and_grammar(server):
    for seed in range(6):
        how = dict(temperature=1, seed=seed, n=2)
        for choice in completion(server, structured_outputs={"regex": r"([0-9]{3}-){2}[äé日]+x"}, **how):
            assert re.fullmatch(r"([0-9]{3}-){2}[äé日]+x", choice["text"]) and choice["finish_reason"] == "stop"
        texts = ["yes", "no", "maybe é", " leading", "a.*b"]
        for choice in completion(server, structured_outputs={"choice": texts}, **how):
            assert choice["text"] in texts and choice["finish_reason"] == "stop"
        for choice in completion(server, structured_outputs={"grammar": GRAMMAR}, **how):
            assert SUM.fullmatch(choice["text"]) and choice["finish_reason"] == "stop"


def test_keys_come_in_the_order_of_the_schema(server):
    [choice] = completion(server, response_format=schema_format(SCHEMAS["object"], strict=True), temperature=0)
    assert list(json.loads(choice["text"])) == ["b", "a"]


def test_a_streamed_answer_equals_the_whole_one(server):
    for schema in (SCHEMAS["enum"], SCHEMAS["nested"], SCHEMAS["unicode keys"]):
        body = {
            "messages": [{"role": "user", "content": "water é"}],
            "response_format": schema_format(schema),
            "n": 2,
            "temperature": 1,
            "seed": 4,
            "max_tokens": 1900,
            "logprobs": True,
        }
        whole = server.ask("/v1/chat/completions", body)["choices"]
        reply = server.post("/v1/chat/completions", {**body, "stream": True}, stream=True)
        texts, ends = ["", ""], [None, None]
        for line in reply.iter_lines():
            if not line.startswith(b"data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                texts[choice["index"]] += choice["delta"].get("content", "")
                ends[choice["index"]] = choice["finish_reason"] or ends[choice["index"]]
        assert texts == [choice["message"]["content"] for choice in whole] and ends == ["stop", "stop"]
        for text in texts:
            assert jsonschema_rs.is_valid(schema, json.loads(text))


REFUSED = {
    "unsupported keyword": (schema_format({"type": "string", "not": {"const": "a"}}), 'Unimplemented keys: ["not"]'),
    "unknown type": (schema_format({"type": "text"}), "text"),
    "external reference": (schema_format({"$ref": "https://example.com/a.json"}), "example.com"),
    "unsatisfiable": (schema_format({"type": "integer", "minimum": 3, "maximum": 2}), "nsatisfiable"),
    "relaxed": (schema_format({"type": "object", "x-guidance": {"lenient": True}}), "x-guidance"),
    "no schema": ({"type": "json_schema"}, "response_format.json_schema is missing"),
    "another form": ({"type": "xml"}, "response_format.type"),
}
REFUSED_OUTPUTS = {
    "regex": ({"regex": "a("}, "unclosed group"),
    "look-around": ({"regex": "(?<=a)b"}, "look"),
    "choice": ({"choice": []}, "1 to 1024"),
    "grammar": ({"grammar": "start: missing"}, "missing"),
    "two": ({"regex": "a", "choice": ["a"]}, "2 of them"),
    "another": ({"structural_tag": "a"}, "structural_tag"),
    "text of a schema": ({"json": "{"}, "not JSON"),
}


def test_what_cannot_be_held_is_refused_with_its_reason(server):
    for route, prompt in (
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ):
        for name, (form, reason) in REFUSED.items():
            assert reason in server.refused(route, {**prompt, "response_format": form}, 400)["message"], name
        for name, (form, reason) in REFUSED_OUTPUTS.items():
            assert reason in server.refused(route, {**prompt, "structured_outputs": form}, 400)["message"], name
        both = {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}
        assert "both" in server.refused(route, {**prompt, **both}, 400)["message"]
    deep = {"type": "object"}
    for _ in range(20):
        deep = {"type": "object", "properties": {"a": deep}}
    assert completion(server, response_format=schema_format(deep), temperature=0)
    for levels, code in ((100, "invalid_constraint"), (200, "invalid_json")):
        for _ in range(levels):
            deep = {"type": "object", "properties": {"a": deep}}
        error = server.refused("/v1/completions", {"prompt": "a", "response_format": schema_format(deep)}, 400)
        assert error["code"] == code
    reply = server.get("/generate_text/a?response_format=json_object")  # whose query holds no objects
    assert reply.status_code == 400 and reply.json()["error"]["code"] == "unknown_field", reply.text


def test_an_answer_that_cannot_go_on_is_an_error(server):
    body = {"prompt": "a", "structured_outputs": {"regex": "[ab]{5}"}, "bad_words": ["a", "b"]}
    error = server.refused("/v1/completions", body, 400)
    assert error["code"] == "constraint_failed" and "banned" in error["message"]
    assert server.ask("/v1/completions", {"prompt": "a", "max_tokens": 1})


def sentencepieces():
    """Byte fallback, and words behind a space that decoders drop at the beginning of a text."""
    words = ["▁yes", "▁no", "yes", "no", '"', "{", "}", "▁{", ":", "a", "▁", "1"]
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -99.0)]
    vocabulary += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)] + [(word, -2.0) for word in words]
    tokenizer = tokenizers.Tokenizer(models.Unigram(vocabulary, 2, byte_fallback=True))
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>")
    made.chat_template = CHAT
    return made


def test_byte_fallback_inside_a_text_and_at_its_beginning(tmp_path):
    config = transformers.GPT2Config(
        vocab_size=280, n_embd=24, n_head=4, n_layer=2, n_positions=256, pad_token_id=0, bos_token_id=1, eos_token_id=1
    )
    build(tmp_path / "pieces", "GPT2LMHeadModel", config, sentencepieces())
    made = Server(tmp_path / "pieces")
    try:
        for prompt in ("yes no", [1]):
            for seed in range(4):
                how = dict(prompt=prompt, temperature=1, seed=seed, max_tokens=200)
                [choice] = completion(made, structured_outputs={"choice": ["yes", "no", "é日"]}, **how)
                assert choice["text"] in ("yes", "no", "é日"), (prompt, choice)
                check(completion(made, response_format=schema_format(SCHEMAS["enum"]), **how), SCHEMAS["enum"])
    finally:
        made.close()
