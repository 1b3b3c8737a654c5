# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters: a model with an adapter gives the results of transformers with the weights into which it is merged, in
every layout, for every way in which matrices are stored, and for any mixture of adapters in one batch.
"""

import dataclasses
import json
import re

import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
from cases import BY_NAME
from lora import Recipe, adapter, merged
from safetensors.numpy import load_file, save_file
from test_codes import quantized_case
from test_forward import places
from test_generate import check_answer
from test_strategies import ranks_of

LLAMA = BY_NAME["LlamaForCausalLM-all"]
GPT2 = BY_NAME["GPT2LMHeadModel-all"]
ATTENTION, ALL = (
    ("q_proj", "v_proj"),
    ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
)
# how the matrices of a layer are stored: apart, one Conv1D, one after another, by groups, by heads
RECIPES = {
    "LlamaForCausalLM-all": Recipe(ALL),
    "GPT2LMHeadModel-all": Recipe(("c_attn", "attn.c_proj", "mlp.c_proj", "c_fc")),
    "Phi3ForCausalLM-all": Recipe(("qkv_proj", "o_proj", "gate_up_proj", "down_proj")),
    "FalconForCausalLM-40b": Recipe(("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")),
    "BloomForCausalLM-all": Recipe(("query_key_value", "self_attention.dense", "dense_h_to_4h", "dense_4h_to_h")),
    "GPTNeoXForCausalLM-all": Recipe(("query_key_value", "attention.dense", "dense_h_to_4h", "dense_4h_to_h")),
    "Qwen2ForCausalLM-all": Recipe(("q_proj", "k_proj", "down_proj")),
    "Gemma2ForCausalLM-all": Recipe(ALL),
    "Qwen2MoeForCausalLM-all": Recipe(
        ("q_proj", "shared_expert.gate_proj", "shared_expert.up_proj", "shared_expert.down_proj")
    ),
    "Qwen3NextForCausalLM-all": Recipe(("q_proj", "o_proj", "in_proj_qkvz", "out_proj")),
    "AlbertForMaskedLM-all": Recipe(("query", "attention.dense", "ffn", "ffn_output")),
    "DebertaForMaskedLM-all": Recipe(("in_proj", "intermediate.dense")),
    "T5ForConditionalGeneration-all": Recipe(("q", "v", "wo")),
    "BertForSequenceClassification-all": Recipe(("query", "key", "value", "attention.output.dense")),
    "BertForMaskedLM-all": Recipe(("query", "value", "intermediate.dense")),
    "BertModel-all": Recipe(("query", "value", "attention.output.dense")),
}
MIXED = [
    None,
    Recipe(ATTENTION, seed=11),
    Recipe(ALL, seed=12, rank=2),
    Recipe(("down_proj",), seed=13, rank=8, alpha=16),
    Recipe(ATTENTION, seed=14, root=True),
    Recipe(("o_proj", "up_proj"), seed=15, rank=1, alpha=2),
    Recipe(ALL, seed=16, ranks=(("v_proj", 2),), alphas=(("v_proj", 3), ("layers.0.mlp.up_proj", 12))),
    Recipe(ATTENTION, seed=17, layers=(1,)),
    Recipe(ALL, seed=18, dtype="bfloat16"),
]


def check_states(runner, case, recipe, ranks, kind="right", tolerance=compare.FP32, base=None, **options):
    given = inputs.make(case, kind)
    ours = runner.forward(fixtures.checkpoint(case), ranks, given, adapters=[str(adapter(case, recipe))], **options)
    compare.tensors(ours, oracle.forward(merged(case, recipe, base), given), places(case, given), tolerance=tolerance)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", RECIPES)
def test_states_with_an_adapter_are_those_of_the_merged_model(runner, name, ranks):
    if ranks in BY_NAME[name].ranks:
        check_states(runner, BY_NAME[name], RECIPES[name], ranks)


@pytest.mark.parametrize("name", RECIPES)
def test_an_adapter_changes_the_states(name):
    """Else equal states would prove little."""
    case = BY_NAME[name]
    given = inputs.make(case, "right")
    with pytest.raises(compare.Difference):
        compare.tensors(
            oracle.forward(case, given), oracle.forward(merged(case, RECIPES[name]), given), places(case, given)
        )


@pytest.mark.parametrize(
    "layout", ["pipeline=2", "tensor=2,pipeline=2", "data=2", "tensor=2,data=2", "pipeline=3"], ids=str
)
@pytest.mark.parametrize("name", ["LlamaForCausalLM-all", "GPT2LMHeadModel-all"])
def test_states_with_an_adapter_in_every_layout(runner, name, layout):
    check_states(runner, BY_NAME[name], RECIPES[name], ranks_of(layout), sizes=layout)


@pytest.mark.parametrize("strategy, ranks", [("Sharded", 2), ("Sharded", 3), ("Offload", 1), ("Offload", 2)])
@pytest.mark.parametrize("name", ["LlamaForCausalLM-all", "GPT2LMHeadModel-all"])
def test_states_with_an_adapter_where_weights_are_gathered(runner, name, strategy, ranks):
    check_states(runner, BY_NAME[name], RECIPES[name], ranks, sizes=f"data={ranks}", strategy=strategy)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["LlamaForCausalLM-all", "GPT2LMHeadModel-all"])
def test_an_adapter_adds_to_quantized_weights(runner, name, ranks):
    case = BY_NAME[name]
    check_states(runner, case, RECIPES[name], ranks, base=quantized_case(case, "I8"), precision="I8")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_factors_of_sixteen_bits(runner, dtype):
    check_states(runner, LLAMA, dataclasses.replace(RECIPES[LLAMA.name], dtype=dtype), 2)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(ALL, seed=5, root=True),
        Recipe(ALL, ranks=(("q_proj", 7), ("layers.1.mlp.down_proj", 1)), alphas=(("q_proj", 3),)),
        Recipe(ALL, layers=(0, 2)),
        Recipe(ALL, rank=19),
    ],
    ids=["rslora", "patterns", "some-layers", "rank-above-columns"],
)
@pytest.mark.parametrize("ranks", [1, 3])
def test_options_of_the_adapter(runner, recipe, ranks):
    check_states(runner, LLAMA, recipe, ranks)


@pytest.mark.parametrize("prefix", ["", "model."])
def test_modules_are_found_whatever_class_the_checkpoint_was_saved_from(runner, prefix):
    """An adapter of a class with a head has a prefix that a checkpoint without one lacks, and the other way round."""
    case = BY_NAME["LlamaModel-all"]
    check_states(runner, case, Recipe(ALL, prefix=prefix), 1)


def mixed_answers(runner, ranks, rows, recipes, count=24, **options):
    folders = [str(adapter(LLAMA, recipe)) if recipe else "" for recipe in recipes]
    folder = fixtures.checkpoint(LLAMA)
    return runner.batch.run(
        {
            "model": str(folder),
            "ranks": ranks,
            "sizes": f"tensor={ranks}",
            **options,
            "adapters": folders,
            "generate": {"input_ids": rows, "max_new_tokens": count, "do_sample": False},
        }
    )["sequences"]


def check_mixed(runner, ranks, rows, recipes, **options):
    answers = mixed_answers(runner, ranks, rows, recipes, **options)
    for row, recipe, answer in zip(rows, recipes, answers, strict=True):
        case = merged(LLAMA, recipe) if recipe else LLAMA
        check_answer(runner, case, fixtures.checkpoint(case), 1, row, answer)
    return answers


LAYOUTS = [
    (1, {}),
    (2, {}),
    (3, {}),
    (4, {}),
    (2, {"sizes": "pipeline=2"}),
    (4, {"sizes": "tensor=2,pipeline=2"}),
    (2, {"sizes": "data=2"}),
    (2, {"sizes": "data=2", "strategy": "Sharded"}),
    (1, {"sizes": "data=1", "strategy": "Offload"}),
]


@pytest.mark.parametrize(
    "ranks, options",
    LAYOUTS,
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_eight_adapters_and_the_base_model_in_one_batch(runner, ranks, options):
    """Decode steps have few rows, which are multiplied by all adapters at once and masked."""
    rows = inputs.prompts(LLAMA, [5, 3, 16, 17, 9, 1, 12, 7, 4], seed=5)
    answers = check_mixed(runner, ranks, rows, MIXED, **options)
    assert len({tuple(answer[-24:]) for answer in answers}) == len(answers)


@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_of_many_rows_multiply_those_of_each_adapter_alone(runner, ranks):
    rows = inputs.prompts(LLAMA, [33, 16, 17, 33, 30], seed=6)
    check_mixed(runner, ranks, rows, [MIXED[1], None, MIXED[2], MIXED[1], MIXED[3]])


def test_the_same_prompt_with_each_adapter_shares_no_keys(runner):
    """All prompts are equal, so that only the adapter tells their blocks apart in the prefix cache."""
    row = inputs.prompts(LLAMA, [33], seed=7)[0]
    answers = check_mixed(runner, 1, [row] * len(MIXED), MIXED)
    assert len({tuple(answer[-24:]) for answer in answers}) > len(answers) // 2


def spoiled(case, spoil, folder):
    """An adapter whose config or tensors `spoil` has changed."""
    source = adapter(case, Recipe(ATTENTION))
    config = json.loads((source / "adapter_config.json").read_text())
    tensors = load_file(source / "adapter_model.safetensors")
    spoil(config, tensors)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def says(**fields):
    return lambda config, tensors: config.update(fields)


def named(name, like):
    return lambda config, tensors: tensors.update({name: tensors[like].copy()})


def without(name):
    return lambda config, tensors: tensors.pop(name)


def shaped(name, shape):
    return lambda config, tensors: tensors.update({name: numpy.ones(shape, numpy.float32)})


Q = "base_model.model.model.layers.0.self_attn.q_proj"
REFUSED = {
    "peft_type": (says(peft_type="LOHA"), "only LORA"),
    "dora": (says(use_dora=True), "DoRA"),
    "bias": (says(bias="all"), "bias"),
    "lora_bias": (says(lora_bias=True), "biases of the factors"),
    "modules_to_save": (says(modules_to_save=["lm_head"]), "modules_to_save"),
    "trained_tokens": (says(trainable_token_indices=[1]), "trained tokens"),
    "parameters": (says(target_parameters=["mlp.experts.gate_up_proj"]), "target_parameters"),
    "replicated_layers": (says(layer_replication=[[0, 2]]), "replicated"),
    "pissa": (says(init_lora_weights="pissa_niter_4"), "changed base"),
    "alpha": (says(lora_alpha="much"), "lora_alpha"),
    "expression": (says(alpha_pattern={"(q|v)_proj": 3}), "only names"),
    "rank": (says(r=5), "rank 4.*says 5"),
    "targets": (says(target_modules=7), "target_modules"),
    "missing_target": (says(target_modules=["q_proj", "v_proj", "k_proj"]), "k_proj"),
    "embedding": (named("base_model.model.lm_head.lora_embedding_A", f"{Q}.lora_A.weight"), "no factor of a linear"),
    "saved_module": (named("base_model.model.lm_head.weight", f"{Q}.lora_A.weight"), "no factor of a linear"),
    "vocabulary": (
        lambda config, tensors: tensors.update(
            {
                "base_model.model.lm_head.lora_A.weight": numpy.ones((4, 36), numpy.float32),
                "base_model.model.lm_head.lora_B.weight": numpy.ones((211, 4), numpy.float32),
            }
        ),
        "lm_head is no matrix",
    ),
    "missing_factor": (without(f"{Q}.lora_B.weight"), "has no lora_B"),
    "missing_layer": (
        lambda config, tensors: [tensors.pop(f"{Q}.lora_{factor}.weight") for factor in "AB"],
        "no factors of model.layers.0.self_attn.q_proj",
    ),
    "other_width": (shaped(f"{Q}.lora_A.weight", (4, 37)), r"\[48, 37\].*\[48, 36\]"),
    "other_ranks": (shaped(f"{Q}.lora_A.weight", (3, 36)), r"\[rank, in\]"),
    "flat": (shaped(f"{Q}.lora_A.weight", (4 * 36,)), "row-major matrix"),
    "not_finite": (
        lambda config, tensors: tensors[f"{Q}.lora_A.weight"].__setitem__((0, 0), numpy.nan),
        "infinities or NaNs",
    ),
    "no_tensors": (lambda config, tensors: tensors.clear(), "no tensor|of which the file has no factor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_adapter_is_refused_whole_and_by_name(runner, tmp_path, name):
    spoil, words = REFUSED[name]
    answer = runner.batch.ask(
        {
            "model": str(fixtures.checkpoint(LLAMA)),
            "ranks": 1,
            "adapters": [str(spoiled(LLAMA, spoil, tmp_path))],
            "generate": {"input_ids": [[5, 6]], "max_new_tokens": 1},
        }
    )
    assert not answer["ok"] and answer["reason"] == "ModelUnreadable", answer
    assert re.search(words, answer["error"]), answer["error"]


@pytest.mark.parametrize(
    "case, target", [("Qwen2MoeForCausalLM-all", "gate_proj"), ("IBertForMaskedLM-quantized", "query")]
)
def test_matrices_that_adapters_cannot_change_are_refused(runner, tmp_path, case, target):
    """Experts choose their rows, and integers round what adapters would add to."""
    case = BY_NAME[case]
    answer = runner.batch.ask(
        {
            "model": str(fixtures.checkpoint(case)),
            "ranks": 1,
            "adapters": [str(adapter(case, Recipe((target,))))],
            "inputs": str(tmp_path / "none.safetensors"),
            "outputs": str(tmp_path / "out.safetensors"),
        }
    )
    assert not answer["ok"] and "is no matrix of" in answer["error"], answer
