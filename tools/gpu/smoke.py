#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates and serves with a small model in each way that could fail by itself: precisions, with and without CUDA
graphs, few and many places, a second start. Prints a line of JSON for each; the exit status is 1 when one is wrong."""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(REPOSITORY / "tests/gpu/worker"), str(REPOSITORY / "bench")]
import machine
import served

MODEL = REPOSITORY / "examples/tiny-stories"
PROMPT, COUNT = [1, 403, 407, 261, 378], 24
PLACES = (4, 32, 64, 256)  # sequences that run at once; each number has other sizes of CUDA graphs
wrong = 0


def show(figure, right, **values):
    global wrong
    wrong += not right
    print(json.dumps({"figure": figure, "right": bool(right), **values}), flush=True)


def generate(worker, device, *options):
    """Returns (the sequence or None, seconds, the last line of the errors)."""
    ids = ",".join(map(str, PROMPT))
    command = [worker, "generate", "--model", MODEL, "--device", device, "--input-ids", ids, "--json", "--ignore-eos"]
    begin = time.monotonic()
    done = subprocess.run(
        [*map(str, command), "--max-new-tokens", str(COUNT), *options], capture_output=True, text=True, timeout=120
    )
    why = (done.stderr.strip().splitlines() or [""])[-1][-300:]
    return json.loads(done.stdout)["sequences"][0] if done.returncode == 0 else None, time.monotonic() - begin, why


def generations(worker, device, precisions):
    expected, _, why = generate(worker, "cpu")
    show("generate F32 on the CPU", expected is not None, why=why if expected is None else "")
    for precision in precisions:
        reference = expected  # other precisions need not agree with the CPU's F32, but with themselves
        if precision != "F32":
            reference, _, _ = generate(worker, device, "--precision", precision, "--no-graphs")
        for name, options in (("without graphs", ["--no-graphs"]), ("with graphs", [])):
            sequence, seconds, why = generate(worker, device, "--precision", precision, *options)
            show(
                f"generate {precision} {name}",
                sequence is not None and sequence == reference,
                seconds=round(seconds, 2),
                why="" if sequence == reference else why or f"{sequence}, not {reference}",
            )


def status(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    return json.loads(connection.getresponse().read())


def serve(worker, device, places, start, logs):
    begin, name = time.monotonic(), f"serve {places} places, start {start}"
    options = ["--device", device, "--max-concurrency", places, "--max-sequence-length", 256]
    command = [str(word) for word in served.worker(worker, MODEL, *options)]
    try:
        with contextlib.closing(served.Server(name, command, logs / f"{places}-{start}.log", patience=90)) as server:
            seconds = time.monotonic() - begin
            tokens = [id for _, ids in served.completion(server.port, PROMPT, COUNT) for id in ids]
            rank = status(server.port, "/memory")["ranks"][0]
        captured = rank.get("graphs", {}).get("captured", 0)
        show(name, len(tokens) == COUNT, seconds=round(seconds, 2), captured=captured)
    except (RuntimeError, OSError) as error:
        show(name, False, why=str(error)[-300:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", default=os.environ.get("PM_WORKER"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--places", type=lambda text: [int(n) for n in text.split(",")], default=PLACES)
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=["F32", "BF16", "F16", "I8"])
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not machine.gpus():
        print(f"no GPU here: {machine.NODES} has no nvidia0, nvidia1, ...")
        sys.exit(77)
    if arguments.device == "fake":  # it has kernels and CUDA graphs only where that is wanted
        os.environ |= {"PM_FAKE_KERNELS": "1", "PM_FAKE_GRAPHS": "1"}
    with tempfile.TemporaryDirectory() as logs:
        for places in arguments.places:
            for start in (1, 2):
                serve(arguments.worker, arguments.device, places, start, pathlib.Path(logs))
    generations(arguments.worker, arguments.device, arguments.precisions)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
