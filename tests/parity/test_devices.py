"""On a device of its own memory the model says what it says on the processor.

`pretend_worker` is the worker with a device whose addresses fault when the host touches them and whose operations refuse tensors of several devices
(tests/pretend). What is right there moves every tensor to where it belongs, as a GPU wants it; two pretended devices show that ranks keep to their own.
"""
import contextlib
import subprocess

import pytest

import cases
import compare
import fixtures
import inputs
import oracle
import worker
from conftest import Asked
from test_forward import places
from test_generate import COUNT, judge, rows_of
from test_strategies import ranks_of

PRETEND = worker.TOOLS / "pretend_worker"
# of each topology and each input and head of its own: the first case of every model class that is not just another head on the same stack
CLASSES = ["GPT2LMHeadModel", "LlamaForCausalLM", "FalconForCausalLM", "BloomForCausalLM", "GPTNeoForCausalLM", "T5ForConditionalGeneration", "BartForConditionalGeneration", "BertForMaskedLM",
           "AlbertForMaskedLM", "TapasForQuestionAnswering", "LayoutLMForTokenClassification", "XLMForQuestionAnswering", "VisualBertForRegionToPhraseAlignment", "CLIPModel",
           "ViTForImageClassification", "DeiTForImageClassificationWithTeacher", "MBartForConditionalGeneration", "DPRQuestionEncoder"]
CASES = [next(case for case in cases.CASES if case.model_class == name) for name in CLASSES]
LAYOUTS = ["tensor=1", "tensor=2", "pipeline=2", "data=2"]


@pytest.fixture(scope="module")
def pretended(tmp_path_factory):
    batch = worker.Batch(PRETEND, "--device", "pretend")
    with contextlib.closing(batch):
        yield Asked(batch, tmp_path_factory.mktemp("tensors"))


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """As pretended, with the CUDA kernels in place of ATen's operations, under their emulation (tests/cuda)."""
    batch = worker.Batch(PRETEND, "--device", "pretend", PM_PRETEND_KERNELS="1")
    with contextlib.closing(batch):
        yield Asked(batch, tmp_path_factory.mktemp("tensors"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hidden_states_and_outputs_equal_those_of_transformers(pretended, case, layout):
    for kind in inputs.kinds(case):
        given = inputs.make(case, kind)
        compare.tensors(pretended.forward(fixtures.checkpoint(case), ranks_of(layout), given, sizes=layout), oracle.forward(case, given), places(case, given))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", [case for case in CASES if case.generates], ids=lambda case: case.name)
def test_greedy_tokens_equal_those_of_transformers(pretended, asked, case, layout):
    folder, rows = fixtures.checkpoint(case), rows_of(case)
    together = pretended.generate(folder, ranks_of(layout), rows, max_new_tokens=COUNT, do_sample=False, sizes=layout)
    for row, answer in zip(rows, together, strict=True):
        judge(asked, case, folder, ranks_of(layout), row, answer, sizes=layout)


# between them: both norms, gated and plain activations, rotary angles, ALiBi, T5's buckets, windows, heads that share keys, a cross-attention
KERNELS = [case for case in CASES if case.model_class in ("GPT2LMHeadModel", "LlamaForCausalLM", "BloomForCausalLM", "GPTNeoForCausalLM", "T5ForConditionalGeneration")]


@pytest.mark.parametrize("case", KERNELS, ids=lambda case: case.name)
def test_the_cuda_kernels_say_what_transformers_says(emulated, case):
    given = inputs.make(case, inputs.kinds(case)[0])
    expected = {name: values for name, values in oracle.forward(case, given).items() if "attentions" not in name}
    compare.tensors(emulated.forward(fixtures.checkpoint(case), 1, given, attentions=False), expected, places(case, given))


@pytest.mark.parametrize("case, ranks", [(case, 1) for case in KERNELS] + [(KERNELS[1], 2)], ids=lambda value: getattr(value, "name", value))
def test_the_cuda_kernels_decode_what_the_processor_decodes(emulated, asked, case, ranks):
    folder, rows = fixtures.checkpoint(case), rows_of(case)[:3]
    assert emulated.generate(folder, ranks, rows, max_new_tokens=6) == asked.generate(folder, ranks, rows, max_new_tokens=6)


@pytest.mark.parametrize("precision", ["BF16", "F16"])
def test_the_cuda_kernels_decode_in_16_bits_what_the_processor_decodes(emulated, asked, precision):
    """Queries of prompts are rounded to the cache's type for tensor cores, so that tokens may part where two are nearly as likely; not within so few."""
    folder, rows = fixtures.checkpoint(KERNELS[1]), rows_of(KERNELS[1])[:3]
    assert emulated.generate(folder, 1, rows, max_new_tokens=2, precision=precision) == asked.generate(folder, 1, rows, max_new_tokens=2, precision=precision)


@pytest.mark.parametrize("precision", ["BF16", "F16"])
def test_drawn_tokens_and_beams_are_those_of_the_processor(pretended, asked, precision):
    case = next(case for case in CASES if case.name.startswith("LlamaForCausalLM"))
    folder, rows = fixtures.checkpoint(case), rows_of(case)
    for options in ({"do_sample": True, "seed": 7, "num_return_sequences": 3}, {"num_beams": 3}):
        assert pretended.generate(folder, 1, rows, max_new_tokens=COUNT, precision=precision, **options) == asked.generate(folder, 1, rows, max_new_tokens=COUNT, precision=precision, **options)


DRAWN = [{"do_sample": True, "seed": 7, "num_return_sequences": 3}, {"do_sample": True, "seed": 8, "temperature": 0.8, "top_k": 12, "top_p": 0.9, "min_p": 0.01},
         {"do_sample": True, "seed": 9, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 4, "bad_words_ids": [[5], [7, 9]]}, {"repetition_penalty": 1.5},
         {"do_sample": True, "seed": 10, "typical_p": 0.7}]


@pytest.mark.parametrize("layout", ["tensor=1", "tensor=2", "pipeline=2"])
@pytest.mark.parametrize("options", DRAWN, ids=lambda options: "-".join(options))
def test_the_devices_sampler_draws_what_the_processors_does(emulated, asked, options, layout):
    folder, rows = fixtures.checkpoint(KERNELS[1]), rows_of(KERNELS[1])[:2]
    assert emulated.generate(folder, ranks_of(layout), rows, max_new_tokens=5, sizes=layout, **options) == asked.generate(folder, ranks_of(layout), rows, max_new_tokens=5, sizes=layout, **options)


@pytest.mark.parametrize("case", [KERNELS[0], KERNELS[1], KERNELS[4]], ids=lambda case: case.name)
def test_the_cuda_kernels_decode_int8_as_the_processor_does(emulated, asked, case):
    folder, rows = fixtures.checkpoint(case), rows_of(case)[:3]
    assert emulated.generate(folder, 1, rows, max_new_tokens=4, precision="I8") == asked.generate(folder, 1, rows, max_new_tokens=4, precision="I8")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """As emulated, and decoding steps are recorded once for each size of batch and then played again on the same memory."""
    batch = worker.Batch(PRETEND, "--device", "pretend", PM_PRETEND_KERNELS="1", PM_PRETEND_GRAPHS="1")
    with contextlib.closing(batch):
        yield Asked(batch, tmp_path_factory.mktemp("tensors"))


@pytest.mark.parametrize("case", KERNELS[:4], ids=lambda case: case.name)
def test_recorded_steps_decode_what_the_processor_decodes(recorded, asked, case):
    """Three sequences, then two and one as they end; then others in the places of these, with other blocks."""
    folder, rows = fixtures.checkpoint(case), rows_of(case)
    for some, options in ((rows[:3], {}), (rows[2:4], {"do_sample": True, "seed": 3}), (rows[4:5], {})):
        assert recorded.generate(folder, 1, some, max_new_tokens=7, **options) == asked.generate(folder, 1, some, max_new_tokens=7, **options)


@pytest.mark.parametrize("layout", ["tensor=2", "pipeline=2", "data=2"])
def test_steps_that_cannot_be_recorded_are_not(recorded, asked, layout):
    folder, rows = fixtures.checkpoint(KERNELS[1]), rows_of(KERNELS[1])[:2]
    assert recorded.generate(folder, 2, rows, max_new_tokens=4, sizes=layout) == asked.generate(folder, 2, rows, max_new_tokens=4, sizes=layout)


@pytest.mark.parametrize("layout", ["tensor=2", "pipeline=2"])
def test_int8_weights_are_on_the_device(pretended, asked, layout):
    folder, rows = fixtures.checkpoint(CASES[0]), rows_of(CASES[0])
    assert pretended.generate(folder, 2, rows, max_new_tokens=COUNT, precision="I8", sizes=layout) == asked.generate(folder, 2, rows, max_new_tokens=COUNT, precision="I8", sizes=layout)


def test_strategies_that_gather_weights_are_refused_by_name(pretended):
    case = CASES[0]
    answer = pretended.batch.ask({"model": str(fixtures.checkpoint(case)), "ranks": 2, "strategy": "Sharded", "generate": {"input_ids": [[1, 2]], "max_new_tokens": 1}})
    assert answer["reason"] == "UnsupportedStrategy" and "CPU devices only" in answer["error"], answer


def test_ranks_as_processes_are_refused_before_anything_is_loaded():
    command = [PRETEND, "serve", "--model", fixtures.checkpoint(CASES[0]), "--device", "pretend", "--ranks", "2", "--port", "0"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and "UnsupportedDevice" in run.stderr and "within one process" in run.stderr, run.stderr


def test_a_device_that_the_worker_was_not_built_with_is_refused():
    run = worker.run("generate", "--model", fixtures.checkpoint(CASES[0]), "--device", "cuda", "--input-ids", "1,2")
    assert run.returncode != 0 and "NoDevice" in run.stderr and "built without it" in run.stderr, run.stderr
