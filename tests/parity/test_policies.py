# SPDX-License-Identifier: Apache-2.0
"""Custom policies: the documented example equals transformers, the documentation lists every key, and errors are
reported by name.
"""

import json
import re
import subprocess

import compare
import numpy
import pytest
import torch
import transformers
import yaml
from resolution import TOOLS, dump
from safetensors.torch import load_file, save_file

import worker

PAGE = (worker.REPOSITORY / "docs/reference/policies.md").read_text()


def block(language):
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL).group(1)


CONFIG, POLICY = json.loads(block("json")), block("yaml")
NAMES = {
    "model.embed_tokens": "trunk.embed",
    "model.norm": "trunk.norm_out",
    "lm_head": "readout",
    "input_layernorm": "norm_in",
    "post_attention_layernorm": "norm_mid",
    "self_attn.o_proj": "mix.merge",
    "mlp.gate_proj": "feed.gate",
    "mlp.up_proj": "feed.up",
    "mlp.down_proj": "feed.down",
}


def marble_name(name):
    for theirs, own in NAMES.items():
        name = name.replace(theirs, own)
    return name.replace("model.layers.", "trunk.block.")


@pytest.fixture(scope="module")
def original():
    """The model that the example's author trained: LLaMA's arithmetic."""
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=80,
        vocab_size=211,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        bos_token_id=0,
        eos_token_id=210,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.2)
    return model


@pytest.fixture
def marble(original, tmp_path):
    """Its checkpoint under the names of the example, and the example's policy."""
    tensors = {name: tensor.clone() for name, tensor in original.state_dict().items()}
    for l in range(3):
        parts = [tensors.pop(f"model.layers.{l}.self_attn.{part}_proj.weight") for part in "qkv"]
        tensors[f"trunk.block.{l}.mix.packed.weight"] = torch.cat(parts)
    save_file(
        {marble_name(name): tensor for name, tensor in tensors.items()},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "mine.yaml").write_text(POLICY)
    return tmp_path


def complaint(marble, policy=POLICY):
    (marble / "mine.yaml").write_text(policy)
    done = dump(marble, marble / "mine.yaml")
    assert done.returncode != 0
    return done.stderr.replace(str(marble / "mine.yaml"), "mine.yaml")


def test_the_example_reads_every_tensor(marble, original):
    done = dump(marble, marble / "mine.yaml")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert {p["tensor"] for p in said["params"]} == set(load_file(marble / "model.safetensors")) and not said[
        "not_loaded"
    ]
    assert said["metadata"]["parameters"] == original.num_parameters() and said["eos"] == [210]
    for name in re.findall(r"`(trunk\.[a-z_.0-9]*[a-z])`", PAGE.split("The policy:")[0].split("Its tensors are")[1]):
        assert name in load_file(marble / "model.safetensors")


def test_without_the_policy_the_model_type_is_unknown(marble):
    done = dump(marble)
    assert 'model_type "marble"' in done.stderr and "--policy" in done.stderr


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_example_computes_what_transformers_computes(runner, marble, original, ranks):
    ids = numpy.random.default_rng(3).integers(0, 210, (2, 17))
    with torch.no_grad():
        wanted = original(torch.from_numpy(ids), output_hidden_states=True)
    theirs = {"logits": wanted.logits.numpy()} | {
        f"hidden_states.{i}": state.numpy() for i, state in enumerate(wanted.hidden_states)
    }
    compare.tensors(runner.forward(marble, ranks, {"input_ids": ids}, policy=str(marble / "mine.yaml")), theirs)


def test_inspect_takes_the_policy(marble):
    done = worker.run("inspect", "--model", marble, "--policy", marble / "mine.yaml")
    assert done.returncode == 0 and "MarbleForCausalLM (marble), generate" in done.stdout
    (marble / "mine.yaml").write_text(POLICY.replace("norm: norm_in", "normm: norm_in"))
    done = worker.run("inspect", "--model", marble, "--policy", marble / "mine.yaml")
    assert done.returncode != 0 and 'unknown key "normm" in attn' in done.stderr


def line_of(text, part):
    return next(i for i, line in enumerate(text.splitlines(), 1) if part in line)


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("norm: norm_in", "normm: norm_in", 'mine.yaml:{line}: unknown key "normm" in attn; allowed are at, norm, '),
        (
            "mix.packed",
            "mix.pack",
            'no tensor "trunk.block.0.mix.pack.weight" and 2 more of this form (mine.yaml:{line})',
        ),
        (
            "mix.packed",
            "mix.pack",
            'no parameter of the policy reads "trunk.block.0.mix.packed.weight" and 2 more of this form',
        ),
        (
            "vocab: vocab_size",
            "vocab: vocab_size - 1",
            '"trunk.embed.weight" has shape [211, 48], expected [210, 48] (mine.yaml:{token})',
        ),
        ("hidden: width", "hidden: widht", 'config.json has no "widht", which mine.yaml:{line} needs'),
        (
            "MarbleForCausalLM:",
            "MarbleForMusic:",
            'config.json says architecture "MarbleForCausalLM", the policy mine.yaml knows MarbleForMusic, MarbleModel',
        ),
        ("depth,", "depth +,", "mine.yaml:{line}: "),
        ("tie: decoder.token", "tie: decoder.tokens", 'mine.yaml:{line}: tie: "decoder.tokens"'),
        ("readers ??", "reader ??", None),
    ],
)
def test_a_mistake_is_told_with_its_line_and_all_names_that_match_nothing(marble, old, new, said):
    text = POLICY.replace(old, new)
    assert text != POLICY
    if said is None:  # `??` makes it optional: the sizes that follow do not fit
        assert "has shape" in complaint(marble, text)
        return
    if new.endswith("decoder.tokens"):
        tensors = load_file(marble / "model.safetensors")
        tensors.pop("readout.weight")
        save_file(tensors, marble / "model.safetensors")
    assert said.format(line=line_of(text, new), token=line_of(text, "token: embed")) in complaint(marble, text)


def test_the_policy_of_the_example_manifest_reads_what_it_says(tmp_path):
    """examples/own-policy.yaml: a GPT-2 whose layers are called otherwise."""
    config_map, manifest = yaml.safe_load_all((worker.REPOSITORY / "examples/own-policy.yaml").read_text())
    [(key, policy)] = config_map["data"].items()
    assert manifest["spec"]["model"]["policyRef"]["name"] == config_map["metadata"]["name"]
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=20, n_layer=2, n_head=5, n_positions=40, vocab_size=101)
    )
    tensors = {
        name.replace("transformer.", "story.").replace(".h.", ".blocks."): tensor.clone()
        for name, tensor in model.state_dict().items()
        if "lm_head" not in name
    }
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    config = model.config.to_dict() | {"model_type": "storyteller", "architectures": ["StorytellerForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / key).write_text(policy)
    done = dump(tmp_path, tmp_path / key)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metadata"]["parameters"] == model.num_parameters()


def test_a_policy_that_is_not_there_is_told(marble):
    assert "cannot be read" in dump(marble, marble / "other.yaml").stderr


def test_the_page_has_every_key_of_every_section():
    sections = dict(
        json.loads(subprocess.run([TOOLS / "resolve_dump", "--grammar"], capture_output=True, check=True).stdout)
    )
    written = {}
    for title, body in re.findall(r"^### (.+)\n((?:(?!^##).*\n?)*)", PAGE, re.MULTILINE):
        cells = [line.split("|")[1] for line in body.splitlines() if line.startswith("| `")]
        written[title] = {key for cell in cells for key in re.findall(r"`([a-z_0-9]+)`", cell)}
    assert written == {name: set(keys) for name, keys in sections.items()}
