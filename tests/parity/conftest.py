"""What parity tests share: one worker for all, the devices that tests run it on, a folder for tensors, the time of the whole."""
import time

import pytest

import worker
from asked import Asked
from on_devices import PRETENDED, device, kernels, recorded, serve_on_devices  # noqa: F401


@pytest.fixture(scope="session")
def asked(tmp_path_factory):
    batch = worker.Batch()
    yield Asked(batch, tmp_path_factory.mktemp("tensors"))
    batch.close()


@pytest.fixture(scope="session")
def hardware():
    return PRETENDED


def pytest_sessionstart(session):
    session.started = time.monotonic()


def pytest_terminal_summary(terminalreporter):
    started = terminalreporter._session.started if hasattr(terminalreporter._session, "started") else None
    if started:
        terminalreporter.write_line(f"parity took {time.monotonic() - started:.0f} s")
