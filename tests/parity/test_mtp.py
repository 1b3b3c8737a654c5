# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding by a checkpoint's own module for multi-token prediction: it drafts what transformers' module
drafts; every answer is the one without it, on every layout; plans have its memory; a checkpoint without one is refused.
"""

import json
import shutil
import subprocess
from contextlib import closing

import mtp_models
import pytest
import torch
import transformers
from mtp_models import FAMILIES, LAYERS
from safetensors.torch import load_file, save_file
from server import Server
from test_draft_model import expect_long_prompts_as_without
from test_endpoints import build
from test_prompt_logprobs import delta_net
from test_serving_routes import pieces
from test_speculation import LAYOUTS, answers, bodies, counters, expect_equal, status

import worker

MTP = ["--speculation", "mtp"]
MODULE = f"model.layers.{LAYERS}."
TEXT = [(17 + 31 * i * i + 7 * i) % 300 for i in range(52)]
FIRST, COUNT = 40, 3  # tokens that come at once; drafts behind each beginning


def drafted(folder):
    """What the module drafts behind the first tokens, and behind each one after."""
    command = [worker.TOOLS / "drafts_dump", folder, COUNT, FIRST, *TEXT]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_it_drafts_what_transformers_drafts(model_type, tmp_path):
    folder = mtp_models.build(tmp_path / "model", model_type)
    model, module = mtp_models.oracle(folder)
    wanted = [mtp_models.drafts(model, module, TEXT[:length], COUNT) for length in range(FIRST + 1, len(TEXT) + 1)]
    assert drafted(folder) == wanted
    assert len({tuple(one) for one in wanted}) > 4
    if model_type != "glm4_moe":
        return
    stored = load_file(folder / "model.safetensors")
    for name in ("enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight"):
        with_other = {MODULE + name: stored[MODULE + name].flip(-1)}
        changed = shutil.copytree(folder, tmp_path / name)
        save_file(stored | with_other, changed / "model.safetensors", metadata={"format": "pt"})
        assert drafted(changed) != wanted, name


def reads_the_last_token(tensors):
    """Layers that add little: the model's next token depends on the last one alone, and mostly so does the module's."""
    draw = torch.Generator().manual_seed(1)
    for name, tensor in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensor.mul_(0.02)
    hidden = tensors[MODULE + "eh_proj.weight"].shape[0]
    tensors[MODULE + "enorm.weight"] = torch.ones(hidden)
    tensors[MODULE + "shared_head.norm.weight"] = tensors["model.norm.weight"].clone()
    noise = torch.randn(hidden, 2 * hidden, generator=draw) * 0.02
    tensors[MODULE + "eh_proj.weight"] = torch.cat([torch.eye(hidden), torch.zeros(hidden, hidden)], 1) + noise


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = mtp_models.build(tmp_path_factory.mktemp("mtp") / "tiny-glm", "glm4_moe", reads_the_last_token)
    pieces().save_pretrained(made)
    return made


@pytest.fixture(scope="module")
def expected(folder):
    with closing(Server(folder, ranks=1)) as server:
        return answers(server)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_answers_are_those_without_it(folder, expected, layout):
    with closing(Server(folder, options=MTP, **LAYOUTS[layout])) as server:
        for found, wanted in zip(answers(server), expected, strict=True):
            expect_equal(found, wanted)
        counted = counters(server)
        print(layout, counted)
        assert counted["num_draft_tokens"] > counted["num_accepted_tokens"] > 50, "some are accepted, some rejected"
        assert status(server) == "mtp"
        assert "prediction failed" not in server.logged()


def test_of_latent_attention_too(tmp_path):
    made = mtp_models.build(tmp_path / "tiny-deepseek", "deepseek_v3", reads_the_last_token)
    pieces().save_pretrained(made)
    found = []
    for options in ([], MTP):
        with closing(Server(made, ranks=2, options=options)) as server:
            found.append(answers(server))
            counted = counters(server)
    for one, other in zip(*found, strict=True):
        expect_equal(other, one)
    assert counted["num_accepted_tokens"] > 50


def test_long_prompts_and_common_beginnings(folder):
    expect_long_prompts_as_without(folder, MTP)


def test_plans_have_its_memory(folder):
    stored = load_file(folder / "model.safetensors")
    needed = ("model.embed_tokens.", "lm_head.", MODULE)
    spared = (MODULE + "embed_tokens.", MODULE + "shared_head.head.")
    tensors = [tensor for name, tensor in stored.items() if name.startswith(needed) and not name.startswith(spared)]
    metadata = json.loads(worker.run("inspect", "--json", "--model", folder, *MTP).stdout)
    assert metadata["draft"]["weights"] == sum(tensor.numel() for tensor in tensors) * 4
    assert metadata["draft"]["kv"] == 2 * 3 * 8 * 4
    plan = json.loads(worker.run("plan", "--json", "--model", folder, "--ranks", 2, *MTP).stdout)
    assert plan["draft"]["bytes"] > metadata["draft"]["weights"]
    assert "draft" not in json.loads(worker.run("plan", "--json", "--model", folder, "--ranks", 2).stdout)


def refusal(folder, *options):
    inspected = worker.run("inspect", "--model", folder, *MTP, *options)
    assert inspected.returncode != 0
    with pytest.raises(RuntimeError) as refused:
        Server(folder, ranks=1, options=[*MTP, *options])
    return str(refused.value) + inspected.stderr


def test_what_cannot_draft_is_refused_by_name(folder, tmp_path):
    stored = load_file(folder / "model.safetensors")

    def changed(name, tensors):
        made = shutil.copytree(folder, tmp_path / name)
        save_file(tensors, made / "model.safetensors", metadata={"format": "pt"})
        return made

    without = changed("without", {name: one for name, one in stored.items() if not name.startswith(MODULE)})
    said = refusal(without)
    assert f"--speculation mtp: {without} has no tensor {MODULE}eh_proj.weight" in said
    with closing(Server(without, ranks=1)) as server:  # as before without it
        assert server.ask("/v1/completions", bodies()["greedy"])["usage"]["completion_tokens"] == 48
    halved = {name: one for name, one in stored.items() if name != MODULE + "mlp.gate.weight"}
    assert f'no tensor "{MODULE}mlp.gate.weight"' in refusal(changed("halved", halved))
    more = stored | {MODULE + "mlp.gate.bias": torch.zeros(8)}
    assert f'no parameter of the policy reads "{MODULE}mlp.gate.bias"' in refusal(changed("more", more))
    assert "omit one of them" in refusal(folder, "--draft-model", folder)

    class_name, config = delta_net()
    build(tmp_path / "delta-net", class_name, config, pieces())
    assert "nothing can be drafted for" in refusal(tmp_path / "delta-net")


def test_a_family_whose_policy_has_none_is_refused(tmp_path):
    config = transformers.GPT2Config(vocab_size=305, n_embd=24, n_head=4, n_layer=2, n_positions=64)
    build(tmp_path / "gpt2", "GPT2LMHeadModel", config, pieces())
    assert "describes no module for multi-token prediction" in refusal(tmp_path / "gpt2")
