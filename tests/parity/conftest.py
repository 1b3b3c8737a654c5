# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures of the parity tests: one worker for all, the devices that it runs on, a folder for tensors, the
total time.
"""

import time

import pytest
from device_fixtures import FAKE_DEVICE, captured, device, kernels, serve_on_devices  # noqa: F401
from worker_runner import WorkerRunner

import worker


@pytest.fixture(scope="session")
def runner(tmp_path_factory):
    batch = worker.Batch()
    yield WorkerRunner(batch, tmp_path_factory.mktemp("tensors"))
    batch.close()


@pytest.fixture(scope="session")
def hardware():
    return FAKE_DEVICE


def pytest_collection_modifyitems(items):
    """Puts the tests of a file that share a case together, so that they find its models loaded."""
    first = {}  # of each case, the place of its first test

    def place(numbered):
        number, item = numbered
        case = getattr(getattr(item, "callspec", None), "params", {}).get("case")
        return first.setdefault((item.path, case.name), number) if hasattr(case, "name") else number

    items[:] = [item for _, item in sorted(enumerate(items), key=place)]


def pytest_sessionstart(session):
    session.started = time.monotonic()


def pytest_terminal_summary(terminalreporter):
    started = terminalreporter._session.started if hasattr(terminalreporter._session, "started") else None
    if started:
        terminalreporter.write_line(f"parity took {time.monotonic() - started:.0f} s")
