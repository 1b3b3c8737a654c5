# SPDX-License-Identifier: Apache-2.0
"""Quantised checkpoints as they are stored: the worker's dense weights are bit for bit those of transformers, or of
the format's definition, and a model answers as one with these weights does, whatever its parallelism.
"""

import functools
import json
import re

import numpy
import pytest
import stored_formats as formats
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_checkpoints import dumped
from transformers.quantizers import quantizer_finegrained_fp8

transformers.logging.set_verbosity_error()

SIZES = dict(
    hidden_size=128,
    intermediate_size=192,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    vocab_size=101,
    max_position_embeddings=64,
    tie_word_embeddings=False,
)
MODELS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64
    ),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(
        **{**SIZES, "num_key_value_heads": 4, "head_dim": None},
        q_lora_rank=96,
        kv_lora_rank=160,
        qk_nope_head_dim=24,
        qk_rope_head_dim=32,
        v_head_dim=40,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=64,
        first_k_dense_replace=1,
        num_mtp_layers=0,
    ),
    "gpt_oss": lambda: transformers.GptOssConfig(
        **{**SIZES, "intermediate_size": 96}, num_local_experts=4, num_experts_per_tok=2, sliding_window=8
    ),
}


def fresh(kind):
    return transformers.AutoModelForCausalLM.from_config(MODELS[kind](), dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """One checkpoint in BF16 of each model."""

    @functools.cache
    def make(kind):
        torch.manual_seed(1)
        model, folder = fresh(kind), tmp_path_factory.mktemp(kind)
        for parameter in model.parameters():
            fan_in = parameter.shape[-1] if parameter.dim() > 1 else 0
            normal = torch.randn(parameter.shape)
            parameter.data.copy_(2 * normal / fan_in**0.5 if fan_in else 1 + 0.2 * normal)
        model.save_pretrained(folder)
        return folder

    return make


def oracle_weights(kind, folder, config, target):
    """Saves the weights that transformers dequantises, as a dense checkpoint."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, quantization_config=config)
    dense = fresh(kind)
    dense.load_state_dict(model.state_dict())
    assert all(parameter.dtype == torch.bfloat16 for parameter in model.parameters())
    dense.save_pretrained(target)
    return target


def formula_weights(source, values, target):
    """Saves the values of the format's definition, in the model's type, as a dense checkpoint."""
    target.mkdir()
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    stored = load_file(source / "model.safetensors")
    assert set(values) <= set(stored)
    save_file(stored | {n: w.to(stored[n].dtype).contiguous() for n, w in values.items()}, target / "model.safetensors")
    return target


def assert_equal_weights(folder, dense):
    ours, theirs = dumped(folder), load_file(dense / "model.safetensors")
    assert not isinstance(ours, str), ours
    assert set(ours) == set(theirs)
    for name, wanted in theirs.items():
        row, found = ours[name]
        bits = {2: torch.int16, 4: torch.int32}[wanted.element_size()]  # a bias of a router's choice is F32
        assert row["dtype"] == ("BF16" if wanted.dtype == torch.bfloat16 else "F32"), name
        assert found.shape == wanted.shape, name
        # without the sign of zeros, in which bitsandbytes' kernels for different CPUs differ
        assert torch.equal((found + 0).view(bits), (wanted + 0).view(bits)), name


INT4 = dict(num_bits=4, type="int", symmetric=True, strategy="group", group_size=32)
FP8 = dict(num_bits=8, type="float", symmetric=True, strategy="channel")
COMPRESSED = {
    "int4-group": (INT4, "pack-quantized"),
    "int4-asymmetric": (INT4 | {"symmetric": False}, "pack-quantized"),
    "int4-channel": ({**INT4, "strategy": "channel", "group_size": None}, "pack-quantized"),
    "int8-group": (INT4 | {"num_bits": 8}, "pack-quantized"),
    "int8-channel-asymmetric": (
        {**INT4, "num_bits": 8, "strategy": "channel", "group_size": None, "symmetric": False},
        "pack-quantized",
    ),
    "int3-group": (INT4 | {"num_bits": 3}, "pack-quantized"),
    "int5-asymmetric": (INT4 | {"num_bits": 5, "symmetric": False}, "pack-quantized"),
    "fp8-channel": (FP8, "float-quantized"),
    "fp8-tensor": (FP8 | {"strategy": "tensor"}, "float-quantized"),
    "fp8-block": (FP8 | {"strategy": "block", "block_structure": [64, 128]}, "float-quantized"),
    "fp8-group": (FP8 | {"strategy": "group", "group_size": 32}, "float-quantized"),
    "int8-bytes": ({**INT4, "num_bits": 8, "strategy": "channel", "group_size": None}, "int-quantized"),
    "int8-bytes-asymmetric": (
        {**INT4, "num_bits": 8, "strategy": "channel", "group_size": None, "symmetric": False},
        "int-quantized",
    ),
    "nvfp4": (
        dict(num_bits=4, type="float", symmetric=True, strategy="tensor_group", group_size=16),
        "nvfp4-pack-quantized",
    ),
}


def write_compressed(name):
    def make(source, target):
        return formats.write(source, target, *formats.compressed(*COMPRESSED[name]))

    return make, lambda: transformers.CompressedTensorsConfig(dequantize=True)


def write_fp8(block, **options):
    def make(source, target):
        return formats.write(source, target, formats.fp8_blocks(block, **options), formats.fp8_config(block))

    return make, lambda: transformers.FineGrainedFP8Config(dequantize=True)


def write_mxfp4():
    def make(source, target):
        config = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
        return formats.write(source, target, formats.mxfp4, config, chosen=r"experts\.(gate_up|down)_proj$")

    return make, lambda: transformers.Mxfp4Config(dequantize=True)


BY_TRANSFORMERS = {
    "fp8-block": ("llama", *write_fp8((32, 64))),
    "fp8-bf16-scales": ("qwen3", *write_fp8((64, 32), scale_type=torch.bfloat16)),
    "fp8-tensor": ("llama", *write_fp8(None)),
    "fp8-exponents": ("llama", *write_fp8((32, 64), scale_type=torch.float8_e8m0fnu)),
    "fp8-exponent-bytes": ("llama", *write_fp8((32, 64), scale_type="u8")),
    "fp8-experts": ("qwen3_moe", *write_fp8((32, 64))),
    "fp8-latents": ("deepseek_v3", *write_fp8((32, 32))),
    "mxfp4": ("gpt_oss", *write_mxfp4()),
    **{f"compressed-{name}": ("llama", *write_compressed(name)) for name in COMPRESSED},
    "compressed-experts": ("qwen3_moe", *write_compressed("int4-group")),
}


def by_formula(make_format):
    def make(source, target, values):
        quantise, config = make_format(values)
        return formats.write(source, target, quantise, config)

    return make


BY_FORMULA = {
    "gptq": by_formula(lambda values: formats.gptq(values=values)),
    "gptq-symmetric": by_formula(lambda values: formats.gptq(symmetric=True, values=values)),
    "gptq-v2": by_formula(lambda values: formats.gptq(version="gptq_v2", values=values)),
    "gptq-act-order": by_formula(lambda values: formats.gptq(act_order=True, values=values)),
    "gptq-one-group": by_formula(lambda values: formats.gptq(group=-1, values=values)),
    "gptq-8": by_formula(lambda values: formats.gptq(bits=8, values=values)),
    "gptq-3": by_formula(lambda values: formats.gptq(bits=3, values=values)),
    "gptq-2": by_formula(lambda values: formats.gptq(bits=2, values=values)),
    "awq": by_formula(lambda values: formats.awq(values=values)),
    "modelopt-nvfp4": by_formula(lambda values: formats.modelopt_nvfp4(values=values)),
    "nf4": by_formula(formats.bitsandbytes4),
    "nf4-plain-scales": by_formula(lambda values: formats.bitsandbytes4(values, nested=False)),
    "nf4-small-blocks": by_formula(lambda values: formats.bitsandbytes4(values, block=32)),
    "fp4": by_formula(lambda values: formats.bitsandbytes4(values, kind="fp4")),
    "llm-int8": by_formula(formats.bitsandbytes8),
}


@pytest.fixture(scope="module")
def pair(sources, tmp_path_factory):
    """The quantised checkpoint of a name and its dense twin, made once."""
    without_accelerate = quantizer_finegrained_fp8.is_accelerate_available
    quantizer_finegrained_fp8.is_accelerate_available = lambda: True  # a dense model needs nothing of it

    @functools.cache
    def make(name):
        folder = tmp_path_factory.mktemp(name)
        if name in BY_FORMULA:
            values = {}
            BY_FORMULA[name](sources("llama"), folder / "stored", values)
            return folder / "stored", formula_weights(sources("llama"), values, folder / "dense")
        kind, write, config = BY_TRANSFORMERS[name]
        write(sources(kind), folder / "stored")
        return folder / "stored", oracle_weights(kind, folder / "stored", config(), folder / "dense")

    yield make
    quantizer_finegrained_fp8.is_accelerate_available = without_accelerate


@pytest.mark.parametrize("name", [*BY_TRANSFORMERS, *BY_FORMULA])
def test_weights_are_the_dequantised_weights_bit_for_bit(pair, name):
    assert_equal_weights(*pair(name))


TOKENS = {"input_ids": numpy.array([[5, 17, 3, 99, 42, 8, 64, 1, 12], [7, 7, 23, 88, 2, 31, 4, 90, 55]])}
LAYOUTS = {
    "one": dict(ranks=1),
    "tensor": dict(ranks=2),
    "pipeline": dict(ranks=2, sizes="pipeline=2"),
    "sharded": dict(ranks=2, strategy="Sharded", sizes="data=2"),
    "offload": dict(ranks=1, strategy="Offload", offload_to="File", sizes="data=1"),
    "int8": dict(ranks=2, precision="I8"),
}
SERVED = [
    *(("fp8-block", layout) for layout in LAYOUTS),
    *(("compressed-int4-asymmetric", layout) for layout in LAYOUTS),
    *(("mxfp4", layout) for layout in LAYOUTS),
    *(("gptq-act-order", layout) for layout in ("one", "tensor", "sharded")),
    *(("awq", layout) for layout in ("one", "tensor", "offload")),
    ("fp8-experts", "tensor"),
    *(("fp8-latents", layout) for layout in LAYOUTS),
    ("compressed-experts", "pipeline"),
    ("compressed-nvfp4", "tensor"),
    ("modelopt-nvfp4", "tensor"),
    *(("nf4", layout) for layout in LAYOUTS),
    *(("llm-int8", layout) for layout in ("one", "tensor", "offload")),
]


@pytest.mark.parametrize("name, layout", SERVED, ids=lambda part: part)
def test_a_quantised_model_answers_as_its_dense_twin(pair, runner, name, layout):
    stored, dense = pair(name)
    ours = runner.forward(stored, inputs=TOKENS, **LAYOUTS[layout])
    twin = runner.forward(dense, inputs=TOKENS, **LAYOUTS[layout])
    assert ours.keys() == twin.keys()
    for key in ours:
        assert numpy.array_equal(ours[key], twin[key]), key


@pytest.mark.parametrize("name", ["fp8-block", "mxfp4", "compressed-int4-group", "gptq", "nf4"])
def test_a_quantised_model_answers_as_transformers(pair, runner, name):
    stored, dense = pair(name)
    model = transformers.AutoModelForCausalLM.from_pretrained(dense, dtype=torch.float32).eval()
    with torch.no_grad():
        wanted = model(torch.from_numpy(TOKENS["input_ids"])).logits.numpy()
    found = runner.forward(stored, ranks=2, inputs=TOKENS, precision="F32")["logits"]
    assert numpy.abs(found - wanted).max() <= 2e-5 * numpy.abs(wanted).max()


def swapped_nibbles(tensor):
    octets = tensor.contiguous().view(torch.uint8)
    return (octets << 4 | octets >> 4).view(tensor.dtype).reshape(tensor.shape)


def scaled(tensor):
    return (tensor.float() * 2).to(tensor.dtype)


def moved(by):
    return lambda tensor: tensor + by


def tensors(ending, change, dtype=None):
    """A mutation: changes the stored tensors whose names end so. Returns the dense tensors that they belong to."""

    def mutate(stored, _):
        names = [name for name in stored if name.endswith(ending) and dtype in (None, stored[name].dtype)]
        assert names
        for name in names:
            stored[name] = change(stored[name]).contiguous()
        dense = [name.removesuffix(ending) for name in names]
        return {name if name.endswith(("weight", "_proj")) and ending[0] == "_" else f"{name}.weight" for name in dense}

    return mutate


def settings(**changes):
    """A mutation: changes the quantization_config, which is that of all matrices."""
    return lambda _, config: config.update(changes)


def state(**changes):
    """A mutation: changes what bitsandbytes says of each matrix in JSON; None removes a key."""

    def mutate(stored, _):
        for name in [name for name in stored if ".quant_state." in name]:
            value = json.loads(bytes(stored[name].tolist())) | changes
            text = json.dumps({key: entry for key, entry in value.items() if entry is not None})
            stored[name] = torch.tensor(list(text.encode()), dtype=torch.uint8)

    return mutate


def without(ending):
    """A mutation: removes the stored tensors whose names end so."""

    def mutate(stored, _):
        for name in [name for name in stored if name.endswith(ending)]:
            del stored[name]

    return mutate


def weights(**changes):
    return lambda _, config: config["config_groups"]["group_0"]["weights"].update(changes)


def refused(ending, reason):
    """The outcome of a mutation: the worker names a stored tensor that ends so, and says why."""
    return rf'tensor "[^"]*{re.escape(ending)}" .*{re.escape(reason)}'


CHANGED = None  # the other outcome: all matrices that the mutation touches have other values, and no others
FITS_NONE = "fit none of the config_groups"
MUTATIONS = {
    "fp8-block": {
        "scale": (tensors("_scale_inv", scaled), CHANGED),
        "fewer-scales": (tensors("_scale_inv", lambda scale: scale[:-1]), refused("_scale_inv", "blocks that cover")),
    },
    "fp8-tensor": {"scale": (tensors("_scale_inv", scaled), CHANGED)},
    "fp8-exponent-bytes": {"scale": (tensors("_scale_inv", moved(1)), CHANGED)},
    "mxfp4": {
        "scale": (tensors("_scales", moved(1)), CHANGED),
        "nibbles": (tensors("_blocks", swapped_nibbles), CHANGED),
    },
    "compressed-int4-asymmetric": {
        "scale": (tensors(".weight_scale", scaled), CHANGED),
        "zero": (tensors(".weight_zero_point", swapped_nibbles), CHANGED),
        "nibbles": (tensors(".weight_packed", swapped_nibbles), CHANGED),
        "larger-group": (weights(group_size=64), refused(".weight_packed", FITS_NONE)),
        "smaller-group": (weights(group_size=16), refused(".weight_packed", FITS_NONE)),
        "bits": (weights(num_bits=8), refused(".weight_packed", FITS_NONE)),
        "symmetric": (weights(symmetric=True), refused(".weight_zero_point", "belongs to a symmetric matrix")),
    },
    "compressed-int4-group": {
        "asymmetric": (weights(symmetric=False), refused(".weight_packed", 'no "')),
        "strategy": (weights(strategy="channel"), refused(".weight_packed", FITS_NONE)),
    },
    "compressed-int8-bytes-asymmetric": {
        "zero": (tensors(".weight_zero_point", moved(1)), CHANGED),
        "strategy": (weights(strategy="tensor"), refused(".weight", FITS_NONE)),
    },
    "compressed-nvfp4": {
        "global-scale": (tensors(".weight_global_scale", scaled), CHANGED),
        "scale": (tensors(".weight_scale", scaled), CHANGED),
        "nibbles": (tensors(".weight_packed", swapped_nibbles), CHANGED),
    },
    "gptq": {
        "scale": (tensors(".scales", scaled), CHANGED),
        "zero": (tensors(".qzeros", swapped_nibbles), CHANGED),
        "nibbles": (tensors(".qweight", swapped_nibbles), CHANGED),
        "group-order": (tensors(".g_idx", lambda index: index.flip(0)), CHANGED),
        "version": (settings(checkpoint_format="gptq_v2"), CHANGED),
        "bits": (settings(bits=8), refused(".g_idx", "has shape")),
        "larger-group": (settings(group_size=64), refused(".scales", "has shape")),
        "smaller-group": (settings(group_size=16), refused(".scales", "has shape")),
    },
    "gptq-act-order": {"group-order": (tensors(".g_idx", lambda index: index.flip(0)), CHANGED)},
    "awq": {
        "scale": (tensors(".scales", scaled), CHANGED),
        "zero": (tensors(".qzeros", swapped_nibbles), CHANGED),
        "nibbles": (tensors(".qweight", swapped_nibbles), CHANGED),
        "larger-group": (settings(group_size=64), refused(".scales", "has shape")),
        "smaller-group": (settings(group_size=16), refused(".scales", "has shape")),
    },
    "modelopt-nvfp4": {
        "global-scale": (tensors(".weight_scale_2", scaled), CHANGED),
        "scale": (tensors(".weight_scale", scaled), CHANGED),
        "nibbles": (tensors(".weight", swapped_nibbles, torch.uint8), CHANGED),
    },
    "nf4": {
        "scale": (tensors(".weight.absmax", lambda codes: codes ^ 1), CHANGED),
        "scale-of-scales": (tensors(".weight.nested_absmax", scaled), CHANGED),
        "table-of-scales": (tensors(".weight.nested_quant_map", scaled), CHANGED),
        "table": (tensors(".weight.quant_map", scaled), CHANGED),
        "nibbles": (tensors(".weight", swapped_nibbles, torch.uint8), CHANGED),
        "offset": (state(nested_offset=0.5), CHANGED),
        "smaller-block": (state(blocksize=32), refused(".absmax", "has shape")),
        "larger-block-of-scales": (state(nested_blocksize=32), refused(".nested_absmax", "has shape")),
        "crossing-blocks": (state(blocksize=128), refused(".weight", "in blocks of 128")),
        "another-shape": (state(shape=[16, 128]), refused(".weight", "bytes, expected")),
        "no-shape": (state(shape=None), refused("__nf4", 'no "shape"')),
        "no-offset": (state(nested_offset=None), refused("__nf4", 'no "nested_offset"')),
        "no-json": (tensors("__nf4", moved(1)), refused("__nf4", "is not a JSON object")),
        "fewer-scales": (tensors(".absmax", lambda codes: codes[:-1]), refused(".absmax", "has shape")),
        "no-scales": (without(".absmax"), refused(".weight", 'no "')),
        "no-table": (without(".quant_map"), refused(".weight", 'no "')),
    },
    "llm-int8": {
        "scale": (tensors(".SCB", scaled), CHANGED),
        "codes": (tensors(".weight", moved(1), torch.int8), CHANGED),
        "fewer-scales": (tensors(".SCB", lambda scale: scale[:-1]), refused(".SCB", "has shape")),
        "no-scales": (without(".SCB"), refused(".weight", 'no "')),
        "another-form": (tensors(".weight_format", moved(2)), refused(".weight_format", "expected 0: rows")),
    },
}
MUTANTS = [(name, part) for name, parts in MUTATIONS.items() for part in parts]


@pytest.mark.parametrize("name, part", MUTANTS, ids=lambda part: part)
def test_a_change_of_a_part_changes_its_matrices_or_is_refused_by_name(pair, tmp_path, name, part):
    folder, _ = pair(name)
    stored, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    was = dumped(folder)
    quantised = {name for name in was if name not in stored or stored[name].dtype != torch.bfloat16}
    mutate, outcome = MUTATIONS[name][part]
    touched = mutate(stored, config["quantization_config"]) or quantised
    save_file(stored, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    now = dumped(tmp_path)
    if outcome is CHANGED:
        assert not isinstance(now, str), now
        assert touched and {key for key in was if not torch.equal(was[key][1], now[key][1])} == touched
    else:
        assert isinstance(now, str) and re.search(outcome, now), now if isinstance(now, str) else "accepted"


def test_the_scales_of_fp8_decide_its_blocks_where_they_do_not_fit_the_config(pair, tmp_path):
    """transformers takes blocks from the shape of the scales; experts may have others than the config's."""
    folder, dense = pair("fp8-block")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["weight_block_size"] = [64, 16]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert_equal_weights(tmp_path, dense)


def test_awq_has_an_order_of_its_own(sources, tmp_path):
    values = {}
    formats.write(sources("llama"), tmp_path, *formats.awq(values=values, order=range(8)))
    ours = dumped(tmp_path)
    assert all(not torch.equal(ours[name][1], wanted.bfloat16()) for name, wanted in values.items())


def test_uneven_blocks_are_those_of_the_config(sources, tmp_path):
    """192 inputs in blocks of 128 are 128 and 64, as the format and transformers' own FP8 modules have them."""
    formats.write(sources("llama"), tmp_path, formats.fp8_blocks((128, 128)), formats.fp8_config((128, 128)))
    stored, ours = load_file(tmp_path / "model.safetensors"), dumped(tmp_path)
    name = "model.layers.0.mlp.down_proj.weight"
    scale = stored[f"{name}_scale_inv"].repeat_interleave(128, 0).repeat_interleave(128, 1)[:, :192]
    assert torch.equal(ours[name][1], (stored[name].float() * scale).bfloat16())
