# SPDX-License-Identifier: Apache-2.0
"""A model that is larger than its memory limit runs with Offload and with Sharded: the kernel enforces the limit,
and high-water marks show the used memory.
"""

import json
import subprocess
import sys

import numpy
import pytest
from safetensors.numpy import save_file
from server import Server

import worker

MIB = 1 << 20
HIDDEN, FFN, LAYERS, VOCABULARY = 1024, 2816, 12, 2048
LIMIT = 384 * MIB  # of anonymous memory of one process


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A Llama of 604 MiB in fp32 with random weights."""
    folder = tmp_path_factory.mktemp("large") / "model"
    folder.mkdir()
    random = numpy.random.default_rng(3)
    matrix = lambda out, width: random.standard_normal((out, width), dtype=numpy.float32) * (2 / width**0.5)
    tensors = {
        "model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN),
        "lm_head.weight": matrix(VOCABULARY, HIDDEN),
        "model.norm.weight": numpy.ones(HIDDEN, numpy.float32),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        for name in "qkvo":
            tensors[f"{at}self_attn.{name}_proj.weight"] = matrix(HIDDEN, HIDDEN)
        tensors |= {
            f"{at}mlp.gate_proj.weight": matrix(FFN, HIDDEN),
            f"{at}mlp.up_proj.weight": matrix(FFN, HIDDEN),
            f"{at}mlp.down_proj.weight": matrix(HIDDEN, FFN),
            f"{at}input_layernorm.weight": numpy.ones(HIDDEN, numpy.float32),
            f"{at}post_attention_layernorm.weight": numpy.ones(HIDDEN, numpy.float32),
        }
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_size": HIDDEN,
                "intermediate_size": FFN,
                "num_hidden_layers": LAYERS,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "vocab_size": VOCABULARY,
                "max_position_embeddings": 64,
                "rms_norm_eps": 1e-5,
                "hidden_act": "silu",
                "bos_token_id": 1,
                "eos_token_id": 2,
                "tie_word_embeddings": False,
                "torch_dtype": "float32",
            }
        )
    )
    return folder


def size_of(folder):
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


# What a process has held at most begins with what the one it was forked from held, so that a small one starts it: LIMIT
# PROGRAM ARGUMENT ...
STARTER = """
import os, resource, sys
limit = int(sys.argv[1])
child = os.fork()
if child == 0:
    if limit:
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))    # stacks of threads count as well
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(child, 0)
print("resident at most", usage.ru_maxrss * 1024, file=sys.stderr)
os._exit(os.waitstatus_to_exitcode(status) & 255)
"""


def generate(folder, *options, limit=0):
    """(exit code, answer, log, most bytes that were resident) of one run; `limit`: of its private memory, kept by the
    kernel."""
    arguments = [
        worker.BINARY,
        "generate",
        "--model",
        folder,
        "--input-ids",
        "5,6,7,8",
        "--max-new-tokens",
        "6",
        "--max-concurrency",
        "1",
        "--json",
        *options,
    ]
    done = subprocess.run(
        [sys.executable, "-c", STARTER, str(limit), *map(str, arguments)],
        capture_output=True,
        text=True,
        env=worker.ENVIRONMENT | {"OMP_NUM_THREADS": "2"},
    )
    log, _, most = done.stderr.rpartition("resident at most ")
    return done.returncode, done.stdout, log, int(most)


def test_a_model_larger_than_the_limit_runs_by_offload_and_by_nothing_else(large):
    assert size_of(large) > 1.5 * LIMIT
    code, wanted, log, whole = generate(large)
    assert code == 0, log
    assert whole > size_of(large)
    code, _, log, _ = generate(large, "--device-memory", "448Mi", "--strategy", "Tensor")
    assert code == 4, log  # DoesNotFit
    code, _, _, _ = generate(large, limit=LIMIT)
    assert code != 0, "the limit does not bite"
    code, found, log, most = generate(large, "--device-memory", "448Mi", limit=LIMIT)  # planned: nothing else fits
    assert code == 0, log
    assert json.loads(found)["sequences"] == json.loads(wanted)["sequences"]
    print(
        f"\nmodel {size_of(large) / MIB:.0f} MiB, limit {LIMIT / MIB:.0f} MiB of private memory; resident at "
        f"most {most / MIB:.0f} MiB offloaded, {whole / MIB:.0f} MiB whole"
    )
    assert most < LIMIT < size_of(large), "code of libraries included"


def high_water(pid):
    text = open(f"/proc/{pid}/status").read()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


def test_ranks_of_sharded_stay_below_the_size_of_the_model(large):
    server = Server(large, 4, "data=4", "Sharded", ["--max-concurrency", "4", "--max-sequence-length", "64"])
    try:
        server.ask("/generate", {"input_ids": [5, 6, 7, 8], "max_new_tokens": 6, "return_token_ids": True})
        children = open(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read().split()
        marks = [high_water(pid) for pid in children]
        plan = server.get("/plan").json()
    finally:
        server.close()
    print(
        "\nresident at most, MiB:",
        [round(mark / MIB) for mark in marks],
        "planned:",
        [round(rank["predicted"]["weights"] / MIB) for rank in plan["ranks"]],
    )
    assert len(marks) == 4
    for mark, rank in zip(marks, plan["ranks"]):
        assert mark < 0.75 * size_of(large)
        assert mark < rank["predicted"]["weights"] + 256 * MIB  # what the plan says, code of libraries, and staging
