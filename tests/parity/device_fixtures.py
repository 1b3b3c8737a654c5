# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the worker on devices: `device`, `kernels`, `captured`, `serve_on_devices`.

The fixture `hardware` of the nearest conftest selects the kind of device: the fake device (tests/gpu/fake_device)
here, a GPU in tests/gpu.
"""

import contextlib
import dataclasses
import pathlib
import shutil
import subprocess

import fixtures
import pytest
from cases import BY_NAME
from server import Server
from test_strategies import ranks_of
from worker_runner import WorkerRunner

import worker


@dataclasses.dataclass(frozen=True)
class Hardware:
    """`name` is the value of --device. `devices` is the number of devices, which ranks in threads share."""

    name: str
    binary: pathlib.Path
    devices: int = 2

    @property
    def is_fake(self):
        return self.name == "fake"

    def environment(self, devices=None, kernels=False, graphs=False):
        """Returns the environment of a worker: the number of fake devices, whether the emulated CUDA kernels serve, and
        whether CUDA graphs are captured; GPUs always do both."""
        wanted = {
            "PM_FAKE_DEVICES": devices or self.devices,
            "PM_FAKE_KERNELS": kernels and 1,
            "PM_FAKE_GRAPHS": graphs and 1,
        }
        return {name: str(value) for name, value in wanted.items() if value} if self.is_fake else {}

    def batch(self, *options, kernels=False, graphs=False, **environment):
        return worker.Batch(
            self.binary,
            "--device",
            self.name,
            *map(str, options),
            **{**self.environment(None, kernels, graphs), **environment},
        )

    def run(self, subcommand, *options, **environment):
        """One run to its end."""
        return subprocess.run(
            [self.binary, subcommand, "--device", self.name, *map(str, options)],
            capture_output=True,
            text=True,
            timeout=600,
            env={**worker.ENVIRONMENT, **self.environment(), **environment},
        )

    def server(self, folder, sizes, *options, kernels=False, patience=240, **environment):
        """A process per rank, with a device each."""
        ranks = ranks_of(sizes)
        return Server(
            folder,
            ranks,
            sizes,
            "",
            ("--device", self.name, *options),
            self.binary,
            patience,
            **{**self.environment(ranks, kernels), **environment},
        )


FAKE_DEVICE = Hardware("fake", worker.TOOLS / "fake_device_worker")


@contextlib.contextmanager
def answering(hardware, folder, *options, **wanted):
    with contextlib.closing(hardware.batch(*options, **wanted)) as batch:
        yield WorkerRunner(batch, folder)


@pytest.fixture(scope="module")
def device(hardware, tmp_path_factory):
    """Ranks run in threads; the fake device uses ATen's operations."""
    with answering(hardware, tmp_path_factory.mktemp("tensors")) as runner:
        yield runner


@pytest.fixture(scope="module")
def kernels(hardware, tmp_path_factory):
    """Ranks run in threads with the CUDA kernels; the fake device uses their emulation (tests/gpu/kernels)."""
    with answering(hardware, tmp_path_factory.mktemp("tensors"), kernels=True) as runner:
        yield runner


@pytest.fixture(scope="module")
def captured(hardware, tmp_path_factory):
    """Like `kernels`, with decode steps captured as one CUDA graph per batch size and then replayed."""
    with answering(hardware, tmp_path_factory.mktemp("tensors"), kernels=True, graphs=True) as runner:
        yield runner


@pytest.fixture
def serve_on_devices(hardware, tmp_path):
    """Returns serve_on_devices(case name, sizes), which starts a server with one device per rank."""
    with contextlib.ExitStack() as stack:

        def start(name, sizes, *options, **more):
            folder = shutil.copytree(fixtures.checkpoint(BY_NAME[name]), tmp_path / "model", dirs_exist_ok=True)
            return stack.enter_context(contextlib.closing(hardware.server(folder, sizes, *options, **more)))

        yield start
