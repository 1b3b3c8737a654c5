# SPDX-License-Identifier: Apache-2.0
"""Generates load: the same requests for every engine; each client sends its next request as soon as the last is
answered.
"""

import json
import random
import socket
import statistics
import threading
import time


def requests_of(clients, each, seed=1):
    """Returns bodies of completions with prompts of 16 to 192 tokens (bytes) and answers of 16 to 96, in a different
    order for each number of clients.
    """
    rng = random.Random(seed * 100 + clients)
    letters = "abcdefghijklmnopqrstuvwxyz "
    return [
        {
            "prompt": "".join(rng.choices(letters, k=rng.choice([16, 32, 64, 128, 192])))
            .replace("  ", "ab")
            .strip()
            .ljust(8, "x"),
            "max_tokens": rng.choice([16, 32, 64, 96]),
            "temperature": 0,
            "stream": True,
        }
        for _ in range(clients * each)
    ]


def texts_of(clients, each, seed=2):
    rng = random.Random(seed * 100 + clients)
    words = [
        "people",
        "often",
        "say",
        "that",
        "the",
        "quiet",
        "river",
        "near",
        "old",
        "town",
        "turns",
        "red",
        "when",
        "autumn",
        "rain",
        "comes",
        "down",
        "from",
        "hills",
        "of",
        "stone",
        "and",
        "pine",
    ]
    return [{"input": " ".join(rng.choices(words, k=rng.choice([6, 12, 24, 48])))} for _ in range(clients * each)]


class Sample:
    """One request: the arrival of each of its tokens, in seconds since it was sent."""

    def __init__(self, body):
        self.body, self.times, self.text = body, [], ""


def ask(port, path, body):
    """Sends a request and reads its reply to the end. Arrivals of events are recorded; the reply is parsed
    afterwards.
    """
    sample, payload = Sample(body), json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=600) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = time.perf_counter()
        sock.sendall(
            f"POST {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Type: "
            f"application/json\r\nContent-Length: {len(payload)}\r\n\r\n".encode()
            + payload
        )
        reply, rest = [], b""
        while data := sock.recv(1 << 16):
            now = time.perf_counter() - begin
            reply.append(data)
            *events, rest = (rest + data).split(b"\n\n")
            sample.times += [now] * sum(b'"text"' in event for event in events)
        sample.seconds = time.perf_counter() - begin
    raw = b"".join(reply)
    if not raw.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"port {port}: {raw[:300]}")
    if body.get("stream"):
        events = [json.loads(line[6:]) for line in raw.split(b"\n") if line.startswith(b"data: {")]
        pieces = [event["choices"][0]["text"] for event in events if event.get("choices")]
        sample.text = "".join(pieces)
        if len(sample.text.split()) != body["max_tokens"]:
            raise RuntimeError(f"port {port}: {len(sample.text.split())} tokens in place of {body['max_tokens']}")
    return sample


def run(port, path, bodies, clients):
    """Returns (samples, seconds of the whole load)."""
    todo, samples, failures, lock = list(reversed(bodies)), [], [], threading.Lock()

    def client():
        try:
            while True:
                with lock:
                    if not todo or failures:
                        return
                    body = todo.pop()
                sample = ask(port, path, body)
                with lock:
                    samples.append(sample)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return samples, time.perf_counter() - begin


def percentiles(values):
    """Returns p50, p90, p99 in milliseconds."""
    cuts = statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else [values[0]] * 99
    return [1000 * cuts[p - 1] for p in (50, 90, 99)]


def figures(samples, seconds):
    """Returns the table values of one load."""
    gaps = [b - a for sample in samples for a, b in zip(sample.times, sample.times[1:])]
    return {
        "tokens/s": sum(sample.body["max_tokens"] for sample in samples) / seconds,
        "first token": percentiles([sample.times[0] for sample in samples]),
        "between tokens": percentiles(gaps),
        "request": percentiles([sample.seconds for sample in samples]),
    }
