#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the bytes of full-size models, one rank at a time, from sparse files: resident, planned, ideal, and the
peak of loading. `bench/load.sh` runs it.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import tempfile

import torch
import transformers

MIB = 1 << 20
MODELS = {
    "GPT-Neo-2.7B": (
        "GPTNeoForCausalLM",
        transformers.GPTNeoConfig(
            hidden_size=2560, num_layers=32, num_heads=20, attention_types=[[["global", "local"], 16]]
        ),
    ),
    "GPT-J-6B": ("GPTJForCausalLM", transformers.GPTJConfig()),
    "T5-3B": (
        "T5ForConditionalGeneration",
        transformers.T5Config(d_model=1024, d_kv=128, d_ff=16384, num_heads=32, num_layers=24, vocab_size=32128),
    ),
    "LLaMA-7B": ("LlamaForCausalLM", transformers.LlamaConfig()),
    "Falcon-7B": (
        "FalconForCausalLM",
        transformers.FalconConfig(hidden_size=4544, num_hidden_layers=32, num_attention_heads=71),
    ),
}


def write(folder, kind, config, values=None):
    """Writes the checkpoint that transformers would save in fp16. Each tensor has the data of `values(name, shape)`,
    or is a hole of the sparse file, which reads as zeros.
    """
    with torch.device("meta"):
        model = getattr(transformers, kind)(config)
    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    header, offset = {}, 0
    for key, tensor in model.state_dict().items():
        if key in tied:
            continue
        header[key] = {
            "dtype": "F16",
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + 2 * tensor.numel()],
        }
        offset += 2 * tensor.numel()
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for key, tensor in header.items() if values else ():
            values(key, tensor["shape"]).tofile(file)
        file.truncate(8 + len(text) + offset)
    config.architectures, config.dtype = [kind], torch.float16
    config.save_pretrained(folder)


def said(command):
    return [
        json.loads(line)
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    ]


def rows(worker, counts, most, every_rank, names=None, device="cpu", models=MODELS):
    """Returns a row per model, rank count and rank. A rank that needs more than `most` bytes is not loaded: its row
    has only planned values.
    """
    for name in names or models:
        with tempfile.TemporaryDirectory() as folder:
            write(pathlib.Path(folder), *models[name])
            for n in counts:
                arguments = [worker, "bench", "load", "--model", folder, "--ranks", str(n), "--device", device]
                plans = said(arguments + ["--dry-run"])
                for plan in plans if every_rank else plans[:1]:
                    small = plan["planned"] <= most
                    yield {"model": name, **(said(arguments + ["--rank", str(plan["rank"])])[0] if small else plan)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", default="build/bin/parallelmodel-worker")
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 3, 4, 8])
    parser.add_argument("--most-gib", type=float, default=16, help="load nothing larger; its row is what the plan says")
    parser.add_argument("--device", default="cpu", help="where to: cpu, or cuda in a worker that was built with it")
    parser.add_argument("--every-rank", action="store_true", help="not only rank 0, which holds the most")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.json:
        print(
            f"{'model, fp16':14}{'ranks':>6}{'rank':>5}{'planned':>12}{'held':>12}"
            f"{'of ideal':>10}{'peak - held':>13}{'load':>9}"
        )
    for row in rows(
        options.worker, options.ranks, options.most_gib * (1 << 30), options.every_rank, device=options.device
    ):
        if options.json:
            print(json.dumps(row), flush=True)
            continue
        ideal = row["planned"] * row["ranks"] / row["whole"]
        loaded = "weights" in row
        held, over = (
            (f"{row['weights'] / MIB:,.1f}", f"{(row['peak'] - row['weights']) / MIB:.1f}") if loaded else ("-", "-")
        )
        seconds = f"{row['seconds']:.2f} s" if loaded else "-"
        print(
            f"{row['model']:14}{row['ranks']:6}{row['rank']:5}{row['planned'] / MIB:12,.1f}"
            f"{held:>12}{ideal:10.4f}{over:>13}{seconds:>9}",
            flush=True,
        )


if __name__ == "__main__":
    main()
