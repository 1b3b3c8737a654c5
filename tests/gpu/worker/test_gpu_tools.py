# SPDX-License-Identifier: Apache-2.0
"""Runs the kernel tests under compute-sanitizer, and the GPU benchmark. The benchmark must run and print its table; its
measurements are not checked."""

import os
import re
import shutil
import subprocess
import sys

import machine
import pytest

import worker

BUILD = worker.BINARY.resolve().parents[1]
# the CUDA wheels contain no compute-sanitizer; a toolkit does
SANITIZER = shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/cuda/bin"]))


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
def test_kernels_are_clean_under_compute_sanitizer(tool):
    """In a rehearsal runs the emulated tests, which are compiled with the host's sanitizer."""
    if machine.REHEARSAL and tool != "memcheck":
        pytest.skip("one sanitizer is enough to rehearse four")
    if not machine.REHEARSAL and not SANITIZER:
        pytest.skip("compute-sanitizer is neither in PATH nor in /usr/local/cuda/bin")
    command = (
        [BUILD / "tests/cuda_emulated"]
        if machine.REHEARSAL
        else [SANITIZER, "--tool", tool, "--error-exitcode", "9", BUILD / "tests/cuda_device"]
    )
    # without the tests that repeat launches of other tests many times
    run = subprocess.run(
        [*command, "--gtest_filter=-Samples.Choose*:Samples.Frequencies*:Samples.ALarge*"],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert re.search(r"\[  PASSED  \] [1-9]\d+ tests", run.stdout) and "SKIPPED" not in run.stdout, run.stdout[-2000:]


def test_the_benchmark_prints_its_table(tmp_path):
    device = "cpu" if machine.REHEARSAL else "cuda"
    command = [
        machine.REPOSITORY / "bench/gpu.sh",
        BUILD,
        "--device",
        device,
        "--shapes",
        "tiny",
        "--batches",
        "1,3",
        "--prompt",
        "8",
        "--tokens",
        "8",
        "--prefill",
        "32",
        "--rounds",
        "1",
    ]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PM_PYTHON": sys.executable, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
    )
    assert run.returncode == 0, run.stdout + run.stderr[-3000:]
    print(run.stdout)
    head, titles, *rows = run.stdout.strip().splitlines()
    assert re.match(r"tiny, bfloat16: \d+\.\d+ GB of weights, \d+ GB/s by a copy, [\d.]+ Tflop/s by a product", head), (
        head
    )
    assert titles.split() == ["tok/s", "ms"]
    engines = ("ParallelModel", "HF eager", "HF static + compile")
    measured = [("batch 1", "bandwidth"), ("batch 3", "bandwidth"), ("prompt 32", "peak")]
    wanted = [(engine, what, limit) for engine in engines for what, limit in measured]
    for (engine, what, limit), row in zip(wanted, rows, strict=True):
        assert re.match(rf"{re.escape(engine)} +{what} +[\d.]+ +[\d.]+ +[\d.]+ of the {limit}$", row), row
