# SPDX-License-Identifier: Apache-2.0
"""Clients disconnect at any moment: other clients are not affected, and the resources of the disconnected ones are
released at once.
"""

import json
import time

import pytest
from clients import Ask, Leavers, Load, connect, exchange, open_socket, reset
from conftest import SECONDS
from serving import until

LONG = {
    "prompt": [5, 6, 7],
    "max_tokens": 3900,
    "ignore_eos": True,
    "temperature": 0,
    "return_token_ids": True,
}  # seconds of work


@pytest.mark.parametrize("kind", ["decoder", "encoder", "encoder-decoder", "listener", "writer"])
def test_those_who_stay_get_their_replies_while_others_leave(serve, expected_of, kind):
    server = serve(kind)
    asks, expected = expected_of(server, kind)
    quiet = server.held()
    staying, leaving = Load(server.port, asks, expected, clients=16), Leavers(server.port, asks)
    time.sleep(SECONDS)
    left = leaving.end()
    tally = staying.end()
    assert tally.faultless() and sum(tally.right.values()) > 16
    assert len(left) == 6 and min(left.values()) > 5, left
    took = until(server.idle, 10)
    print(
        f"\n{kind}: {sum(tally.right.values())} right replies beside {sum(left.values())} that left; idle "
        f"{took:.2f} s after the last"
    )
    until(
        lambda: all(now.files <= then.files + 1 for now, then in zip(server.held(), quiet)), 15
    )  # half requests are given up after their timeout
    assert server.complaints() == []


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("close", [reset, lambda sock: sock.close()], ids=["reset", "closed"])
def test_a_slot_is_free_at_once_when_its_client_leaves(serve, stream, close):
    server = serve("long", "--max-concurrency", 8)
    sockets = [open_socket(server.port) for _ in range(12)]  # all slots, and four who wait
    for sock in sockets:
        sock.sendall(Ask("long", "/v1/completions", {**LONG, "stream": stream}).raw())
    until(lambda: server.busy()[:2] == (8, 4), 10)
    if stream:
        sockets[0].recv(100)
    begin = time.monotonic()
    for sock in sockets:
        close(sock)
    connection = connect(server.port)
    reply = exchange(connection, Ask("next", "/v1/completions", {**LONG, "max_tokens": 1}))
    waited = time.monotonic() - begin
    assert reply.status == 200 and len(reply.value["choices"][0]["token_ids"]) == 1
    idle = until(server.idle, 5) + waited
    print(f"\nthe next client waited {waited * 1000:.0f} ms, all resources were released after {idle * 1000:.0f} ms")
    assert waited < 1 and idle < 2, (
        waited,
        idle,
    )  # a step takes milliseconds; a client that is not written to is looked at every 100 ms
    assert server.metrics()["parallelmodel_generation_tokens_total"] < 12 * LONG["max_tokens"], (
        "they were served to the end"
    )


def test_half_a_request_holds_nothing_but_its_connection(serve):
    server = serve("decoder")
    sockets = [open_socket(server.port) for _ in range(64)]
    for sock in sockets:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\n{")
    begin = time.monotonic()
    status, body = server.get("/v1/models")
    assert status == 200 and json.loads(body)["data"], "others are served meanwhile"
    assert time.monotonic() - begin < 2 and server.idle()
    for sock in sockets:
        sock.settimeout(30)
        assert b"400" in sock.recv(1000).split(b"\r\n")[0], "told that the body did not come"
        sock.close()
    assert server.complaints() == []
