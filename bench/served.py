# SPDX-License-Identifier: Apache-2.0
"""Starts the servers that benchmarks measure: a process on a free port that is awaited until it answers."""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import time


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Server:
    """A server process. `command` contains PORT for the port; `log` is the path of its log. After `path` answers,
    the server is stopped while others are measured.
    """

    def __init__(self, name, command, log, path="/health", patience=120, **environment):
        self.name, self.port, self.log = name, free_port(), open(log, "w+")
        ended_with_the_bench = ["setpriv", "--pdeathsig", "TERM", "--"]
        self.process = subprocess.Popen(
            ended_with_the_bench + [str(self.port if part == "PORT" else part) for part in command],
            env={**os.environ, **environment},
            stdout=self.log,
            stderr=self.log,
        )
        end = time.monotonic() + patience
        while not self._answers(path):
            if self.process.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                raise RuntimeError(f"{name} does not serve:\n{self.log.read()[-3000:]}")
            time.sleep(0.1)

    def _answers(self, path):
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", path)
            return connection.getresponse().status == 200
        return False

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def worker(binary, folder, *options):
    """Returns the command that serves a model."""
    return [
        binary,
        "serve",
        "--model",
        folder,
        "--host",
        "127.0.0.1",
        "--port",
        "PORT",
        "--admin-port",
        free_port(),
        "--drain-seconds",
        0,
        *options,
    ]


def completion(port, prompt, tokens):
    """Requests greedy tokens for a prompt of ids and returns [(monotonic time of arrival, ids)] of each event.
    Concurrent requests are batched.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1200)
    connection.request(
        "POST",
        "/v1/completions",
        json.dumps(
            {
                "prompt": prompt,
                "max_tokens": tokens,
                "temperature": 0,
                "stream": True,
                "ignore_eos": True,
                "return_token_ids": True,
            }
        ),
    )
    reply, events = connection.getresponse(), []
    if reply.status != 200:
        raise RuntimeError(f"POST /v1/completions: {reply.status} {reply.read(2000)}")
    while line := reply.readline():
        if line.startswith(b"data: {"):
            events.append((time.monotonic(), line))  # read once all have come
    return [
        (at, [id for choice in json.loads(line[6:])["choices"] for id in choice.get("token_ids", [])])
        for at, line in events
    ]
