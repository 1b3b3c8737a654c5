# SPDX-License-Identifier: Apache-2.0
"""Compares prompts with other engines in one run: the same random weights, prompts that no engine has seen before, and
the time from the request to the first token, engines in turn. bench/prefill.sh runs it.

The result of an engine is the prompt's tokens divided by that time: of its best round, and the median of all. CPU
time is the minimum over rounds, of all threads; other load disturbs it least. ParallelModel is measured over HTTP, the
others by a call within their process.
"""

import contextlib
import os
import pathlib
import random
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "decode")]
import checkpoints
import processes
from processes import MODEL, PRECISIONS, cpu_seconds, engines_of

CACHE = pathlib.Path(os.environ.get("PM_CACHE", pathlib.Path.home() / ".cache/parallelmodel"))


def timed(engine, prompt):
    """Returns seconds by the clock and of the processors until the first token."""
    spent, begin = cpu_seconds(engine.process.pid), time.monotonic()
    _, times = engine.run(prompt, 1)
    return times[0] - begin, cpu_seconds(engine.process.pid) - spent


def measure(engines, length, rounds):
    """Returns for each engine by name the pairs of seconds of all rounds."""
    draw = random.Random(length)
    found = {engine.name: [] for engine in engines}
    for turn in range(rounds + 1):
        prompt = [draw.randrange(1000, 20000) for _ in range(length)]
        for engine in engines if turn % 2 == 0 else engines[::-1]:
            seconds = timed(engine, prompt)
            if turn > 0:  # the first warms
                found[engine.name].append(seconds)
    return found


def report(found, length):
    rivals = [min(s for s, _ in rounds) for name, rounds in found.items() if name not in ("ParallelModel", "before")]
    for name, rounds in found.items():
        clock = [s for s, _ in rounds]
        against = f"{min(rivals) / min(clock):17.2f}" if rivals and name == "ParallelModel" else ""
        print(
            f"{length:6} {name:16} {length / min(clock):12.0f} {length / statistics.median(clock):8.0f} "
            f"{1000 * min(cpu for _, cpu in rounds) / length:11.3f} {against}",
            flush=True,
        )


def compare(arguments, precision, threads, log):
    shape = checkpoints.Shape(**{**MODEL, "positions": 4096}, dtype=PRECISIONS[precision][0])
    paths = checkpoints.make(CACHE, shape)
    print(
        f"\n{precision}, {threads} thread{'s' * (threads > 1)}\n"
        f"{'prompt':6} {'':16} {'tokens/s best':>12} {'median':>8} {'CPU ms/tok':>11} {'of the best peer':>17}"
    )
    with contextlib.ExitStack() as stack:
        engines = list(engines_of(arguments, precision, threads, paths, log, stack))
        for length in arguments.lengths:
            report(measure(engines, length, arguments.rounds), length)


def add_arguments(parser):
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")], default=[128, 512, 2048])
    parser.add_argument("--rounds", type=int, default=6, help="of each engine in turn")


if __name__ == "__main__":
    processes.run(__doc__, compare, add_arguments)
