# SPDX-License-Identifier: Apache-2.0
"""The walkthrough of the predecessor's README with the trained example: generate, deploy, look at the memory; and
OpenAI's client on the same server. Every answer equals that of transformers.
"""

import json
import shutil
import subprocess

import numpy
import openai
import pytest
import torch
import transformers
from server import Server

import worker

EXAMPLE = worker.REPOSITORY / "examples/tiny-stories"
README = {"num_beams": 5, "no_repeat_ngram_size": 4, "max_length": 15}
TEXTS = ["Once upon a time", "Messi", "The little dog"]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The example without a length of its own, which would go before max_length, and with a chat template that adds
    nothing."""
    copy = tmp_path_factory.mktemp("walkthrough") / "tiny-stories"
    shutil.copytree(EXAMPLE, copy)
    for name, change in {
        "tokenizer_config.json": {"chat_template": TEMPLATE},
        "generation_config.json": {"max_new_tokens": None},
    }.items():
        settings = {**json.loads((copy / name).read_text()), **change}
        (copy / name).write_text(json.dumps({key: value for key, value in settings.items() if value is not None}))
    return copy


@pytest.fixture(scope="module")
def original(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval(), transformers.AutoTokenizer.from_pretrained(
        folder
    )


@pytest.fixture(scope="module")
def server(folder):
    started = Server(folder)
    yield started
    started.close()


def generated(original, text, **options):
    model, tokenizer = original
    with torch.no_grad():
        return model.generate(**tokenizer(text, return_tensors="pt", return_token_type_ids=False), **options)[
            0
        ].tolist()


def continued(original, text, count, **options):
    """What greedy search says after the text, as OpenAI's API returns it."""
    model, tokenizer = original
    prompt = tokenizer(text)["input_ids"]
    ids = generated(original, text, do_sample=False, max_new_tokens=count, **options)
    return tokenizer.decode(ids, skip_special_tokens=True).removeprefix(
        tokenizer.decode(prompt, skip_special_tokens=True)
    )


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("text", TEXTS)
def test_generate_on_the_command_line(original, folder, ranks, text):
    run = worker.run(
        "generate",
        "--model",
        folder,
        "--prompt",
        text,
        "--ranks",
        ranks,
        "--strategy",
        "Tensor",
        "--num-beams",
        5,
        "--no-repeat-ngram-size",
        4,
        "--max-length",
        15,
        "--json",
    )
    assert run.returncode == 0, run.stderr
    ids = generated(original, text, **README)
    answer = json.loads(run.stdout)
    assert answer["sequences"] == [ids] and answer["text"] == [original[1].decode(ids, skip_special_tokens=True)]


@pytest.mark.parametrize("text", TEXTS)
def test_generate_text_by_curl(original, server, text):
    """`curl -X get .../generate_text/Messi` gives {"inputs", "outputs"}."""
    path = (
        f"http://127.0.0.1:{server.port}/generate_text/{text.replace(' ', '%20')}"
        "?num_beams=5&no_repeat_ngram_size=4&max_length=15"
    )
    run = subprocess.run(["curl", "-s", path], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(run.stdout) == {
        "inputs": text,
        "outputs": original[1].decode(generated(original, text, **README), skip_special_tokens=True),
    }


def test_generate_with_hugging_face_parameters(original, server):
    answer = server.ask(
        "/generate", {"inputs": TEXTS, "parameters": {**README, "num_return_sequences": 2, "return_token_ids": True}}
    )
    model, tokenizer = original
    for text, several in zip(TEXTS, answer):
        with torch.no_grad():
            theirs = model.generate(
                **tokenizer(text, return_tensors="pt", return_token_type_ids=False), **README, num_return_sequences=2
            )
        ends = {model.generation_config.eos_token_id, model.generation_config.pad_token_id}
        for ours, ids in zip(several, theirs.tolist(), strict=True):
            while len(ids) > len(ours["sequence"]) and ids[-1] in ends:  # padding to the longer one
                ids = ids[:-1]
            assert ours["sequence"] == ids and ours["generated_text"] == tokenizer.decode(ids, skip_special_tokens=True)


def test_the_memory_of_every_rank(server):
    table = server.get("/memory?format=text").text
    figures = server.get("/memory").json()["ranks"]
    assert [rank["rank"] for rank in figures] == [0, 1]
    for rank in figures:
        weights = rank["measured"]["weights"]
        assert abs(weights - rank["predicted"]["weights"]) <= 1 << 20
        assert f"{weights / 2**20:.3f}" in table
    stored = sum(p.stat().st_size for p in EXAMPLE.glob("*.safetensors"))
    assert sum(rank["measured"]["weights"] for rank in figures) < 1.05 * stored, "the ranks share the weights"


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none")


@pytest.mark.parametrize("text", TEXTS)
def test_the_openai_client_plain_and_streaming(original, client, text):
    plain = client.completions.create(model="tiny-stories", prompt=text, max_tokens=24, temperature=0)
    expected = continued(original, text, 24)
    assert plain.choices[0].text == expected and plain.usage.completion_tokens <= 24
    pieces = list(
        client.completions.create(model="tiny-stories", prompt=text, max_tokens=24, temperature=0, stream=True)
    )
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == expected and len(pieces) > 5


@pytest.mark.parametrize("text", TEXTS)
def test_the_openai_client_chats(original, client, text):
    messages = [{"role": "user", "content": text}]
    expected = continued(original, text, 24)
    plain = client.chat.completions.create(model="tiny-stories", messages=messages, max_tokens=24, temperature=0)
    assert plain.choices[0].message.role == "assistant" and plain.choices[0].message.content == expected
    pieces = list(
        client.chat.completions.create(
            model="tiny-stories", messages=messages, max_tokens=24, temperature=0, stream=True
        )
    )
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == expected


def test_the_openai_client_gets_embeddings_of_the_last_token(original, client):
    model, tokenizer = original
    answer = client.embeddings.create(model="tiny-stories", input=TEXTS)
    for text, one in zip(TEXTS, answer.data, strict=True):
        with torch.no_grad():
            state = (
                model.transformer(**tokenizer(text, return_tensors="pt", return_token_type_ids=False))
                .last_hidden_state[0, -1]
                .numpy()
            )
        numpy.testing.assert_allclose(one.embedding, state / numpy.linalg.norm(state), atol=2e-6)
