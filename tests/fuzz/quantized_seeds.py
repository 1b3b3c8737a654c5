# SPDX-License-Identifier: Apache-2.0
"""Seeds of tests/fuzz/quantized.cpp: a small checkpoint of each format."""

import json
import math
import struct

WIDTHS = {"F32": 4, "I32": 4, "I64": 8, "F16": 2, "BF16": 2}
GROUP = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": 8}


def compressed(weights):
    return {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["Linear"], "weights": weights}}}


STATE = json.dumps({"shape": [2, 16], "blocksize": 8, "nested_blocksize": 2, "nested_offset": 0.5}).encode()
# settings, tensors by name: type and shape
FORMATS = [
    (
        {"quant_method": "fp8", "weight_block_size": [2, 4]},
        {"a.weight": ("F8_E4M3", [4, 8]), "a.weight_scale_inv": ("F32", [2, 2])},
    ),
    ({"quant_method": "fp8"}, {"a": ("F8_E4M3", [2, 3, 5]), "a_scale_inv": ("BF16", [2, 1, 1])}),
    ({"quant_method": "fp8"}, {"a.weight": ("I8", [2, 16]), "a.scale": ("F8_E8M0", [2, 1])}),
    (
        compressed(GROUP),
        {
            "a.weight_packed": ("I32", [3, 2]),
            "a.weight_scale": ("BF16", [3, 2]),
            "a.weight_shape": ("I64", [2]),
            "a.weight_zero_point": ("I32", [1, 2]),
        },
    ),
    (
        compressed({"num_bits": 8, "type": "float", "strategy": "channel"}),
        {"a.weight": ("F8_E4M3", [3, 5]), "a.weight_scale": ("F32", [3, 1])},
    ),
    (
        compressed({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}),
        {
            "a.weight_packed": ("U8", [2, 8]),
            "a.weight_scale": ("F8_E4M3", [2, 1]),
            "a.weight_global_scale": ("F32", [1]),
        },
    ),
    ({"quant_method": "mxfp4"}, {"a_blocks": ("U8", [2, 3, 1, 16]), "a_scales": ("U8", [2, 3, 1])}),
    (
        {"quant_method": "gptq", "bits": 4, "group_size": 8, "desc_act": True},
        {
            "a.qweight": ("I32", [2, 8]),
            "a.qzeros": ("I32", [2, 1]),
            "a.scales": ("F16", [2, 8]),
            "a.g_idx": ("I32", [16]),
        },
    ),
    (
        {"quant_method": "awq", "bits": 4, "group_size": 8, "version": "gemm"},
        {"a.qweight": ("I32", [16, 1]), "a.qzeros": ("I32", [2, 1]), "a.scales": ("F16", [2, 8])},
    ),
    (
        {"quant_method": "modelopt"},
        {"a.weight": ("U8", [2, 8]), "a.weight_scale": ("F8_E4M3", [2, 1]), "a.weight_scale_2": ("F32", [])},
    ),
    (
        {"quant_method": "bitsandbytes"},
        {
            "a.weight": ("U8", [16, 1]),
            "a.weight.absmax": ("U8", [4]),
            "a.weight.quant_map": ("F32", [16]),
            "a.weight.nested_absmax": ("F32", [2]),
            "a.weight.nested_quant_map": ("F32", [256]),
            "a.weight.quant_state.bitsandbytes__nf4": ("U8", [len(STATE)]),
        },
    ),
    (
        {"quant_method": "bitsandbytes"},
        {"a.weight": ("I8", [2, 8]), "a.SCB": ("F32", [2]), "a.weight_format": ("U8", [])},
    ),
]
WORDS = [
    '"quant_method":',
    '"bits":',
    '"group_size":',
    '"shape":',
    '"data_offsets":',
    '"strategy":',
    '"g_idx"',
    '"blocksize":',
    '"nested_blocksize":',
]


def quantized():
    for settings, tensors in FORMATS:
        header, data = {}, b""
        for name, (kind, shape) in tensors.items():
            part = bytes(WIDTHS.get(kind, 1) * math.prod(shape))
            if name.endswith("weight_shape"):
                part = struct.pack("<qq", 3, 16)
            if ".quant_state." in name:
                part = STATE
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
            data += part
        text = json.dumps(header).encode()
        yield json.dumps(settings).encode() + b"\n" + struct.pack("<Q", len(text)) + text + data
