# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest for long runs (tools/test.sh): prints which files took most of the time, so that whoever makes the
tests faster knows where.
"""

import collections

LEAST, MOST = 120, 15  # seconds of a run below which it prints nothing; files that it prints


def pytest_terminal_summary(terminalreporter):
    seconds, tests = collections.Counter(), collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                file = report.nodeid.split("::")[0]
                seconds[file] += report.duration
                tests[file] += getattr(report, "when", "") == "call"
    total = sum(seconds.values())
    if total < LEAST:
        return
    terminalreporter.section(f"files that took longest, of {total:.0f} s in all processes")
    for file, spent in seconds.most_common(MOST):
        terminalreporter.write_line(f"{spent:7.0f} s {tests[file]:6} tests  {file}")
