# SPDX-License-Identifier: Apache-2.0
"""Writes GGUF files of random models by the format's own package: names of tensors are those of its maps, metadata keys
those of its writer, and blocks those of its quantiser, or random where it has none. What the conversion of llama.cpp
does to elements (pairs of rotary rows, norms plus one, stacked experts) is done here from its description.
"""

import dataclasses
import re
from collections.abc import Callable

import gguf
import numpy
import torch
import transformers
from gguf import GGMLQuantizationType as Type

SIZES = dict(
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=103,
    max_position_embeddings=128,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
)
HEAD = dict(head_dim=64)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=256)
WINDOW = dict(sliding_window=6)
PLAIN = {Type.F32: numpy.float32, Type.F16: numpy.float16}
# gguf.quants quantises these
BY_PACKAGE = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.MXFP4, Type.TQ1_0, Type.TQ2_0]


@dataclasses.dataclass(frozen=True)
class Family:
    """A model, its general.architecture, and what the writer adds to the metadata that all have."""

    config: Callable[[], transformers.PretrainedConfig]
    architecture: gguf.MODEL_ARCH
    metadata: Callable = lambda writer, config: None
    pairs: bool = False  # rows of queries and keys are stored as pairs
    plus_one: bool = False  # norms are stored plus one
    conv1d: bool = False  # matrices of Conv1D are stored as those of Linear


def head(writer, config):
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)


def experts(writer, config):
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def moe_with_head(writer, config):
    head(writer, config)
    experts(writer, config)


def shared_experts(writer, config):
    experts(writer, config)
    writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def mixtral(writer, config):
    writer.add_expert_count(config.num_local_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)


def gemma(writer, config):
    head(writer, config)
    writer.add_sliding_window(config.sliding_window)
    if config.attn_logit_softcapping:
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def phi3(writer, config):
    writer.add_sliding_window(config.sliding_window)


def granite(writer, config):
    writer.add_attention_scale(config.attention_multiplier)
    writer.add_embedding_scale(config.embedding_multiplier)
    writer.add_residual_scale(config.residual_multiplier)
    writer.add_logit_scale(config.logits_scaling)


def olmoe(writer, config):
    writer.add_expert_count(config.num_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)


def stablelm(writer, config):
    writer.add_parallel_residual(config.use_parallel_residual)


def cohere(writer, config):
    writer.add_logit_scale(config.logit_scale)


def cohere2(writer, config):
    cohere(writer, config)
    writer.add_sliding_window(config.sliding_window)


ARCH = gguf.MODEL_ARCH
TIED = {**SIZES, "tie_word_embeddings": True, "pad_token_id": 0}
GEMMA = dict(**TIED, **HEAD, query_pre_attn_scalar=64, **WINDOW)
FAMILIES = {
    "llama": Family(lambda: transformers.LlamaConfig(**SIZES, rope_theta=500.0), ARCH.LLAMA, pairs=True),
    "llama-biases": Family(
        lambda: transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True), ARCH.LLAMA, pairs=True
    ),
    "llama-tied": Family(
        lambda: transformers.LlamaConfig(**{**SIZES, "tie_word_embeddings": True}), ARCH.LLAMA, pairs=True
    ),
    "llama-heads": Family(lambda: transformers.LlamaConfig(**SIZES, head_dim=128), ARCH.LLAMA, head, pairs=True),
    "mistral": Family(lambda: transformers.MistralConfig(**SIZES, sliding_window=None), ARCH.LLAMA, pairs=True),
    "mixtral": Family(
        lambda: transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2),
        ARCH.LLAMA,
        mixtral,
        pairs=True,
    ),
    "qwen2": Family(lambda: transformers.Qwen2Config(**SIZES), ARCH.QWEN2),
    "qwen3": Family(lambda: transformers.Qwen3Config(**SIZES, **HEAD), ARCH.QWEN3, head),
    "qwen2moe": Family(
        lambda: transformers.Qwen2MoeConfig(**SIZES, **EXPERTS, shared_expert_intermediate_size=256),
        ARCH.QWEN2MOE,
        shared_experts,
    ),
    "qwen3moe": Family(
        lambda: transformers.Qwen3MoeConfig(**SIZES, **HEAD, **EXPERTS, norm_topk_prob=True),
        ARCH.QWEN3MOE,
        moe_with_head,
    ),
    "gemma2": Family(
        lambda: transformers.Gemma2Config(**{**GEMMA, "num_hidden_layers": 3}), ARCH.GEMMA2, gemma, plus_one=True
    ),
    "gemma3": Family(
        lambda: transformers.Gemma3TextConfig(**{**GEMMA, "num_hidden_layers": 7}, rope_theta=1e6),
        ARCH.GEMMA3,
        gemma,
        plus_one=True,
    ),
    "phi3": Family(lambda: transformers.Phi3Config(**SIZES, **WINDOW, pad_token_id=0), ARCH.PHI3, phi3),
    "granite": Family(
        lambda: transformers.GraniteConfig(
            **SIZES, attention_multiplier=0.1, embedding_multiplier=2.0, residual_multiplier=0.7, logits_scaling=3.0
        ),
        ARCH.GRANITE,
        granite,
        pairs=True,
    ),
    "olmo2": Family(lambda: transformers.Olmo2Config(**SIZES), ARCH.OLMO2),
    "starcoder2": Family(lambda: transformers.Starcoder2Config(**SIZES, sliding_window=None), ARCH.STARCODER2),
    "gpt2": Family(
        lambda: transformers.GPT2Config(
            n_embd=256,
            n_layer=2,
            n_head=4,
            n_inner=512,
            n_positions=128,
            vocab_size=103,
            bos_token_id=1,
            eos_token_id=2,
        ),
        ARCH.GPT2,
        conv1d=True,
    ),
    "smollm3": Family(
        lambda: transformers.SmolLM3Config(**{**SIZES, "num_hidden_layers": 5}, pad_token_id=0),
        ARCH.SMOLLM3,
        pairs=True,
    ),
    "arcee": Family(lambda: transformers.ArceeConfig(**SIZES), ARCH.ARCEE, pairs=True),
    "olmoe": Family(
        lambda: transformers.OlmoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2, pad_token_id=0),
        ARCH.OLMOE,
        olmoe,
    ),
    "stablelm": Family(lambda: transformers.StableLmConfig(**SIZES, use_qkv_bias=True), ARCH.STABLELM, stablelm),
    "stablelm-parallel": Family(
        lambda: transformers.StableLmConfig(**SIZES, use_parallel_residual=True), ARCH.STABLELM, stablelm
    ),
    "command-r": Family(lambda: transformers.CohereConfig(**TIED, logit_scale=0.3), ARCH.COMMAND_R, cohere),
    "cohere2": Family(
        lambda: transformers.Cohere2Config(**{**TIED, "num_hidden_layers": 5}, **WINDOW, logit_scale=0.3),
        ARCH.COHERE2,
        cohere2,
    ),
    "nemotron": Family(lambda: transformers.NemotronConfig(**SIZES), ARCH.NEMOTRON, plus_one=True),
    "seed_oss": Family(lambda: transformers.SeedOssConfig(**SIZES, **HEAD, pad_token_id=0), ARCH.SEED_OSS, head),
    "glm4": Family(
        lambda: transformers.Glm4Config(**SIZES, **HEAD, attention_bias=True, pad_token_id=0), ARCH.GLM4, head
    ),
}


def paired(w, heads):
    """Rows of each head: those of the first half of its dimensions and those of the second take turns."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpaired(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


# Bytes of a block of other types: which are numbers of F16, and by what the codes are centred.
RANDOM_TYPES = {
    Type.Q2_K: dict(scale=80, lowest=82, middle=1.5, spread=9),
    Type.Q3_K: dict(scale=108, lowest=None, middle=0, spread=40),
    Type.Q4_K: dict(scale=0, lowest=2, middle=7.5, spread=160),
    Type.Q5_K: dict(scale=0, lowest=2, middle=15.5, spread=320),
    Type.Q6_K: dict(scale=208, lowest=None, middle=0, spread=1300),
    Type.IQ4_NL: dict(scale=0, lowest=None, middle=0, spread=65),
    Type.IQ4_XS: dict(scale=0, lowest=None, middle=0, spread=1200),
}


def random_blocks(kind, rows, columns, generator):
    """Random valid blocks of a type, whose values are about those of a matrix of an initialised model."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    layout = RANDOM_TYPES[kind]
    blocks = generator.integers(0, 256, (rows, columns // elements, size), dtype=numpy.uint8)
    factor = (generator.uniform(0.5, 1.5, blocks.shape[:2]) / layout["spread"] / columns**0.5).astype(numpy.float16)
    for at, times in ((layout["scale"], 1), (layout["lowest"], layout["middle"])):
        if at is not None:
            part = (factor * numpy.float16(times)).astype(numpy.float16)[..., None]
            blocks[..., at : at + 2] = part.view(numpy.uint8)
    return blocks.reshape(rows, -1)


def pack(kind, w, generator):
    """The bytes of a matrix in a type, and the values that the package says they have."""
    if kind in PLAIN:
        data = w.astype(PLAIN[kind])
        return data, data.astype(numpy.float32)
    if kind in RANDOM_TYPES:
        data = random_blocks(kind, w.reshape(-1, w.shape[-1]).shape[0], w.shape[-1], generator)
        data = data.reshape(*w.shape[:-1], -1)
    else:
        data = gguf.quants.quantize(w, kind)
    return data, gguf.quants.dequantize(data, kind).reshape(w.shape)


EXPERT = re.compile(r"\.experts\.(\d+)\.")


def stacked(state):
    """Experts that stand beside each other, as one tensor each."""
    out = {}
    for name, w in state.items():
        found = EXPERT.search(name)
        if not found:
            out[name] = w
        elif found[1] == "0":
            each = (EXPERT.sub(f".experts.{e}.", name) for e in range(len(state)))
            out[EXPERT.sub(".experts.", name)] = numpy.stack([state[one] for one in each if one in state])
    return out


def unstacked(dense, names):
    out = {}
    for name, w in dense.items():
        whole = name if name in names else None
        for e in range(len(w)) if whole is None else ():
            out[name.replace(".experts.", f".experts.{e}.")] = w[e]
        if whole:
            out[name] = w
    return out


def add_metadata(writer, family, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(getattr(config, "intermediate_size", None) or config.n_inner)
    writer.add_head_count(config.num_attention_heads)
    if hasattr(config, "num_key_value_heads"):
        writer.add_head_count_kv(config.num_key_value_heads)
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        names = ("layer_norm_eps", "norm_epsilon", "norm_eps", "layer_norm_epsilon")
        writer.add_layer_norm_eps(next(getattr(config, name) for name in names if hasattr(config, name)))
    if hasattr(config, "rope_parameters"):
        writer.add_rope_freq_base(theta_of(config))
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        writer.add_rope_dimension_count(int(head_dim * config.rope_parameters.get("partial_rotary_factor", 1)))
    writer.add_vocab_size(config.vocab_size)
    family.metadata(writer, config)


def theta_of(config):
    rope = config.rope_parameters
    return float(rope.get("full_attention", rope)["rope_theta"])


def write(
    path,
    kind,
    state,
    matrix_type,
    types=(),
    add=lambda writer: None,
    change=lambda data: data,
    config=None,
    **writer_options,
):
    """Writes a model's tensors (names of transformers, arrays of F32), matrices in `matrix_type`. `types` are pairs of
    a part of GGUF's name and its type, `change` is applied to the bytes of each matrix in blocks. Returns the values of
    each tensor as transformers names it."""
    family = FAMILIES[kind]
    config = config or family.config()
    generator = numpy.random.default_rng(7)
    names = gguf.get_tensor_name_map(family.architecture, config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[family.architecture], **writer_options)
    add_metadata(writer, family, config)
    add(writer)
    dense = {}
    for name, w in stacked(state).items():
        there = names.get_name(name, try_suffixes=(".weight", ".bias"))
        heads = config.num_attention_heads
        if ".q_proj." not in name:
            heads = getattr(config, "num_key_value_heads", heads)
        is_paired = family.pairs and re.search(r"\.[qk]_proj\.", name)
        is_raised = family.plus_one and name.endswith(("norm.weight", "_layernorm.weight"))
        is_turned = family.conv1d and re.search(r"c_(attn|proj|fc)\.weight$", name)
        value = paired(w, heads) if is_paired else w + 1 if is_raised else w.T if is_turned else w
        chosen = next((kind for part, kind in types if part in there), matrix_type)
        if w.ndim == 1 or "ffn_gate_inp" in there or "position_embd" in there:
            chosen = Type.F32
        if "ffn_gate_inp_shexp" in there:
            value = value.squeeze(0)
        data, values = pack(chosen, numpy.ascontiguousarray(value), generator)
        writer.add_tensor(
            there, data if chosen in PLAIN else change(data), raw_dtype=None if chosen in PLAIN else chosen
        )
        if is_paired:
            values = unpaired(values, heads)
        elif is_raised:
            values = values - numpy.float32(1)
        dense[name] = values.T if is_turned else values.reshape(w.shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {name: torch.from_numpy(w.copy()) for name, w in unstacked(dense, state).items()}
