# SPDX-License-Identifier: Apache-2.0
"""Engines that decode one stream: each run() returns the ids and the times at which they came. Benchmarks run them in
turn."""

import json
import os
import subprocess

import served


def rates(times, window):
    """Returns the tokens per second of each stretch of `window` tokens."""
    return [window / (times[i + window] - times[i]) for i in range(len(times) - window)]


class Child:
    """A process that answers each line with a line; it is stopped while others are measured."""

    def __init__(self, name, command, threads, log, ready=True):
        self.name = name
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        self.log = open(log / f"{name.replace(' ', '-')}.log", "w+")
        self.process = subprocess.Popen(
            [str(part) for part in command],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        if ready:
            self._line()

    def _line(self):
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise RuntimeError(f"{self.name} ended:\n{self.log.read()[-3000:]}")
        return line

    def ask(self, question):
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return json.loads(self._line())

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)


class Read(Child):
    def run(self, prompt, tokens):
        return [], self.ask(str(tokens))["times"]


class Ours(served.Server):
    """The worker as served over HTTP; the time of a token is the arrival of its event."""

    def __init__(self, name, worker, folder, precision, ranks, threads, log):
        super().__init__(
            name,
            served.worker(worker, folder, "--ranks", ranks, "--strategy", "Tensor", "--precision", precision),
            log / f"{name.replace(' ', '-')}.log",
            OMP_NUM_THREADS=str(threads),
        )

    def run(self, prompt, tokens):
        events = served.completion(self.port, prompt, tokens)
        if len(events) != tokens:
            raise RuntimeError(f"{self.name}: {len(events)} events for {tokens} tokens")
        return [id for _, ids in events for id in ids], [at for at, _ in events]
