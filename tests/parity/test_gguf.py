# SPDX-License-Identifier: Apache-2.0
"""GGUF files: weights are bit for bit those that the format's own package dequantises, and a model answers as
transformers with these weights, whatever its parallelism. transformers also reads the files by its own loader.
"""

import functools
import json
import shutil

import gguf
import gguf_files
import numpy
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from gguf_files import FAMILIES
from safetensors.torch import load_file, save_file
from test_checkpoints import dumped

transformers.logging.set_verbosity_error()

TOKENS = {"input_ids": numpy.array([[5, 17, 3, 99, 42, 8, 64, 1, 12], [7, 7, 23, 88, 2, 31, 4, 90, 55]])}
KINDS = [*gguf_files.PLAIN, Type.BF16, *gguf_files.BY_PACKAGE, *gguf_files.RANDOM_TYPES]
# what llama.cpp's Q4_K_M is: most matrices of one type, some of another
MIXED = ("Q4_K_M", Type.Q4_K, (("ffn_down", Type.Q6_K), ("attn_v", Type.Q6_K), ("output", Type.Q6_K)))


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A checkpoint of each family in F32, whose norms and biases differ from their initial values."""

    @functools.cache
    def make(kind):
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(FAMILIES[kind].config(), dtype=torch.float32)
        raised = FAMILIES[kind].plus_one
        for name, parameter in model.named_parameters():
            fan_in = parameter.shape[-1] if parameter.dim() > 1 else 0
            normal = torch.randn(parameter.shape)
            is_norm = not fan_in and not name.endswith("bias")
            parameter.data.copy_(2 * normal / fan_in**0.5 if fan_in else 0.2 * normal + (is_norm and not raised))
        folder = tmp_path_factory.mktemp(kind)
        model.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="module")
def written(sources, tmp_path_factory):
    """A folder with a GGUF file alone, and the dense checkpoint of transformers with the same values."""

    @functools.cache
    def make(kind, matrix_type, types=()):
        source, folder = sources(kind), tmp_path_factory.mktemp(f"{kind}-{matrix_type.name}")
        (folder / "gguf").mkdir()
        values = gguf_files.write(folder / "gguf" / "model.gguf", kind, state_of(source), matrix_type, types)
        shutil.copytree(source, folder / "dense")
        save_file(values, folder / "dense" / "model.safetensors")
        return folder / "gguf", folder / "dense"

    return make


def state_of(folder):
    return {name: w.numpy() for name, w in load_file(folder / "model.safetensors").items()}


def assert_equal_weights(folder, dense):
    ours, theirs = dumped(folder), load_file(dense / "model.safetensors")
    assert not isinstance(ours, str), ours
    assert ours.keys() == theirs.keys()
    for name, (row, tensor) in ours.items():
        assert torch.equal(tensor.float(), theirs[name]), (name, row)


def logits_of(model):
    with torch.no_grad():
        return model.eval()(torch.from_numpy(TOKENS["input_ids"])).logits.numpy()


def assert_near(found, wanted):
    assert numpy.abs(found - wanted).max() <= 2e-5 * numpy.abs(wanted).max()


@pytest.mark.parametrize("matrix_type", KINDS, ids=lambda kind: kind.name)
def test_weights_are_those_of_the_format_bit_for_bit(written, matrix_type):
    assert_equal_weights(*written("llama", matrix_type))


@pytest.mark.parametrize("kind", FAMILIES)
def test_weights_of_a_family_are_those_of_the_format_bit_for_bit(written, kind):
    assert_equal_weights(*written(kind, MIXED[1], MIXED[2]))


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_family_answers_as_transformers(written, runner, kind):
    folder, dense = written(kind, MIXED[1], MIXED[2])
    model = transformers.AutoModelForCausalLM.from_pretrained(dense, dtype=torch.float32)
    assert_near(runner.forward(folder, 1, TOKENS)["logits"], logits_of(model))


# Families of which transformers has a loader of its own. It does not read all sizes, so that it has the config.
OF_LOADER = [
    "llama",
    "llama-tied",
    "qwen2",
    "qwen2moe",
    "qwen3",
    "qwen3moe",
    "gemma2",
    "gemma3",
    "phi3",
    "starcoder2",
    "stablelm",
    "nemotron",
    "gpt2",
]


@pytest.mark.parametrize("kind", OF_LOADER)
def test_a_family_answers_as_the_loader_of_transformers(written, runner, kind):
    folder, _ = written(kind, MIXED[1], MIXED[2])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file="model.gguf", config=FAMILIES[kind].config(), dtype=torch.float32
    )
    assert_near(runner.forward(folder, 1, TOKENS)["logits"], logits_of(model))


LAYOUTS = {
    "one": dict(ranks=1),
    **{f"tensor-{n}": dict(ranks=n, sizes=f"tensor={n}") for n in (2, 3, 4)},
    "pipeline": dict(ranks=2, sizes="pipeline=2"),
    "data": dict(ranks=2, sizes="data=2"),
    "sharded": dict(ranks=2, strategy="Sharded", sizes="data=2"),
    "offload": dict(ranks=1, strategy="Offload", offload_to="File", sizes="data=1"),
    "bf16": dict(ranks=2, precision="BF16"),
    "int8": dict(ranks=2, precision="I8"),
    "int4": dict(ranks=2, precision="I4"),
}
SERVED = [
    *(("llama", layout) for layout in LAYOUTS),
    *(("gemma3", layout) for layout in LAYOUTS),
    *(("qwen3moe", layout) for layout in LAYOUTS),
    *(("qwen2", layout) for layout in ("tensor-4", "pipeline", "sharded")),
    *(("phi3", layout) for layout in ("tensor-2", "sharded", "offload")),
    *(("gpt2", layout) for layout in ("tensor-3", "sharded", "offload", "int8")),
    *(("mixtral", layout) for layout in ("tensor-3", "sharded", "int4")),
]


@pytest.mark.parametrize("kind, layout", SERVED, ids=lambda part: part)
def test_a_file_answers_as_its_dense_twin_in_every_layout(written, runner, kind, layout):
    folder, dense = written(kind, MIXED[1], MIXED[2])
    found = runner.forward(folder, inputs=TOKENS, **LAYOUTS[layout])
    twin = runner.forward(dense, inputs=TOKENS, **LAYOUTS[layout])
    assert found.keys() == twin.keys()
    for key in found:
        assert numpy.array_equal(found[key], twin[key]), key


@pytest.mark.parametrize("matrix_type", [Type.Q4_0, Type.Q8_0, Type.Q5_1, Type.Q2_K, Type.Q3_K, Type.Q5_K])
def test_columns_of_a_rank_need_no_whole_blocks(written, runner, matrix_type):
    """Ranks have about a third of 512 columns, whatever the size of blocks."""
    folder, dense = written("llama", matrix_type)
    found, twin = (runner.forward(one, inputs=TOKENS, **LAYOUTS["tensor-3"])["logits"] for one in (folder, dense))
    assert numpy.array_equal(found, twin)


def test_codes_of_four_bits_stay_in_memory(written, runner, tmp_path):
    """With I4, a model of Q4_0 is one whose weights are the file's codes times scales that are rounded to BF16."""
    folder, dense = written("llama", Type.Q4_0)
    shutil.copytree(dense, tmp_path, dirs_exist_ok=True)
    state = load_file(dense / "model.safetensors")
    for name, w in state.items():
        if name.endswith("proj.weight"):
            blocks = w.unflatten(-1, (-1, 32))
            scale = blocks.gather(-1, blocks.abs().argmax(-1, keepdim=True)) / -8
            codes = torch.where(scale == 0, 0, blocks / scale).round()
            state[name] = (codes * scale.bfloat16().float()).flatten(-2)
    save_file(state, tmp_path / "model.safetensors")
    found, wanted = (runner.forward(one, 1, TOKENS, precision="I4")["logits"] for one in (folder, tmp_path))
    assert numpy.array_equal(found, wanted)
    exact = runner.forward(tmp_path, 1, TOKENS, precision="F32")["logits"]
    assert numpy.abs(found - exact).max() <= 0.02 * numpy.abs(exact).max()  # the vocabulary has eight bits


def test_parts_of_a_split_file_are_one_model(sources, tmp_path):
    values = gguf_files.write(
        tmp_path / "model.gguf", "llama", state_of(sources("llama")), Type.Q8_0, split_max_tensors=6
    )
    assert len(list(tmp_path.glob("model-*-of-*.gguf"))) == 4
    ours = dumped(tmp_path)
    assert ours.keys() == values.keys() and all(torch.equal(ours[name][1], w) for name, w in values.items())
    next(tmp_path.glob("model-00003-*")).unlink()
    assert "part 3 is absent" in dumped(tmp_path)


def test_config_json_beside_the_file_says_the_type(sources, written, tmp_path):
    folder, dense = written("llama", Type.Q4_K)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    config = json.loads((sources("llama") / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    ours, theirs = dumped(tmp_path), load_file(dense / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(ours[name][1], theirs[name].bfloat16())
    assert ours["model.norm.weight"][1].dtype == torch.float32  # as the file has it


def llama3_factors(config):
    """What llama.cpp's conversion writes of Llama 3's scaling: a factor for each frequency."""
    rope = config.rope_parameters
    low, high = (rope["original_max_position_embeddings"] / rope[f"{end}_freq_factor"] for end in ("low", "high"))
    dims = config.hidden_size // config.num_attention_heads
    length = 2 * numpy.pi * rope["rope_theta"] ** (numpy.arange(0, dims, 2) / dims)
    smooth = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (
        rope["high_freq_factor"] - rope["low_freq_factor"]
    )
    between = 1 / ((1 - smooth) / rope["factor"] + smooth)
    return numpy.where(length < high, 1, numpy.where(length > low, rope["factor"], between)).astype(numpy.float32)


SCALINGS = {
    "llama3": dict(
        rope_type="llama3",
        rope_theta=100.0,
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=32,
    ),
    "linear": dict(rope_type="linear", rope_theta=500.0, factor=3.0),
    "yarn": dict(rope_type="yarn", rope_theta=500.0, factor=4.0, original_max_position_embeddings=32),
}


@pytest.mark.parametrize("name", SCALINGS)
def test_scaled_rotary_positions_are_those_of_transformers(sources, runner, name, tmp_path):
    config = transformers.LlamaConfig(**gguf_files.SIZES, rope_parameters=SCALINGS[name])

    def add(writer):
        if name == "llama3":
            writer.add_tensor("rope_freqs.weight", llama3_factors(config))
        else:
            writer.add_rope_scaling_type(gguf.RopeScalingType(name))
            writer.add_rope_scaling_factor(SCALINGS[name]["factor"])
        if name == "yarn":
            writer.add_rope_scaling_orig_ctx_len(32)

    values = gguf_files.write(
        tmp_path / "m.gguf", "llama", state_of(sources("llama")), Type.F32, add=add, config=config
    )
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(values)
    found = runner.forward(tmp_path, 1, TOKENS)["logits"]
    assert_near(found, logits_of(model))
    plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**gguf_files.SIZES, rope_theta=500.0))
    plain.load_state_dict(values)
    assert numpy.abs(found - logits_of(plain)).max() > 1e-3  # the scaling counts


def scaled(kind, config, sources, tmp_path, add):
    """A file with scaled rotary positions, and transformers' model of that config with the same weights."""
    values = gguf_files.write(tmp_path / "m.gguf", kind, state_of(sources(kind)), Type.F32, add=add, config=config)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(values, strict=False)
    return model


def test_gemma_scales_the_positions_of_full_attention_only(sources, runner, tmp_path):
    rope = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    config = transformers.Gemma3TextConfig(**gguf_files.GEMMA | {"num_hidden_layers": 7}, rope_parameters=rope)

    def add(writer):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(8.0)

    model = scaled("gemma3", config, sources, tmp_path, add)
    assert_near(runner.forward(tmp_path, 1, TOKENS)["logits"], logits_of(model))


@pytest.mark.parametrize("length", [9, 40])
def test_phi3_has_factors_of_short_and_of_long_texts(sources, runner, length, tmp_path):
    factors = numpy.random.default_rng(1).uniform(1, 4, (2, 32)).astype(numpy.float32)
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": factors[0].tolist()}
    rope |= {"long_factor": factors[1].tolist(), "partial_rotary_factor": 1.0}
    config = transformers.Phi3Config(
        **gguf_files.SIZES,
        sliding_window=200,
        pad_token_id=0,
        rope_parameters=rope,
        original_max_position_embeddings=32,
    )
    scale = config.max_position_embeddings / 32

    def add(writer):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.add_rope_scaling_orig_ctx_len(32)
        writer.add_rope_scaling_attn_factors(float(numpy.sqrt(1 + numpy.log(scale) / numpy.log(32))))
        writer.add_tensor("rope_factors_short.weight", factors[0])
        writer.add_tensor("rope_factors_long.weight", factors[1])

    model = scaled("phi3", config, sources, tmp_path, add)
    ids = numpy.random.default_rng(2).integers(3, 100, (1, length))
    with torch.no_grad():
        wanted = model.eval()(torch.from_numpy(ids)).logits.numpy()
    assert_near(runner.forward(tmp_path, 1, {"input_ids": ids})["logits"], wanted)


def at(first, last, change):
    """A mutation: changes bytes [first, last) of every block of `size` bytes."""

    def mutate(data, size):
        blocks = data.reshape(-1, size).copy()
        blocks[:, first:last] = change(blocks[:, first:last])
        return blocks.reshape(data.shape)

    return mutate


def doubled(halves):
    return (numpy.ascontiguousarray(halves).view(numpy.float16) * numpy.float16(2)).view(numpy.uint8)


def swapped(octets):
    return octets << 4 | octets >> 4


def flipped(octets):
    return ~octets


# Parts of the blocks of each type: bytes and how they change.
MUTATIONS = {
    Type.Q4_0: {"scale": at(0, 2, doubled), "nibbles": at(2, 18, swapped)},
    Type.Q4_1: {"scale": at(0, 2, doubled), "minimum": at(2, 4, doubled), "nibbles": at(4, 20, swapped)},
    Type.Q5_0: {"scale": at(0, 2, doubled), "fifth": at(2, 6, flipped), "nibbles": at(6, 22, swapped)},
    Type.Q5_1: {"minimum": at(2, 4, doubled), "fifth": at(4, 8, flipped), "nibbles": at(8, 24, swapped)},
    Type.Q8_0: {"scale": at(0, 2, doubled), "codes": at(2, 34, flipped)},
    Type.Q2_K: {"scales": at(0, 16, swapped), "codes": at(16, 80, swapped), "minimum": at(82, 84, doubled)},
    Type.Q3_K: {"third": at(0, 32, flipped), "codes": at(32, 96, swapped), "scales": at(96, 108, flipped)},
    Type.Q4_K: {"minimum": at(2, 4, doubled), "scales": at(4, 16, flipped), "nibbles": at(16, 144, swapped)},
    Type.Q5_K: {"scales": at(4, 16, flipped), "fifth": at(16, 48, flipped), "nibbles": at(48, 176, swapped)},
    Type.Q6_K: {"upper": at(128, 192, flipped), "scales": at(192, 208, flipped), "scale": at(208, 210, doubled)},
    Type.IQ4_NL: {"scale": at(0, 2, doubled), "nibbles": at(2, 18, swapped)},
    Type.IQ4_XS: {"upper": at(2, 4, flipped), "scales": at(4, 8, flipped), "nibbles": at(8, 136, swapped)},
    Type.MXFP4: {"nibbles": at(1, 17, swapped)},
    Type.TQ1_0: {"digits": at(0, 48, flipped), "last": at(48, 52, flipped), "scale": at(52, 54, doubled)},
    Type.TQ2_0: {"codes": at(0, 64, flipped), "scale": at(64, 66, doubled)},
}


@pytest.mark.parametrize(
    "matrix_type, part", [(kind, part) for kind, parts in MUTATIONS.items() for part in parts], ids=str
)
def test_a_change_of_a_part_of_blocks_changes_all_of_them_and_nothing_else(sources, matrix_type, part, tmp_path):
    size = gguf.GGML_QUANT_SIZES[matrix_type][1]
    (tmp_path / "was").mkdir(), (tmp_path / "now").mkdir()
    state = state_of(sources("llama"))
    gguf_files.write(tmp_path / "was" / "m.gguf", "llama", state, matrix_type)
    gguf_files.write(
        tmp_path / "now" / "m.gguf",
        "llama",
        state,
        matrix_type,
        change=lambda data: MUTATIONS[matrix_type][part](data, size),
    )
    was, now = dumped(tmp_path / "was"), dumped(tmp_path / "now")
    changed = {name for name in was if not torch.equal(was[name][1], now[name][1])}
    assert changed == {name for name in was if was[name][1].dim() == 2}


@pytest.mark.parametrize("named", [Type.Q4_1, Type.Q5_K, Type.IQ2_XXS, Type.NVFP4])
def test_blocks_of_another_type_are_refused_by_the_tensors_name(sources, named, tmp_path):
    """The file says that Q4_0's blocks are of another size, or of a type that is not read."""
    gguf_files.write(tmp_path / "m.gguf", "llama", state_of(sources("llama")), Type.Q4_0)
    data = bytearray((tmp_path / "m.gguf").read_bytes())
    name = b"blk.1.ffn_up.weight"
    place = data.index(name) + len(name) + 4 + 2 * 8  # behind its two sizes
    assert data[place] == Type.Q4_0
    data[place] = named
    (tmp_path / "m.gguf").write_bytes(data)
    found = dumped(tmp_path)
    assert isinstance(found, str) and "tensor" in found, "accepted"
    if named in (Type.IQ2_XXS, Type.NVFP4):
        assert f'"blk.1.ffn_up.weight" has the type {named.name}' in found
