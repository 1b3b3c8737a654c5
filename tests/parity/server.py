# SPDX-License-Identifier: Apache-2.0
"""Runs `parallelmodel-worker serve` as a process and sends HTTP requests to it."""

import contextlib
import subprocess
import time

import requests
from ports import free_port

import worker


def forward_body(tensors):
    """The body of a request to /forward with these arrays."""
    return {"inputs": {name: values.tolist() for name, values in tensors.items()}}


class Server:
    """`parallelmodel-worker serve` on a folder, healthy within `patience` seconds."""

    def __init__(self, folder, ranks=2, sizes="", strategy="", options=(), binary=None, patience=60, **environment):
        worker.require_binary()
        self.port, self.admin_port, self.folder = free_port(), free_port(), folder
        self.log = open(folder.with_suffix(".log"), "w+")
        self.process = subprocess.Popen(
            [
                binary or worker.BINARY,
                "serve",
                "--model",
                folder,
                "--ranks",
                str(ranks),
                "--sizes",
                sizes or f"tensor={ranks}",
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--admin-port",
                str(self.admin_port),
                "--drain-seconds",
                "0",
                *(("--strategy", strategy) if strategy else ()),
                *map(str, options),
            ],
            stdout=self.log,
            stderr=self.log,
            env={**worker.ENVIRONMENT, **environment},
        )
        end = time.monotonic() + patience
        while True:
            with contextlib.suppress(requests.ConnectionError):
                if self.get("/health").status_code == 200:
                    return
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no server: {self.logged()[-3000:]}")
            time.sleep(0.05)

    def get(self, path):
        return requests.get(f"http://127.0.0.1:{self.port}{path}", timeout=20)

    def post(self, path, body=None, **more):
        return requests.post(f"http://127.0.0.1:{self.port}{path}", json=body, timeout=60, **more)

    def ask(self, path, body):
        reply = self.post(path, body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def refused(self, path, body, status):
        reply = self.post(path, body)
        assert reply.status_code == status, reply.text
        return reply.json()["error"]

    def logged(self):
        self.log.seek(0)
        return self.log.read()

    def close(self):
        self.process.terminate()
        self.process.wait(30)
