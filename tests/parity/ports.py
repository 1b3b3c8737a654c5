# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that tests start."""

import collections
import contextlib
import random
import socket

_claims = collections.deque()
MOST_CLAIMS = 64  # far more ports than a test asks for before its servers have bound them


def free_port() -> int:
    """Returns a free port below the ephemeral range, so that no connection takes it before it is bound. Nor does
    another process of the tests: a socket whose name has the number is held meanwhile.
    """
    while True:
        port = random.SystemRandom().randint(20000, 32000)
        claim = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError), socket.socket() as probe:
            claim.bind(f"\0parallelmodel-test-port-{port}")
            probe.bind(("0.0.0.0", port))
            _claims.append(claim)
            if len(_claims) > MOST_CLAIMS:
                _claims.popleft().close()
            return port
        claim.close()
