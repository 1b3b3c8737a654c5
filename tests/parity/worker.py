# SPDX-License-Identifier: Apache-2.0
"""Runs the program under test: one long-lived `parallelmodel-worker forward --batch`, and single runs of its
subcommands.
"""

import collections
import json
import os
import pathlib
import queue
import subprocess
import threading
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("PM_WORKER", REPOSITORY / "build/bin/parallelmodel-worker"))
TOOLS = pathlib.Path(
    os.environ.get("PM_TEST_TOOLS", BINARY.parent.resolve().parent / "tests")
)  # small programs that print what a reader understood

# as the launcher gives it to ranks: without it, threads of OpenMP that wait burn the cores that others need
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "200", **os.environ}


def require_binary():
    if not BINARY.exists():
        raise FileNotFoundError(f"{BINARY} is not built; run `make build`, or name the program in PM_WORKER")


def run(*arguments, timeout=120):
    """One run of a verb to its end."""
    require_binary()
    return subprocess.run(
        [BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, env=ENVIRONMENT
    )


class Batch:
    """Sends jobs to `forward --batch`, one JSON line each way. A model stays loaded while jobs name the same model
    and ranks.
    """

    def __init__(self, binary=BINARY, *options, **environment):
        require_binary()
        self.command, self.environment = [binary, "forward", "--batch", *options], {**ENVIRONMENT, **environment}
        self._start()

    def _start(self):
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        self.answers, self.log = queue.Queue(), collections.deque(maxlen=40)
        for target, arguments in (
            (self._read_answers, (self.process.stdout, self.answers)),
            (self.log.extend, (self.process.stderr,)),
        ):
            threading.Thread(target=target, args=arguments, daemon=True).start()

    @staticmethod
    def _read_answers(stream, answers):
        for line in stream:
            answers.put(line)
        answers.put(None)

    def ask(self, job, timeout=120):
        """Returns the answer to one job, successful or not. Fails when the program ends or does not answer in time;
        the next job gets a new one.
        """
        if self.process.poll() is not None:
            self._start()
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        try:
            line = self.answers.get(timeout=timeout)
        except queue.Empty:
            self.process.kill()
            self.process.wait()
            raise TimeoutError(f"no answer within {timeout} s to {job}") from None
        if line is None:
            raise RuntimeError(f"the worker ended with {self.process.wait()} during {job}:\n" + "".join(self.log))
        return json.loads(line)

    def run(self, job, timeout=120):
        """The answer to a job that has to go well."""
        answer = self.ask(job, timeout)
        assert answer["ok"], f"{job}: {answer.get('error')}"
        return answer

    def says(self, words, patience=0):
        """Returns whether the last lines of the log contain the words; lines written before an answer may arrive a
        moment after it.
        """
        end = time.monotonic() + patience
        while not (found := any(words in line for line in list(self.log))) and time.monotonic() < end:
            time.sleep(0.05)
        return found

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)
