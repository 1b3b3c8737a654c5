# SPDX-License-Identifier: Apache-2.0
"""Seeds of tests/fuzz/gguf.cpp: small models with tensors of every type, and tokenizers, by the package gguf."""

import pathlib
import tempfile

import gguf
import numpy
from gguf import GGMLQuantizationType as Type

SMALL = [Type.F32, Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.IQ4_NL, Type.MXFP4]
LARGE = [Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_XS, Type.TQ1_0, Type.TQ2_0]
KEYS = dict(context_length=64, embedding_length=4, block_count=1, feed_forward_length=8)
WORDS = [
    "GGUF",
    "general.architecture",
    "general.alignment",
    "tokenizer.ggml.model",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.token_type",
    "llama.attention.head_count",
    "llama.expert_count",
    "rope_freqs.weight",
    "blk.0.attn_q.weight",
    "split.count",
]


def written(architecture, tensors, add=lambda writer: None):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "m.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        for key, value in KEYS.items():
            getattr(writer, f"add_{key}")(value)
        writer.add_head_count(2)
        writer.add_layer_norm_rms_eps(1e-5)
        add(writer)
        for name, (kind, shape) in tensors.items():
            elements, size = gguf.GGML_QUANT_SIZES[kind]
            data = numpy.arange(shape[0] * shape[1] // elements * size, dtype=numpy.uint8).reshape(shape[0], -1)
            writer.add_tensor(name, data, raw_shape=data.shape, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def byte_level(writer):
    tokens = ["a", "b", "ab", "\u0120", "<s>", "<think>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1, 1, 1, 1, 3, 4])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(4)
    writer.add_chat_template("{{ messages }}")


def pieces(writer):
    tokens = ["<unk>", "<s>", "</s>", "<0x0A>", "a", "b", "ab", "\u2581"]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_types([2, 3, 3, 6, 1, 1, 1, 1])
    writer.add_token_scores([0.0, 0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0])
    writer.add_bos_token_id(1)


def files():
    for kind in SMALL:
        yield written("llama", {"token_embd.weight": (kind, (2, 32)), "blk.0.attn_q.weight": (kind, (4, 32))})
    for kind in LARGE:
        yield written("gemma2", {"token_embd.weight": (kind, (1, 256)), "output_norm.weight": (Type.F32, (1, 4))})
    yield written("llama", {"rope_freqs.weight": (Type.F32, (1, 2)), "output.weight": (Type.F32, (1, 2))}, byte_level)
    yield written("qwen3moe", {"token_embd.weight": (Type.F32, (1, 2))}, pieces)
    yield written("phi3", {}, pieces)
