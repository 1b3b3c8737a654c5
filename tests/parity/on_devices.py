"""The kinds of devices that tests run the worker on, and the worker there as fixtures: `device`, `kernels`, `recorded`, `serve_on_devices`.

Which kind it is says the fixture `hardware` of the conftest beside a test: here a pretended one (tests/pretend), for tests/gpu a GPU.
"""
import contextlib
import dataclasses
import pathlib
import shutil
import subprocess

import pytest

import fixtures
import worker
from asked import Asked
from cases import BY_NAME
from server import Server
from test_strategies import ranks_of


@dataclasses.dataclass(frozen=True)
class Hardware:
    """`name`: as --device knows it. `devices`: how many there are, which ranks as threads share."""
    name: str
    binary: pathlib.Path
    devices: int = 2

    @property
    def pretended(self):
        return self.name == "pretend"

    def environment(self, devices=None, kernels=False, graphs=False):
        """Of a worker. Pretended devices are as many as are asked for, and are told whether CUDA's kernels serve, emulated, and whether steps are recorded; GPUs do both."""
        wanted = {"PM_PRETEND_DEVICES": devices or self.devices, "PM_PRETEND_KERNELS": kernels and 1, "PM_PRETEND_GRAPHS": graphs and 1}
        return {name: str(value) for name, value in wanted.items() if value} if self.pretended else {}

    def batch(self, *options, kernels=False, graphs=False, **environment):
        return worker.Batch(self.binary, "--device", self.name, *map(str, options), **{**self.environment(None, kernels, graphs), **environment})

    def run(self, verb, *options, **environment):
        """One run to its end."""
        return subprocess.run([self.binary, verb, "--device", self.name, *map(str, options)], capture_output=True, text=True, timeout=600,
                              env={**worker.ENVIRONMENT, **self.environment(), **environment})

    def server(self, folder, sizes, *options, kernels=False, patience=60, **environment):
        """A process per rank, with a device each."""
        ranks = ranks_of(sizes)
        return Server(folder, ranks, sizes, "", ("--device", self.name, *options), self.binary, patience, **{**self.environment(ranks, kernels), **environment})


PRETENDED = Hardware("pretend", worker.TOOLS / "pretend_worker")


@contextlib.contextmanager
def answering(hardware, folder, *options, **wanted):
    with contextlib.closing(hardware.batch(*options, **wanted)) as batch:
        yield Asked(batch, folder)


@pytest.fixture(scope="module")
def device(hardware, tmp_path_factory):
    """Ranks as threads; of a pretended device ATen's operations."""
    with answering(hardware, tmp_path_factory.mktemp("tensors")) as asked:
        yield asked


@pytest.fixture(scope="module")
def kernels(hardware, tmp_path_factory):
    """Ranks as threads, whose work is done by the CUDA kernels; of a pretended device under their emulation (tests/cuda)."""
    with answering(hardware, tmp_path_factory.mktemp("tensors"), kernels=True) as asked:
        yield asked


@pytest.fixture(scope="module")
def recorded(hardware, tmp_path_factory):
    """As kernels, and decoding steps are recorded once for each size of batch and then played again on the same memory."""
    with answering(hardware, tmp_path_factory.mktemp("tensors"), kernels=True, graphs=True) as asked:
        yield asked


@pytest.fixture
def serve_on_devices(hardware, tmp_path):
    """serve_on_devices(case name, sizes): a server on devices, one per rank."""
    with contextlib.ExitStack() as stack:
        def start(name, sizes, *options, **more):
            folder = shutil.copytree(fixtures.checkpoint(BY_NAME[name]), tmp_path / "model")
            return stack.enter_context(contextlib.closing(hardware.server(folder, sizes, *options, **more)))
        yield start
