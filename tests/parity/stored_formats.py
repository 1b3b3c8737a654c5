# SPDX-License-Identifier: Apache-2.0
"""Writers of quantised checkpoints, from the definitions of their formats: each turns a matrix [out, in] into the
tensors that a checkpoint stores for it. What the oracle's own package writes is made by that package.
"""

import json
import re
import shutil

import numpy
import torch
from safetensors.torch import load_file, save_file

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
LINEAR = r"(q_proj|k_proj|v_proj|o_proj|q_[ab]_proj|kv_a_proj_with_mqa|kv_b_proj|gate_proj|up_proj|down_proj)\.weight$"


def write(source, target, quantise, quantization_config, chosen=LINEAR, **changes):
    """A copy of the checkpoint `source` in which `quantise(name, matrix)` gives what is stored for each chosen
    matrix."""
    target.mkdir(exist_ok=True)
    for path in source.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, target)
    config = json.loads((source / "config.json").read_text())
    config |= {"quantization_config": quantization_config, **changes}
    (target / "config.json").write_text(json.dumps(config))
    stored = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        stored |= quantise(name, tensor.float()) if re.search(chosen, name) else {name: tensor}
    save_file({name: tensor.contiguous() for name, tensor in stored.items()}, target / "model.safetensors")
    return target


def base(name):
    return name.removesuffix(".weight")


def fp8_blocks(block=(128, 128), scale_type=torch.float32, suffix="_scale_inv", stated=True):
    """FP8 with a scale for each block; `scale_type` may be exponents, as torch or as bytes ("u8")."""

    def quantise(name, w):
        rows, columns = w.shape[-2:]
        down, across = block if block else (rows, columns)
        padded = torch.nn.functional.pad(w, (0, -columns % across, 0, -rows % down))
        tiles = padded.unflatten(-1, (-1, across)).unflatten(-3, (-1, down))
        scale = tiles.abs().amax((-1, -3)).clamp(min=1e-6) / 448
        if scale_type in (torch.float8_e8m0fnu, "u8"):
            scale = scale.log2().ceil().exp2()
        kept = scale if scale_type == "u8" else scale.to(scale_type).float()
        wide = kept.repeat_interleave(down, -2).repeat_interleave(across, -1)[..., :rows, :columns]
        if scale_type == "u8":
            scale = (scale.log2() + 127).to(torch.uint8)
        else:
            scale = scale.to(scale_type)
        if not block:
            scale = scale.reshape(w.shape[:-2])
        more = {f"{base(name)}.activation_scale": torch.tensor(0.5)} if not block and w.dim() == 2 else {}
        return {name: (w / wide).to(torch.float8_e4m3fn), f"{name}{suffix}": scale, **more}

    return quantise


def fp8_config(block=(128, 128), **more):
    return {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": block, **more}


def words(codes, bits):
    """Codes [.., n] to I32 [.., ceil(n bits / 32)], the first code in the lowest bits of the first word."""
    codes = numpy.asarray(codes, dtype=numpy.uint8)
    streams = (codes[..., None] >> numpy.arange(bits) & 1).reshape(*codes.shape[:-1], -1)
    streams = numpy.pad(streams, [(0, 0)] * (codes.ndim - 1) + [(0, -streams.shape[-1] % 32)]).astype(numpy.uint8)
    return torch.from_numpy(numpy.packbits(streams, axis=-1, bitorder="little").view(numpy.int32).copy())


def integer_groups(w, group, bits, symmetric=True, order=None):
    """Quantises [out, in] by groups of inputs. Returns codes, scales F16 and zero points [out, groups], all unsigned,
    and the values that they stand for; `order` is the group of each input."""
    order = torch.arange(w.shape[1]) // group if order is None else order
    groups, top = int(order.max()) + 1, 2**bits - 1
    scale, zero = torch.empty(w.shape[0], groups), torch.empty(w.shape[0], groups)
    for g in range(groups):
        part = w[:, order == g]
        if symmetric:
            scale[:, g], zero[:, g] = part.abs().amax(1) / (2 ** (bits - 1)), 2 ** (bits - 1)
        else:
            low, high = part.amin(1).clamp(max=0), part.amax(1).clamp(min=0)
            scale[:, g] = (high - low) / top
            zero[:, g] = (-low / scale[:, g]).round().clamp(1, top)
    scale = scale.half()
    codes = (w / scale.float()[:, order] + zero[:, order]).round().clamp(0, top)
    values = scale.float()[:, order] * (codes - zero[:, order])
    return codes.to(torch.uint8), scale, zero.to(torch.uint8), values


def gptq(bits=4, group=32, symmetric=False, version="gptq", act_order=False, values=None):
    """GPTQ: codes packed along inputs, zero points along outputs, v1 stores them less one."""

    def quantise(name, w):
        size = w.shape[1] if group == -1 else group
        order = None
        if act_order:
            generator = torch.Generator().manual_seed(len(name))
            order = (torch.arange(w.shape[1]) // size)[torch.randperm(w.shape[1], generator=generator)]
        codes, scale, zero, dense = integer_groups(w, size, bits, symmetric, order)
        if values is not None:
            values[name] = dense
        index = order if act_order else torch.arange(w.shape[1]) // size
        return {
            f"{base(name)}.qweight": words(codes, bits).T,
            f"{base(name)}.qzeros": words(zero.T - (1 if version == "gptq" else 0), bits),
            f"{base(name)}.scales": scale.T,
            f"{base(name)}.g_idx": index.to(torch.int32),
        }

    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order, "sym": symmetric}
    return quantise, config | {"checkpoint_format": version}


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def awq(group=32, values=None, order=tuple(AWQ_ORDER)):
    """AWQ's gemm layout: eight outputs in a word, in AWQ's order."""

    def packed(codes):  # [rows, out]
        return words(codes.reshape(len(codes), -1, 8)[..., list(order)].reshape(codes.shape), 4)

    def quantise(name, w):
        codes, scale, zero, dense = integer_groups(w, group, 4, symmetric=False)
        if values is not None:
            values[name] = dense
        return {
            f"{base(name)}.qweight": packed(codes.T),
            f"{base(name)}.qzeros": packed(zero.T),
            f"{base(name)}.scales": scale.T,
        }

    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    return quantise, config


def nearest_e2m1(x):
    return (x[..., None] - E2M1).abs().argmin(-1).to(torch.uint8)


def nibbles(codes):
    """Codes of 4 bits [.., n] to bytes [.., n / 2], the low half first."""
    return codes[..., 0::2] | codes[..., 1::2] << 4


def mxfp4(name, w):
    """MXFP4 of experts [experts, in, out]: blocks of 32 inputs of the transposed matrix."""
    w = w.transpose(1, 2)
    blocks = w.unflatten(-1, (-1, 32))
    power = (blocks.abs().amax(-1) / 6).clamp(min=2.0**-120).log2().ceil()
    codes = nearest_e2m1(blocks / power.exp2()[..., None])
    return {f"{name}_blocks": nibbles(codes), f"{name}_scales": (power + 127).to(torch.uint8)}


def modelopt_nvfp4(values=None):
    """ModelOpt's NVFP4: E2M1 with E4M3 scales of 16 inputs and one F32 scale."""

    def quantise(name, w):
        whole = w.abs().max() / (6 * 448)
        blocks = w.unflatten(-1, (-1, 16))
        scale = (blocks.abs().amax(-1) / 6 / whole).to(torch.float8_e4m3fn)
        factor = scale.float() * whole
        codes = nearest_e2m1(blocks / factor.clamp(min=1e-9)[..., None])
        if values is not None:
            values[name] = (E2M1[codes.long()] * factor[..., None]).flatten(-2)
        return {
            name: nibbles(codes).flatten(-2),
            f"{name}_scale": scale,
            f"{name}_scale_2": whole,
            f"{base(name)}.input_scale": torch.tensor(1.0),
        }

    return quantise, {"quant_method": "modelopt", "quant_algo": "NVFP4"}


def compressed(weights, fmt):
    """compressed-tensors, by its own compressor. `weights` are its QuantizationArgs as a map."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    args = QuantizationArgs(**weights)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)

    def quantise(name, w):
        w = w.bfloat16()
        rows, columns = w.shape
        strategy = weights["strategy"]
        if strategy == "tensor":
            down, across = rows, columns
        elif strategy == "channel":
            down, across = 1, columns
        elif strategy == "block":
            down, across = weights["block_structure"]
        else:
            down, across = 1, weights["group_size"]
        padded = torch.nn.functional.pad(w.float(), (0, -columns % across, 0, -rows % down))
        tiles = padded.unflatten(-1, (-1, across)).unflatten(0, (-1, down))
        low, high = tiles.amin((1, 3)).clamp(max=0), tiles.amax((1, 3)).clamp(min=0)
        state = {"weight": w}
        if fmt == "nvfp4-pack-quantized":
            state["weight_global_scale"] = (448 * 6 / w.float().abs().max()).reshape(1)
            scale = torch.maximum(high, -low) / 6 * state["weight_global_scale"]
            state["weight_scale"] = scale.to(torch.float8_e4m3fn).bfloat16()
        elif weights["type"] == "float":
            state["weight_scale"] = (torch.maximum(high, -low) / 448).bfloat16()
        elif weights["symmetric"]:
            state["weight_scale"] = (torch.maximum(high, -low) / (2 ** (weights["num_bits"] - 1) - 0.5)).bfloat16()
        else:
            top = 2 ** weights["num_bits"] - 1
            scale = ((high - low) / top).bfloat16()
            zero = (-low / scale.float()).round() - 2 ** (weights["num_bits"] - 1)
            state |= {"weight_scale": scale, "weight_zero_point": zero.clamp(-128, 127).to(torch.int8)}
        if strategy == "tensor":
            state["weight_scale"] = state["weight_scale"].reshape(1)
        stored = BaseCompressor.get_value_from_registry(fmt).compress(state, scheme)
        return {f"{base(name)}.{part}": tensor for part, tensor in stored.items()}

    group = {"targets": ["Linear"], "weights": weights, "format": fmt}
    config = {"quant_method": "compressed-tensors", "format": fmt, "quantization_status": "compressed"}
    return quantise, config | {"config_groups": {"group_0": group}, "ignore": ["lm_head"]}


def bitsandbytes4(values, kind="nf4", nested=True, block=64):
    """NF4 and FP4 by bitsandbytes itself; `nested`: its scales are quantised too."""

    def quantise(name, w):
        from bitsandbytes import functional

        codes, state = functional.quantize_4bit(
            w.bfloat16(), blocksize=block, compress_statistics=nested, quant_type=kind
        )
        values[name] = functional.dequantize_4bit(codes, state)
        return {name: codes} | {f"{name}.{key}": part for key, part in state.as_dict(packed=True).items()}

    return quantise, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind}


def bitsandbytes8(values):
    """LLM.int8() by bitsandbytes itself."""

    def quantise(name, w):
        from bitsandbytes import functional

        codes, scale, _ = functional.int8_vectorwise_quant(w.half())
        values[name] = functional.int8_vectorwise_dequant(codes, scale)
        form = torch.tensor(0, dtype=torch.uint8)
        return {name: codes, f"{base(name)}.SCB": scale, f"{base(name)}.weight_format": form}

    return quantise, {"quant_method": "bitsandbytes", "load_in_8bit": True}
