# SPDX-License-Identifier: Apache-2.0
"""These tests need a GPU; `make cuda` runs them. Without a GPU each test is skipped, and the end of the output lists
the skipped tests with their counts.

PM_GPU_REHEARSE=1 runs them on the fake device backend (tests/gpu/fake_device), with smaller shapes where a shape is
large; PM_GPU_REHEARSE=short runs the first case of each test only. Tests marked `anywhere` always run.
"""

import collections
import os
import sys

import machine

os.environ.setdefault("PM_WORKER", str(machine.BUILD / "bin/parallelmodel-worker"))
sys.path.append(str(machine.REPOSITORY / "tests/parity"))

import pytest
from device_fixtures import Hardware, captured, device, kernels, serve_on_devices  # noqa: F401
from test_strategies import ranks_of
from worker_runner import WorkerRunner

import worker

PLENTY = 8  # fake devices, as many as any test needs


@pytest.fixture(scope="session")
def hardware(pytestconfig):
    """Returns the device of the tests. Ranks as threads share one fake device, as they share one GPU."""
    return (
        Hardware("fake", worker.TOOLS / "fake_device_worker", 1)
        if machine.REHEARSAL
        else Hardware("cuda", worker.BINARY, pytestconfig.gpus)
    )


@pytest.fixture(scope="session")
def runner(hardware, tmp_path_factory):
    """The same program on the CPU."""
    batch = worker.Batch(hardware.binary)
    yield WorkerRunner(batch, tmp_path_factory.mktemp("tensors"))
    batch.close()


def wanted(item):
    """Returns how many GPUs a test needs: the number of its mark `gpus`; ranks as processes need one each, those of
    other nodes share them."""
    if mark := item.get_closest_marker("gpus"):
        return mark.args[0]
    given = item.callspec.params if hasattr(item, "callspec") else {}
    if "serve_on_devices" in item.fixturenames:
        return ranks_of(given["sizes"])
    return max(given.get("counts", [1]))


def pytest_configure(config):
    config.addinivalue_line("markers", "anywhere: needs no GPU")
    config.addinivalue_line("markers", "gpus(count): needs so many")
    try:
        config.gpus = PLENTY if machine.REHEARSAL else machine.gpus()
    except machine.Broken as error:
        pytest.exit(str(error), returncode=1)


def pytest_collection_modifyitems(config, items):
    if machine.REHEARSAL == "short":
        firsts = {}
        for item in items:
            firsts.setdefault(item.nodeid.partition("[")[0], item)
        items[:] = firsts.values()
    for item in items:
        if item.get_closest_marker("anywhere"):
            continue
        if not config.gpus:
            item.add_marker(pytest.mark.skip(reason=f"no GPU here: {machine.NODES} has no nvidia0, nvidia1, ..."))
        elif wanted(item) > config.gpus:
            item.add_marker(
                pytest.mark.skip(
                    reason=f"needs {wanted(item)} GPUs, here {'is' if config.gpus == 1 else 'are'} {config.gpus}"
                )
            )


def pytest_terminal_summary(terminalreporter):
    """Prints the skipped tests by reason, each with its number of cases."""
    counts = collections.defaultdict(collections.Counter)
    for report in terminalreporter.stats.get("skipped", []):
        file, _, name = report.nodeid.partition("[")[0].partition("::")
        counts[report.longrepr[2].removeprefix("Skipped: ")][file.rpartition("/")[2], name] += 1
    for reason, tests in counts.items():
        terminalreporter.write_line(f"{sum(tests.values())} skipped: {reason}")
        file = None
        for (of, name), count in tests.items():
            if of != file:
                terminalreporter.write_line(f"  {of}")
            file = of
            terminalreporter.write_line(f"    {count:4} {name}")
    if machine.REHEARSAL:
        terminalreporter.write_line("rehearsed on a fake device: no test was run on a GPU")
