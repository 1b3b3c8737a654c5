# SPDX-License-Identifier: Apache-2.0
"""Adapters that PEFT itself has made and saved give what PEFT computes with them, on 1 to 4 ranks."""

import shutil
from contextlib import closing

import compare
import fixtures
import inputs
import oracle
import peft
import pytest
import torch
from cases import BY_NAME
from server import Server
from test_forward import places

CONFIGS = {
    "LlamaForCausalLM-all": {"target_modules": "all-linear", "r": 5, "lora_alpha": 9},
    "GPT2LMHeadModel-all": {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True, "use_rslora": True},
    "Phi3ForCausalLM-all": {
        "target_modules": ["qkv_proj", "gate_up_proj"],
        "rank_pattern": {"layers.1.mlp.gate_up_proj": 3},
        "alpha_pattern": {"qkv_proj": 20, "^model.layers.0.self_attn.qkv_proj": 2},
    },
    "Qwen2ForCausalLM-all": {"target_modules": r".*\.[12]\..*(q|up)_proj"},
    "BertForSequenceClassification-all": {"target_modules": ["query", "value"], "layers_to_transform": [0]},
}


@pytest.fixture(scope="module", params=CONFIGS)
def adapted(request, tmp_path_factory):
    """The case, the folder that PEFT wrote, and what it answers."""
    case = BY_NAME[request.param]
    given = inputs.make(case, "right")
    base = fixtures.library(case.model_class).from_pretrained(fixtures.checkpoint(case), attn_implementation="eager")
    made = peft.get_peft_model(base, peft.LoraConfig(**CONFIGS[request.param]))
    generator = torch.Generator().manual_seed(3)
    for name, parameter in made.named_parameters():
        if "lora_" in name:  # B is zero at the beginning
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) / parameter.shape[1] ** 0.5)
    folder = tmp_path_factory.mktemp("peft")
    made.save_pretrained(folder)
    base = fixtures.library(case.model_class).from_pretrained(fixtures.checkpoint(case), attn_implementation="eager")
    made = peft.PeftModel.from_pretrained(base, folder).eval()
    with torch.no_grad():
        answer = made(
            **{name: torch.from_numpy(array) for name, array in given.items()},
            output_hidden_states=True,
            **({"use_cache": False} if case.generates else {}),
        )
    return case, folder, given, {name: tensor.numpy() for name, tensor in oracle.flat(answer).items()}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_states_are_those_of_peft(runner, adapted, ranks):
    case, folder, given, theirs = adapted
    ours = runner.forward(fixtures.checkpoint(case), ranks, given, adapters=[str(folder)])
    compare.tensors(ours, theirs, places(case, given))


def test_the_adapter_matters(adapted):
    case, _, given, theirs = adapted
    base = oracle.forward(case, given)
    with pytest.raises(compare.Difference):
        compare.tensors(theirs, {name: base[name] for name in theirs}, places(case, given))


def test_beside_a_cache_of_integers_it_is_the_merged_model(tmp_path):
    """Both round keys and values, so that scores differ where a rounding falls the other way alone."""
    case = BY_NAME["LlamaForCausalLM-internlm3"]
    base = shutil.copytree(fixtures.checkpoint(case), tmp_path / "base")
    torch.manual_seed(5)
    config = peft.LoraConfig(target_modules="all-linear", r=4, lora_alpha=8, init_lora_weights=False)
    made = peft.get_peft_model(fixtures.library(case.model_class).from_pretrained(base), config)
    made.save_pretrained(tmp_path / "tuned")
    merged = shutil.copytree(base, tmp_path / "merged", ignore=shutil.ignore_patterns("*.safetensors*"))
    made.merge_and_unload().save_pretrained(merged)
    body = {"prompt": [5, 9, 33, 21, 7, 14], "max_tokens": 8, "temperature": 0, "logprobs": 3, "return_token_ids": True}

    def answer(folder, name, *options):
        with closing(Server(folder, ranks=2, options=["--kv-precision", "I8", *options])) as server:
            choice = server.ask("/v1/completions", body | {"model": name})["choices"][0]
            return choice["token_ids"], choice["logprobs"]["token_logprobs"]

    tuned = answer(base, "tuned", "--adapter", f"tuned={tmp_path / 'tuned'}")
    wanted = answer(merged, "merged")
    assert tuned[0] == wanted[0] and tuned[1] == pytest.approx(wanted[1], abs=0.01)
    assert answer(base, "base")[1] != pytest.approx(wanted[1], abs=0.05)
