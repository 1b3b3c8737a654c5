"""Tests that want a GPU, run by `make cuda`. Without one each is skipped by name, and the end of the output says which and how many of each.

PM_GPU_REHEARSE=1 runs them on a pretended device (tests/pretend), with smaller shapes where a shape is large; PM_GPU_REHEARSE=short the first case of each test. What is marked `anywhere` runs in any case.
"""
import collections
import os
import sys

import machine

os.environ.setdefault("PM_WORKER", str(machine.BUILD / "bin/parallelmodel-worker"))
sys.path.append(str(machine.REPOSITORY / "tests/parity"))

import pytest  # noqa: E402

import worker  # noqa: E402
from asked import Asked  # noqa: E402
from on_devices import Hardware, device, kernels, recorded, serve_on_devices  # noqa: E402, F401
from test_strategies import ranks_of  # noqa: E402

PLENTY = 8    # pretended devices, as many as any test wants


@pytest.fixture(scope="session")
def hardware(pytestconfig):
    """Ranks as threads share one pretended device, as they do one GPU."""
    return Hardware("pretend", worker.TOOLS / "pretend_worker", 1) if machine.REHEARSAL else Hardware("cuda", worker.BINARY, pytestconfig.gpus)


@pytest.fixture(scope="session")
def asked(hardware, tmp_path_factory):
    """The same program on the processor."""
    batch = worker.Batch(hardware.binary)
    yield Asked(batch, tmp_path_factory.mktemp("tensors"))
    batch.close()


def wanted(item):
    """How many GPUs a test needs: what its mark `gpus` says; ranks as processes need one each, those of other nodes share them."""
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
            item.add_marker(pytest.mark.skip(reason=f"needs {wanted(item)} GPUs, here {'is' if config.gpus == 1 else 'are'} {config.gpus}"))


def pytest_terminal_summary(terminalreporter):
    """Which tests were skipped, by reason, each with its number of cases."""
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
        terminalreporter.write_line("rehearsed on a pretended device: nothing here was run on a GPU")
