# SPDX-License-Identifier: Apache-2.0
"""Fully sharded weights (all-gathered per layer from all ranks, or read from the checkpoint's files) give the same
results as resident weights.
"""

import contextlib
import itertools
import json
import shutil

import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
from cases import BY_NAME
from safetensors.numpy import load_file, save_file
from server import Server
from test_forward import places
from test_generate import COUNT, check_answer, rows_of
from test_strategies import FAMILIES

import worker

LAYOUTS = [("Sharded", 1), ("Sharded", 2), ("Sharded", 3), ("Sharded", 4), ("Offload", 1), ("Offload", 2)]
PASSES = [
    pytest.param(BY_NAME[name], *layout, id=f"{name}-{layout[0]}-{layout[1]}")
    for name, layout in itertools.product(FAMILIES, LAYOUTS)
]
ANSWERS = [
    pytest.param(BY_NAME[name], *layout, id=f"{name}-{layout[0]}-{layout[1]}")
    for name, layout in itertools.product(FAMILIES, LAYOUTS)
    if BY_NAME[name].generates
]


def layout_of(strategy, ranks):
    return {"strategy": strategy, "sizes": f"data={ranks}"}


@pytest.mark.parametrize("case, strategy, ranks", PASSES)
def test_hidden_states_and_outputs_equal_those_of_transformers(runner, case, strategy, ranks):
    given = inputs.make(case, inputs.kinds(case)[0])
    options = {"attentions": case.shows_attentions, **layout_of(strategy, ranks)}
    found = runner.forward(fixtures.checkpoint(case), ranks, given, **options)
    compare.tensors(found, oracle.forward(case, given), places(case, given))


@pytest.mark.parametrize("case, strategy, ranks", ANSWERS)
def test_greedy_tokens_of_batched_prompts_equal_those_of_transformers(runner, case, strategy, ranks):
    """Prompts go to different ranks; with more ranks than prompts some ranks are idle."""
    folder, rows, layout = fixtures.checkpoint(case), rows_of(case), layout_of(strategy, ranks)
    together = runner.generate(folder, ranks, rows, max_new_tokens=COUNT, do_sample=False, **layout)
    for row, answer in zip(rows, together, strict=True):
        check_answer(runner, case, folder, ranks, row, answer, **layout)


@pytest.mark.parametrize(
    "name", ["GPT2LMHeadModel-all", "BartForConditionalGeneration-all", "DeepseekV3ForCausalLM-all"]
)
@pytest.mark.parametrize(
    "options", [{"do_sample": True, "seed": 7, "num_return_sequences": 3}, {"num_beams": 3}], ids=["drawn", "beams"]
)
def test_sampled_tokens_and_beams_do_not_depend_on_where_weights_are(runner, name, options):
    case = BY_NAME[name]
    folder, rows = fixtures.checkpoint(case), rows_of(case)
    alone = runner.generate(folder, 1, rows, max_new_tokens=COUNT, **options)
    for strategy, ranks in (("Sharded", 2), ("Sharded", 3), ("Offload", 1), ("Offload", 2)):
        assert (
            runner.generate(folder, ranks, rows, max_new_tokens=COUNT, **layout_of(strategy, ranks), **options) == alone
        ), (strategy, ranks)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["GPT2LMHeadModel-all", "T5ForConditionalGeneration-all"])
def test_sixteen_bits_are_those_of_one_rank(runner, name, dtype):
    """T5 holds some matrices in 32 bits and others in 16: both are in one flat parameter."""
    import dataclasses

    case = dataclasses.replace(BY_NAME[name], name=f"{name}-{dtype}", dtype=dtype)
    given, folder = inputs.make(case, inputs.kinds(case)[0]), fixtures.checkpoint(case)
    alone = runner.forward(folder, 1, given)
    for strategy, ranks in (("Sharded", 3), ("Offload", 2)):
        found = runner.forward(folder, ranks, given, **layout_of(strategy, ranks))
        for output, values in alone.items():
            numpy.testing.assert_array_equal(found[output], values, err_msg=f"{strategy} {output}")


def plan_of(folder, strategy, ranks):
    return json.loads(
        worker.run("plan", "--model", folder, "--devices", ranks, "--strategy", strategy, "--json").stdout
    )


def in_tiles(plan, buffer):
    """Returns the plan with smaller gather buffers, as it would be made for less memory."""
    saved = 2 * (plan["gathering"]["bufferBytes"] - buffer)
    plan["gathering"]["bufferBytes"] = buffer
    for rank in plan["ranks"]:
        rank["predicted"]["weights"] -= saved
    return plan


TILED = [  # how a layer is divided depends on neither ranks nor where it lies: all layouts for two families
    (name, *layout)
    for name in FAMILIES
    for layout in [("Sharded", 2), ("Sharded", 3), ("Offload", 1), ("Offload", 2)]
    if layout == ("Sharded", 3) or name.startswith(("T5", "GPT2"))
]


@pytest.mark.parametrize("name, strategy, ranks", TILED)
def test_layers_larger_than_a_buffer_are_gathered_in_tiles(tmp_path, name, strategy, ranks):
    """Tests memory-centric tiling, once with ranks as processes over shared memory."""
    case = BY_NAME[name]
    given, folder = inputs.make(case, inputs.kinds(case)[0]), fixtures.checkpoint(case)
    save_file(given, tmp_path / "in.safetensors")
    (tmp_path / "plan.json").write_text(
        json.dumps(in_tiles(plan_of(folder, strategy, ranks), 1600))
    )  # fewer bytes than most matrices of these models have
    processes = ["--processes"] if name.startswith(("T5", "GPT2")) and ranks > 1 else []
    run = worker.run(
        "forward",
        "--model",
        folder,
        "--plan",
        tmp_path / "plan.json",
        "--inputs",
        tmp_path / "in.safetensors",
        "--outputs",
        tmp_path / "out.safetensors",
        "--hidden-states",
        *(["--attentions"] if case.shows_attentions else []),
        *processes,
    )
    assert run.returncode == 0, run.stderr
    compare.tensors(load_file(tmp_path / "out.safetensors"), oracle.forward(case, given), places(case, given))


@pytest.mark.parametrize("name", ["GPT2LMHeadModel-all", "T5ForConditionalGeneration-all"])
@pytest.mark.parametrize("strategy", ["Sharded", "Offload"])
def test_answers_come_in_tiles_too_and_ranks_are_processes(tmp_path, runner, name, strategy):
    case = BY_NAME[name]
    folder, rows = tmp_path / "model", rows_of(case)
    shutil.copytree(fixtures.checkpoint(case), folder)
    (tmp_path / "plan.json").write_text(json.dumps(in_tiles(plan_of(folder, strategy, 2), 1600)))
    alone = runner.generate(fixtures.checkpoint(case), 1, rows, max_new_tokens=COUNT, do_sample=False)
    with contextlib.closing(Server(folder, 2, "data=2", strategy, ["--plan", tmp_path / "plan.json"])) as server:
        for row, answer in zip(rows, alone):
            found = server.ask(
                "/generate", {"input_ids": row, "max_new_tokens": COUNT, "do_sample": False, "return_token_ids": True}
            )
            assert found["sequence"] == answer


@pytest.mark.parametrize(
    "name",
    [
        "GPT2LMHeadModel-all",
        "T5ForConditionalGeneration-all",
        "AlbertForMaskedLM-all",
        "ViTForImageClassification-all",
        "BertForMaskedLM-all",
    ],
)
@pytest.mark.parametrize("strategy, ranks", [("Sharded", 2), ("Sharded", 3), ("Offload", 1), ("Offload", 2)])
def test_ranks_hold_what_their_plan_says(tmp_path, name, strategy, ranks):
    shutil.copytree(fixtures.checkpoint(BY_NAME[name]), tmp_path / "model")
    with contextlib.closing(Server(tmp_path / "model", ranks, f"data={ranks}", strategy)) as server:
        plan, memory = server.get("/plan").json(), server.get("/memory").json()
    assert len(plan["ranks"]) == len(memory["ranks"]) == ranks
    for planned, held in zip(plan["ranks"], memory["ranks"]):
        assert held["measured"]["kv"] == planned["predicted"]["kv"]
        assert 0 <= held["measured"]["weights"] - planned["predicted"]["weights"] <= 64 * 60  # each tensor is aligned
    metadata = json.loads(worker.run("inspect", "--model", tmp_path / "model", "--json").stdout)
    every = sum(rank["predicted"]["weights"] - 2 * plan["gathering"]["bufferBytes"] for rank in plan["ranks"])
    assert (
        every
        < (1.5 if strategy == "Sharded" else 0.3 * ranks)
        * metadata["checkpoint_bytes" if "checkpoint_bytes" in metadata else "bytes"]
    ), "ranks keep parts, not copies"
