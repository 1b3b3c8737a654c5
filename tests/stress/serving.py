# SPDX-License-Identifier: Apache-2.0
"""A real server under observation: `parallelmodel-worker serve` with its ranks in processes, their resources, logs
and exits.
"""

import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from ports import free_port

import worker

FAILURE_LINE = re.compile(r"^[EF]\d+ ", re.MULTILINE)  # glog's severity letter and date


def until(true, seconds, every=0.02):
    """Seconds that `true()` took to become so; fails after `seconds`."""
    begin = time.monotonic()
    while not true():
        if time.monotonic() - begin > seconds:
            raise TimeoutError(f"not so after {seconds} s: {true.__doc__ or getattr(true, '__name__', true)}")
        time.sleep(every)
    return time.monotonic() - begin


@dataclasses.dataclass
class Held:
    """Resources of one process."""

    resident: int  # bytes
    files: int
    threads: int


def held_by(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    number = lambda key: int(re.search(rf"^{key}:\s+(\d+)", status, re.MULTILINE)[1])
    return Held(number("VmRSS") * 1024, len(os.listdir(f"/proc/{pid}/fd")), number("Threads"))


# A process that is reaped between open and read of its file gives ESRCH, one that was reaped before gives ENOENT.
GONE = (FileNotFoundError, ProcessLookupError)


def running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except GONE:
        return False


def children(pid):
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except GONE:
        return []


class Server:
    """Starts, and waits until it is ready unless told otherwise. `options` go to `serve` as they are; `kv_blocks`
    changes the plan."""

    def __init__(
        self, folder, *options, ranks=2, sizes="tensor=2", strategy=None, kv_blocks=None, wait=True, drain_seconds=0
    ):
        worker.require_binary()
        self.folder, self.port, self.admin_port = folder, free_port(), free_port()
        self.log_path = folder.parent / f"{folder.name}-{self.port}.log"
        arguments = [
            "--model",
            folder,
            "--ranks",
            ranks,
            "--host",
            "127.0.0.1",
            "--port",
            self.port,
            "--admin-port",
            self.admin_port,
            "--drain-seconds",
            drain_seconds,
        ]
        layout = ["--sizes", sizes, *(("--strategy", strategy) if strategy else ())]
        arguments += [*layout, *options]
        if kv_blocks:
            arguments += ["--plan", self._plan(folder, ranks, layout, kv_blocks)]
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen([worker.BINARY, "serve", *map(str, arguments)], stdout=log, stderr=log)
        self.count, self.ranks, self.everyone = ranks, [], [self.process.pid]
        try:
            until(self._started, 30)
            if wait:
                until(self._ready_or_dead, 60)
                assert self.ready(), self.log()[-3000:]
        except BaseException:
            self.kill()
            raise

    @staticmethod
    def _plan(folder, ranks, layout, kv_blocks):
        plan = json.loads(worker.run("plan", "--model", folder, "--devices", ranks, *layout, "--json").stdout)
        path = folder.parent / f"{folder.name}-{'-'.join(layout[1::2])}-{kv_blocks}.plan.json"
        path.write_text(json.dumps({**plan, "kvBlocks": kv_blocks}))
        return path

    def _started(self):
        """the launcher has its ranks"""
        self.ranks = children(self.process.pid)
        self.everyone = [self.process.pid, *self.ranks]
        return len(self.ranks) == self.count or self.process.poll() is not None

    def _ready_or_dead(self):
        """the group is ready"""
        return self.ready() or self.process.poll() is not None

    # asking

    def get(self, path, port=None, timeout=20):
        """Returns (status, body), or (None, b"") without a reply."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            return None, b""
        finally:
            connection.close()

    def ready(self):
        return self.get("/ready", self.admin_port, timeout=2)[0] == 200

    def metrics(self):
        """Sums over labels, by name."""
        status, text = self.get("/metrics")
        assert status == 200, text
        sums = {}
        for name, value in re.findall(r"^(\w+)(?:\{.*\})? (\S+)$", text.decode(), re.MULTILINE):
            sums[name] = sums.get(name, 0) + float(value)
        return sums

    def busy(self):
        """(running, waiting, share of KV blocks in use)"""
        metrics = self.metrics()
        return tuple(
            metrics[f"parallelmodel_{name}"]
            for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        )

    def idle(self):
        """nothing runs or waits, no KV block is in use"""
        return self.busy() == (0, 0, 0)

    # watching

    def held(self):
        return [held_by(pid) for pid in self.everyone]

    def log(self):
        return self.log_path.read_text(errors="replace")

    def complaints(self):
        return [line for line in self.log().splitlines() if FAILURE_LINE.match(line)]

    def reason(self):
        """Returns why the replica ended, as the launcher reports it."""
        found = re.findall(r"the group ends: (\w+): (.*)", self.log())
        return found[-1] if found else None

    def left_behind(self):
        """Processes and files in shared memory that outlive the launcher."""
        files = [
            path.name
            for path in pathlib.Path("/dev/shm").iterdir()
            if path.name.startswith(f"parallelmodel-{self.process.pid}-")
        ]
        return [pid for pid in self.everyone if running(pid)] + files

    # ending

    def signal(self, rank, number):
        os.kill(self.ranks[rank], number)

    def wait(self, timeout):
        return self.process.wait(timeout)

    def kill(self):
        """The end, whatever state it is in: only what this server started."""
        for pid in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
