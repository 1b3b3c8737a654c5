# SPDX-License-Identifier: Apache-2.0
"""Detects what these tests run on: the GPUs of this machine; the fake device, in a rehearsal; or nothing, and then each
test is skipped.

There is no GPU only where the kernel shows no device node of one: /dev/nvidia0, /dev/nvidia1, ... Where there is a node
nothing is skipped for want of a GPU. A driver that does not answer, devices that are hidden from this process, and a
worker that does not find them or was built without CUDA are failures. tests/gpu/kernels/present.h decides the same for
the programs of ctest.
"""

import ctypes
import os
import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
NODES = pathlib.Path(os.environ.get("PM_GPU_NODES", "/dev"))  # another folder only where a test simulates a machine
# PM_GPU_REHEARSE=1: all of it; short: the first case of each test
REHEARSAL = os.environ.get("PM_GPU_REHEARSE", "")
BUILD = REPOSITORY / "build" / ("release" if REHEARSAL else "cuda")


class Broken(Exception):
    """A GPU exists, but cannot be used."""


def nodes():
    """Returns the device nodes of GPUs."""
    return sorted(path for path in NODES.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name))


def driver_count():
    """Returns the number of GPUs that the driver shows to this process, without creating a context. Raises Broken."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Broken(f"the driver's library does not load: {error}") from None
    count = ctypes.c_int()
    for name, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(count),))):
        if code := getattr(cuda, name)(*arguments):
            raise Broken(f"the driver's {name} says {code}")
    if count.value == 0:
        raise Broken("the driver shows none to this process; look at CUDA_VISIBLE_DEVICES")
    return count.value


def gpus():
    """Returns how many GPUs can be tested; 0: this machine has none. Raises Broken."""
    found = nodes()
    if not found:
        return 0
    try:
        return driver_count()
    except Broken as error:
        raise Broken(f"{', '.join(map(str, found))}: there is a GPU, and {error}") from None
