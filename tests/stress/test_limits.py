# SPDX-License-Identifier: Apache-2.0
"""Overload: a full queue, a model that loads, a server that drains, clients that read slowly."""

import signal
import socket
import statistics
import threading
import time

from clients import Ask, Load, ask_alone, connect, exchange, open_socket
from conftest import SECONDS
from serving import held_by, until

MIB = 1 << 20
LONG = {"prompt": [5, 6, 7], "max_tokens": 3900, "ignore_eos": True, "temperature": 0, "stream": True}
SHORT = Ask(
    "short",
    "/v1/completions",
    {"prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": True, "temperature": 0, "return_token_ids": True},
)


def test_a_full_queue_says_when_to_come_back_and_nothing_else_suffers(serve):
    server = serve("long", "--max-concurrency", 4, "--max-queue", 8)
    expected = ask_alone(server.port, SHORT)
    holders = [open_socket(server.port) for _ in range(4)]
    for sock in holders:
        sock.sendall(Ask("long", "/v1/completions", LONG).raw())
    until(lambda: server.busy()[0] == 4, 10)
    replies, lock = [], threading.Lock()

    def ask():
        connection = connect(server.port)
        reply = exchange(connection, SHORT)
        connection.close()
        with lock:
            replies.append(reply)

    threads = [threading.Thread(target=ask) for _ in range(32)]
    for thread in threads:
        thread.start()
    until(lambda: len(replies) >= 24, 10)
    assert [reply.status for reply in replies] == [429] * 24 and server.busy()[:2] == (4, 8)
    for reply in replies:
        assert reply.error["code"] == "queue_full" and int(reply.headers["retry-after"]) >= 1
    assert server.get("/health")[0] == 200 and server.ready(), "a full queue is no illness"
    for sock in holders:
        sock.close()
    for thread in threads:
        thread.join(30)
    assert [reply.value for reply in replies[24:]] == [expected] * 8, "those who wait are served"
    assert server.metrics()["parallelmodel_requests_rejected_total"] == 24
    until(server.idle, 5)


def test_while_it_loads_nobody_is_left_hanging(serve):
    server = serve("long", wait=False)
    statuses = set()

    def serving():
        """the model is asked from the first moment on"""
        try:
            connection = connect(server.port, timeout=5)
            reply = exchange(connection, SHORT)
            connection.close()
            statuses.add(reply.status)
            assert reply.status in (200, 503) and (reply.status == 200 or reply.error["code"] == "loading"), reply
            return reply.status == 200
        except OSError:
            return False

    until(serving, 60, every=0)
    assert not server.ready() or server.get("/health")[0] == 200
    until(server.ready, 2)


def test_sigterm_under_load_answers_all_it_accepted(serve, expected_of):
    server = serve("decoder", drain_seconds=30)
    asks, expected = expected_of(server, "decoder")
    load = Load(server.port, asks, expected)
    time.sleep(1)
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    unready = until(lambda: not server.ready(), 2, every=0.01)
    time.sleep(2)
    connection = connect(server.port)
    reply = exchange(connection, asks[0])
    assert reply.status == 200 and reply.headers["connection"] == "close", (
        "requests are taken for 5 s more, connections are not kept"
    )
    until(lambda: load.tally.refused or load.failures, 6)
    refused_after = time.monotonic() - begin
    tally = load.end()
    assert server.wait(30) == 0 and server.left_behind() == []
    took = time.monotonic() - begin
    print(
        f"\nunready after {unready:.2f} s, first 503 after {refused_after:.2f} s, ended after {took:.2f} s, "
        f"{sum(tally.right.values())} right, {dict(tally.refused)}"
    )
    assert not tally.wrong and refused_after > 4
    assert set(tally.refused) == {503} and all(error["code"] == "draining" for *_, error in tally.errors)
    assert not tally.lost_before_refusals(), f"accepted and not answered: {tally.lost_before_refusals()[:3]}"


def test_the_end_of_the_drain_answers_what_still_runs_with_503(serve):
    server = serve("long", drain_seconds=2)
    slow = {**LONG, "stream": False, "max_tokens": 3900, "prompt": [[5, 6, 7]] * 16}  # tens of seconds of work
    replies, errors = [], []

    def ask(body):
        try:
            replies.append(exchange(connect(server.port), Ask("slow", "/v1/completions", body)))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=({**slow, "stream": stream},)) for stream in (False, True)]
    for thread in threads:
        thread.start()
    until(lambda: server.busy()[0] >= 32, 10)
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(20)
    assert not errors and sorted(reply.status for reply in replies) == [200, 503]
    assert all(reply.error["code"] == "draining" for reply in replies)
    assert server.wait(10) in (0, 6) and server.left_behind() == []


def test_slow_readers_stall_nobody_and_hold_bounded_memory(serve):
    """Sixteen clients read a byte a second from streams of seconds; requests of others are as fast with them as
    without.
    """
    server = serve("long", "--max-concurrency", 32)
    expected = {SHORT.name: ask_alone(server.port, SHORT)}

    def median_of_others():
        load = Load(server.port, [SHORT], expected, clients=4)
        time.sleep(SECONDS / 2)
        tally = load.end()
        assert tally.faultless()
        return statistics.median(tally.seconds)

    run = lambda sock: sock.sendall(Ask("long", "/v1/completions", {**LONG, "max_tokens": 1500}).raw())
    fast = Readers(server.port, run, pause=0)
    beside_fast = median_of_others()
    fast.end()
    until(server.idle, 10)
    memory = held_by(server.ranks[0]).resident
    slow = Readers(server.port, run, pause=1)
    beside_slow = median_of_others()
    until(lambda: server.busy()[0] == 0, 60)
    grown = held_by(server.ranks[0]).resident - memory
    slow.end()
    until(server.idle, 15)
    print(
        f"\nmedian beside 16 fast readers {beside_fast * 1000:.1f} ms, beside 16 slow ones "
        f"{beside_slow * 1000:.1f} ms; rank 0 grew by {grown / MIB:.1f} MiB"
    )
    assert beside_slow < 3 * beside_fast
    assert grown < 16 * MIB
    assert server.complaints() == []


class Readers:
    """Sixteen streams, read by the byte with a pause between, or without one as they come, one after the other."""

    def __init__(self, port, run, pause):
        self.stop = threading.Event()
        self.threads = [threading.Thread(target=self._read, args=(port, run, pause), daemon=True) for _ in range(16)]
        for thread in self.threads:
            thread.start()

    def _read(self, port, run, pause):
        while not self.stop.is_set():
            with open_socket(port) as sock:
                if pause:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                run(sock)
                while not self.stop.wait(pause or 0):
                    data = sock.recv(1 if pause else 65536)
                    if not data or b"[DONE]" in data:
                        break

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(30)
