# SPDX-License-Identifier: Apache-2.0
"""One server for all clients. A client is a script that runs in an environment of its own and prints JSON."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "parity"))

import model  # noqa: E402
from server import Server  # noqa: E402

CACHE = Path(os.environ.get("PM_CACHE", Path.home() / ".cache" / "parallelmodel"))
# Requests go to the server only: traces and telemetry are off, and any other request meets a closed port.
QUIET = {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "DO_NOT_TRACK": "1",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1",
}


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny-tools"
    model.make(folder)
    running = Server(folder, ranks=1)
    running.url = f"http://127.0.0.1:{running.port}"
    yield running
    running.close()


class Results:
    """What the steps of a script returned. A step that raised fails the test that reads its result."""

    def __init__(self, command, server, **environment):
        own = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "ANTHROPIC_"))}
        ran = subprocess.run(
            [*map(str, command), server.url, server.folder.name],
            capture_output=True,
            text=True,
            timeout=180,
            env={**own, **QUIET, **environment},
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        self.steps = json.loads(ran.stdout.splitlines()[-1])

    def __getitem__(self, name):
        step = self.steps[name]
        assert "error" not in step, step["error"]
        return step["value"]


@pytest.fixture(scope="session")
def python_client(server):
    """Runs a script of scripts/ by the interpreter of one of the environments that `tools/deps.sh clients` makes."""
    return lambda environment, script: Results(
        [CACHE / environment / "bin" / "python", HERE / "scripts" / script], server
    )


@pytest.fixture(scope="session")
def node_client(server, tmp_path_factory):
    """Runs a script of node/. Node looks for packages beside the script: it runs as a copy beside a link to them."""
    lock = (HERE / "node" / "package-lock.json").read_bytes()
    folder = tmp_path_factory.mktemp("node")
    packages = CACHE / f"clients-node-{hashlib.sha256(lock).hexdigest()[:12]}" / "node_modules"
    (folder / "node_modules").symlink_to(packages)
    for script in (HERE / "node").glob("*.mjs"):
        shutil.copy(script, folder)
    return lambda script: Results(["node", folder / script], server)
