# SPDX-License-Identifier: Apache-2.0
"""A test is skipped only where there is no GPU. A folder in place of /dev, with files named like device nodes,
simulates a machine; no device is visible to the processes that run there."""

import os
import subprocess
import sys

import machine
import pytest

import worker

pytestmark = pytest.mark.anywhere
CUDA = machine.REPOSITORY / "build/cuda/tests"


def run(command, nodes, **environment):
    hidden = {name: value for name, value in os.environ.items() if name != "PM_GPU_REHEARSE"} | {
        "PM_GPU_NODES": str(nodes),
        "CUDA_VISIBLE_DEVICES": "",
    }
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, env=hidden | environment)


def suite(nodes):
    return run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            machine.REPOSITORY / "tests/gpu/worker/test_gpu_processes.py",
        ],
        nodes,
    )


@pytest.fixture(params=[[], ["nvidiactl", "nvidia-uvm", "nvidia-caps", "null"]], ids=["nothing", "no numbered node"])
def empty(request, tmp_path):
    for name in request.param:
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture(params=["nvidia0", "nvidia7"])
def with_gpu(request, tmp_path):
    """A container may see another GPU than the first."""
    (tmp_path / request.param).touch()
    return tmp_path


def test_without_a_device_node_tests_are_skipped_by_name(empty):
    done = suite(empty)
    assert done.returncode == 0 and "passed" not in done.stdout and "failed" not in done.stdout, done.stdout
    assert f"skipped: no GPU here: {empty} has no nvidia0, nvidia1, ..." in done.stdout
    assert "8 test_a_lost_rank_ends_the_group_in_time_whatever_the_device_waits_for" in done.stdout


def test_with_a_device_node_a_driver_that_shows_nothing_is_a_failure(with_gpu):
    done = suite(with_gpu)
    assert done.returncode == 1 and "skipped" not in done.stdout, done.stdout
    assert f"{next(with_gpu.iterdir())}: there is a GPU, and the driver" in done.stdout + done.stderr, (
        done.stdout + done.stderr
    )


@pytest.mark.parametrize("program", ["cuda_device", "cuda_nccl"])
def test_programs_of_ctest_decide_the_same(program, tmp_path):
    if not (CUDA / program).exists():
        pytest.skip(f"{program} is not built: preset cuda does")
    command = [CUDA / program, "--gtest_filter=-Nccl.WhenARankIsKilled*"]
    without = run(command, tmp_path)
    assert without.returncode == 0 and "no GPU here" in without.stdout and "FAILED" not in without.stdout, (
        without.stdout[-2000:] + without.stderr[-2000:]
    )
    (tmp_path / "nvidia0").touch()
    there = run(command, tmp_path)
    assert there.returncode == 1 and "there is a GPU, and" in there.stdout and "SKIPPED" not in there.stdout, (
        there.stdout[-2000:] + there.stderr[-2000:]
    )


def test_the_worker_without_a_device_ends_with_a_reason(tmp_path):
    if machine.REHEARSAL or not worker.BINARY.exists():
        pytest.skip(f"{machine.REPOSITORY / 'build/cuda'} has no worker that knows cuda")
    done = run([worker.BINARY, "generate", "--model", tmp_path, "--device", "cuda", "--input-ids", "1"], tmp_path)
    assert done.returncode == 2 and "NoDevice" in done.stderr and "no such device is visible" in done.stderr, (
        done.stderr
    )
