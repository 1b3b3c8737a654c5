# SPDX-License-Identifier: Apache-2.0
"""Grouped-query attention for classes in which transformers has none: its model repeats keys and values for every
head of a group, the worker holds them once. Covers fused and transposed storage, biases, cross-attention, and the KV
cache of a rank.
"""

import contextlib
import dataclasses
import hashlib
import shutil

import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
from cases import BY_NAME, RANKS
from safetensors.numpy import load_file, save_file
from server import Server
from test_forward import places
from test_generate import check_answer, rows_of


def once(rows, heads, kv_heads):
    """The first head of each group of a projection's rows (or a bias), [heads x size, ..] -> [kv_heads x size, ..]."""
    return rows.reshape(kv_heads, heads // kv_heads, rows.shape[0] // heads, -1)[:, 0].reshape(-1, *rows.shape[1:])


def again(rows, heads, kv_heads):
    """The inverse, for what has equal heads."""
    size = rows.shape[0] // kv_heads
    return numpy.repeat(rows.reshape(kv_heads, 1, size, -1), heads // kv_heads, 1).reshape(
        heads * size, *rows.shape[1:]
    )


def fused(tensor, heads, kv_heads):
    """GPT-2's c_attn, [in, out] or a bias: (ours, theirs)."""
    q, k, v = numpy.split(tensor.T, 3)
    kept = [once(part, heads, kv_heads) for part in (k, v)]
    return tuple(
        numpy.ascontiguousarray(numpy.concatenate([q, *parts]).T)
        for parts in (kept, [again(part, heads, kv_heads) for part in kept])
    )


def apart(tensor, heads, kv_heads):
    kept = once(tensor, heads, kv_heads)
    return kept, again(kept, heads, kv_heads)


# case, heads and kv heads by the name of a stack's tensors, projections' names, how a tensor comes apart, our policy
SHARED = {
    "gpt2-one": ("GPT2LMHeadModel-all", {"": (5, 1)}, ("c_attn",), fused, "let: {kv_heads: 1}"),
    "gpt2-two-of-four": ("GPT2LMHeadModel-one-layer-wide", {"": (4, 2)}, ("c_attn",), fused, "let: {kv_heads: 2}"),
    "t5-one": (
        "T5ForConditionalGeneration-all",
        {"": (5, 1)},
        ("Attention.k", "Attention.v"),
        apart,
        "let: {kv_heads: 1}",
    ),
    "bart-one-and-two": (
        "BartForConditionalGeneration-all",
        {"encoder.": (5, 1), "decoder.": (6, 2)},
        ("k_proj", "v_proj"),
        apart,
        "stacks: {encoder: {kv_heads: 1}, decoder: {kv_heads: 2}}",
    ),
    "bart-one-of-seven": (
        "BartForConditionalGeneration-seven-heads-untied",
        {"": (7, 1)},
        ("k_proj", "v_proj"),
        apart,
        "let: {kv_heads: 1}",
    ),
}


@dataclasses.dataclass
class Pair:
    case: object  # the oracle's
    folder: object
    policy: str


@pytest.fixture(scope="module", params=SHARED)
def pair(request, tmp_path_factory):
    name, sizes, projections, part, policy = SHARED[request.param]
    case, folder = BY_NAME[name], tmp_path_factory.mktemp(request.param)
    ours, theirs = {}, {}
    for key, tensor in load_file(fixtures.checkpoint(case) / "model.safetensors").items():
        ours[key] = theirs[key] = tensor
        if key.rpartition(".")[0].endswith(projections):
            ours[key], theirs[key] = part(tensor, *next(found for stack, found in sizes.items() if stack in key))
    assert sum(ours[key].shape != theirs[key].shape for key in ours) >= 2
    for side, tensors in (("ours", ours), ("theirs", theirs)):
        shutil.copytree(fixtures.checkpoint(case), folder / side)
        save_file(tensors, folder / side / "model.safetensors", {"format": "pt"})
    (folder / "policy.yaml").write_text(f"extends: {case.model_type}\n{policy}\n")
    digest = hashlib.sha256((folder / "theirs/model.safetensors").read_bytes()).hexdigest()
    return Pair(
        dataclasses.replace(case, name=f"{case.name}-{request.param}", folder=str(folder / "theirs"), digest=digest),
        folder / "ours",
        str(folder / "policy.yaml"),
    )


@pytest.mark.parametrize("ranks", RANKS)
def test_states_attentions_and_logits_equal_those_of_equal_heads(runner, pair, ranks):
    given = inputs.make(pair.case, "right")
    compare.tensors(
        runner.forward(pair.folder, ranks, given, policy=pair.policy),
        oracle.forward(pair.case, given),
        places(pair.case, given),
    )


@pytest.mark.parametrize("ranks", RANKS)
def test_greedy_tokens_equal_those_of_equal_heads(runner, pair, ranks):
    rows = rows_of(pair.case)
    for row, answer in zip(
        rows, runner.generate(pair.folder, ranks, rows, policy=pair.policy, max_new_tokens=24, do_sample=False)
    ):
        check_answer(runner, pair.case, pair.folder, ranks, row, answer, policy=pair.policy)


@pytest.mark.parametrize(
    "name, ranks, kv, rows",
    [
        ("LlamaForCausalLM-one-kv-head-tied", 3, [[0, 1]] * 3, [4, 3, 3]),
        ("FalconForCausalLM-40b", 3, [[0, 1], [0, 1], [1, 2]], [3, 3, 6]),
    ],
)
def test_a_rank_caches_the_heads_that_it_attends_to_and_holds_its_part_of_their_rows(tmp_path, name, ranks, kv, rows):
    shutil.copytree(fixtures.checkpoint(BY_NAME[name]), tmp_path / "model")
    with contextlib.closing(Server(tmp_path / "model", ranks)) as server:
        plan, memory = server.get("/plan").json(), server.get("/memory").json()
    shards = [rank["shard"]["decoder"] for rank in plan["ranks"]]
    assert [shard["kv"] for shard in shards] == kv
    assert [shard["kv_rows"][1] - shard["kv_rows"][0] for shard in shards] == rows
    text = BY_NAME[name].settings
    size = text.get("head_dim", text["hidden_size"] // text["num_attention_heads"])
    for planned, held in zip(plan["ranks"], memory["ranks"]):
        assert (
            held["measured"]["kv"]
            == planned["predicted"]["kv"]
            == plan["kvBlocks"] * 16 * 2 * text["num_hidden_layers"] * size * 4
        )
        assert 0 <= held["measured"]["weights"] - planned["predicted"]["weights"] <= 64 * 60  # each tensor is aligned
