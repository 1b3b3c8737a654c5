# SPDX-License-Identifier: Apache-2.0
"""Runs processes of the worker against a local hub. PM_WORKER names the worker's binary (default
build/release/bin/parallelmodel-worker).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from faulty_hub import Hub

WORKER = Path(os.environ.get("PM_WORKER", ROOT / "build" / "release" / "bin" / "parallelmodel-worker"))
EXAMPLE = Path(os.environ.get("PM_CHECKPOINT", ROOT / "examples" / "tiny-stories"))
TOKEN = "hf_averysecretword"


@pytest.fixture
def hub():
    with Hub() as server:
        yield server


class Worker:
    """Subcommands of the worker that use a hub."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        self.hub, self.folder, self.cache = hub, folder, folder / "cache"
        self.token = folder / "token"
        self.token.write_text(TOKEN + "\n")
        self.environment: dict[str, str] = {}

    def command(self, subcommand: str, *arguments: object) -> list[str]:
        return [str(WORKER), subcommand, *map(str, arguments)]

    def env(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if "proxy" not in name.lower() and not name.startswith("HF_")
        }
        return kept | {"HF_ENDPOINT": self.hub.url, "TMPDIR": str(self.folder)} | self.environment

    def start(self, subcommand: str, *arguments: object) -> subprocess.Popen:
        return subprocess.Popen(
            self.command(subcommand, *arguments),
            env=self.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, subcommand: str, *arguments: object, timeout: float = 120) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(subcommand, *arguments),
            env=self.env(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def fetch_arguments(self, model: str, *more: object) -> list[object]:
        stall_timeout = [] if "--stall-timeout" in more else ["--stall-timeout", 5]
        return ["--model", model, "--cache", self.cache, "--json", *stall_timeout, *more]

    def fetch(self, model: str, *more: object, timeout: float = 120) -> dict:
        """Returns the output of `fetch`, or {"reason", "message"} when it fails."""
        message = self.folder / "termination"
        message.unlink(missing_ok=True)
        done = self.run("fetch", *self.fetch_arguments(model, "--termination-message", message, *more), timeout=timeout)
        if done.returncode == 0:
            return json.loads(done.stdout)
        assert done.returncode in (2, 3, 6), done.stderr
        return json.loads(message.read_text()) | {"code": done.returncode, "log": done.stderr}


@pytest.fixture
def worker(hub, tmp_path) -> Worker:
    return Worker(hub, tmp_path)
