# SPDX-License-Identifier: Apache-2.0
"""A replica over several nodes on this machine: one launcher per node, connected over loopback."""

import contextlib
import subprocess
import tempfile
import time
from pathlib import Path

import requests
from ports import free_port

import worker


class Nodes:
    """Runs `parallelmodel-worker serve` once per node, all with the same plan. `counts` are the ranks of each node
    in the partition, `planned` the options of the plan, `options` those of each launcher.
    """

    host = "127.0.0.1"  # where node 0 is for the others

    def enter(self, node):
        """Returns the command that runs another in the node's network."""
        return []

    def __init__(self, folder, counts, sizes="", strategy="", options=(), planned=(), wait=True):
        worker.require_binary()
        self.folder, self.counts, self.port, self.rendezvous = folder, counts, free_port(), free_port()
        self.scratch = Path(tempfile.mkdtemp())
        layout = [*(("--sizes", sizes) if sizes else ()), *(("--strategy", strategy) if strategy else ())]
        made = worker.run("plan", "--model", folder, "--devices", sum(counts), *layout, *planned, "--json")
        assert made.returncode == 0, made.stderr
        self.plan = self.scratch / "plan.json"
        self.plan.write_text(made.stdout)
        self.admin_ports = [free_port() for _ in counts]
        self.options, self.logs = [str(option) for option in options], []
        self.processes = [self.start(node) for node in range(len(counts))] if wait else []
        if wait:
            self.wait_ready()

    def start(self, node, replica_generation=1, nodes=None):
        log = open(self.scratch / f"node{node}-{len(self.logs)}.log", "w+")
        self.logs.append(log)
        return subprocess.Popen(
            [
                *self.enter(node),
                worker.BINARY,
                "serve",
                "--model",
                self.folder,
                "--plan",
                self.plan,
                "--nodes",
                str(nodes or len(self.counts)),
                "--node-rank",
                str(node),
                "--rendezvous",
                f"{self.host}:{self.rendezvous}",
                "--replica-generation",
                str(replica_generation),
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--admin-port",
                str(self.admin_ports[node]),
                "--drain-seconds",
                "0",
                *self.options,
            ],
            stdout=log,
            stderr=log,
        )

    def ready(self, node):
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"http://127.0.0.1:{self.admin_ports[node]}/ready", timeout=2).status_code == 200
        return False

    def status(self, node):
        return requests.get(f"http://127.0.0.1:{self.admin_ports[node]}/status", timeout=5).json()

    def log(self):
        return "\n".join(Path(log.name).read_text(errors="replace") for log in self.logs)

    def wait_ready(self, seconds=120):
        end = time.monotonic() + seconds
        while not all(self.ready(node) for node in range(len(self.counts))):
            if time.monotonic() > end or any(process.poll() is not None for process in self.processes):
                log = self.log()
                self.close()
                raise RuntimeError(f"the nodes did not become ready:\n{log[-6000:]}")
            time.sleep(0.05)

    def close(self):
        """Stops all launchers at once, as a rollout does, and returns their exit codes."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        codes = []
        for process in self.processes:
            try:
                codes.append(process.wait(30))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
        return codes
