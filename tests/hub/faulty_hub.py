# SPDX-License-Identifier: Apache-2.0
"""Local server with the hub's protocol and a CDN on a second port. huggingface_hub's own client downloads from it
(test_server.py), and faults can be injected.

server = Hub(); server.add("org/name", {"config.json": b"...", "model.safetensors": b"..."}); server.url
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import select
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LARGE = (".safetensors", ".bin", ".model", ".spm", ".gguf", ".h5", ".msgpack", ".onnx")


def git_blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclasses.dataclass
class Model:
    files: dict[str, bytes]
    token: str | None = None  # who may read it; None: everybody
    gated: bool = False  # the token's owner has not accepted the conditions
    refs: tuple[str, ...] = ("main",)

    @property
    def commit(self) -> str:
        return hashlib.sha1(
            json.dumps([(path, git_blob(data)) for path, data in sorted(self.files.items())]).encode()
        ).hexdigest()


@dataclasses.dataclass
class Request:
    host: str  # "hub" or "cdn"
    path: str
    headers: dict[str, str]
    sent: int = 0  # bytes of the body


@dataclasses.dataclass
class Fault:
    """A fault for the next `times` requests whose path contains `path`."""

    path: str
    times: int = 1
    status: int = 0  # answered instead
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    cut_after: int = -1  # bytes of the body, then the connection is closed
    wrong: bool = False  # one byte is changed
    ranges: bool = True  # False: Range is ignored
    host: str = "cdn"


class Hub:
    """Serves on 127.0.0.1 (or `address`) and records every request in `requests`."""

    def __init__(self, address: str = "127.0.0.1", tls: tuple[Path, Path] | None = None) -> None:
        self.models: dict[str, Model] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.bytes_per_second = 0.0  # of each transfer from the CDN; 0: as fast as it goes
        self.on_bytes: Callable[[int], None] | None = None  # told of every block that the CDN has sent
        self.lock = threading.Lock()
        self.tunnels: list[str] = []  # HOST:PORT that CONNECT asked for: the hub is a proxy as well
        self.hub, self.cdn = self._listen(address, "hub", tls), self._listen(address, "cdn", tls)
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://{address}:{self.hub.server_address[1]}"
        self.cdn_url = f"{scheme}://{address}:{self.cdn.server_address[1]}"

    def _listen(self, address: str, host: str, tls: tuple[Path, Path] | None) -> ThreadingHTTPServer:
        owner = self

        class Handler(_Handler):
            hub = owner
            name = host

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_: object) -> None:
                pass  # clients that refuse our certificate, or were killed

        server = Server((address, 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def close(self) -> None:
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, name: str, files: dict[str, bytes] | Path, **how: object) -> Model:
        if isinstance(files, Path):
            files = {
                str(path.relative_to(files)): path.read_bytes() for path in sorted(files.rglob("*")) if path.is_file()
            }
        self.models[name] = Model(files, **how)
        return self.models[name]

    def sent(self, host: str = "cdn", path: str = "") -> int:
        """Returns the bytes of sent bodies."""
        with self.lock:
            return sum(request.sent for request in self.requests if request.host == host and path in request.path)

    def fault(self, host: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.host == host and fault.path in path and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub
    name: str

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_CONNECT(self) -> None:
        self.hub.tunnels.append(self.path)
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as other:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ends = [self.connection, other]
            while True:
                for end in select.select(ends, [], [], 30)[0]:
                    data = end.recv(1 << 16)
                    if not data:
                        self.close_connection = True
                        return
                    ends[1 - ends.index(end)].sendall(data)

    def do_GET(self) -> None:
        self.seen = Request(self.name, self.path, {key.lower(): value for key, value in self.headers.items()})
        with self.hub.lock:
            self.hub.requests.append(self.seen)
        fault = self.hub.fault(self.name, self.path) or Fault("")
        try:
            if fault.status:
                self.answer(fault.status, b"fault", fault.headers)
            elif self.name == "cdn":
                self.serve_cdn(fault)
            else:
                self.serve_hub(fault)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    # --- the hub ------------------------------------------------------------------------------------------------------
    def serve_hub(self, fault: Fault) -> None:
        path = urllib.parse.urlsplit(self.path).path
        tree = False
        if found := re.fullmatch(r"/api/models/(.+)/(revision|tree)/([^/]+)", path):
            name, revision, file, tree = found[1], urllib.parse.unquote(found[3]), None, found[2] == "tree"
        elif found := re.fullmatch(r"/api/models/(.+)", path):
            name, revision, file = found[1], "main", None
        elif found := re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path):
            name, revision, file = found[1], urllib.parse.unquote(found[2]), urllib.parse.unquote(found[3])
        else:
            return self.refuse(404, "RepoNotFound", "no such page")
        model = self.model(name)
        if not model:
            return None
        if revision not in model.refs and revision != model.commit:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if file is None:
            listing = self.tree(self.listing(name, model)) if tree else self.listing(name, model)
            return self.answer(200, json.dumps(listing).encode(), {"Content-Type": "application/json"})
        if file not in model.files:
            return self.refuse(404, "EntryNotFound", f"{file} does not exist", model)
        return self.resolve(model, file, fault)

    def model(self, name: str) -> Model | None:
        model, token = self.hub.models.get(name), self.headers.get("Authorization", "").removeprefix("Bearer ")
        if model is None:
            self.refuse(
                *(
                    (404, "RepoNotFound", "Repository not found")
                    if token
                    else (401, "RepoNotFound", "Invalid username or password.")
                )
            )
        elif model.token and token != model.token:
            self.refuse(401, "RepoNotFound", "Invalid username or password.")
            return None
        elif model.gated:
            self.refuse(
                403, "GatedRepo", f"Access to model {name} is restricted and you are not in the authorized list."
            )
            return None
        return model

    @staticmethod
    def listing(name: str, model: Model) -> dict:
        siblings = []
        for path, data in model.files.items():
            entry = {"rfilename": path, "size": len(data), "blobId": git_blob(data)}
            if path.endswith(LARGE):
                sha = hashlib.sha256(data).hexdigest()
                pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha}\nsize {len(data)}\n".encode()
                entry |= {
                    "blobId": git_blob(pointer),
                    "lfs": {"sha256": sha, "size": len(data), "pointerSize": len(pointer)},
                }
            siblings.append(entry)
        return {
            "_id": "1",
            "id": name,
            "modelId": name,
            "sha": model.commit,
            "private": bool(model.token),
            "gated": False,
            "disabled": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
            "siblings": siblings,
        }

    @staticmethod
    def tree(listing: dict) -> list[dict]:
        def entry(file: dict) -> dict:
            lfs = (
                {"lfs": {"oid": file["lfs"]["sha256"], "size": file["size"], "pointerSize": file["lfs"]["pointerSize"]}}
                if "lfs" in file
                else {}
            )
            return {"type": "file", "oid": file["blobId"], "size": file["size"], "path": file["rfilename"]} | lfs

        return [entry(file) for file in listing["siblings"]]

    def resolve(self, model: Model, file: str, fault: Fault) -> None:
        data = model.files[file]
        headers = {"X-Repo-Commit": model.commit, "Accept-Ranges": "bytes"}
        if not file.endswith(LARGE):
            return self.body(data, headers | {"ETag": f'"{git_blob(data)}"', "Content-Type": "text/plain"}, fault)
        sha = hashlib.sha256(data).hexdigest()
        headers |= {
            "X-Linked-Etag": f'"{sha}"',
            "X-Linked-Size": str(len(data)),
            "Location": f"{self.hub.cdn_url}/blob/{sha}/{urllib.parse.quote(file)}?Signature=x",
        }
        return self.answer(302, b"Found. Redirecting", headers)

    # --- the CDN ------------------------------------------------------------------------------------------------------
    def serve_cdn(self, fault: Fault) -> None:
        sha = self.path.split("/")[2]
        for model in self.hub.models.values():
            for data in model.files.values():
                if hashlib.sha256(data).hexdigest() == sha:
                    return self.body(data, {"ETag": f'"{sha[:32]}"', "Accept-Ranges": "bytes"}, fault)
        return self.answer(403, b"AccessDenied", {})

    # --- answers ------------------------------------------------------------------------------------------------------
    def body(self, data: bytes, headers: dict[str, str], fault: Fault) -> None:
        status, begin, end = 200, 0, len(data)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked and fault.ranges:
            begin, end = int(asked[1]), min(len(data), int(asked[2] or len(data)) + 1)
            if begin >= len(data):
                return self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            status, headers = 206, headers | {"Content-Range": f"bytes {begin}-{end - 1}/{len(data)}"}
        part = bytearray(data[begin:end])
        if fault.wrong and part:
            part[len(part) // 2] ^= 1
        return self.answer(status, bytes(part), headers, fault.cut_after)

    def refuse(self, status: int, code: str, message: str, model: Model | None = None) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message, "Content-Type": "application/json"}
        if model:
            headers["X-Repo-Commit"] = model.commit
        self.answer(status, json.dumps({"error": message}).encode(), headers)

    def answer(self, status: int, body: bytes, headers: dict[str, str], cut_after: int = -1) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        block = 1 << 14
        for at in range(0, len(body), block):
            part = body[at : at + block]
            if 0 <= cut_after < at + len(part):
                self.wfile.write(part[: cut_after - at])
                self.seen.sent += cut_after - at
                self.wfile.flush()
                self.close_connection = True
                self.connection.shutdown(2)
                return
            self.wfile.write(part)
            self.seen.sent += len(part)
            if self.hub.on_bytes:
                self.hub.on_bytes(len(part))
            if self.name == "cdn" and self.hub.bytes_per_second:
                time.sleep(len(part) / self.hub.bytes_per_second)
