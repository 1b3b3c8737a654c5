#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Profiles with Nsight Compute, which must be in PATH, at the clocks that the GPU has.

ncu.py step SHAPE OUT.csv  the kernels of one decode step of a model of bench/gpu, without CUDA graphs: time by kernel
ncu.py kernels OUT.csv     cases of bench_gpu_kernels: throughput of memory and of the multiprocessors, occupancy
Prints a line of JSON for each kernel."""

import collections
import csv
import json
import os
import pathlib
import re
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "bench/gpu"))
import measure

NCU = ["ncu", "--clock-control", "none", "--target-processes", "all", "--csv", "--page", "raw", "--print-units", "base"]
TIME = "gpu__time_duration.sum"  # nanoseconds
SHARES = {
    "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "processors": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "registers": "launch__registers_per_thread",
}
CASES = [
    "gemv bf16 x f32 4096->28672, 1 row",
    "gemv bf16 x f32 4096->4096, 1 row",
    "gemv bf16 x f32 4096->28672, 8 rows",
    "gemv i8 for bf16 x bf16 4096->28672, 1 row",
    "decode bf16 32/8 heads of 128, 8 x 8192 keys",
    "prefill bf16 32/8 heads of 128, 2048 tokens",
    "sample by top_p 0.9 of 128256, 1 row",
]
STEPS = 4  # tokens of the profiled run


def show(figure, **values):
    print(json.dumps({"figure": figure, **values}), flush=True)


def short(name):
    """Returns a kernel's name without its namespaces and parameters; template arguments stay."""
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", name).partition("(")[0]
    return re.sub(r"^void |\w+::", "", name)[:60]


def profiled(command, metrics, file):
    """Runs a program under ncu. Returns a dictionary of the columns for each launch, in their order."""
    with open(file, "a") as out:
        done = subprocess.run([*NCU, "--metrics", ",".join(metrics), *command], stdout=subprocess.PIPE, text=True)
        out.write(done.stdout)
    lines = done.stdout.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        sys.exit(f"ncu.py: ncu said nothing of a kernel: {' '.join(lines[-3:])[-400:]}")
    rows = list(csv.DictReader(lines[begin:]))
    return [row for row in rows if row["ID"].isdigit()]  # the first row has the units


def number(text):
    return float(text.replace(",", "") or 0)


def one_step(launches, layers):
    """Returns the launches of a whole step: from the first decode attention of the last step but one to before that of
    the last. Each layer has one decode attention."""
    places = [i for i, row in enumerate(launches) if re.search("decode(_mma)?_kernel", row["Kernel Name"])]
    if len(places) < 2 * layers:
        sys.exit(f"ncu.py: {len(places)} launches of decode attention, two steps of {layers} layers were expected")
    return launches[places[-2 * layers] : places[-layers]]


def step(shape, file):
    folder = measure.checkpoint(shape)
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    command = [os.environ["PM_WORKER"], "generate", "--model", str(folder), "--device", "cuda", "--no-graphs"]
    command += ["--input-ids", "5,6,7", "--max-new-tokens", str(STEPS), "--ignore-eos", "--max-concurrency", "1"]
    kernels = collections.defaultdict(list)
    launches = one_step(profiled([*command, "--max-sequence-length", "256"], [TIME], file), layers)
    for row in launches:
        kernels[short(row["Kernel Name"])].append(number(row[TIME]) / 1000)
    total = sum(map(sum, kernels.values()))
    show(f"step of {shape}", us=round(total, 1), launches=len(launches))
    for name, times in sorted(kernels.items(), key=lambda item: -sum(item[1])):
        show(
            f"step of {shape}: {name}", us=round(sum(times), 1), launches=len(times), share=round(sum(times) / total, 4)
        )


def kernels(file):
    bench = pathlib.Path(os.environ["PM_KIT"]) / "bin/bench_gpu_kernels"
    for case in CASES:
        command = [str(bench), "--once", "--filter", f"{case}$"]
        for row in profiled(command, [TIME, *SHARES.values()], file):
            values = {name: round(number(row[metric]), 1) for name, metric in SHARES.items() if row.get(metric)}
            show(f"{case}: {short(row['Kernel Name'])}", us=round(number(row[TIME]) / 1000, 2), **values)


def main():
    if sys.argv[1:2] == ["step"] and len(sys.argv) == 4:
        step(*sys.argv[2:])
    elif sys.argv[1:2] == ["kernels"] and len(sys.argv) == 3:
        kernels(sys.argv[2])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
