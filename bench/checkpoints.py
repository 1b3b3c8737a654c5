# SPDX-License-Identifier: Apache-2.0
"""Writes one random Llama-shaped checkpoint in the three formats of the engines: Hugging Face, CTranslate2, GGUF.

All weights are fp32. Output rows of the end token and of bytes are zero, so that greedy answers never end early and
every token is one word in the streams; prompts consist of bytes.
"""

import dataclasses
import hashlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import gguf
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers

END, MERGE = "<|end|>", ("\u0100", "\u0101")  # bytes 0 and 1: llama.cpp wants a merge, no prompt has this one
transformers.utils.logging.disable_progress_bar()


@dataclasses.dataclass(frozen=True)
class Shape:
    layers: int = 8
    hidden: int = 512
    heads: int = 8
    kv_heads: int = 4
    ffn: int = 1408
    vocabulary: int = 8192
    positions: int = 2048
    tied: bool = False
    dtype: str = "float32"  # or bfloat16, which CTranslate2 does not compute in on CPUs: its copy is float32
    mixed: bool = False  # words with digits, capitals, quotes and brackets, as large vocabularies have them


def mixed_words(count):
    """Returns random words of letters, of digits, and of punctuation, with and without a space in front."""
    rng = random.Random(5)
    kinds = (
        ("abcdefghijklmnopqrstuvwxyz", 12, 70),
        ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 10, 15),
        ("0123456789", 3, 5),
        ('"\\{}[]():,.;-_<>/=+*&|!?#', 4, 10),
    )
    words = {}  # a set that has an order
    while len(words) < count:
        letters, longest, _ = rng.choices(kinds, [kind[2] for kind in kinds])[0]
        word = "".join(rng.choices(letters, k=rng.randint(2, longest)))
        words[rng.choice(("", "\u0120")) + word] = None
    return list(words)


def tokenizer(shape):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    count = shape.vocabulary - 2 - len(letters)
    more = mixed_words(count) if shape.mixed else [f"\u0120w{i}" for i in range(count)]
    words = [END, *letters, "".join(MERGE), *more]
    whole = tokenizers.Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, [MERGE]))
    whole.pre_tokenizer, whole.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=whole, eos_token=END, bos_token=END, unk_token=END, pad_token=END
    ), 2 + len(letters)


def hugging_face(shape, folder):
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.ffn,
        max_position_embeddings=shape.positions,
        tie_word_embeddings=shape.tied,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    words, first = tokenizer(shape)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(
                    0, 1.5 / parameter.shape[1] ** 0.5 if "embed" not in name else 0.1 if shape.tied else 1
                )
        model.lm_head.weight[:first] = 0
    model.to(getattr(torch, shape.dtype)).save_pretrained(folder)
    words.save_pretrained(folder)
    return model


def ctranslate2(source, folder):
    converter = [
        str(sys.executable).rsplit("/", 1)[0] + "/ct2-transformers-converter",
        "--model",
        source,
        "--output_dir",
        folder,
        "--quantization",
        "float32",
    ]
    subprocess.run(converter, check=True, capture_output=True)


def for_pairs(weight, heads):
    """Returns the rows in llama.cpp's order: it rotates neighbouring pairs, transformers rotates halves (NeoX)."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def gguf_file(shape, model, folder, path, stored=None):
    """Writes a GGUF file. Stored as Q8_0 or Q4_0, matrices are integers of 8 or 4 bits with a 16-bit scale for each 32
    values; with Q4_0 the table of tokens is Q8_0, as the worker has it in I4.
    """
    config, writer = model.config, gguf.GGUFWriter(path, "llama")
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(shape.hidden // shape.heads)
    writer.add_vocab_size(shape.vocabulary)
    wide = shape.dtype == "float32"
    writer.add_file_type(
        gguf.LlamaFileType[f"MOSTLY_{stored}"]
        if stored
        else gguf.LlamaFileType.ALL_F32
        if wide
        else gguf.LlamaFileType.MOSTLY_BF16
    )
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(sorted(vocabulary, key=vocabulary.get))
    writer.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (shape.vocabulary - 1))
    writer.add_token_merges([" ".join(MERGE)])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    for name, tensor in model.state_dict().items():
        if shape.tied and name == "lm_head.weight":
            continue
        parts = name.removesuffix(".weight").split(".")
        if "layers" in parts:
            name = f"blk.{parts[2]}.{names['.'.join(parts[3:])]}.weight"
        else:
            name = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[parts[-1]] + ".weight"
        data = tensor.float().numpy()
        if "attn_q." in name or "attn_k." in name:
            data = for_pairs(data, shape.heads if "attn_q." in name else shape.kv_heads).copy()
        kind = gguf.GGMLQuantizationType[stored or "BF16"]
        if stored == "Q4_0" and "layers" not in parts:
            kind = gguf.GGMLQuantizationType.Q8_0
        if data.ndim == 1 or (wide and not stored):
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, gguf.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(cache, shape=Shape()):
    """Returns the paths of {"huggingface", "ctranslate2", "gguf", "gguf_q8", "gguf_q4"}, made once for this source and
    shape.
    """
    written = pathlib.Path(__file__).read_bytes() + repr(shape).encode()
    root = cache / f"bench-llama-{hashlib.sha256(written).hexdigest()[:12]}"
    if not root.exists():
        partial = pathlib.Path(tempfile.mkdtemp(dir=cache, prefix=".partial-"))
        model = hugging_face(shape, partial / "huggingface")
        ctranslate2(partial / "huggingface", partial / "ctranslate2")
        gguf_file(shape, model, partial / "huggingface", partial / "gguf_q8", "Q8_0")
        gguf_file(shape, model, partial / "huggingface", partial / "gguf_q4", "Q4_0")
        gguf_file(shape, model, partial / "huggingface", partial / "gguf")
        partial.rename(root)
    return {name: root / name for name in ("huggingface", "ctranslate2", "gguf", "gguf_q8", "gguf_q4")}
