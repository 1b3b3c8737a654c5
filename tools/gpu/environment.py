#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what a machine with a GPU has, and which programs of the kit start there: a line of JSON for each. The exit
status is 1 where there is a GPU that cannot be used."""

import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests/gpu/worker"))
import machine

KIT = pathlib.Path(os.environ["PM_KIT"])
# what each program is asked to show that it starts, without a device
STARTS = {
    "bin/parallelmodel-worker": ["--version"],
    "bin/bench_gpu_kernels": ["--list"],
    "bin/bench_ops": ["--help"],
    "tests/cuda_device": ["--gtest_list_tests"],
    "tests/cuda_nccl": ["--gtest_list_tests"],
}


def show(figure, **values):
    print(json.dumps({"figure": figure, **values}), flush=True)


def said(*command):
    """Returns (exit status, what the command printed); 127 where there is no such program."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, (done.stdout + done.stderr).strip()


def torch_of_this_python():
    """Returns (version, git version) of the torch that the kit will use, without importing it."""
    found = importlib.util.find_spec("torch")
    text = (pathlib.Path(found.origin).parent / "version.py").read_text() if found else ""
    version, git = (re.search(rf"^{name}.*= '([^']+)'", text, re.M) for name in ("__version__", "git_version"))
    return version and version[1], git and git[1]


def main():
    manifest = json.loads((KIT / "manifest.json").read_text()) if (KIT / "manifest.json").exists() else {}
    version, git = torch_of_this_python()
    show(
        "system",
        libc=" ".join(platform.libc_ver()),
        needs=manifest.get("glibc"),
        python=platform.python_version(),
        cores=os.cpu_count(),
        kernel=platform.release(),
        memory_in_shm=shutil.disk_usage("/dev/shm").free if pathlib.Path("/dev/shm").exists() else 0,
        disk=shutil.disk_usage(KIT if KIT.exists() else "/").free,
    )
    show("torch", version=version, git=git, same=git == manifest.get("torch", {}).get("git"))
    for tool in ("nvcc", "ncu", "compute-sanitizer"):
        status, text = said(tool, "--version")
        show(tool, found=status == 0, version=next(iter(re.findall(r"\d+\.\d+[.\d]*", text)), ""))
    for program, arguments in STARTS.items():
        status, text = said(KIT / program, *arguments)
        show(f"{pathlib.Path(program).name} starts", value=status == 0, why="" if status == 0 else text[-300:])
    status, text = said(
        "nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"
    )
    show("nvidia-smi", found=status == 0, answer=text[:200])
    try:
        devices = machine.gpus()
        show("devices", value=devices, nodes=[path.name for path in machine.nodes()])
    except machine.Broken as error:
        show("devices", value=0, why=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
