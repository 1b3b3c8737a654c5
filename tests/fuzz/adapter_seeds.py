# SPDX-License-Identifier: Apache-2.0
"""Seeds of tests/fuzz/adapter.cpp: adapters of its three base models, in each form of weights."""

import io
import json
import math
import struct

import torch

# [out, in] of the matrices of one layer, as adapter_input.h and tests/unit/worker/policy/synthetic.cpp have them
LLAMA = {
    "self_attn.q_proj": (10, 8),
    "self_attn.k_proj": (2, 8),
    "self_attn.v_proj": (2, 8),
    "self_attn.o_proj": (8, 10),
    "mlp.gate_proj": (6, 8),
    "mlp.up_proj": (6, 8),
    "mlp.down_proj": (8, 6),
}
PHI3 = {
    "self_attn.qkv_proj": (14, 8),
    "self_attn.o_proj": (8, 10),
    "mlp.gate_up_proj": (12, 8),
    "mlp.down_proj": (8, 6),
}
GPT2 = {"attn.c_attn": (60, 20), "attn.c_proj": (20, 20), "mlp.c_fc": (80, 20), "mlp.c_proj": (20, 80)}
LLAMA_VOCABULARY = ("model.embed_tokens", [11, 8])  # the name of the table, and the shape of table and head
GPT2_VOCABULARY = ("transformer.wte", [101, 20])
BASES = [(LLAMA, "model.layers", 2), (PHI3, "model.layers", 2), (GPT2, "transformer.h", 3)]
WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}
TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
LINES, SAFETENSORS, TORCH, FITTING = range(4)


def config(targets, **more):
    return {"peft_type": "LORA", "r": 2, "lora_alpha": 3, "target_modules": targets, **more}


def factors(base, targets, rank=2, kind="F32", prefix="", only=None, ranks=None):
    """The tensors of an adapter of every layer, or of one: name, type and shape."""
    matrices, stem, layers = BASES[base]
    for layer in range(layers) if only is None else (only,):
        for name, (out, into) in matrices.items():
            if name.rsplit(".", 1)[1] not in targets:
                continue
            own = (ranks or {}).get(name.rsplit(".", 1)[1], rank)
            module = f"base_model.model.{prefix}{stem}.{layer}.{name}"
            yield f"{module}.lora_A.weight", kind, [own, into]
            yield f"{module}.lora_B.weight", kind, [out, own]


def lines(tensors):
    return "\n".join(" ".join([name, kind, *map(str, shape)]) for name, kind, shape in tensors).encode()


def safetensors(tensors):
    header, end = {}, 0
    for name, kind, shape in tensors:
        begin, end = end, end + WIDTHS[kind] * math.prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(i * 5 % 61 for i in range(end))


def torch_file(tensors):
    file = io.BytesIO()
    made = {name: (torch.arange(math.prod(shape)) % 7).reshape(shape).to(TYPES[kind]) for name, kind, shape in tensors}
    torch.save(made, file)
    return file.getvalue()


WRITERS = {LINES: lines, SAFETENSORS: safetensors, TORCH: torch_file}


def adapters():
    def seed(base, form, settings, tensors):
        return bytes([base, form]) + json.dumps(settings).encode() + b"\n" + WRITERS[form](tensors)

    for base, (matrices, _, _) in enumerate(BASES):
        names = list(dict.fromkeys(name.rsplit(".", 1)[1] for name in matrices))
        yield seed(base, LINES, config(names), factors(base, names))
        for number, form in enumerate(WRITERS):
            one = [names[number]]
            for kind in WIDTHS:
                yield seed(base, form, config(one, layers_to_transform=[0]), factors(base, one, kind=kind, only=0))
    one, two = ["q_proj"], ["k_proj", "down_proj"]
    for settings, tensors in [
        (config(one, use_rslora=True), factors(0, one)),
        (config(one, use_rslora=False, bias="none", use_dora=False, modules_to_save=None), factors(0, one)),
        (config(one, init_lora_weights="gaussian", exclude_modules="x"), factors(0, one, kind="BF16", only=1)),
        (config(one, init_lora_weights="pissa"), factors(0, one)),
        (config(one, init_lora_weights="OLoRA"), factors(0, one)),
        (config(one, use_rslora=0), factors(0, one)),
        (config(one, exclude_modules=""), factors(0, one, only=0)),  # a layer is missing
        (config(one, alpha_pattern={"\\w_proj": 5}), factors(0, one)),
        (config(one), [(f"base_model.model.lora_{f}.weight", "F32", [2, 2]) for f in "AB"]),
        (config(".*q_proj", lora_alpha=0.5), factors(0, one, only=0)),
        (
            config(two, rank_pattern={"k_proj": 3, "^model\\.layers\\.0\\.mlp\\.down_proj$": 2}),
            factors(0, two, ranks={"k_proj": 3}),
        ),
        (
            config(two, alpha_pattern={"layers.1.self_attn.k_proj": 5, "mlp\\.down_proj": 1e3}),
            factors(0, two, kind="F16"),
        ),
        (config(one, r=40), factors(0, one, rank=40)),
        (config(one), factors(0, one, prefix="model.")),
        (
            config(one, layers_to_transform=0),
            [(f"base_model.model.q_proj.lora_{f}.weight", "F32", [2, 2]) for f in "AB"],
        ),
        (
            config(one, layers_to_transform=0),
            [(name, kind + "!" * ("_A" in name), shape) for name, kind, shape in factors(0, one, only=0)],
        ),
    ]:
        yield seed(0, LINES, settings, tensors)
    for base, (matrices, _, layers) in enumerate(BASES):
        names = list(dict.fromkeys(name.rsplit(".", 1)[1] for name in matrices))
        every = range(len(matrices) * layers)
        for more, triples in [
            ({}, [(matrix, 0, 0) for matrix in every]),
            ({"layers_to_transform": [1]}, [(matrix, matrix % 12, 2) for matrix in every]),
            ({"r": 5, "rank_pattern": {names[0]: 4}, "layers_to_transform": 1}, [(every[-1], 2, 0)]),
        ]:
            targets = "x" if "r" in more else names
            settings = json.dumps(config(targets, **more)).encode()
            yield bytes([base, FITTING]) + settings + b"\n" + b"".join(map(bytes, triples))
    for base, (table, head) in enumerate([LLAMA_VOCABULARY] * 2 + [GPT2_VOCABULARY]):
        stem = BASES[base][1]
        for more in (
            {"modules_to_save": ["lm_head"]},
            {"modules_to_save": ["lm_head", table.rsplit(".", 1)[1]]},
            {"modules_to_save": [table], "ensure_weight_tying": True},
            {"modules_to_save": ["classifier", "score"]},
        ):
            settings = json.dumps(config("x", **more)).encode()
            yield bytes([base, FITTING]) + settings + b"\n" + bytes((0, 0, 2))
        name = next(iter(BASES[base][0])).rsplit(".", 1)[1]
        settings = config([name], modules_to_save=["lm_head", "embed_tokens", "wte"], ensure_weight_tying=True)
        both = [(f"base_model.model.{module}.weight", "F16", head) for module in ("lm_head", table)]
        for saved in (
            both,
            both[:1],
            [(f"base_model.model.lm_head.{part}", "F32", head) for part in ("weight", "bias")],
        ):
            yield seed(base, LINES, settings, [*factors(base, [name]), *saved])
            yield seed(base, SAFETENSORS, {**settings, "modules_to_save": [stem]}, [*factors(base, [name]), *saved])
            yield seed(base, TORCH, settings, [*factors(base, [name]), *saved])
    for triples in (  # refused: a name that many modules have, a module twice, and each fault of fitting_lines()
        [(0, 3, 2)],
        [(0, 0, 2), (0, 2, 2)],
        *([(0, fault << 4, 2)] for fault in range(11, 16)),
    ):
        yield bytes([0, FITTING]) + json.dumps(config("x")).encode() + b"\n" + b"".join(map(bytes, triples))
    for key in ("use_dora", "modules_to_save", "rank_pattern", "peft_type"):
        settings = json.dumps(config(one)).encode()[:-1] + b', "%s": \1}' % key.encode()  # the later one counts
        yield bytes([0, LINES]) + settings + b"\n" + lines(factors(0, one, only=0))


WORDS = [
    *('"peft_type":', '"LORA"', '"r":', '"lora_alpha":', '"use_rslora":', '"use_dora":', '"bias":', '"lora_bias":'),
    *('"target_modules":', '"rank_pattern":', '"alpha_pattern":', '"layers_to_transform":', '"exclude_modules":'),
    *(
        '"init_lora_weights":',
        '"modules_to_save":',
        '"ensure_weight_tying":',
        '"target_parameters":',
        "true",
        "false",
        "null",
        "1e308",
        '"^',
    ),
    *("base_model.model.", "model.layers.0.", "self_attn.", "mlp.", "q_proj", "k_proj", "down_proj", "qkv_proj"),
    *(
        ".lora_A.weight",
        ".lora_B.weight",
        "lm_head.weight BF16 11 8",
        "model.embed_tokens.weight",
        "transformer.wte.weight F16 101 20",
        '["lm_head"]',
        '["classifier", "score"]',
        "lora_embedding_A",
        " F32 ",
        " F16 ",
        " BF16 ",
        " F64 ",
        "! ",
        " 2 8",
        " 10 2",
    ),
]
