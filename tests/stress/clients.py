# SPDX-License-Identifier: Apache-2.0
"""Load generators: clients that compare their replies, clients that disconnect, and clients that read slowly."""

import collections
import dataclasses
import http.client
import json
import random
import socket
import struct
import threading
import time

FORGETTABLE = {"id", "created", "request_id"}  # of a reply: differ from one asking to the next
CLIENTS = 64


@dataclasses.dataclass(frozen=True)
class Ask:
    name: str
    path: str
    body: dict = None  # None: GET

    @property
    def streams(self):
        return bool(self.body and self.body.get("stream"))

    def payload(self):
        return json.dumps(self.body).encode() if self.body is not None else b""

    def raw(self, more=""):
        """The request as bytes."""
        payload = self.payload()
        method = "POST" if self.body is not None else "GET"
        return (
            f"{method} {self.path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(payload)}\r\n{more}\r\n".encode()
            + payload
        )


@dataclasses.dataclass
class Reply:
    status: int
    headers: dict
    value: object  # of JSON; of a stream put together as if it had not been one
    error: dict = None  # of an error object, or of an event of one in a stream


def events_of(lines, done):
    """The JSON of each server-sent event; EOFError unless [DONE] ends them, where the route ends its streams so."""
    for line in lines:
        line = line.strip()
        if not line or line.startswith(b":"):  # a comment keeps a connection awake
            continue
        assert line.startswith(b"data:"), line
        if line[5:].strip() == b"[DONE]":
            return
        yield json.loads(line[5:])
    if done:
        raise EOFError("the stream ended without [DONE]")


def forget(value):
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if key not in FORGETTABLE}
    if "usage" in kept:  # what was found in kept blocks depends on what was asked before
        kept["usage"] = {key: item for key, item in kept["usage"].items() if key != "prompt_tokens_details"}
    return kept


def joined(events):
    """Returns the reply of OpenAI's events in the form of one that is not streamed, or the error that ended it."""
    whole, choices = {}, collections.defaultdict(dict)
    for event in events:
        if "error" in event:
            return None, event["error"]
        whole.update({key: value for key, value in event.items() if key != "choices" and value is not None})
        for piece in event.get("choices", ()):
            choice = choices[piece["index"]]
            for key, value in {**piece, **piece.get("delta", {})}.items():
                if key == "delta" or (value is None and key in choice):
                    continue
                grows = key in ("text", "content", "token_ids") and choice.get(key) is not None and value is not None
                choice[key] = choice[key] + value if grows else value
    whole["choices"] = [choices[index] for index in sorted(choices)]
    return whole, None


def generated(events):
    """Returns the events of /generate by choice, or the error that ended them. Raises EOFError when a choice has no
    last event.
    """
    choices = collections.defaultdict(list)
    for event in events:
        if "error" in event:
            return None, event["error"]
        choices[event.get("choice", 0)].append(event)
    if not choices or not all(choice[-1]["generated_text"] is not None for choice in choices.values()):
        raise EOFError("the stream ended before its last event")
    return [choices[index] for index in sorted(choices)], None


def of_chat(value):
    """Chat replies streamed and not say the same in two shapes; this is the first's."""
    if isinstance(value, dict) and "choices" in value:
        for choice in value["choices"]:
            message = choice.pop("message", None)
            choice.update(message or {})
            for call in choice.get("tool_calls") or ():
                del call["id"]  # another one each time
        value["object"] = value.get("object", "").removesuffix(".chunk")
    return value


def exchange(connection, ask):
    """One request and its reply. Throws what http.client throws when there is none."""
    headers = {"Content-Type": "application/json"}
    connection.request("POST" if ask.body is not None else "GET", ask.path, ask.payload() or None, headers)
    reply = connection.getresponse()
    headers = {name.lower(): value for name, value in reply.getheaders()}
    if headers.get("content-type", "").startswith("text/event-stream"):
        # All at once: readline() takes a connection that is cut between two chunks for the end of the body.
        lines = reply.read().splitlines()
        value, error = generated(events_of(lines, False)) if ask.path == "/generate" else joined(events_of(lines, True))
        return Reply(reply.status, headers, forget(of_chat(value)), error)
    value = json.loads(reply.read())
    error = value.get("error") if isinstance(value, dict) else None
    return Reply(reply.status, headers, forget(of_chat(value)), error)


def connect(port, timeout=60):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def ask_alone(port, ask):
    connection = connect(port)
    reply = exchange(connection, ask)
    connection.close()
    assert reply.status == 200 and not reply.error, (ask, reply)
    return reply.value


def same(a, b):
    """Equal, except for the last bits of floating-point numbers, which depend on the batch."""
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 2e-5 * max(1, abs(a))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


class Tally:
    """Results of the requests of a load. `wrong`: replies that differ; `lost`: requests without reply, by the time
    of sending; `refused`: error replies, by status.
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.right, self.wrong, self.lost, self.refused = collections.Counter(), [], [], collections.Counter()
        self.ids, self.seconds, self.errors = set(), [], []

    def add(self, ask, reply, expected, seconds):
        request_id = reply.headers.get("x-request-id")
        with self.lock:
            assert request_id and request_id not in self.ids, (
                f"{ask.name}: x-request-id {request_id} is missing or given twice"
            )
            self.ids.add(request_id)
            if reply.error or reply.status != 200:
                self.refused[reply.status] += 1
                self.errors.append((time.monotonic(), ask.name, reply.status, reply.headers, reply.error))
            elif same(expected, reply.value):
                self.right[ask.name] += 1
                self.seconds.append(seconds)
            else:
                self.wrong.append((ask.name, expected, reply.value))

    def lose(self, ask, error, begin):
        with self.lock:
            self.lost.append((begin, ask.name, f"{type(error).__name__}: {error}"))

    def lost_before_refusals(self):
        """Returns requests without reply that were sent before the first refusal. Later ones may find no server, and so
        may those whose connection was refused: a server that has answered everything ends without a refusal when nobody
        asks in its last milliseconds.
        """
        first = min((when for when, *_ in self.errors), default=float("inf"))
        return [entry for entry in self.lost if entry[0] < first and not entry[2].startswith("ConnectionRefusedError")]

    def faultless(self):
        assert not self.wrong, (
            f"{len(self.wrong)} wrong replies: {collections.Counter(name for name, *_ in self.wrong)}, e.g. "
            f"{self.wrong[0]}"
        )
        assert not self.lost, f"{len(self.lost)} lost, e.g. {self.lost[0]}"
        assert not self.refused, f"refused: {dict(self.refused)}, e.g. {self.errors[0]}"
        return True


class Load:
    """`clients` threads that send random requests until stopped and compare each reply with the reply to a single
    client.
    """

    def __init__(self, port, asks, expected, clients=CLIENTS, seed=0, after_loss="go on"):
        self.port, self.asks, self.expected, self.tally = port, asks, expected, Tally()
        self.after_loss, self.stop = after_loss, threading.Event()
        self.failures = []
        self.threads = [
            threading.Thread(target=self._client, args=(random.Random(seed * 1000 + i), i % 2 == 0), daemon=True)
            for i in range(clients)
        ]
        for thread in self.threads:
            thread.start()

    def _client(self, rng, keeps_connection):
        try:
            connection = None
            while not self.stop.is_set():
                ask = rng.choice(self.asks)
                begin = time.monotonic()
                try:
                    connection = connection or connect(self.port)
                    reply = exchange(connection, ask)
                except (OSError, EOFError, http.client.HTTPException) as error:
                    self.tally.lose(ask, error, begin)
                    if self.after_loss == "end":
                        return
                    connection = None
                    continue
                self.tally.add(ask, reply, self.expected[ask.name], time.monotonic() - begin)
                if reply.error:
                    self.stop.wait(0.05)  # as a client should
                if not keeps_connection or reply.headers.get("connection") == "close":
                    connection.close()
                    connection = None
            if connection:
                connection.close()
        except BaseException as error:  # an assertion in a thread would be lost
            self.failures.append(error)
            raise

    def end(self, timeout=60):
        """Waits for the last reply of every client."""
        self.stop.set()
        end = time.monotonic() + timeout
        for thread in self.threads:
            thread.join(max(0, end - time.monotonic()))
        assert not any(thread.is_alive() for thread in self.threads), f"a client has no reply after {timeout} s"
        assert not self.failures, self.failures[0]
        return self.tally


def reset(sock):
    """Closes with RST in place of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def open_socket(port, timeout=30):
    sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Leavers:
    """Clients that disconnect: before the request, in its head or body, during processing, or in the stream; with
    FIN or RST.
    """

    def __init__(self, port, asks, clients=48, seed=0):
        self.port, self.asks, self.stop, self.left = port, asks, threading.Event(), collections.Counter()
        self.failures = []
        self.threads = [
            threading.Thread(target=self._client, args=(random.Random(seed * 1000 + i),), daemon=True)
            for i in range(clients)
        ]
        for thread in self.threads:
            thread.start()

    def _client(self, rng):
        try:
            while not self.stop.is_set():
                self._leave(
                    rng,
                    rng.choice(self.asks),
                    rng.choice(["silent", "head", "body", "served", "streaming", "done sending"]),
                )
        except BaseException as error:
            self.failures.append(error)
            raise

    def _leave(self, rng, ask, when):
        sock = open_socket(self.port)
        raw = ask.raw()
        head = raw.index(b"\r\n\r\n") + 4
        try:
            if when == "head":
                sock.sendall(raw[: rng.randrange(1, head)])
            elif when == "body":
                sock.sendall(raw[: rng.randrange(head, len(raw))] if len(raw) > head else raw[: head - 1])
            elif when in ("served", "streaming", "done sending"):
                sock.sendall(raw)
                if when == "done sending":
                    sock.shutdown(socket.SHUT_WR)
                if when == "streaming":
                    for _ in range(rng.randrange(1, 4)):
                        sock.recv(rng.randrange(1, 400))
            time.sleep(rng.random() * 0.03)
            (reset if rng.random() < 0.5 else socket.socket.close)(sock)
        except OSError:  # the server may close first, for instance on half a request
            sock.close()
        self.left[when] += 1

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self.threads) and not self.failures, self.failures
        return self.left
