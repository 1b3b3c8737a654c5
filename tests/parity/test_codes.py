# SPDX-License-Identifier: Apache-2.0
"""With precision I8 or I4 a model gives exactly the results of transformers with the same quantized weights, and nearly
those of the original weights. test_rounded_activations.py has I8A8.

A weight is round(w / scale) x scale, with a scale for each output and each group of 32 inputs. I8: the largest |w| /
127, rounded up to bf16. I4: the w of the largest |w| / -8, rounded to bf16, with numbers from -8 to 7. Where inputs are
partitioned by heads whose size is not a multiple of 32, as in the projection after attention, a group is a head.
Matrices of layers and the LM head are quantized, also where it is tied to the token embedding; nothing else is. I4
leaves the LM head and groups of one head to I8.
"""

import dataclasses
import json
import pathlib
import re
import shutil

import cases
import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
from safetensors.numpy import load_file, save_file
from test_forward import places
from test_generate import check_answer, rows_of

import worker

LAYER = (
    r"(q_a_proj|q_b_proj|kv_a_proj_with_mqa|q|k|v|o|wi|wi_0|wi_1|wo|c_attn|c_proj|c_fc|[qkvo]_proj|out_proj|"
    r"gate_proj|up_proj|down_proj|query|key|value|query_key_value|dense_h_to_4h|dense_4h_to_h|fc1|fc2|"
    r"attention\.output\.dense|self_attention\.dense|intermediate\.dense|\d\.output\.dense)\.weight$"
)
SCORES = r"(lm_head|decoder)\.weight$"
OUT = (
    r"(attn\.c_proj|self_attn\.o_proj|attention\.out_proj|Attention\.o|attention\.output\.dense|"
    r"self_attention\.dense|_attn\.out_proj)\.weight$"
)
# the first case of each class: the table that scores share with tokens, and the size of a head
MODELS = {
    "GPT2LMHeadModel": (r"wte\.weight$", 6),
    "LlamaForCausalLM": ("", 8),
    "FalconForCausalLM": (r"word_embeddings\.weight$", 6),
    "BloomForCausalLM": (r"word_embeddings\.weight$", 5),
    "GPTNeoForCausalLM": (r"wte\.weight$", 6),
    "T5ForConditionalGeneration": (r"shared\.weight$", 6),
    "BertForMaskedLM": (r"word_embeddings\.weight$", 6),
    "DeepseekV3ForCausalLM": ("", 8),  # of values; kv_b_proj is no matrix of codes
}
CASES = [next(case for case in cases.CASES if case.model_class == name) for name in MODELS]


def dequantized(w, group, bits=8):
    """[out, in] fp32 -> the same after quantizing, by the rules above in fp32."""
    out, size = w.shape
    group = group or size
    groups = -(-size // group)
    padded = numpy.zeros((out, groups * group), numpy.float32)
    padded[:, :size] = w
    padded = padded.reshape(out, groups, group)
    if bits == 4:
        extreme = numpy.take_along_axis(padded, numpy.abs(padded).argmax(2)[..., None], 2)
        exact = (extreme / numpy.float32(-8)).view(numpy.uint32)
        scale = ((exact + 0x7FFF + ((exact >> 16) & 1)) & 0xFFFF0000).view(numpy.float32)
    else:
        exact = numpy.abs(padded).max(2, keepdims=True) / numpy.float32(127)
        scale = ((exact.view(numpy.uint32) + 0xFFFF) & 0xFFFF0000).view(numpy.float32)
    numbers = numpy.round(padded / numpy.where(scale != 0, scale, 1))
    if bits == 4:
        numbers = numbers.clip(-8, 7)
    assert numpy.abs(numbers).max() <= 127
    return (numbers * scale).astype(numpy.float32).reshape(out, -1)[:, :size]


def quantized_case(case, precision):
    """The case with a checkpoint of its weights after quantizing."""

    def make(folder):
        source = fixtures.checkpoint(case)
        for path in source.iterdir():
            if path.suffix != ".safetensors":
                shutil.copy(path, folder)
        table, head = MODELS[case.model_class]
        tensors, changed = load_file(source / "model.safetensors"), 0
        own = [w for name, w in tensors.items() if re.search(SCORES, name)]
        tied = table and all(
            numpy.array_equal(w, tensors[next(name for name in tensors if re.search(table, name))]) for w in own
        )
        for name, w in tensors.items():
            if w.ndim == 2 and re.search(f"{LAYER}|{SCORES}" + (f"|{table}" if tied else ""), name):
                across = "GPT2" in case.model_class and not re.search(table, name)  # Conv1D
                group, bits = codes_of(case, name, precision)
                made = dequantized(w.T, group, bits).T if across else dequantized(w, group, bits)
                tensors[name] = numpy.ascontiguousarray(made)
                changed += 1
        assert changed > 10
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    sources = [fixtures.source_of(one) for one in (dequantized, codes_of)]
    name = "-" + precision.lower()
    folder = fixtures.cached("codes" + name, case, [*sources, LAYER, SCORES, OUT, MODELS[case.model_class]], make)
    return dataclasses.replace(case, name=case.name + name, folder=str(folder), digest=pathlib.Path(folder).name)


def codes_of(case, name, precision):
    """Inputs of a group, or None for all, and bits of a code."""
    table, head = MODELS[case.model_class]
    scores = re.search(SCORES, name) or (table and re.search(table, name))
    if precision == "I8A8" and not scores:
        return None, 8
    if re.search(OUT, name):
        return head, 8
    return 32, 4 if precision == "I4" and not scores else 8


def of_case(value):
    return getattr(value, "name", value)


# I4 differs from I8 in its codes alone: fewer layouts show that
LAYOUTS = [("I8", f"tensor={n}") for n in (1, 2, 3, 4)] + [("I8", "pipeline=2"), ("I4", "tensor=1"), ("I4", "tensor=3")]


@pytest.mark.parametrize("case", CASES, ids=of_case)
@pytest.mark.parametrize("precision, layout", LAYOUTS)
def test_states_and_scores_are_those_of_transformers_with_the_quantized_weights(runner, case, precision, layout):
    given, ranks = inputs.make(case, inputs.kinds(case)[0]), int(layout[-1])
    ours = runner.forward(fixtures.checkpoint(case), ranks, given, sizes=layout, precision=precision)
    exact, before = oracle.forward(quantized_case(case, precision), given), oracle.forward(case, given)
    compare.tensors(ours, exact, places(case, given))
    with pytest.raises(compare.Difference):  # the weights before quantizing are others
        compare.tensors(ours, before, places(case, given))


# fully sharded weights, rows followed by their scales: gathered from all ranks, and from files
GATHERED = [("I8", "Sharded", n) for n in (1, 2, 3)] + [("I8", "Offload", 1), ("I8", "Offload", 2)]
GATHERED += [("I4", "Sharded", 2), ("I4", "Offload", 1)]


@pytest.mark.parametrize("precision, strategy, ranks", GATHERED)
@pytest.mark.parametrize("case", CASES, ids=of_case)
def test_gathered_weights_are_the_quantized_ones(runner, case, precision, strategy, ranks):
    given, layout = (
        inputs.make(case, inputs.kinds(case)[0]),
        {"strategy": strategy, "sizes": f"data={ranks}", "precision": precision},
    )
    compare.tensors(
        runner.forward(fixtures.checkpoint(case), ranks, given, **layout),
        oracle.forward(quantized_case(case, precision), given),
        places(case, given),
    )
    if case.generates:
        folder, rows = fixtures.checkpoint(case), rows_of(case)[:2]
        together = runner.generate(folder, ranks, rows, max_new_tokens=24, do_sample=False, **layout)
        for row, answer in zip(rows, together, strict=True):
            check_answer(runner, quantized_case(case, precision), folder, ranks, row, answer, **layout)


# routers of random weights choose other experts for a small change of what they read
WITHOUT_ROUTERS = [case for case in CASES if "num_experts_per_tok" not in case.settings]


@pytest.mark.parametrize("case", WITHOUT_ROUTERS, ids=of_case)
def test_quantizing_to_int8_changes_scores_by_little(runner, case):
    """The Kullback-Leibler divergence from fp32 is below 0.005 on average, nine of ten best tokens agree, and no
    score is off by more than a fifth of the largest. These bounds hold for random weights whose errors add up;
    trained weights lose less (test_perplexity.py, which has I4 too).
    """
    given = inputs.make(case, inputs.kinds(case)[0])
    keep = places(case, given)("logits").astype(bool)
    ours, theirs = (
        array["logits"][keep].astype(numpy.float64)
        for array in (runner.forward(fixtures.checkpoint(case), 1, given, precision="I8"), oracle.forward(case, given))
    )
    p, q = (scores - scores.max(1, keepdims=True) for scores in (theirs, ours))
    p, q = (scores - numpy.log(numpy.exp(scores).sum(1, keepdims=True)) for scores in (p, q))
    divergence = (numpy.exp(p) * (p - q)).sum(1).mean()
    off, agree = numpy.abs(ours - theirs).max() / numpy.abs(theirs).max(), (ours.argmax(1) == theirs.argmax(1)).mean()
    print(
        f"{case.name}: off by {off:.4f} of the largest score, divergence {divergence:.5f}, {agree:.3f} of "
        f"the best tokens agree"
    )
    assert off <= 0.2 and divergence <= 0.005 and agree >= 0.9


@pytest.mark.parametrize(
    "case, precision, layout",
    [
        (case, *layout)
        for case in CASES
        if case.generates
        for layout in (("I8", "tensor=1"), ("I8", "tensor=3"), ("I8", "data=2"), ("I4", "tensor=3"))
    ],
    ids=of_case,
)
def test_greedy_tokens_are_those_of_transformers_with_the_quantized_weights(runner, case, precision, layout):
    exact, ranks = quantized_case(case, precision), int(layout[-1])
    folder, rows, how = fixtures.checkpoint(case), rows_of(case)[:3], {"sizes": layout, "precision": precision}
    together = runner.generate(folder, ranks, rows, max_new_tokens=24, do_sample=False, **how)
    for row, answer in zip(rows, together, strict=True):
        check_answer(runner, exact, folder, ranks, row, answer, **how)


def plan(case, precision, devices, *more):
    options = ["--devices", devices, "--device-memory", "8Gi", "--precision", precision, *more]
    return json.loads(worker.run("plan", "--model", fixtures.checkpoint(case), *options, "--json").stdout)


@pytest.mark.parametrize("precision", ["I8", "I4", "I8A8"])
def test_what_a_rank_holds_is_what_the_plan_says(precision):
    """The worker refuses to run otherwise; here the plan's figure is counted by hand."""
    case = CASES[1]
    planned = plan(case, precision, 1)
    assert planned["precision"] == precision
    weights = load_file(fixtures.checkpoint(case) / "model.safetensors")
    counted = sum(bytes_of(case, name, w, precision) for name, w in weights.items())
    assert planned["ranks"][0]["predicted"]["weights"] == counted


def bytes_of(case, name, w, precision):
    """As codes with their scales where it is quantized, else fp32."""
    if w.ndim != 2 or not re.search(f"{LAYER}|{SCORES}", name):
        return 4 * w.size
    group, bits = codes_of(case, name, precision)
    scales = w.shape[0] * -(-w.shape[1] // (group or w.shape[1]))
    return (scales * 16 if bits == 4 else w.size) + 2 * scales


@pytest.mark.parametrize("precision", ["I8", "I4", "I8A8"])
@pytest.mark.parametrize("strategy, ranks", sorted({(strategy, ranks) for _, strategy, ranks in GATHERED}))
def test_bytes_of_fully_sharded_ranks_are_those_of_the_plan(strategy, ranks, precision):
    """A rank holds two gather buffers of the largest layer and the replicated parameters; all other weights are
    sharded over the ranks, or in files.
    """
    case = CASES[1]
    planned = plan(case, precision, ranks, "--strategy", strategy)
    weights = load_file(fixtures.checkpoint(case) / "model.safetensors")
    layers = {}
    for name, w in weights.items():
        if w.ndim == 2 and (layer := re.search(r"layers\.(\d+)\.", name)):
            layers[layer[1]] = layers.get(layer[1], 0) + bytes_of(case, name, w, precision)
    norms = sum(4 * w.size for w in weights.values() if w.ndim == 1)
    spread = sum(bytes_of(case, name, w, precision) for name, w in weights.items() if w.ndim == 2)
    buffer = planned["gathering"]["bufferBytes"]
    assert buffer == max(layers.values())
    assert sum(rank["predicted"]["weights"] for rank in planned["ranks"]) == ranks * (norms + 2 * buffer) + (
        spread if strategy == "Sharded" else 0
    )
