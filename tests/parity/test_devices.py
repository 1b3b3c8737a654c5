# SPDX-License-Identifier: Apache-2.0
"""On a device with memory of its own a model gives the same results as on the CPU.

The device is a fake one here; tests/gpu has most of these tests for a GPU. `fake_device_worker` is the worker with a
device whose addresses fault when the host touches them and whose operations refuse tensors of several devices
(tests/gpu/fake_device). A test that passes there moves every tensor to the right device, as a GPU requires; two fake
devices show that ranks use only their own.
"""

import contextlib
import dataclasses
import functools
import json
import re

import cases
import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
from device_fixtures import FAKE_DEVICE
from safetensors.numpy import save_file
from test_forward import places
from test_generate import COUNT, check_answer, rows_of
from test_strategies import ranks_of

import worker

# one case of each kind of model, input and head of its own: the first case of every model class that is not just
# another head on the same stack. Models with convolutions cannot run here: the fake device has none
CLASSES = [
    "GPT2LMHeadModel",
    "LlamaForCausalLM",
    "FalconForCausalLM",
    "BloomForCausalLM",
    "GPTNeoForCausalLM",
    "T5ForConditionalGeneration",
    "BartForConditionalGeneration",
    "BertForMaskedLM",
    "AlbertForMaskedLM",
    "TapasForQuestionAnswering",
    "LayoutLMForTokenClassification",
    "XLMForQuestionAnswering",
    "VisualBertForRegionToPhraseAlignment",
    "CLIPModel",
    "ViTForImageClassification",
    "DeiTForImageClassificationWithTeacher",
    "MBartForConditionalGeneration",
    "DPRQuestionEncoder",
    "Qwen3ForCausalLM",
    "MobileBertForMaskedLM",
    "ConvBertForMaskedLM",
    "LukeForMaskedLM",
    "LukeForEntitySpanClassification",
    "XLNetLMHeadModel",
    "ProphetNetForConditionalGeneration",
    "ProphetNetForCausalLM",
    "FunnelForMaskedLM",
    "TransfoXLLMHeadModel",
    "Qwen2MoeForCausalLM",
    "GptOssForCausalLM",
    "DeepseekV3ForCausalLM",
]
CASES = [next(case for case in cases.CASES if case.model_class == name) for name in CLASSES] + [
    cases.BY_NAME["BertLMHeadModel-relative-key-query"],
    cases.BY_NAME["IBertForMaskedLM-quantized"],
]
LAYOUTS = ["tensor=1", "tensor=2", "tensor=3", "pipeline=2", "data=2"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hidden_states_and_outputs_equal_those_of_transformers(device, case, layout):
    for kind in inputs.kinds(case):
        given = inputs.make(case, kind)
        compare.tensors(
            device.forward(fixtures.checkpoint(case), ranks_of(layout), given, sizes=layout),
            oracle.forward(case, given),
            places(case, given),
        )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", [case for case in CASES if case.generates], ids=lambda case: case.name)
def test_greedy_tokens_equal_those_of_transformers(device, case, layout):
    folder, rows = fixtures.checkpoint(case), rows_of(case)
    together = device.generate(folder, ranks_of(layout), rows, max_new_tokens=COUNT, do_sample=False, sizes=layout)
    for row, answer in zip(rows, together, strict=True):
        check_answer(device, case, folder, ranks_of(layout), row, answer, sizes=layout)


# between them: both norms, gated and plain activations, rotary angles, norms of heads, ALiBi, T5's buckets, windows,
# heads that share keys, a cross-attention, sinks
KERNELS = [
    case
    for case in CASES
    if case.model_class
    in (
        "GPT2LMHeadModel",
        "LlamaForCausalLM",
        "BloomForCausalLM",
        "GPTNeoForCausalLM",
        "T5ForConditionalGeneration",
        "Qwen3ForCausalLM",
        "GptOssForCausalLM",
    )
]


@pytest.mark.parametrize("case", KERNELS, ids=lambda case: case.name)
def test_the_cuda_kernels_say_what_transformers_says(kernels, case):
    given = inputs.make(case, inputs.kinds(case)[0])
    expected = {name: values for name, values in oracle.forward(case, given).items() if "attentions" not in name}
    compare.tensors(
        kernels.forward(fixtures.checkpoint(case), 1, given, attentions=False), expected, places(case, given)
    )


@pytest.mark.parametrize(
    "case, ranks", [(case, 1) for case in KERNELS] + [(KERNELS[1], 2)], ids=lambda value: getattr(value, "name", value)
)
def test_the_cuda_kernels_decode_what_the_cpu_decodes(kernels, runner, case, ranks):
    folder, rows = fixtures.checkpoint(case), rows_of(case)[:3]
    assert kernels.generate(folder, ranks, rows, max_new_tokens=6) == runner.generate(
        folder, ranks, rows, max_new_tokens=6
    )


@pytest.mark.parametrize("precision", ["BF16", "F16"])
def test_the_cuda_kernels_decode_in_16_bits_what_the_cpu_decodes(kernels, runner, precision):
    """Queries of prompts are rounded to the cache's dtype for tensor cores, so tokens may differ after a near-tie,
    but not within the first few.
    """
    folder, rows = fixtures.checkpoint(KERNELS[1]), rows_of(KERNELS[1])[:3]
    assert kernels.generate(folder, 1, rows, max_new_tokens=2, precision=precision) == runner.generate(
        folder, 1, rows, max_new_tokens=2, precision=precision
    )


def with_heads_of_eight(model_class, **sizes):
    """The first case of a class with heads of eight numbers, which tensor cores and FlashAttention take."""
    case = next(case for case in cases.CASES if case.model_class == model_class)
    return dataclasses.replace(
        case, name=f"{case.name}-heads-of-eight", config=json.dumps({**json.loads(case.config), **sizes})
    )


# an encoder, prompts, windows, sources of another length; ALiBi and buckets of distances, which only our kernel has
HEADS_OF_EIGHT = [
    with_heads_of_eight("BertForMaskedLM", hidden_size=40),
    with_heads_of_eight("LlamaForCausalLM"),
    with_heads_of_eight("GPTNeoForCausalLM", hidden_size=40),
    with_heads_of_eight("BartForConditionalGeneration", d_model=48, encoder_attention_heads=6),
    with_heads_of_eight("BloomForCausalLM", hidden_size=56),
    with_heads_of_eight("T5ForConditionalGeneration", d_kv=8),
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("case", HEADS_OF_EIGHT, ids=lambda case: case.name)
def test_the_error_of_attention_in_16_bits_is_within_that_of_transformers(kernels, case, dtype):
    case = dataclasses.replace(case, name=f"{case.name}-{dtype}", dtype=dtype)
    given = inputs.make(case, inputs.kinds(case)[0])
    exact = oracle.forward(case, given)
    # of a few values the largest error is luck
    names = [name for name, tensor in exact.items() if "attentions." not in name and tensor.size > 1000]
    got = kernels.forward(fixtures.checkpoint(case), 1, given, attentions=False)
    compare.sixteen_bit(got, oracle.forward(case, given, dtype), exact, names, places(case, given))


@pytest.mark.parametrize("precision", ["BF16", "F16"])
def test_prompts_in_16_bits_decode_what_the_cpu_decodes_from_every_kernel(kernels, runner, precision):
    """The first token of each row follows from its prompt."""
    for case in HEADS_OF_EIGHT:
        if case.generates:
            folder, rows = fixtures.checkpoint(case), rows_of(case)[:3]
            assert kernels.generate(folder, 1, rows, max_new_tokens=1, precision=precision) == runner.generate(
                folder, 1, rows, max_new_tokens=1, precision=precision
            ), case.name


def test_sampled_tokens_and_beams_are_those_of_the_cpu(device, runner):
    """In F16: in BF16 both round, and not at the same places, so that a draw between two tokens may differ."""
    precision = "F16"
    case = next(case for case in CASES if case.name.startswith("LlamaForCausalLM"))
    folder, rows = fixtures.checkpoint(case), rows_of(case)
    for options in ({"do_sample": True, "seed": 7, "num_return_sequences": 3}, {"num_beams": 3}):
        assert device.generate(
            folder, 1, rows, max_new_tokens=COUNT, precision=precision, **options
        ) == runner.generate(folder, 1, rows, max_new_tokens=COUNT, precision=precision, **options)


DRAWN = [
    {"do_sample": True, "seed": 7, "num_return_sequences": 3},
    {"do_sample": True, "seed": 8, "temperature": 0.8, "top_k": 12, "top_p": 0.9, "min_p": 0.01},
    {
        "do_sample": True,
        "seed": 9,
        "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 2,
        "min_new_tokens": 4,
        "bad_words_ids": [[5], [7, 9]],
    },
    {"repetition_penalty": 1.5},
    {"do_sample": True, "seed": 10, "typical_p": 0.7},
]


@pytest.mark.parametrize("layout", ["tensor=1", "tensor=2", "pipeline=2"])
@pytest.mark.parametrize("options", DRAWN, ids=lambda options: "-".join(options))
def test_the_devices_sampler_draws_what_the_processors_does(kernels, runner, options, layout):
    folder, rows = fixtures.checkpoint(KERNELS[1]), rows_of(KERNELS[1])[:2]
    assert kernels.generate(
        folder, ranks_of(layout), rows, max_new_tokens=5, sizes=layout, **options
    ) == runner.generate(folder, ranks_of(layout), rows, max_new_tokens=5, sizes=layout, **options)


@pytest.mark.parametrize("case", [KERNELS[0], KERNELS[1], KERNELS[4]], ids=lambda case: case.name)
def test_the_cuda_kernels_decode_int8_as_the_processor_does(kernels, runner, case):
    folder, rows = fixtures.checkpoint(case), rows_of(case)[:3]
    assert kernels.generate(folder, 1, rows, max_new_tokens=4, precision="I8") == runner.generate(
        folder, 1, rows, max_new_tokens=4, precision="I8"
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_cuda_kernels_decode_int8_of_a_16_bit_checkpoint_as_the_processor_does(kernels, runner, dtype):
    """Weights and activations are rounded to the checkpoint's dtype for tensor cores, so tokens may differ after a
    near-tie, but not within the first few.
    """
    case = dataclasses.replace(KERNELS[1], name=f"{KERNELS[1].name}-{dtype}", dtype=dtype)
    folder, rows = fixtures.checkpoint(case), rows_of(case)[:3]
    assert kernels.generate(folder, 1, rows, max_new_tokens=2, precision="I8") == runner.generate(
        folder, 1, rows, max_new_tokens=2, precision="I8"
    )


@pytest.mark.parametrize("strategy, to, ranks", [("Sharded", "", 2), ("Offload", "File", 1)])
def test_the_cuda_kernels_multiply_gathered_int8_with_its_scales_behind_each_row(kernels, runner, strategy, to, ranks):
    folder, rows = fixtures.checkpoint(KERNELS[1]), rows_of(KERNELS[1])[:2]
    assert kernels.generate(
        folder, ranks, rows, max_new_tokens=3, precision="I8", **gathered(strategy, to, ranks)
    ) == runner.generate(folder, 1, rows, max_new_tokens=3, precision="I8")


def decoded(runner, case, **options):
    """Three sequences, then two and one as they end; then others in the places of these, with other blocks."""
    folder, rows = fixtures.checkpoint(case), rows_of(case)
    return [
        runner.generate(folder, 1, some, max_new_tokens=7, **options, **more)
        for some, more in ((rows[:3], {}), (rows[2:4], {"do_sample": True, "seed": 3}), (rows[4:5], {}))
    ]


@pytest.mark.parametrize("case", [*KERNELS[1:3], KERNELS[5]], ids=lambda case: case.name)
def test_replayed_cuda_graphs_decode_what_the_cpu_decodes(captured, runner, case):
    assert decoded(captured, case) == decoded(runner, case)


@pytest.mark.parametrize("layout", ["tensor=2", "pipeline=2", "data=2"])
def test_steps_that_cannot_be_captured_are_not(captured, runner, layout):
    folder, rows = fixtures.checkpoint(KERNELS[1]), rows_of(KERNELS[1])[:2]
    assert captured.generate(folder, 2, rows, max_new_tokens=4, sizes=layout) == runner.generate(
        folder, 2, rows, max_new_tokens=4, sizes=layout
    )


@pytest.mark.parametrize("layout", ["tensor=2", "pipeline=2"])
def test_int8_weights_are_on_the_device(device, runner, layout):
    folder, rows = fixtures.checkpoint(CASES[0]), rows_of(CASES[0])
    assert device.generate(folder, 2, rows, max_new_tokens=COUNT, precision="I8", sizes=layout) == runner.generate(
        folder, 2, rows, max_new_tokens=COUNT, precision="I8", sizes=layout
    )


# fully sharded weights, gathered in each forward pass: from all ranks, from the host's pinned memory, from files;
# copies of the device's second stream come as late as they can
GATHERED = [
    ("Sharded", "", 1),
    ("Sharded", "", 2),
    ("Sharded", "", 3),
    ("Offload", "HostMemory", 1),
    ("Offload", "HostMemory", 3),
    ("Offload", "File", 1),
    ("Offload", "File", 2),
]


FEWER = [("Sharded", "", 3), ("Offload", "HostMemory", 1), ("Offload", "File", 2)]  # each way once
GATHERED_CASES = [
    pytest.param(case, *layout, id="-".join(map(str, (case.name, *layout))))
    for case in CASES
    for layout in (GATHERED if case in KERNELS else FEWER)
]


def gathered(strategy, to, ranks):
    return {"strategy": strategy, "offload_to": to, "sizes": f"data={ranks}"}


@pytest.mark.parametrize("case, strategy, to, ranks", GATHERED_CASES)
def test_gathered_weights_say_what_transformers_says(device, case, strategy, to, ranks):
    given, layout = inputs.make(case, inputs.kinds(case)[0]), gathered(strategy, to, ranks)
    compare.tensors(
        device.forward(fixtures.checkpoint(case), ranks, given, **layout),
        oracle.forward(case, given),
        places(case, given),
    )
    if case.generates:
        folder, rows = fixtures.checkpoint(case), rows_of(case)
        together = device.generate(folder, ranks, rows, max_new_tokens=COUNT, do_sample=False, **layout)
        for row, answer in zip(rows, together, strict=True):
            check_answer(device, case, folder, ranks, row, answer, **layout)


@pytest.mark.parametrize("strategy, to, ranks", GATHERED)
@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.name)
def test_gathered_int8_is_what_it_is_on_the_processor(device, runner, case, strategy, to, ranks):
    folder, rows, layout = fixtures.checkpoint(case), rows_of(case), gathered(strategy, to, ranks)
    assert device.generate(folder, ranks, rows, max_new_tokens=COUNT, precision="I8", **layout) == runner.generate(
        folder, 1, rows, max_new_tokens=COUNT, precision="I8"
    )


def test_a_device_has_room_for_what_is_offloaded_to_the_host_where_the_whole_does_not_fit(tmp_path):
    """The host holds the 26 MiB of weights; a device of 1100 MiB, of which the runtime takes 1024, holds two gather
    buffers of a layer.
    """
    folder = wide(tmp_path / "model")
    run = functools.partial(
        FAKE_DEVICE.run,
        "generate",
        "--model",
        folder,
        "--input-ids",
        "5,6,7,8",
        "--max-new-tokens",
        "4",
        "--max-concurrency",
        "1",
        "--json",
    )
    whole = run()
    assert whole.returncode == 0, whole.stderr
    small = {"PM_FAKE_MEMORY": "1066", "PM_FAKE_OTHERS": "0"}
    refused = run("--strategy", "Tensor", **small)
    assert (
        refused.returncode == 4
        and "DoesNotFit" in refused.stderr
        and "1.0 GiB per device (free of 1.0 GiB of fake:0)" in refused.stderr
    ), refused.stderr
    for to in ("HostMemory", "File"):
        offloaded = run("--strategy", "Offload", "--offload-to", to, **small)
        assert offloaded.returncode == 0, offloaded.stderr
        assert offloaded.stdout == whole.stdout


def test_a_device_without_memory_for_the_weights_says_what_holds_it(tmp_path):
    """A plan that counts with more than there is, as when another program came between."""
    folder = wide(tmp_path / "model")
    run = FAKE_DEVICE.run(
        "generate",
        "--model",
        folder,
        "--device-memory",
        "4Gi",
        "--input-ids",
        "5,6",
        "--max-concurrency",
        "1",
        PM_FAKE_MEMORY="260",
        PM_FAKE_OTHERS="240",
    )
    assert run.returncode == 4, run.stderr
    for words in (
        "OOMKilled: fake:0 has no memory for ",
        "while rank 0 was loaded",
        "240.0 MiB are held by contexts",
        "are in this process's tensors",
        "--strategy Offload",
    ):
        assert words in run.stderr, (words, run.stderr)


def wide(folder, vocabulary=512, positions=256, seed=3):
    """A Llama of four layers of 6 MiB, 26 MiB in all with the smallest vocabulary."""
    random, tensors = numpy.random.default_rng(seed), {"model.norm.weight": numpy.ones(256, numpy.float32)}
    matrix = lambda out, width: random.standard_normal((out, width), dtype=numpy.float32) * (2 / width**0.5)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = matrix(vocabulary, 256)
    for layer in range(4):
        at = f"model.layers.{layer}."
        tensors |= {f"{at}self_attn.{name}_proj.weight": matrix(256, 256) for name in "qkvo"}
        tensors |= {f"{at}mlp.{name}_proj.weight": matrix(1792, 256) for name in ("gate", "up")} | {
            f"{at}mlp.down_proj.weight": matrix(256, 1792)
        }
        tensors |= {
            f"{at}{name}.weight": numpy.ones(256, numpy.float32)
            for name in ("input_layernorm", "post_attention_layernorm")
        }
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_size": 256,
                "intermediate_size": 1792,
                "num_hidden_layers": 4,
                "num_attention_heads": 8,
                "num_key_value_heads": 8,
                "vocab_size": vocabulary,
                "max_position_embeddings": positions,
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


MIB = 1 << 20


def test_a_server_makes_as_many_kv_blocks_as_its_largest_step_leaves_room_for(tmp_path):
    folder = wide(tmp_path / "model")
    with contextlib.closing(
        FAKE_DEVICE.server(folder, "tensor=1", "--max-concurrency", "64", PM_FAKE_MEMORY="1124", PM_FAKE_OTHERS="16")
    ) as server:
        answer = server.ask(
            "/generate", {"input_ids": list(range(3, 203)), "max_new_tokens": 8, "return_token_ids": True}
        )
        assert len(answer["sequence"]) == 208
        rank, plan, metrics = (
            server.get("/memory").json()["ranks"][0],
            server.get("/plan").json(),
            server.get("/metrics").text,
        )
    device, measured, predicted = rank["device"], rank["measured"], rank["predicted"]
    print(
        "\nMiB:",
        {
            name: {kind: round(bytes / MIB, 1) for kind, bytes in figures.items()}
            for name, figures in rank.items()
            if isinstance(figures, dict)
        },
    )
    assert device["total"] == 1124 * MIB and device["free"] + device["allocated"] == 1108 * MIB, (
        "the device's own figures"
    )
    assert plan["deviceMemory"] == 1108 * MIB and plan["memorySource"] == "free of 1.1 GiB of fake:0"
    assert 0 <= measured["weights"] - predicted["weights"] < MIB
    assert 0 < measured["activations"] < predicted["activations"], "the planner's formula is an upper bound"
    block = 2 * 4 * 16 * 256 * 4
    assert measured["kv"] > predicted["kv"], "the bound's slack is used"
    left = (
        1108 * MIB
        - predicted["runtime"]
        - predicted["communicator"]
        - measured["weights"]
        - measured["kv"]
        - measured["activations"]
    )
    assert 0 <= left < block + MIB, "nothing is left over, and the largest step has room"
    for kind, bytes in device.items():
        assert f'parallelmodel_rank_device_memory_bytes{{rank="0",kind="{kind}"}}' in metrics
    assert f"parallelmodel_kv_cache_blocks {measured['kv'] // block}" in metrics


def test_the_plan_counts_the_tile_into_which_the_cuda_kernels_widen_int8(tmp_path):
    folder = wide(tmp_path / "model")
    with contextlib.closing(
        FAKE_DEVICE.server(
            folder, "tensor=1", "--precision", "I8", "--max-concurrency", "4", kernels=True, patience=300
        )
    ) as server:
        rank = server.get("/memory").json()["ranks"][0]
    measured, predicted = rank["measured"], rank["predicted"]
    assert 2 * 1792 * 256 * 4 < measured["activations"] < predicted["activations"], "gate and up in F32, and the step"
    assert 0 <= measured["weights"] - predicted["weights"] < MIB


def test_a_prompt_enters_a_gpu_in_chunks_of_2048_tokens(tmp_path):
    folder = wide(tmp_path / "model", positions=4096)
    with contextlib.closing(FAKE_DEVICE.server(folder, "tensor=1", "--max-concurrency", "4")) as server:
        assert server.get("/plan").json()["stepTokens"] == 2048
        server.ask("/generate", {"input_ids": [3 + i % 500 for i in range(2500)], "max_new_tokens": 1})
        counts = dict(
            re.findall(
                r'^parallelmodel_engine_step_tokens_bucket{.*?le="([^"]+)".*?} (\d+)', server.get("/metrics").text, re.M
            )
        )
    assert int(counts["+Inf"]) - int(counts["1024"]) == 1, "2,048 tokens, then the other 452"


@pytest.mark.parametrize("sizes", ["tensor=1", "tensor=2"])
def test_scores_of_a_whole_forward_pass_leave_the_device_in_pieces(device, runner, tmp_path, sizes):
    """Scores of 40,000 tokens and 250 positions take 38 MiB; at most 16 MiB of them exist at once."""
    folder, given = wide(tmp_path / "model", 40_000, seed=5), {"input_ids": numpy.arange(3, 253)[None]}
    outputs = device.forward(folder, ranks_of(sizes), given, sizes=sizes)
    assert outputs["logits"].shape == (1, 250, 40_000)
    compare.tensors(outputs, runner.forward(folder, ranks_of(sizes), given, sizes=sizes))
    with contextlib.closing(FAKE_DEVICE.server(folder, sizes, "--max-concurrency", "4")) as server:
        measured = [rank["measured"]["activations"] for rank in server.get("/memory").json()["ranks"]]
    print("\nMiB of the largest step, each rank:", [round(bytes / MIB, 1) for bytes in measured])
    assert 0 < measured[0] < 250 * 40_000 * 4


@pytest.mark.parametrize("ranks, most", [(2, 2540), (8, 690)])
def test_a_full_size_model_is_loaded_to_a_device_with_little_beside_it_there_and_on_the_host(ranks, most):
    """GPT-Neo-2.7B in fp16, from a sparse file."""
    from test_load import load  # transformers

    row = next(
        load.rows(str(FAKE_DEVICE.binary), [ranks], 1 << 40, every_rank=False, names=["GPT-Neo-2.7B"], device="fake")
    )
    print(
        "\nMiB:", {name: round(value / MIB, 1) for name, value in row.items() if isinstance(value, int) and value > MIB}
    )
    assert row["planned"] <= row["weights"] <= row["planned"] + MIB and row["weights"] <= most * MIB
    assert row["peak"] <= row["weights"] + 64 * MIB
    assert row["hostPeak"] <= row["weights"] + 96 * MIB, (
        "the fake device's memory is the host's; the ring, code and headers"
    )


OFFLOAD = ("--strategy", "Offload", "--offload-to", "HostMemory")


@pytest.mark.parametrize("sizes, options", [("tensor=1", ()), ("data=1", OFFLOAD)], ids=["Tensor", "Offload"])
def test_a_pass_that_is_too_large_for_the_device_ends_alone(tmp_path, sizes, options):
    folder, memory = wide(tmp_path / "model"), {"PM_FAKE_MEMORY": "1124", "PM_FAKE_OTHERS": "16"}
    with contextlib.closing(FAKE_DEVICE.server(folder, sizes, "--max-concurrency", "64", *options, **memory)) as server:
        rows = [[3] * 250 for _ in range(4)]  # the KV blocks leave room for a step, not for what it hands out beside
        error = server.refused(
            "/forward", {"inputs": {"input_ids": rows}, "hidden_states": True, "attentions": True}, 413
        )
        assert error["code"] == "out_of_memory" and "KV blocks" in error["message"], error
        assert (
            len(
                server.ask("/generate", {"input_ids": [5, 6, 7], "max_new_tokens": 4, "return_token_ids": True})[
                    "sequence"
                ]
            )
            == 7
        )
        assert server.process.poll() is None


def test_more_ranks_as_processes_than_devices_are_refused_before_anything_is_loaded(hardware):
    ranks = hardware.devices + 1
    run = hardware.run(
        "serve", "--model", fixtures.checkpoint(CASES[0]), "--ranks", ranks, "--strategy", "Data", "--port", "0"
    )
    words = f"{ranks} ranks as processes need one device each, and this host has {hardware.devices}"
    assert run.returncode == 2 and "InsufficientDevices" in run.stderr and words in run.stderr, run.stderr


def test_a_device_that_the_worker_was_not_built_with_is_refused():
    run = worker.run("generate", "--model", fixtures.checkpoint(CASES[0]), "--device", "cuda", "--input-ids", "1,2")
    assert run.returncode != 0 and "NoDevice" in run.stderr and "built without it" in run.stderr, run.stderr
