# SPDX-License-Identifier: Apache-2.0
"""Compares decoding behind long contexts with a KV cache in the type of the model and in I8, in one run: servers of the
same random weights answer the same requests in turn. bench/long_context.sh runs it.

Each client has a context of its own, which the prefix cache holds after the first request, so that a round is
decoding. A step reads the keys and values of all clients, and the weights once. A result is the median over the rounds
of the time of a step: the time between the second event of the slowest client and its last, by their number. The
prompt's rate is that of the request that filled the cache.
"""

import argparse
import concurrent.futures
import contextlib
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import transformers

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from served import Server, completion, worker

transformers.utils.logging.disable_progress_bar()
VOCABULARY, HIDDEN, HEADS, LAYERS = 8192, 1024, 8, 6  # heads of size 128
ELEMENT = {"BF16": 2, "F32": 4}


def integers(text):
    return [int(part) for part in text.split(",")]


def pairs(text):
    return [tuple(int(part) for part in pair.split("x")) for pair in text.split(",")]


def checkpoint(folder, kv_heads, positions):
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN * 11 // 4,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=kv_heads,
        max_position_embeddings=positions,
        tie_word_embeddings=True,
    )
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def context(length, client):
    return [10 + (37 * i + 101 * client * (i % 7 + 1)) % (VOCABULARY - 20) for i in range(length)]


def step_seconds(server, clients, length, tokens):
    """Returns the seconds of a step in which all clients decode."""
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        answers = list(
            pool.map(lambda client: completion(server.port, context(length, client), tokens), range(clients))
        )
    begin = max(events[1][0] for events in answers)
    end = min(events[-1][0] for events in answers)
    steps = min(sum(begin < at <= end for at, _ in events) for events in answers)
    return (end - begin) / steps


def fill(server, clients, length):
    """Reads the contexts one after another and returns the tokens per second."""
    times = []
    for client in range(clients):
        before = time.monotonic()
        completion(server.port, context(length, client), 1)
        times.append(time.monotonic() - before)
    return length / statistics.median(times)


def compare(arguments, precision, kv_heads, length, clients, folder):
    model = folder / f"model-{kv_heads}"
    if not model.exists():
        checkpoint(model, kv_heads, max(length for length, _ in arguments.contexts) + 256)
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(
                contextlib.closing(
                    Server(
                        name,
                        worker(
                            arguments.worker,
                            model,
                            "--precision",
                            precision,
                            "--max-sequence-length",
                            length + 256,
                            "--max-concurrency",
                            clients,
                            "--device-memory",
                            "6Gi",
                            *options,
                        ),
                        folder / f"{name}.log",
                        OMP_NUM_THREADS=str(arguments.threads),
                    )
                )
            )
            for name, options in ((precision, ()), ("I8", ("--kv-precision", "I8")))
        ]
        prompts = [fill(server, clients, length) for server in servers]
        found = [[], []]
        for turn in range(arguments.rounds):
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                found[which].append(step_seconds(servers[which], clients, length, arguments.tokens))
    own, codes = (statistics.median(times) for times in found)
    ratios = [a / b for a, b in zip(*found)]
    read = 2 * LAYERS * kv_heads * (HIDDEN // HEADS) * ELEMENT[precision] * length * clients
    print(
        f"{precision:5} {kv_heads:8} {length:7} {clients:8} {read / 1e6:9.0f} {1000 * own:9.2f} {1000 * codes:9.2f} "
        f"{own / codes:7.2f} {min(ratios):6.2f} to {max(ratios):.2f} {prompts[1] / prompts[0]:8.2f}",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--precisions", default="BF16,F32")
    parser.add_argument("--kv-heads", type=integers, default=[2, 8], help=f"of {HEADS} heads")
    parser.add_argument("--contexts", type=pairs, default=pairs("1024x4,4096x1,4096x4,16384x1"), help="TOKENSxCLIENTS")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    print(
        f"{'':5} {'kv heads':>8} {'context':>7} {'clients':>8} {'KV MB':>9} {'ms a step':>9} {'with I8':>9} "
        f"{'ratio':>7} {'of rounds':>14} {'prompts':>8}"
    )
    with tempfile.TemporaryDirectory() as made:
        for precision in arguments.precisions.split(","):
            for kv_heads in arguments.kv_heads:
                for length, clients in arguments.contexts:
                    compare(arguments, precision, kv_heads, length, clients, pathlib.Path(made))
