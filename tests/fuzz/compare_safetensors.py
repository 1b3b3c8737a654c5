# SPDX-License-Identifier: Apache-2.0
"""Differential test of the safetensors reader against the safetensors package: compare_safetensors.py PROGRAM SEED
FOLDER... Every file of the folders (the corpus of the fuzzer) and randomly changed files go through both. The worker
may refuse more, for a reason that is listed here; it may never accept a file that safetensors refuses.
"""

import collections
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import safetensors

# reasons for which we refuse what safetensors accepts: names end up in logs and conditions, and no two readers may see
# two tables
STRICTER = (
    "control character",
    "twice",
    "zero byte",
    "expected dtype, shape and data_offsets only",
    "does not begin with",
    "more than 64 dimensions",
    "is null, expected an object",
)
BASE = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "F16", "shape": [8], "data_offsets": [24, 40]},
    "__metadata__": {"format": "pt"},
}


def mutated(header, rng):
    """Returns a header with one change, as bytes."""
    tensors = json.loads(json.dumps(header))
    name = rng.choice([n for n in tensors if n != "__metadata__"])
    entry, kind = tensors[name], rng.randrange(12)
    if kind == 0:
        entry["data_offsets"][rng.randrange(2)] += rng.choice([-1, 1, 4, 1 << 62])
    elif kind == 1:
        entry["shape"] = entry["shape"] + [rng.choice([0, 1, 2, 1 << 40])]
    elif kind == 2:
        entry["dtype"] = rng.choice(["F32", "F16", "I64", "U8", "F8_E4M3", "F4", "bogus", "f32"])
    elif kind == 3:
        del entry[rng.choice(list(entry))]
    elif kind == 4:
        entry["shape"] = rng.choice([[-1], [1.5], ["2"], [[2]], None, 3, [1 << 63, 2], [1 << 64]])
    elif kind == 5:
        entry["data_offsets"] = rng.choice([[0], [0, 1, 2], None, ["0", "8"], [8, 0], [-8, 0]])
    elif kind == 6:
        tensors["__metadata__"] = rng.choice([{}, {"a": "b"}, {"a": 1}, {"a": None}, [], "x", {"a": {"b": "c"}}])
    elif kind == 7:
        tensors[rng.choice(["other", "", "é"])] = {
            "dtype": "U8",
            "shape": [0],
            "data_offsets": rng.choice([[0, 0], [40, 40], [1, 1]]),
        }
    elif kind == 8:
        tensors = rng.choice([[], None, 3, "x", [tensors]])
    text = json.dumps(tensors).encode()
    if kind == 9:
        at = rng.randrange(len(text))
        text = text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
    elif kind == 10:
        text = text[: rng.randrange(len(text))]
    elif kind == 11:
        text = text + rng.choice([b"   ", b"{}", b"\n", b"\0"])
    return text


def changed(whole, rng):
    """Returns a file with a few changed bytes and a matching length."""
    text = bytearray(whole[8:])
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            text[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            text[at:at] = rng.choice(
                [b" ", b"\\u0000", b"\\ud800", b"1e0", b"-0", b"00", b",", b"[", b"{}", b'"', b"\xff", b"\xc3\xa9"]
            )
        elif kind == 2:
            del text[at : at + rng.randrange(1, 5)]
        else:
            text[at:at] = text[max(0, at - 8) : at]
    length = struct.unpack("<Q", whole[:8].ljust(8, b"\0"))[0]
    return struct.pack("<Q", max(0, min(len(text), length + len(text) - len(whole) + 8))) + bytes(text)


def theirs(whole):
    try:
        safetensors.deserialize(whole)
        return "accepted"
    except safetensors.SafetensorError as error:
        return f"refused {error}"


def judge(program, files, folder):
    """Returns counts of (verdict of safetensors, verdict of the worker); an unlisted difference ends the run with
    the file.
    """
    paths = []
    for number, whole in enumerate(files):
        paths.append(folder / str(number))
        paths[-1].write_bytes(whole)
    ours = []
    for begin in range(0, len(paths), 2000):
        done = subprocess.run([program, *paths[begin : begin + 2000]], capture_output=True, timeout=300, check=True)
        ours += done.stdout.decode(errors="replace").splitlines()
    assert len(ours) == len(files), "a reason has a line break"
    counts = collections.Counter()
    for whole, own in zip(files, ours):
        their = theirs(whole)
        counts[their.split()[0], own.split()[0]] += 1
        if their == "accepted" and own != "accepted":
            assert any(reason in own for reason in STRICTER), f"only we refuse: {own}: {whole!r}"
        assert their == "accepted" or own != "accepted", f"only we accept, safetensors: {their}: {whole!r}"
    return counts


if __name__ == "__main__":
    program, seed, *folders = sys.argv[1:]
    rng = random.Random(int(seed))
    kept = [path.read_bytes() for folder in folders for path in sorted(pathlib.Path(folder).iterdir())]
    files = kept + [
        struct.pack("<Q", len(text)) + text + bytes(rng.choice([40] * 8 + [39, 41]))
        for text in (mutated(BASE, rng) for _ in range(1500))
    ]
    files += [changed(rng.choice(kept), rng) for _ in range(3000)]
    with tempfile.TemporaryDirectory() as folder:
        counts = judge(program, files, pathlib.Path(folder))
    print(
        "fuzz: safetensors and we:",
        ", ".join(f"{their}/{own} {count}" for (their, own), count in sorted(counts.items())),
        f"(seed {seed})",
    )
    assert counts["accepted", "accepted"] > 100
