# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding by a draft model: every answer has the tokens, texts and log-probabilities that it has without
it, on every layout, however good the draft model is; plans have its memory; one that does not fit is refused by name.
"""

import json
import shutil
from contextlib import closing

import pytest
import torch
import transformers
from safetensors.torch import save_file
from server import Server
from test_endpoints import build
from test_prompt_logprobs import delta_net
from test_serving_routes import pieces
from test_speculation import LAYOUTS, answers, bodies, counters, expect_equal, expected, folder, status

import worker

__all__ = ["expected", "folder"]  # fixtures


def variant(made, folder, noise):
    """Saves the model of `folder` with so much noise in its weights, as a smaller model of a family differs."""
    shutil.copytree(folder, made)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.std() * noise)
    model.save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def near(folder, tmp_path_factory):
    return variant(tmp_path_factory.mktemp("draft") / "near", folder, 0.05)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A model of another family, with the same tokenizer, fewer positions and another size of the vocabulary."""
    config = transformers.LlamaConfig(
        vocab_size=320,
        hidden_size=16,
        intermediate_size=30,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=96,
    )
    made = tmp_path_factory.mktemp("draft") / "llama"
    build(made, "LlamaForCausalLM", config, pieces())
    return made


def drafted(folder, draft, layout="one", options=()):
    return closing(Server(folder, options=["--draft-model", draft, *options], **LAYOUTS[layout]))


# those of test_mtp.py have each, whose drafter also reads what the ranks return
@pytest.mark.parametrize("layout", ("one", "tensor 3", "tensor and pipeline", "data", "sharded", "offload"))
def test_answers_are_those_without_a_draft_model(folder, near, expected, layout):
    with drafted(folder, near, layout) as server:
        for found, wanted in zip(answers(server), expected, strict=True):
            expect_equal(found, wanted)
        counted = counters(server)
        print(layout, counted)
        # how many depends on what drafts cost on this machine now
        assert counted["num_draft_tokens"] > counted["num_accepted_tokens"] > 5, "some are accepted, some rejected"
        assert status(server) == f"draft model {near}"
        assert "draft model failed" not in server.logged()


def test_a_model_accepts_all_that_it_drafts_for_itself(folder, expected):
    """Also what is sampled: drafts are drawn with the random numbers of their positions."""
    unmasked = [name for name in bodies() if name not in ("schema", "schema sampled", "choice", "pattern")]
    with drafted(folder, folder, options=["--speculation-tokens", 5]) as server:
        for name in unmasked:
            before = counters(server)
            server.ask("/v1/completions", bodies()[name])
            spent = {key: value - before[key] for key, value in counters(server).items()}
            rejected = spent["num_draft_tokens"] - spent["num_accepted_tokens"]
            print(name, spent)
            # an end token is the last of a sequence, and drafts go on behind a stop string
            assert rejected <= (5 if name == "stop string" else bodies()[name].get("n", 1)), name
        assert counters(server)["num_accepted_tokens"] > 50


def test_a_draft_model_of_another_family_changes_nothing(folder, llama, expected):
    """Its drafts are mostly wrong, also ids that the model does not have, and it ends at its own positions."""
    with drafted(folder, llama) as server:
        for found, wanted in zip(answers(server), expected, strict=True):
            expect_equal(found, wanted)
        counted = counters(server)
        assert counted["num_draft_tokens"] > 20
        assert counted["pauses"] > 3, "it pauses where drafts do not pay"
        body = {"prompt": list(range(10, 170)), "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        server.ask("/v1/completions", body)
        assert counters(server)["num_draft_tokens"] == counted["num_draft_tokens"], "160 tokens and 96 positions"


def expect_long_prompts_as_without(folder, speculation):
    """Sends prompts of several steps, of which some begin alike, beside each other."""
    body = {"max_tokens": 40, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    prompts = [[2 + (i * 7 + j) % 290 for j in range(length)] for i, length in ((1, 400), (1, 420), (2, 300), (1, 401))]
    found = []
    for options in ([], speculation):
        with closing(Server(folder, ranks=1, options=[*options, "--max-concurrency", 2])) as server:
            found.append([server.ask("/v1/completions", body | {"prompt": prompt}) for prompt in prompts])
            accepted = counters(server)["num_accepted_tokens"]
    ids = [[reply["choices"][0]["token_ids"] for reply in replies] for replies in found]
    assert ids[0] == ids[1]
    assert accepted > 5


def test_long_prompts_and_common_beginnings(folder, near):
    """The draft model reads prompts in steps of its own, beside requests that run."""
    expect_long_prompts_as_without(folder, ["--draft-model", near])


def lora(made):
    """An adapter of the small GPT-2."""
    made.mkdir()
    options = {"peft_type": "LORA", "r": 2, "lora_alpha": 8, "target_modules": ["c_attn"], "bias": "none"}
    (made / "adapter_config.json").write_text(json.dumps(options))
    draw = torch.Generator().manual_seed(5)
    module = "base_model.model.transformer.h.{}.attn.c_attn.lora_{}.weight"
    factors = {"A": (2, 24), "B": (72, 2)}
    tensors = {
        module.format(layer, name): torch.randn(shape, generator=draw)
        for layer in (0, 1)
        for name, shape in factors.items()
    }
    save_file(tensors, made / "adapter_model.safetensors")
    return made


def test_answers_of_an_adapter_are_those_without_a_draft_model(folder, near, tmp_path):
    """The draft model drafts as the base model would answer."""
    options, found = ["--adapter", f"tuned={lora(tmp_path / 'tuned')}"], []
    for more in ([], ["--draft-model", near]):
        with closing(Server(folder, ranks=2, options=[*options, *more])) as server:
            found.append(
                [
                    server.ask("/v1/completions", bodies()[name] | {"model": model})["choices"][0]["token_ids"]
                    for name in ("greedy", "sampled", "penalties")
                    for model in ("tuned", folder.name)
                ]
            )
            counted = counters(server)
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]
    assert counted["num_draft_tokens"] > counted["num_accepted_tokens"], "the adapter answers otherwise"


def test_plans_have_its_memory(folder, near):
    model = near / "model.safetensors"
    metadata = json.loads(worker.run("inspect", "--json", "--model", folder, "--draft-model", near).stdout)
    assert 0 <= model.stat().st_size - metadata["draft"]["weights"] < 16384, "its header"
    assert metadata["draft"]["kv"] == 2 * 2 * 24 * 4
    options = ["--model", folder, "--ranks", 2, "--draft-model", near, "--max-sequence-length", 128]
    plan = json.loads(worker.run("plan", "--json", *options).stdout)
    assert plan["draft"]["kvBlocks"] == 8 * 128 // 16
    assert plan["draft"]["bytes"] == (
        metadata["draft"]["weights"] + metadata["draft"]["activations"] + 8 * 128 * metadata["draft"]["kv"]
    )
    assert "for what drafts" in worker.run("plan", *options).stdout


def refusal(folder, draft, *options):
    with pytest.raises(RuntimeError) as refused:
        Server(folder, ranks=1, options=["--draft-model", draft, *options])
    inspected = worker.run("inspect", "--model", folder, "--draft-model", draft)
    if not options:
        assert inspected.returncode != 0
        assert f"--draft-model {draft}: " in inspected.stderr
    return str(refused.value)


def test_what_does_not_fit_is_refused_by_name(folder, tmp_path):
    class_name, config = delta_net()
    build(tmp_path / "delta-net", class_name, config, pieces())
    assert "has recurrent layers" in refusal(folder, tmp_path / "delta-net")
    assert "nothing can be drafted for" in refusal(tmp_path / "delta-net", folder)
    assert "omit one of them" in refusal(folder, folder, "--speculation", "ngram")
    assert "--draft-model" in refusal(folder, tmp_path / "nothing")

    shutil.copytree(folder, tmp_path / "other-tokenizer")
    file = tmp_path / "other-tokenizer" / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    ids = sorted(vocabulary.values())
    tokenizer["model"]["vocab"] = {
        token: ids[(place + 1) % len(ids)] for place, token in enumerate(sorted(vocabulary, key=vocabulary.get))
    }
    file.write_text(json.dumps(tokenizer))
    assert "its tokenizer is not the model's" in refusal(folder, tmp_path / "other-tokenizer")

    shutil.copytree(folder, tmp_path / "no-tokenizer")
    (tmp_path / "no-tokenizer" / "tokenizer.json").unlink()
    with drafted(folder, tmp_path / "no-tokenizer") as server:  # of the same size, which has to do
        assert server.ask("/v1/completions", bodies()["greedy"])["usage"]["completion_tokens"] == 48


def test_an_encoder_decoder_takes_none(folder, tmp_path):
    config = transformers.BartConfig(
        vocab_size=305,
        d_model=24,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=37,
        decoder_ffn_dim=37,
        max_position_embeddings=64,
        decoder_start_token_id=1,
    )
    build(tmp_path / "bart", "BartForConditionalGeneration", config, pieces())
    assert "reads its prompt by an encoder" in refusal(tmp_path / "bart", folder)
    assert "cannot draft: it reads prompts by an encoder" in refusal(folder, tmp_path / "bart")
