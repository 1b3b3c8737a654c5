"""One random Llama-shaped checkpoint in the three forms that the engines read: Hugging Face's, CTranslate2's, GGUF.

All weights and sums are fp32. Output rows of the end token and of bytes are zero, so that greedy answers never end early and every token is
a word of its own in the streams; prompts are made of bytes.
"""
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers

LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCABULARY, POSITIONS = 8, 512, 8, 4, 1408, 8192, 2048
END, MERGE = "<|end|>", ("\u0100", "\u0101")    # bytes 0 and 1: llama.cpp wants a merge, no prompt has this one
transformers.utils.logging.disable_progress_bar()


def tokenizer():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [END, *letters, "".join(MERGE)] + [f"\u0120w{i}" for i in range(VOCABULARY - 2 - len(letters))]
    whole = tokenizers.Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, [MERGE]))
    whole.pre_tokenizer, whole.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=whole, eos_token=END, bos_token=END, unk_token=END, pad_token=END), 2 + len(letters)


def hugging_face(folder):
    torch.manual_seed(7)
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
                                      intermediate_size=FFN, max_position_embeddings=POSITIONS, tie_word_embeddings=False, bos_token_id=0, eos_token_id=0, pad_token_id=0)
    model = transformers.LlamaForCausalLM(config).eval()
    words, first = tokenizer()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 1 if "embed" in name else 1.5 / parameter.shape[1] ** 0.5)
        model.lm_head.weight[:first] = 0
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return model


def ctranslate2(source, folder):
    converter = [str(sys.executable).rsplit("/", 1)[0] + "/ct2-transformers-converter", "--model", source, "--output_dir", folder, "--quantization", "float32"]
    subprocess.run(converter, check=True, capture_output=True)


def for_pairs(weight, heads):
    """llama.cpp turns neighbours, transformers halves: the rows in its order."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def gguf_file(model, folder, path):
    config, writer = model.config, gguf.GGUFWriter(path, "llama")
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(sorted(vocabulary, key=vocabulary.get))
    writer.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * (VOCABULARY - 1))
    writer.add_token_merges([" ".join(MERGE)])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
             "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    for name, tensor in model.state_dict().items():
        parts = name.removesuffix(".weight").split(".")
        if "layers" in parts:
            name = f"blk.{parts[2]}.{names['.'.join(parts[3:])]}.weight"
        else:
            name = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[parts[-1]] + ".weight"
        data = tensor.float().numpy()
        if "attn_q." in name or "attn_k." in name:
            data = for_pairs(data, HEADS if "attn_q." in name else KV_HEADS).copy()
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(cache):
    """{"huggingface", "ctranslate2", "gguf"}: paths. Made once for what this file says."""
    root = cache / f"bench-serving-{hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:12]}"
    if not root.exists():
        partial = pathlib.Path(tempfile.mkdtemp(dir=cache, prefix=".partial-"))
        model = hugging_face(partial / "huggingface")
        ctranslate2(partial / "huggingface", partial / "ctranslate2")
        gguf_file(model, partial / "huggingface", partial / "gguf")
        partial.rename(root)
    return {name: root / name for name in ("huggingface", "ctranslate2", "gguf")}
