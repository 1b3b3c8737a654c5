# SPDX-License-Identifier: Apache-2.0
"""Every parallel layout of a model gives the results of transformers: pipeline stages, data-parallel ranks, and
their combinations with tensor parallelism.
"""

import contextlib
import itertools
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
from test_forward import places, stacks
from test_generate import COUNT, check_answer, rows_of

import worker

# one model of each kind: tokens only, both norm orders, tied and shared layers, matrices in groups, integers, vectors
# of distances with a cache, relative positions by content, bottlenecks, heads that convolve, entities, streams, two
# streams, attention in chunks between two residual streams, latents that read tokens or pixels, two stacks in a row,
# encoders of images and of audio before a decoder, two towers, images, cells of images, keys and values of latents
FAMILIES = [
    "GPT2LMHeadModel-all",
    "LlamaForCausalLM-all",
    "Olmo2ForCausalLM-all",
    "Qwen2MoeForCausalLM-all",
    "GptOssForCausalLM-all",
    "Gemma4ForCausalLM-all",
    "Gemma4ForCausalLM-experts",
    "Gemma4ForCausalLM-inputs",
    "Mistral3ForConditionalGeneration-all",
    "ApertusForCausalLM-all",
    "DeepseekV3ForCausalLM-all",
    "DeepseekV3ForCausalLM-plain-queries",
    "BertForMaskedLM-all",
    "BertLMHeadModel-relative-key-query",
    "AlbertForMaskedLM-all",
    "SqueezeBertForMaskedLM-all",
    "IBertForMaskedLM-quantized",
    "DebertaForMaskedLM-all",
    "DebertaV2Model-convolution",
    "MobileBertForMaskedLM-all",
    "ConvBertForMaskedLM-all",
    "ConvBertModel-groups",
    "LukeForMaskedLM-all",
    "XLNetLMHeadModel-all",
    "LxmertModel-all",
    "FunnelForMaskedLM-all",
    "TransfoXLLMHeadModel-all",
    "FunnelBaseModel-base",
    "PerceiverForMaskedLM-all",
    "PerceiverForSequenceClassification-all",
    "PerceiverForImageClassificationLearned-pixels",
    "PerceiverForOpticalFlow-pixels",
    "ReformerModel-all",
    "ReformerModelWithLMHead-all",
    "XLMWithLMHeadModel-all",
    "T5ForConditionalGeneration-all",
    "BartForConditionalGeneration-all",
    "ProphetNetForConditionalGeneration-all",
    "EncoderDecoderModel-roberta2gpt2",
    "VisionEncoderDecoderModel-vit2gpt2",
    "SpeechEncoderDecoderModel-wav2vec2-stable2bart",
    "CLIPModel-all",
    "ViTForImageClassification-all",
    "DetrForObjectDetection-learned-positions",
    "DetrForSegmentation-masks",
]
LAYOUTS = [
    "pipeline=2",
    "pipeline=3",
    "tensor=2,pipeline=2",
    "data=2",
    "tensor=2,data=2",
    "pipeline=2,data=2",
    "pipeline=4",
]


def ranks_of(layout):
    return int(numpy.prod([int(part.split("=")[1]) for part in layout.split(",")]))


def need_stages(case, layout):
    """A stage has at least one layer."""
    stages = max([int(part.split("=")[1]) for part in layout.split(",") if part.startswith("pipeline")], default=1)
    if stages > sum(stacks(case).values()):
        pytest.skip(f"{case.name} has too few layers for {layout}")


PASSES = [
    pytest.param(BY_NAME[name], layout, id=f"{name}-{layout}") for name, layout in itertools.product(FAMILIES, LAYOUTS)
]
ANSWERS = [
    pytest.param(BY_NAME[name], layout, id=f"{name}-{layout}")
    for name, layout in itertools.product(FAMILIES, LAYOUTS)
    if BY_NAME[name].generates
]


@pytest.mark.parametrize("case, layout", PASSES)
def test_hidden_states_and_outputs_equal_those_of_transformers(runner, case, layout):
    need_stages(case, layout)
    given = inputs.make(case, inputs.kinds(case)[0])
    found = runner.forward(
        fixtures.checkpoint(case), ranks_of(layout), given, sizes=layout, attentions=case.shows_attentions
    )
    compare.tensors(found, oracle.forward(case, given), places(case, given))


@pytest.mark.parametrize("case, layout", ANSWERS)
def test_greedy_tokens_of_batched_prompts_equal_those_of_transformers(runner, case, layout):
    need_stages(case, layout)
    folder, rows = fixtures.checkpoint(case), rows_of(case)
    together = runner.generate(folder, ranks_of(layout), rows, max_new_tokens=COUNT, do_sample=False, sizes=layout)
    for row, answer in zip(rows, together, strict=True):
        check_answer(runner, case, folder, ranks_of(layout), row, answer, sizes=layout)


@pytest.mark.parametrize("name", ["GPT2LMHeadModel-all", "BartForConditionalGeneration-all"])
@pytest.mark.parametrize(
    "options", [{"do_sample": True, "seed": 7, "num_return_sequences": 3}, {"num_beams": 3}], ids=["drawn", "beams"]
)
def test_sampled_tokens_and_beams_do_not_depend_on_the_layout(runner, name, options):
    case = BY_NAME[name]
    folder, rows = fixtures.checkpoint(case), rows_of(case)
    alone = runner.generate(folder, 1, rows, max_new_tokens=COUNT, **options)
    for layout in ("pipeline=2", "tensor=2,pipeline=2", "pipeline=2,data=2"):
        assert (
            runner.generate(folder, ranks_of(layout), rows, max_new_tokens=COUNT, sizes=layout, **options) == alone
        ), layout


@pytest.mark.parametrize("name", ["GPT2LMHeadModel-all", "T5ForConditionalGeneration-all"])
def test_micro_batches_on_their_own_are_the_rows_of_the_whole(runner, name):
    case = BY_NAME[name]
    given = inputs.make(case, inputs.kinds(case)[0])
    whole = runner.forward(fixtures.checkpoint(case), 2, given, sizes="pipeline=2")
    parts = runner.forward(fixtures.checkpoint(case), 2, given, sizes="pipeline=2", by_micro_batch=True)
    assert len({part.split(".")[1] for part in parts}) > 1
    for output, values in whole.items():
        pieces = [
            parts[f"micro_batches.{i}.{output}"]
            for i in range(
                sum(part.endswith("." + output) and part.count(".") == output.count(".") + 2 for part in parts)
            )
        ]
        numpy.testing.assert_allclose(numpy.concatenate(pieces), values, atol=1e-5)


def test_ranks_as_processes_give_the_same_results(tmp_path):
    """Covers shared memory, point-to-point transfers and results between real processes."""
    case = BY_NAME["T5ForConditionalGeneration-all"]
    given = inputs.make(case, inputs.kinds(case)[0])
    save_file(given, tmp_path / "in.safetensors")
    for layout in ("tensor=2,pipeline=2", "pipeline=2,data=2"):
        run = worker.run(
            "forward",
            "--model",
            fixtures.checkpoint(case),
            "--ranks",
            ranks_of(layout),
            "--sizes",
            layout,
            "--processes",
            "--inputs",
            tmp_path / "in.safetensors",
            "--outputs",
            tmp_path / "out.safetensors",
            "--hidden-states",
            "--attentions",
        )
        assert run.returncode == 0, run.stderr
        compare.tensors(load_file(tmp_path / "out.safetensors"), oracle.forward(case, given), places(case, given))


@pytest.mark.parametrize(
    "name",
    [
        "GPT2LMHeadModel-all",
        "T5ForConditionalGeneration-all",
        "AlbertForMaskedLM-all",
        "IBertForMaskedLM-quantized",
    ],
)
@pytest.mark.parametrize("layout", ["pipeline=2", "tensor=2,pipeline=2", "data=2"])
def test_ranks_hold_what_their_plan_says(tmp_path, name, layout):
    case = BY_NAME[name]
    shutil.copytree(fixtures.checkpoint(case), tmp_path / "model")
    with contextlib.closing(Server(tmp_path / "model", ranks_of(layout), layout)) as server:
        plan, memory = server.get("/plan").json(), server.get("/memory").json()
    assert len(plan["ranks"]) == len(memory["ranks"]) == ranks_of(layout)
    aligned = 64 * len(load_file(fixtures.checkpoint(case) / "model.safetensors"))  # each tensor
    for planned, held in zip(plan["ranks"], memory["ranks"]):
        assert held["measured"]["kv"] == planned["predicted"]["kv"]
        assert 0 <= held["measured"]["weights"] - planned["predicted"]["weights"] <= aligned
    stages = {rank["stage"]: {one["stack"]: one["range"] for one in rank["layers"]} for rank in plan["ranks"]}
    for stack in stages[0]:
        ranges = [layers[stack] for _, layers in sorted(stages.items())]
        assert ranges[0][0] == 0 and all(a[1] == b[0] for a, b in zip(ranges, ranges[1:]))
