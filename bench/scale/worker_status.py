# SPDX-License-Identifier: Apache-2.0
"""Answers GET /status for every worker that KWOK simulates, like a worker whose weights are loaded: worker_status.py
RANKS. It runs on the host to which ADDRESSES of kwok.py lead.
"""

import asyncio
import json
import subprocess
import sys

from kwok import ADDRESSES

MEASURED = {"weights": 1 << 20, "kv": 1 << 20, "activations": 1 << 16, "communicator": 0, "runtime": 1 << 20}


def status(replica_generation: int, ranks: int) -> bytes:
    report = [
        {"rank": rank, "state": "Ready", "loadBytes": 1 << 20, "loadTotal": 1 << 20, "measured": MEASURED}
        for rank in range(ranks)
    ]
    return json.dumps(
        {"state": "Ready", "ready": True, "replicaGeneration": replica_generation, "ranks": report}
    ).encode()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.readuntil(b"\r\n\r\n")
        body = status(int(writer.get_extra_info("sockname")[0].rsplit(".", 1)[1]), int(sys.argv[1]))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            % len(body)
            + body
        )
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    writer.close()


async def main() -> None:
    subprocess.run(["ip", "route", "replace", "local", f"{ADDRESSES}.0.0/16", "dev", "lo"], check=True)
    server = await asyncio.start_server(answer, "0.0.0.0", 8001, backlog=1024)
    await server.serve_forever()


asyncio.run(main())
