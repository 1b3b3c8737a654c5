# SPDX-License-Identifier: Apache-2.0
"""Compares the decoding of one stream with other engines and a plain read of as many bytes, in one run: the same
random weights, the same prompt, greedy, engines in turn. bench/decode.sh runs it.

The result of an engine is its fastest stretch of --window consecutive tokens over all rounds, and the median of all
stretches: on a shared machine the first is what the engine can reach. The read is measured in stretches of as many
repetitions. CPU time per token, of all threads and including the prompt, is the minimum over rounds; with one thread
it is the value that other load disturbs least.
"""

import contextlib
import os
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import checkpoints
import processes
from engines import Ours, Read, rates
from processes import MODEL, PRECISIONS, cpu_seconds, engines_of

CACHE = pathlib.Path(os.environ.get("PM_CACHE", pathlib.Path.home() / ".cache/parallelmodel"))


def matrices(shape, precision):
    """Returns the matrices that one token reads, as OUT, IN and the bytes of a row."""
    element = PRECISIONS[precision][1]
    rows = [(out, into, int(into * element)) for out, into in layer_matrices(shape)]
    head = PRECISIONS["I8"][1] if precision in ("I4", "I8A8") else element
    return rows + [(shape.vocabulary, shape.hidden, int(shape.hidden * head))]


def layer_matrices(shape):
    kv = shape.hidden // shape.heads * shape.kv_heads
    layer = [
        (shape.hidden + 2 * kv, shape.hidden),
        (shape.hidden, shape.hidden),
        (2 * shape.ffn, shape.hidden),
        (shape.hidden, shape.ffn),
    ]
    return layer * shape.layers


def measure(engines, arguments, prompt):
    """Returns, for each engine by name, all rates, the ids, and the minimum CPU time per token."""
    found, ids, cpu_time = {engine.name: [] for engine in engines}, {}, {}
    for engine in engines:
        ids[engine.name], _ = engine.run(prompt, arguments.tokens)  # warm
    for turn in range(arguments.rounds):
        for engine in engines if turn % 2 == 0 else engines[::-1]:
            before = cpu_seconds(engine.process.pid)
            _, times = engine.run(prompt, arguments.tokens)
            spent = (cpu_seconds(engine.process.pid) - before) / arguments.tokens
            cpu_time[engine.name] = min(spent, cpu_time.get(engine.name, spent))
            found[engine.name] += rates(times, arguments.window)
    return found, ids, cpu_time


def all_engines(arguments, precision, threads, paths, shape, log, stack):
    """As engines_of, behind the read and beside ours on as many ranks as threads."""

    def add(engine):
        return stack.enter_context(contextlib.closing(engine))

    rows = [f"{out}x{row}" for out, _, row in matrices(shape, precision)]
    yield add(Read("read", [arguments.read, threads, 1, *rows], threads, log, ready=False))
    yield from engines_of(arguments, precision, threads, paths, log, stack)
    if threads > 1:
        yield add(
            Ours(f"ParallelModel n={threads}", arguments.worker, paths["huggingface"], precision, threads, 1, log)
        )


def same(ids, other):
    return next((i for i, (a, b) in enumerate(zip(ids, other)) if a != b), min(len(ids), len(other)))


def compare(arguments, precision, threads, log):
    dtype, _ = PRECISIONS[precision]
    shape = checkpoints.Shape(**MODEL, dtype=dtype)
    paths = checkpoints.make(CACHE, shape)
    weights = sum(out * row for out, _, row in matrices(shape, precision))
    prompt = [1000 + 37 * i % 20000 for i in range(arguments.prompt)]
    with contextlib.ExitStack() as stack:
        engines = list(all_engines(arguments, precision, threads, paths, shape, log, stack))
        found, ids, cpu_time = measure(engines, arguments, prompt)
    best = {name: max(values) for name, values in found.items()}
    rivals = [best[name] for name in ("llama.cpp", "CTranslate2") if name in best]
    print(
        f"\n{precision}, {threads} thread{'s' * (threads > 1)}: {weights / 1e6:.0f} MB of weights a token\n"
        f"{'':20} {'tok/s best':>10} {'median':>7} {'GB/s':>6} {'of the read':>12} {'of the best peer':>17} "
        f"{'CPU ms/tok':>11} {'same tokens':>12}"
    )
    for name, values in found.items():
        rival = f"{best[name] / max(rivals):17.2f}" if rivals and name.startswith("Par") else f"{'':17}"
        agree = (
            ""
            if name in ("read", "ParallelModel")
            else f"{same(ids[name], ids['ParallelModel'])} of {arguments.tokens}"
        )
        print(
            f"{name:20} {best[name]:10.1f} {statistics.median(values):7.1f} "
            f"{best[name] * weights / 1e9:6.1f} {best[name] / best['read']:12.2f} {rival} "
            f"{1000 * cpu_time[name]:11.1f} {agree:>12}",
            flush=True,
        )


def add_arguments(parser):
    parser.add_argument("--read", required=True, help="the program bench_read")
    parser.add_argument("--prompt", type=int, default=8, help="tokens")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument(
        "--rounds", type=int, default=12, help="of each engine in turn; few of them miss the machine's best moments"
    )


if __name__ == "__main__":
    processes.run(__doc__, compare, add_arguments)
