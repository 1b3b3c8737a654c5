# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities of prompts against transformers' logits: on every strategy, over prompts of several chunks, for
models with a recurrent state, and as evaluation harnesses request them.
"""

from contextlib import closing

import pytest
import torch
import transformers
from server import Server
from test_endpoints import build, gpt2

VOCABULARY, LONGEST = 128, 1200
STRATEGIES = {
    "Tensor": {"ranks": 2},
    "Pipeline": {"ranks": 2, "strategy": "Pipeline", "sizes": "pipeline=2"},
    "Data": {"ranks": 2, "strategy": "Data", "sizes": "data=2"},
    "Sharded": {"ranks": 2, "strategy": "Sharded", "sizes": "data=2"},
    "Offload": {"ranks": 1, "strategy": "Offload", "sizes": "tensor=1"},
}


def llama():
    return "LlamaForCausalLM", transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LONGEST + 8,
    )


def delta_net():
    return "Qwen3_5ForCausalLM", transformers.Qwen3_5TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        layer_types=["linear_attention", "full_attention"],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        max_position_embeddings=LONGEST + 8,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("scored")


@pytest.fixture(scope="module")
def models(folder):
    made = {}
    for name, (class_name, config) in {"llama": llama(), "delta_net": delta_net()}.items():
        made[name] = build(folder / name, class_name, config)
    return made


def prompt_of(length):
    generator = torch.Generator().manual_seed(length)
    return torch.randint(2, VOCABULARY, (length,), generator=generator).tolist()


def scored_by(model, ids):
    """Log-probabilities of the ids from the second on, those of the likeliest, and the ranks."""
    with torch.no_grad():
        scores = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    own = scores.gather(1, torch.tensor(ids[1:])[:, None])
    return own[:, 0].tolist(), scores.max(-1).values.tolist(), (1 + (scores > own).sum(-1)).tolist()


def check(server, model, lengths, error=2e-4):
    prompts = [prompt_of(length) for length in lengths]
    body = {"prompt": prompts, "max_tokens": 1, "prompt_logprobs": 2}
    choices = server.ask("/v1/completions", body)["choices"]
    for ids, choice in zip(prompts, choices, strict=True):
        own, best, ranks = scored_by(model, ids)
        given = choice["prompt_logprobs"]
        assert given[0] is None and len(given) == len(ids)
        shown = [entry[str(token)] for token, entry in zip(ids[1:], given[1:])]
        assert [one["logprob"] for one in shown] == pytest.approx(own, abs=error)
        # scores that are nearly equal may change places
        assert sum(one["rank"] == rank for one, rank in zip(shown, ranks)) >= 0.98 * len(ranks)
        assert [max(one["logprob"] for one in entry.values()) for entry in given[1:]] == pytest.approx(best, abs=error)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_prompts_are_scored_as_transformers_scores_them(folder, models, strategy):
    with closing(Server(folder / "llama", **STRATEGIES[strategy])) as server:
        check(server, models["llama"], [1, 2, 40, LONGEST])


@pytest.mark.parametrize("strategy", ["Sharded", "Offload"])
def test_a_head_that_is_gathered_in_pieces_scores_prompts_of_several_batches(folder, strategy):
    model = build(folder / f"tied-{strategy}", "GPT2LMHeadModel", gpt2())
    with closing(Server(folder / f"tied-{strategy}", **STRATEGIES[strategy])) as server:
        check(server, model, [2, 40, 60])


def test_a_model_with_a_recurrent_state_scores_its_prompt_too(folder, models):
    with closing(Server(folder / "delta_net", ranks=1)) as server:
        check(server, models["delta_net"], [3, 700], error=1e-3)


def test_a_harness_scores_given_texts(folder, models):
    """What lm-evaluation-harness sends for log-likelihoods, and how it reads the reply."""
    with closing(Server(folder / "llama", ranks=2)) as server:
        texts = [prompt_of(30), prompt_of(17)]
        for most in (0, 1):
            reply = server.ask(
                "/v1/completions", {"prompt": texts, "temperature": 0, "max_tokens": most, "logprobs": 1, "echo": True}
            )
            assert reply["usage"]["completion_tokens"] == most * len(texts)
            for ids, choice in zip(texts, reply["choices"], strict=True):
                own, best, _ = scored_by(models["llama"], ids)
                logprobs = choice["logprobs"]
                end = -1 if most else None
                assert logprobs["token_logprobs"][1:end] == pytest.approx(own, abs=2e-4)
                greedy = [max(top.values()) for top in logprobs["top_logprobs"][1:end]]
                assert greedy == pytest.approx(best, abs=2e-4)
                assert len(logprobs["tokens"]) == len(ids) + most
        # the cache of prefixes must not hide what is scored
        again = server.ask("/v1/completions", {"prompt": texts[0], "max_tokens": 0, "logprobs": 0, "echo": True})
        own, _, _ = scored_by(models["llama"], texts[0])
        assert again["choices"][0]["logprobs"]["token_logprobs"][1:] == pytest.approx(own, abs=2e-4)


def test_the_best_of_several_is_the_likeliest(folder, models):
    with closing(Server(folder / "llama", ranks=1)) as server:
        body = {"prompt": prompt_of(5), "max_tokens": 6, "temperature": 1.0, "seed": 3, "logprobs": 0}
        every = server.ask("/v1/completions", {**body, "n": 6})["choices"]
        best = server.ask("/v1/completions", {**body, "n": 2, "best_of": 6})["choices"]

        def mean(choice):
            return sum(choice["logprobs"]["token_logprobs"]) / len(choice["logprobs"]["token_logprobs"])

        assert len(best) == 2 and [choice["index"] for choice in best] == [0, 1]
        expected = sorted((mean(choice) for choice in every), reverse=True)[:2]
        assert [mean(choice) for choice in best] == pytest.approx(expected)
