# SPDX-License-Identifier: Apache-2.0
"""A folder with a GGUF file alone is inspected, planned, served and converted: its tokenizer, chat template and end
tokens are those of the file.
"""

import copy
import json

import gguf_files
import peft
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file
from server import Server
from test_gguf_tokenizers import ROLES, SPECIAL, as_library, byte_level, with_bos, write_tokens

import worker

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
MESSAGES = [{"role": "user", "content": "The quick brown fox"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with the file, and the model and tokenizer of transformers that it holds."""
    folder = tmp_path_factory.mktemp("served")
    made = byte_level("llama-bpe")
    config = transformers.LlamaConfig(**gguf_files.SIZES | {"vocab_size": made.get_vocab_size()}, rope_theta=500.0)
    torch.manual_seed(3)
    oracle = transformers.LlamaForCausalLM(config)
    for parameter in oracle.parameters():
        if parameter.dim() > 1:
            parameter.data.copy_(2 * torch.randn(parameter.shape) / parameter.shape[-1] ** 0.5)

    def add(writer):
        write_tokens(writer, made, "llama-bpe")
        writer.add_chat_template(TEMPLATE)
        writer.add_eot_token_id(made.token_to_id(SPECIAL[2]))

    state = {name: w.numpy() for name, w in oracle.state_dict().items()}
    values = gguf_files.write(folder / "m-q4_k.gguf", "llama", state, Type.Q4_K, add=add, config=config)
    oracle.load_state_dict(values)
    tokenizer = as_library(with_bos(made, SPECIAL[0]), chat_template=TEMPLATE, **ROLES)
    return folder, oracle.eval(), tokenizer


@pytest.fixture(scope="module")
def served(model):
    server = Server(model[0])
    yield server
    server.close()


def greedy(oracle, ids, count=12):
    ends = [oracle.config.eos_token_id]
    with torch.no_grad():
        out = oracle.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False, eos_token_id=ends)
    return out[0, len(ids) :].tolist()


def test_text_is_completed_as_by_transformers(model, served):
    _, oracle, tokenizer = model
    body = {"prompt": "hello world, don't", "max_tokens": 12, "temperature": 0}
    wanted = tokenizer.decode(greedy(oracle, tokenizer("hello world, don't")["input_ids"]), skip_special_tokens=True)
    assert served.ask("/v1/completions", body)["choices"][0]["text"] == wanted


def test_a_conversation_has_the_files_template(model, served):
    _, oracle, tokenizer = model
    reply = served.ask("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 8, "temperature": 0})
    prompt = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    assert reply["usage"]["prompt_tokens"] == len(ids)
    wanted = tokenizer.decode(greedy(oracle, ids, 8), skip_special_tokens=True)
    assert reply["choices"][0]["message"]["content"] == wanted


def run(*arguments):
    done = worker.run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dense(model, tmp_path_factory):
    """The same weights as transformers saves them."""
    folder = tmp_path_factory.mktemp("dense")
    model[1].save_pretrained(folder)
    return folder


def test_inspect_says_what_it_says_of_the_dense_checkpoint(model, dense):
    found, wanted = (json.loads(run("inspect", "--model", folder, "--json")) for folder in (model[0], dense))
    assert found == wanted


@pytest.mark.parametrize("precision", [None, "BF16", "I8", "I4"])
def test_a_plan_counts_the_bytes_that_ranks_hold(model, dense, precision):
    more = ("--precision", precision) if precision else ()
    found, wanted = (
        json.loads(run("plan", "--model", folder, "--ranks", 2, "--device-memory", "1Gi", "--json", *more))
        for folder in (model[0], dense)
    )
    assert found == wanted
    assert found["precision"] == (precision or "F32")


def test_convert_writes_a_folder_that_serves_text(model, tmp_path):
    folder, _, tokenizer = model
    run("convert", "--model", folder, "--out", tmp_path / "int4")
    assert not list((tmp_path / "int4").glob("*.gguf"))
    names = load_file(tmp_path / "int4" / "model.safetensors").keys()
    assert "model.layers.0.self_attn.q_proj.weight_packed" in names
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "int4")
    assert again("hello world, don't")["input_ids"] == tokenizer("hello world, don't")["input_ids"]


def test_an_adapter_beside_its_codes_is_pefts(model, tmp_path):
    folder, oracle, tokenizer = model
    torch.manual_seed(5)
    config = peft.LoraConfig(target_modules="all-linear", r=4, lora_alpha=16, init_lora_weights=False)
    tuned = peft.get_peft_model(copy.deepcopy(oracle), config).eval()
    tuned.save_pretrained(tmp_path / "tuned")
    prompt = "hello world, don't"
    ids = tokenizer(prompt)["input_ids"]
    wanted = {name: greedy(one, ids) for name, one in (("tuned", tuned), (folder.name, oracle))}
    assert wanted["tuned"] != wanted[folder.name]
    server = Server(folder, ranks=2, options=["--adapter", f"tuned={tmp_path / 'tuned'}"])
    for name, answer in wanted.items():
        body = {"model": name, "prompt": prompt, "max_tokens": 12, "temperature": 0, "return_token_ids": True}
        assert server.ask("/v1/completions", body)["choices"][0]["token_ids"] == answer
    server.close()
