"""Writes the seed corpora: seeds.py FOLDER. Small sound inputs of every target, so that the fuzzers begin where the readers accept."""
import io
import json
import pathlib
import re
import struct
import sys
import zipfile

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = [{}, {"__metadata__": {"format": "pt"}}, {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}},
           {"a": {"dtype": "F16", "shape": [], "data_offsets": [0, 2]}, "b": {"dtype": "U8", "shape": [0], "data_offsets": [2, 2]}},
           {"x.y": {"dtype": "BF16", "shape": [1, 1, 4], "data_offsets": [0, 8]}, "z": {"dtype": "F8_E4M3", "shape": [3], "data_offsets": [8, 11]}},
           {"é\"\\": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}, "f4": {"dtype": "F4", "shape": [4], "data_offsets": [8, 10]}}]


def headers():
    for header in HEADERS:
        text = json.dumps(header).encode()
        size = max([entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"], default=0)
        yield struct.pack("<Q", len(text)) + text + bytes(size)


def archives():
    base = torch.arange(12.0).reshape(3, 4)
    module = torch.nn.Linear(2, 2)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.5)
    states = [{}, {"a": base, "t": base.t(), "c": base[:, 1:3]}, {"h": torch.ones(2).half(), "p": torch.nn.Parameter(torch.ones(3)), "i": torch.arange(3)},
              module.state_dict(), {"z": torch.ones(1, dtype=torch.complex64), "e": torch.empty(0, 3), "s": torch.tensor(True)}]
    for state in states:
        for protocol in (2, 4):
            file = io.BytesIO()
            torch.save(state, file, pickle_protocol=protocol)
            yield file.getvalue()


def pickles():
    for archive in archives():
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            yield opened.read(next(name for name in opened.namelist() if name.endswith("data.pkl")))


def policies():
    for path in sorted((ROOT / "policies").glob("*.yaml")):
        text = path.read_bytes()
        yield text
        if b"model_type: gpt2" in text:    # what the target's checkpoint resolves with, and a policy that extends it
            yield b"extends: gpt2\nmodel_type: mine\n"
            yield b"model_type: gpt2\nextends: gpt2\nlet: {eps: \"1e-5\", layers: n_layer}\nignore: [\"h.{l}.x\"]\n"


def expressions():
    texts = {"n_inner ?? 4*hidden", "hidden // 12 % 7 ** 2", "-big - small", "types[0][1]", "expand(types)[l]", "map.a.b == 2 and not tied", "last(split(act, '-'))",
             "starts(act, 'gated-') ? 'a' : list[3][0]", "(hidden / 3) ** -0.5", "none ?? missing ?? false", "1e308 * 10", "l >= 3 or l != 2"}
    for path in sorted((ROOT / "policies").glob("*.yaml")):
        texts |= {text for text in re.findall(r'"([^"\n]+)"', path.read_text()) if len(text) < 200}
    yield from (text.encode() for text in sorted(texts))


WORDS = {"expression": ["??", "**", "//", "==", "!=", "<=", ">=", "starts(", "split(", "last(", "expand(", "true", "false", "null", "and", "or", "not", "hidden", "types", "list", "map", "big", "small"],
         "policy": ["when: ", "extends: ", "model_type: ", "stacks:", "like: ", "prefix: ", "refuse:", "ignore: ", "rename: ", "fused: ", "&a ", "*a", "<<: ", "{l}", "- ", "? "],
         "pickle": ["ccollections\nOrderedDict\n", "ctorch._utils\n_rebuild_tensor_v2\n", "ctorch._utils\n_rebuild_parameter\n", "ctorch\nFloatStorage\n", "ctorch\nHalfStorage\n"],
         "torch_file": ["PK\x01\x02", "PK\x03\x04", "PK\x05\x06", "PK\x06\x06", "PK\x06\x07", "data.pkl", "byteorder"],
         "header": ["\"dtype\":", "\"shape\":", "\"data_offsets\":", "\"__metadata__\":", "\"F32\"", "\"BOOL\"", "\"F6_E2M3\"", "\"C64\""]}


def escaped(word):
    return "".join(c if c.isalnum() or c in " _.:{}[]()?*<>=/!-,&" else f"\\x{ord(c):02x}" for c in word)


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    for target, made in [("header", headers), ("torch_file", archives), ("pickle", pickles), ("policy", policies), ("expression", expressions)]:
        (out / target).mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(made()):
            (out / target / f"seed-{number:04}").write_bytes(content)
        (out / f"{target}.dict").write_text("".join(f'"{escaped(word)}"\n' for word in WORDS[target]))
