# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest for runs that have no time for all tests (tools/test.sh): PM_TEST_SHARE is the percentage of tests
to run, spread over all files; PM_TEST_DRAW, any text, chooses which, so that another run covers what one leaves out;
after PM_TEST_END, in seconds since 1970, no test begins. What is left out is counted at the end.
"""

import os
import time
import zlib

import pytest

SHARE = float(os.environ.get("PM_TEST_SHARE", 100))
DRAW = os.environ.get("PM_TEST_DRAW", "")
END = float(os.environ.get("PM_TEST_END", "inf"))
NO_TIME = "left out: no time"


def is_in_share(item):
    return zlib.crc32((DRAW + item.nodeid).encode()) % 1000 < SHARE * 10


def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=[item for item in items if not is_in_share(item)])
    items[:] = [item for item in items if is_in_share(item)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if time.time() > END:
        pytest.skip(NO_TIME)


def pytest_terminal_summary(terminalreporter):
    if SHARE < 100:
        terminalreporter.write_line(f"only {SHARE:g}% of the tests were chosen, by PM_TEST_DRAW={DRAW}")
    late = [one for one in terminalreporter.stats.get("skipped", []) if NO_TIME in str(one.longrepr)]
    if late:
        terminalreporter.write_line(f"{len(late)} tests came too late and did not run")
