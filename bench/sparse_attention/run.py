# SPDX-License-Identifier: Apache-2.0
"""Time per token of one layer's attention against the length of the text: the worker's window, blocks and dense
attention, and transformers' modules for the same patterns, without projections. Everything is timed in turns, length by
length, and the best of the rounds counts. 12 heads of 64, fp32, a window of 512 with one global token, blocks of 64
with 3 random ones."""

import argparse
import json
import subprocess
import time

HEADS, HEAD_DIM, WINDOW, BLOCK, RANDOM = 12, 64, 512, 64, 3


def modules():
    """transformers' attention modules, whose projections are left out. Returns functions of the states [1, length,
    hidden]."""
    import torch
    from transformers import BigBirdConfig, LongformerConfig
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    hidden = HEADS * HEAD_DIM
    window = LongformerSelfAttention(
        LongformerConfig(hidden_size=hidden, num_attention_heads=HEADS, attention_window=[WINDOW]), 0
    )
    blocks = BigBirdBlockSparseAttention(
        BigBirdConfig(
            hidden_size=hidden,
            num_attention_heads=HEADS,
            block_size=BLOCK,
            num_random_blocks=RANDOM,
            max_position_embeddings=1 << 14,
        )
    )
    for module in (window, blocks):
        module.eval()
        for name in ("query", "key", "value", "query_global", "key_global", "value_global"):
            if hasattr(module, name):
                setattr(module, name, torch.nn.Identity())

    def by_window(x):
        mask = torch.zeros(x.shape[:2])
        mask[:, 0] = 1e4
        # queries are divided in place: without projections they need memory of their own
        return window(x.clone(), mask, mask < 0, mask > 0, True)

    def by_blocks(x):
        mask = torch.ones(x.shape[:2])
        blocked, band, from_mask, to_mask = BigBirdModel.create_masks_for_block_sparse_attn(mask, BLOCK)
        return blocks(x, band, from_mask, to_mask, blocked, blocked)

    return {"window": by_window, "blocks": by_blocks}


def timed(run, x, rounds):
    import torch

    best = float("inf")
    with torch.no_grad():
        for _ in range(rounds):
            start = time.perf_counter()
            run(x)
            best = min(best, time.perf_counter() - start)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="bench_sparse_attention")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192], help="tokens of a text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", help="a file for the figures")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    theirs = modules()
    rows = []
    print(f"us per token, {options.threads} threads, best of {options.rounds}; beside it MiB beside the inputs")
    print(f"{'tokens':>7} {'window':>15} {'blocks':>15} {'dense':>15} {'transformers: window':>21} {'blocks':>8}")
    for length in options.lengths:
        asked = [options.program, *map(str, (length, options.rounds, options.threads))]
        ours = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
        x = torch.randn(1, length, HEADS * HEAD_DIM)
        row = {"tokens": length, **{f"ours_{name}": found for name, found in ours.items()}}
        row |= {f"transformers_{name}": timed(run, x, options.rounds) for name, run in theirs.items()}
        rows.append(row)
        cells = [f"{1e6 * found[0] / length:.1f} ({found[1] / 2**20:.0f})" for found in ours.values()]
        times = [1e6 * row[f"transformers_{name}"] / length for name in theirs]
        print(f"{length:>7} " + " ".join(f"{cell:>15}" for cell in cells) + f" {times[0]:>21.1f} {times[1]:>8.1f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
