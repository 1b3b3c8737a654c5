# SPDX-License-Identifier: Apache-2.0
"""Provides a fault-injecting proxy between the controller and the API server: it delays, loses and fails requests and
watches."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from apiserver import OPERATOR_TOKEN, ControlPlane


@dataclass
class Call:
    method: str
    resource: str
    name: str
    sub: str
    watch: bool
    number: int = -1  # index among the mutating calls
    time: float = field(default_factory=time.monotonic)

    @property
    def mutates(self) -> bool:
        """Returns whether the call changes state that the operator works on. Events and the Lease of the leader
        election do not count."""
        return self.method != "GET" and self.resource not in ("events", "leases")

    def __str__(self) -> str:
        return f"{self.method} {self.resource}/{self.name}" + (f"/{self.sub}" if self.sub else "")


def call_of(method: str, url: str) -> Call:
    parts = urlsplit(url)
    segments = parts.path.strip("/").split("/")
    segments = segments[2:] if segments[0] == "api" else segments[3:]
    if len(segments) > 1 and segments[0] == "namespaces":
        segments = segments[2:]
    segments += [""] * 3
    return Call(method, segments[0], segments[1], segments[2], parse_qs(parts.query).get("watch") == ["1"])


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address) -> None:
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):  # a killed controller reads no response
            super().handle_error(request, client_address)


class Proxy:
    """`fault(call)` says what happens to a call: nothing, or one of
      ("kill", "before" | "forwarded" | "replied")   `killed()` is called at that moment
      ("lose", "request" | "answer")                 the connection is cut before or after the API server acts
      ("answer", code, reason, retry_after)          instead of the API server
    `stream(call, n, line)` returns what is sent for the n-th event of a watch: a list of bytes, with floats between
    them for seconds of silence and None to cut."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self.calls, self.lock = plane, [], threading.Lock()
        self.mutating = 0
        self.fault: Callable[[Call], tuple | None] = lambda call: None
        self.stream: Callable[[Call, int, bytes], list] = lambda call, n, line: [line]
        self.killed: Callable[[], None] = lambda: None
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def note(self, call: Call) -> None:
        with self.lock:
            if call.mutates:
                call.number, self.mutating = self.mutating, self.mutating + 1
            self.calls.append(call)

    def writes_since(self, begin: float) -> list[Call]:
        with self.lock:
            return [call for call in self.calls if call.mutates and call.time >= begin]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    proxy: Proxy

    def setup(self) -> None:
        super().setup()
        self.upstream = http.client.HTTPSConnection(
            "127.0.0.1", self.proxy.plane.port, context=self.proxy.plane.context(), timeout=700
        )

    def finish(self) -> None:
        self.upstream.close()
        try:
            super().finish()
        except OSError:
            pass

    def log_message(self, *args) -> None:
        pass

    def _cut(self) -> None:
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = call_of(self.command, self.path)
        if self.command == "POST" and body and not call.name:
            call.name = json.loads(body).get("metadata", {}).get("name", "")
        self.proxy.note(call)
        fault = self.proxy.fault(call) or ("none",)
        if fault[0] == "answer":
            return self._answer(*fault[1:])
        if fault == ("kill", "before") or fault == ("lose", "request"):
            if fault[0] == "kill":
                self.proxy.killed()
            return self._cut()
        self.upstream.request(
            self.command,
            self.path,
            body or None,
            {
                "Authorization": f"Bearer {OPERATOR_TOKEN}",
                "Content-Type": self.headers.get("Content-Type", "application/json"),
                "Accept": "application/json",
            },
        )
        reply = self.upstream.getresponse()
        try:
            if call.watch and reply.status == 200:
                return self._stream(call, reply)
            data = reply.read()
            if fault == ("kill", "forwarded"):
                self.proxy.killed()
                return self._cut()
            if fault == ("lose", "answer"):
                return self._cut()
            self._reply(reply.status, data)
            if fault == ("kill", "replied"):
                self.proxy.killed()
        except OSError:
            self._cut()  # the controller disconnected

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _handle

    def _reply(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _answer(self, code: int, reason: str, retry_after: int = 0) -> None:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": reason,
            "code": code,
            "message": f"injected {reason}",
        }
        self._reply(code, json.dumps(status).encode(), {"Retry-After": str(retry_after)} if retry_after else None)

    def _stream(self, call: Call, reply: http.client.HTTPResponse) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        n = 0
        while line := reply.readline():
            for part in self.proxy.stream(call, n, line):
                if part is None:
                    self.upstream.close()
                    return self._cut()
                if isinstance(part, float):
                    time.sleep(part)
                    continue
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
            n += 1
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()
