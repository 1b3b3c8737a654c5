# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that tests start."""

import contextlib
import random
import socket


def free_port() -> int:
    """Returns a free port below the ephemeral range, so that no connection takes it before it is bound."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            port = random.SystemRandom().randint(20000, 32000)
            probe.bind(("0.0.0.0", port))
            return port
