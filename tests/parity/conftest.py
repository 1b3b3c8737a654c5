"""What parity tests share: one worker for all, a folder for tensors, the time of the whole."""
import time

import pytest
from safetensors.numpy import load_file, save_file

import worker


class Asked:
    """The worker's answers under the names of the oracle's; by tensor parallelism unless `sizes` are given."""

    def __init__(self, batch, folder):
        self.batch, self.folder = batch, folder

    def forward(self, model, ranks, inputs, **options):
        paths = {"inputs": str(self.folder / "in.safetensors"), "outputs": str(self.folder / "out.safetensors")}
        save_file(inputs, paths["inputs"])
        self.batch.run({"model": str(model), "ranks": ranks, "sizes": f"tensor={ranks}", "hidden_states": True, "attentions": True, **paths, **options})
        return load_file(paths["outputs"])

    def generate(self, model, ranks, rows, policy="", sizes="", strategy="", offload_to="", precision=None, **options):
        held = {"precision": precision} if precision else {}
        return self.batch.run({"model": str(model), "ranks": ranks, "policy": policy, "strategy": strategy, "offload_to": offload_to, "sizes": sizes or f"tensor={ranks}", **held,
                               "generate": {"input_ids": rows, **options}})["sequences"]


@pytest.fixture(scope="session")
def asked(tmp_path_factory):
    batch = worker.Batch()
    yield Asked(batch, tmp_path_factory.mktemp("tensors"))
    batch.close()


def pytest_sessionstart(session):
    session.started = time.monotonic()


def pytest_terminal_summary(terminalreporter):
    started = terminalreporter._session.started if hasattr(terminalreporter._session, "started") else None
    if started:
        terminalreporter.write_line(f"parity took {time.monotonic() - started:.0f} s")
