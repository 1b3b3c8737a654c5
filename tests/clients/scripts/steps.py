# SPDX-License-Identifier: Apache-2.0
"""Runs the steps of a client and prints what each returned, or how it failed, as one line of JSON."""

import asyncio
import inspect
import json
import sys
import traceback

elsewhere = []


def watch(event, arguments):
    if event == "socket.getaddrinfo" and arguments[0] not in ("127.0.0.1", "localhost", None):
        elsewhere.append(str(arguments[0]))
    if event == "socket.connect" and isinstance(arguments[1], tuple) and arguments[1][0] != "127.0.0.1":
        elsewhere.append(str(arguments[1]))


def run(*steps):
    """Each step takes the server's address and the model's name."""
    sys.addaudithook(watch)
    url, model = sys.argv[1:]
    results = {}
    with asyncio.Runner() as loop:  # one for all: clients may close their connections late
        for step in steps:
            try:
                value = step(url, model)
                results[step.__name__] = {"value": loop.run(value) if inspect.iscoroutine(value) else value}
            except Exception:
                results[step.__name__] = {"error": traceback.format_exc()}
    results["elsewhere"] = {"value": elsewhere}
    print(json.dumps(results))
