# SPDX-License-Identifier: Apache-2.0
"""Prints measured and modelled seconds of steps with fully sharded weights (strategies Sharded and Offload), with
the hardware parameters of the same run. bench/sharded.sh runs it.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile

import torch
import transformers

transformers.utils.logging.disable_progress_bar()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument(
        "--folder",
        default=os.environ.get("PM_CACHE", pathlib.Path.home() / ".cache/parallelmodel"),
        help="where the checkpoint is written: the disk that is measured",
    )
    options = parser.parse_args()
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=8192,
        hidden_size=options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=16,
        num_key_value_heads=16,
        intermediate_size=options.hidden * 11 // 4,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
        os.sync()  # what is not written yet would be written while it is read
        lines = subprocess.run(
            [options.program, folder, str(options.seconds)], stdout=subprocess.PIPE, text=True, check=True
        ).stdout.splitlines()
    figures, *rows = map(json.loads, lines)
    print(
        f"model {figures['bytes'] / 2**20:,.0f} MiB in fp32; files {figures['fileBandwidth'] / 1e9:.2f} GB/s "
        f"with O_DIRECT; two ranks gather {figures['gatherBandwidth'] / 1e9:.2f} GB/s, "
        f"{figures['gatherLatency'] * 1e6:.0f} us an exchange"
    )
    print(f"{'strategy':12} {'sequences':>10} {'measured ms':>12} {'modelled ms':>12} {'ratio':>6}   resident ms")
    for row in rows:
        print(
            f"{row['strategy']:8} x {row['ranks']} {row['sequences']:10} {row['measured'] * 1e3:12.1f} "
            f"{row['modelled'] * 1e3:12.1f} {row['measured'] / row['modelled']:6.2f}   "
            f"{row['resident'] * 1e3:.1f}"
        )


if __name__ == "__main__":
    main()
