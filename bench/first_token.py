#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the seconds from the start of a process to the first token of a model, beside transformers.

Engines take turns, so that all meet the same load of the machine and the same page cache. The median of the rounds is
printed, and for the worker its parts: until it is ready (process, load, connections between ranks), and the request.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from served import Server, completion, worker

PROMPT = [1, 2, 3, 4]
PEER = """
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
print(model.generate(torch.tensor([[1, 2, 3, 4]]), max_new_tokens=1, do_sample=False)[0, -1].item(), flush=True)
"""


def ours(binary, folder, ranks):
    """Returns seconds until the server is ready, and from there to the first token; and the token."""
    begin = time.monotonic()
    with tempfile.NamedTemporaryFile() as log:
        server = Server("the worker", worker(binary, folder, "--ranks", str(ranks)), log.name)
        try:
            ready = time.monotonic()
            (at, ids), *_ = completion(server.port, PROMPT, 1)
            return ready - begin, at - ready, ids[0]
        finally:
            server.close()


def transformers(folder):
    begin = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", PEER, folder], stdout=subprocess.PIPE, text=True) as process:
        token = int(process.stdout.readline())
        return time.monotonic() - begin, token


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--model", default=Path(__file__).parents[1] / "examples" / "tiny-stories")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    parts, peer, tokens = {1: [], 2: []}, [], set()
    for _ in range(given.rounds):
        for ranks, all_parts in parts.items():
            *seconds, token = ours(given.worker, given.model, ranks)
            all_parts.append(seconds)
            tokens.add(token)
        seconds, token = transformers(given.model)
        peer.append(seconds)
        tokens.add(token)
    if len(tokens) != 1:
        sys.exit(f"the engines do not agree on the token: {tokens}")
    print("| engine | until ready, s | first token, s | together, s |\n|---|---|---|---|")
    for ranks, all_parts in parts.items():
        ready, first = (statistics.median(column) for column in zip(*all_parts, strict=True))
        print(f"| ParallelModel, {ranks} rank{'s' * (ranks > 1)} | {ready:.2f} | {first:.3f} | {ready + first:.2f} |")
    print(f"| transformers | | | {statistics.median(peer):.2f} |")


if __name__ == "__main__":
    main()
