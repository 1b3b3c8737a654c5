# SPDX-License-Identifier: Apache-2.0
"""Structured outputs of /generate: beams follow their constraint as those of transformers do with a function of allowed
tokens, on every layout; all three spellings hold; a body is refused that says what it cannot mean.
"""

import json
import re
from contextlib import closing

import jsonschema_rs
import pytest
import requests
import torch
import transformers
from server import Server
from test_endpoints import build
from test_serving_routes import pieces

TEXTS = ["yes", "yes, no", "no", "never ever", "nobody said so", "yesterday", "9876543210"]
END = 1
LAYOUTS = {"one": dict(ranks=1), "tensor": dict(ranks=3), "stages": dict(ranks=2, sizes="pipeline=2")}
SCHEMA = {
    "type": "object",
    "properties": {"b": {"type": "integer", "minimum": 0, "maximum": 99}, "a": {"type": "boolean"}},
    "required": ["b", "a"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    config = transformers.GPT2Config(
        vocab_size=305,
        n_embd=24,
        n_head=4,
        n_layer=2,
        n_positions=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=END,
    )
    made = tmp_path_factory.mktemp("beams") / "tiny-gpt2"
    build(made, "GPT2LMHeadModel", config, pieces())
    return made


def expected(folder, prompt, beams, returned):
    """What transformers' beam search returns when only those tokens are allowed that continue one of the texts."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    spelled = {id: tokenizer.decode([id]) for id in range(2, len(tokenizer))}
    ids = tokenizer(prompt, return_tensors="pt").input_ids

    def allowed(_, so_far):
        text = tokenizer.decode(so_far[ids.shape[1] :].tolist())
        fits = [id for id, piece in spelled.items() if any(one.startswith(text + piece) for one in TEXTS)]
        return fits + [END] * (text in TEXTS) or [END]

    with torch.no_grad():
        found = model.generate(
            ids,
            num_beams=beams,
            num_return_sequences=returned,
            max_new_tokens=30,
            prefix_allowed_tokens_fn=allowed,
            return_dict_in_generate=True,
            output_scores=True,
        )
    rows = [row.tolist() for row in found.sequences]
    ends = [row.index(END, ids.shape[1]) + 1 for row in rows]  # padding follows
    return [row[:end] for row, end in zip(rows, ends, strict=True)], found.sequences_scores.tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_beams_are_those_of_transformers(folder, layout):
    with closing(Server(folder, **LAYOUTS[layout])) as server:
        for prompt, beams, returned in (("Is it so?", 2, 1), ("total += a", 4, 3), ("for (i", 6, 6)):
            body = {"inputs": prompt, "structured_outputs": {"choice": TEXTS}, "max_new_tokens": 30}
            body |= {"num_beams": beams, "num_return_sequences": returned, "return_full_text": False}
            found = server.ask("/generate", body | {"return_token_ids": True})
            found = found if isinstance(found, list) else [found]
            answers, scores = expected(folder, prompt, beams, returned)
            assert [one["sequence"] for one in found] == answers
            assert [one["score"] for one in found] == pytest.approx(scores, abs=1e-4)
            assert {one["generated_text"] for one in found} <= set(TEXTS)


def test_every_spelling_holds(folder):
    spelled = [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
        {"structured_outputs": {"json": SCHEMA}},
        {"grammar": {"type": "json", "value": SCHEMA}},
        {"grammar": {"type": "json", "value": json.dumps(SCHEMA)}},
        {"grammar": {"type": "json_schema", "value": {"name": "x", "schema": SCHEMA}}},
    ]
    with closing(Server(folder, ranks=1)) as server:

        def answers(options):
            plain = {"inputs": "Hello", "max_new_tokens": 200, "return_full_text": False, "seed": 3, "do_sample": True}
            flat = server.ask("/generate", plain | options)
            inputs = {"inputs": "Hello", "parameters": {k: v for k, v in (plain | options).items() if k != "inputs"}}
            assert server.ask("/generate", inputs) == flat
            return [one["generated_text"] for one in (flat if isinstance(flat, list) else [flat])]

        found = [answers(one) for one in spelled]
        assert len({tuple(one) for one in found}) == 1
        assert list(json.loads(found[0][0])) == ["b", "a"] and jsonschema_rs.is_valid(SCHEMA, json.loads(found[0][0]))
        for beams in (1, 4):
            [text] = answers({"grammar": {"type": "regex", "value": "[0-9]{2}-(a|bc)"}, "num_beams": beams})
            assert re.fullmatch("[0-9]{2}-(a|bc)", text)

        def refusal(**body):
            reply = requests.post(
                f"http://127.0.0.1:{server.port}/generate", json={"inputs": "Hello"} | body, timeout=60
            )
            assert reply.status_code == 400, reply.text
            return reply.json()["error"]["message"]

        assert "grammar.type is missing" in refusal(grammar={"value": "a"})
        assert "grammar.value" in refusal(grammar={"type": "regex", "value": 3})
        assert "both constrain the answer" in refusal(grammar=spelled[2]["grammar"], **spelled[1])
        few = {"structured_outputs": {"choice": ["a"]}, "num_beams": 3, "num_return_sequences": 2}
        assert "the beams found 1 answers that it allows, and 2 are to be returned" in refusal(**few)
        assert "needs an end token" in refusal(**few, ignore_eos=True)
