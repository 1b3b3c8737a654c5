# SPDX-License-Identifier: Apache-2.0
"""The clients of these tests notice what a server that dies leaves undone."""

import http.client
import json
import socket
import threading

import pytest
from clients import Ask, connect, exchange

ASK = Ask("two choices", "/generate", {"inputs": "a", "parameters": {"best_of": 2}, "stream": True})
EVENTS = [
    {"choice": 0, "generated_text": None},
    {"choice": 0, "generated_text": "ab"},
    {"choice": 1, "generated_text": None},
    {"choice": 1, "generated_text": "cd"},
]


def chunk(event):
    text = f"data:{json.dumps(event)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(text), text)


def answered_with(body):
    """The reply that a client sees to ASK from a server that sends `body` and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            sock, _ = listener.accept()
            with sock:
                while ASK.payload() not in sock.recv(65536):
                    pass
                head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                sock.sendall(head + body)

        server = threading.Thread(target=serve)
        server.start()
        connection = connect(listener.getsockname()[1])
        try:
            return exchange(connection, ASK)
        finally:
            connection.close()
            server.join()


def test_a_whole_stream_is_a_reply():
    assert answered_with(b"".join(map(chunk, EVENTS)) + b"0\r\n\r\n").value == [EVENTS[:2], EVENTS[2:]]


@pytest.mark.parametrize("sent", [0, 1, 2, 3, 4])
def test_a_stream_cut_between_two_chunks_is_none(sent):
    with pytest.raises(http.client.IncompleteRead):
        answered_with(b"".join(map(chunk, EVENTS[:sent])))


def test_a_stream_cut_within_a_chunk_is_none():
    with pytest.raises(http.client.IncompleteRead):
        answered_with(chunk(EVENTS[0])[:-5])
