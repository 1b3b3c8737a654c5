# SPDX-License-Identifier: Apache-2.0
"""Real weights: MiniLM over two ranks gives transformers' embeddings, through Kubernetes and the official OpenAI
client."""

import numpy
import pytest
import yaml
from conftest import MINILM, ROOT
from world import MODELS

SENTENCES = [
    "Hello",
    "A",
    "The quick brown fox jumps over the lazy dog.",
    "the quick brown fox jumps over the lazy dog",
    "How do I cut a transformer over two devices?",
    "Wie teile ich ein Modell auf zwei Geräte auf?",
    "naïve café — “quotes”, ¿qué?",
    "東京は日本の首都です。",
    "🙂 emoji are unknown to this vocabulary",
    "def add(a, b):\n    return a + b",
    "1 + 1 = 2; 3.14159; 1e-6",
    "  spaces   and\ttabs\n\nand lines  ",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "[CLS] and [SEP] are special",
    "word " * 60,
    " ".join(
        f"Sentence {i} tells of ship number {i * i} and its crew." for i in range(16)
    ),  # longer than the 128 of tokenizer.json
]


@pytest.fixture(scope="module")
def minilm(world) -> str:
    """The example as it stands, Ready."""
    world.cluster.apply(
        {
            **(manifest := yaml.safe_load((ROOT / "examples" / "minilm.yaml").read_text())),
            "metadata": {**manifest["metadata"], "namespace": MODELS},
        }
    )
    name = manifest["metadata"]["name"]
    world.wait_ready(name)
    yield name
    world.cluster.kubectl("delete", "pm", name, "-n", MODELS, "--wait=false")


@pytest.fixture(scope="module")
def expected() -> numpy.ndarray:
    """Returns the embeddings of transformers [sentences, hidden]: the mean of the last hidden state, normalised to
    length 1. It encodes one sentence at a time, so that nothing is padded."""
    import torch
    import transformers

    torch.set_num_threads(1)
    tokenizer, model = (
        transformers.AutoTokenizer.from_pretrained(MINILM),
        transformers.AutoModel.from_pretrained(MINILM).eval(),
    )
    with torch.no_grad():
        means = [
            model(**tokenizer(text, return_tensors="pt", truncation=True, max_length=256))
            .last_hidden_state[0]
            .double()
            .mean(0)
            for text in SENTENCES
        ]
    return torch.nn.functional.normalize(torch.stack(means), dim=1).numpy()


def ask(url: str, name: str, **options) -> tuple[numpy.ndarray, int]:
    import openai

    with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
        answer = client.embeddings.create(model=name, **options)
    assert [entry.index for entry in answer.data] == list(range(len(answer.data))) and answer.model == name
    return numpy.array([entry.embedding for entry in answer.data], dtype=numpy.float64), answer.usage.prompt_tokens


@pytest.mark.parametrize("options", [{}, {"encoding_format": "float"}], ids=["the client's own base64", "float"])
def test_the_embeddings_are_transformers_embeddings(world, minilm, expected, options):
    found, tokens = world.inside(ask, world.url(minilm), minilm, input=SENTENCES, **options)
    assert found.shape == expected.shape and tokens > len(SENTENCES)
    assert numpy.abs(numpy.linalg.norm(found, axis=1) - 1).max() < 1e-5
    cosines = (found * expected).sum(1) / numpy.linalg.norm(found, axis=1)
    assert cosines.min() >= 1 - 1e-6, {
        SENTENCES[i][:40]: cosine for i, cosine in enumerate(cosines) if cosine < 1 - 1e-6
    }


def test_a_single_sentence_is_embedded_as_in_a_list(world, minilm, expected):
    found, _ = world.inside(ask, world.url(minilm), minilm, input=SENTENCES[4])
    assert found.shape[0] == 1 and found[0] @ expected[4] >= 1 - 1e-6


def test_a_model_without_a_cache_is_described_as_such(world, minilm):
    pm = world.pm(minilm)
    plan = pm["status"]["plan"]
    assert (plan["task"], plan["architecture"], plan["tensor"]) == ("embed", "BertModel", 2)
    assert "concurrency" not in plan and "no KV cache" in plan["message"]
    assert all(
        rank["predicted"]["kv"] == 0 and rank["measuredAtLoad"]["kv"] == 0
        for rank in pm["status"]["replicaStatuses"][0]["ranks"]
    )
    assert all(
        rank["measuredAtLoad"]["weights"] == rank["predicted"]["weights"]
        for rank in pm["status"]["replicaStatuses"][0]["ranks"]
    )
    [heading, line] = world.cluster.kubectl("get", "pm", minilm, "-n", MODELS).splitlines()
    assert heading.split()[:5] == ["NAME", "READY", "REPLICAS", "TASK", "STRATEGY"] and line.split()[:5] == [
        minilm,
        "1",
        "1",
        "embed",
        "Tensor",
    ]
    for text in ("room for", "sequences"):
        assert text not in world.cluster.kubectl("describe", "pm", minilm, "-n", MODELS), text
    answer = world.post(world.url(minilm) + "/v1/completions", {"model": minilm, "prompt": "x"})
    assert answer.status_code in (400, 404) and "embed" in answer.json()["error"]["message"], answer.text
