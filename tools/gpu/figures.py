# SPDX-License-Identifier: Apache-2.0
"""Reads figures out of what the stages of tools/gpu/run.py print, compares them with predictions, and prints tables.

A figure is a dictionary: "figure" is its name, unique in its stage, and the other entries are its values.
"""

import json
import re


class Lines:
    """Reads lines of JSON that have a name under "figure" (bench_gpu_kernels, bench/gpu/measure.py --json)."""

    why_skipped = ""  # what the stage printed, where its tests were skipped

    def feed(self, line):
        if line.startswith("{") and isinstance((found := parsed(line)).get("figure"), str):
            yield found

    def end(self):
        return ()


def parsed(line):
    """Returns the object of a line of JSON; an empty one where the stage was stopped within the line."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


class Operations(Lines):
    """Reads the table of bench_ops: operation, case, device, error, tolerance, check, and with them time and rate."""

    row = re.compile(
        r"(\w+) +(.+?) +(\w+(?::\d+)?(?:-aten)?) +(\S+) +(\S+) +(ok|FAILED|unsupported)"
        r"(?: +([\d.]+) us)?(?: +[\d.]+ (?:GB|GFLOP)/s)?(?: +([\d.]+))?\s*$"
    )

    def feed(self, line):
        if found := self.row.match(line):
            operation, case, device, error, _, verdict, us, ratio = found.groups()
            values = {"right": verdict != "FAILED", "error": error, "us": us, "vs_aten": ratio}
            yield {
                "figure": f"{operation}: {case}, {device}",
                **{name: float(v) if name in ("us", "vs_aten") else v for name, v in values.items() if v is not None},
            }


class Tests(Lines):
    """Counts tests while they run, so that a stage that is stopped still has its counts."""

    passed = failed = skipped = None  # regular expressions of a line about one test; the first group is its name

    def __init__(self):
        self.names = {"passed": {}, "failed": {}, "skipped": {}}

    def feed(self, line):
        for state, names in self.names.items():
            if found := re.search(getattr(self, state), line):
                names[next(filter(None, found.groups()))] = True
        return ()

    def end(self):
        counts = {state: len(names) for state, names in self.names.items()}
        if any(counts.values()):
            yield {"figure": "tests", **counts, "names_of_failed": list(self.names["failed"])[:20]}


class GoogleTest(Tests):
    passed = r"^\[       OK \] (\S+)"
    failed = r"^\[  FAILED  \] ([\w./]+)(?=,| \()"
    skipped = r"^\[  SKIPPED \] ([\w./]+)(?=,| \()"

    def __init__(self):
        super().__init__()
        self.reason_follows = False

    def feed(self, line):
        if self.reason_follows:
            self.why_skipped = line
        self.reason_follows = line.endswith(": Skipped")
        return super().feed(line)


class Pytest(Tests):
    """Reads pytest -v, with or without pytest-xdist, and the summary of tests/gpu/worker/conftest.py."""

    passed = r"^PASSED (tests/.*)|^(tests/.*) PASSED"
    failed = r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$|^(tests/.*) (?:FAILED|ERROR)$"
    skipped = r"^SKIPPED (tests/.*)|^(tests/.*) SKIPPED"

    def feed(self, line):
        if found := re.match(r"\d+ skipped: (.*)", line):
            self.why_skipped = found[1]
        return super().feed(re.sub(r"^\[gw\d+\]\s*(?:\[\s*\d+%\]\s*)?|\s*\[\s*\d+%\]\s*$|\s+$", "", line))


class Sanitizer(GoogleTest):
    """Reads compute-sanitizer, which runs a GoogleTest program."""

    def __init__(self):
        super().__init__()
        self.errors = None

    def feed(self, line):
        if found := re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", line):
            self.errors = int(found[1])
        return super().feed(line)

    def end(self):
        yield from super().end()
        if self.errors is not None:
            yield {"figure": "reports", "count": self.errors}


READERS = {
    "lines": Lines,
    "operations": Operations,
    "gtest": GoogleTest,
    "pytest": Pytest,
    "sanitizer": Sanitizer,
}


def numbers_in(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def judge(prediction, found):
    """Compares a figure with a prediction, an entry of a plan: `figure`, `field`, and `low` and `high`, or `is`.
    Returns (value, what was predicted, verdict)."""
    low, high = prediction.get("low", ""), prediction.get("high", "")
    wanted = shown(prediction["is"]) if "is" in prediction else f"{low} to {high}"
    value = (found or {}).get(prediction["field"])
    if value is None:
        return None, wanted, "not measured"
    if "is" in prediction:
        return value, wanted, "as predicted" if value == prediction["is"] else "otherwise"
    if value < prediction.get("low", value):
        return value, wanted, "lower"
    return value, wanted, "higher" if value > prediction.get("high", value) else "as predicted"


def shown(value):
    """Returns a value with at most four digits that count."""
    if not numbers_in(value):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def summary(figure):
    """Returns the values of a figure in one line, the ones that are compared first."""
    first = ["us", "ms", "of_copy", "of_bandwidth", "of_peak", "GBps", "Tflops", "tokens_per_second"]
    order = [name for name in first if name in figure] + [
        name
        for name, value in figure.items()
        if name not in {*first, "figure", "stage", "bytes", "flops", "launches", "spread", "error", "tolerance"}
        and not isinstance(value, (list, dict))
        and value != ""
    ]
    return ", ".join(f"{name} {shown(figure[name])}" for name in order)


def table(rows, widths):
    """Returns lines of aligned columns; the last column has no width."""
    return ["  ".join([str(cell).ljust(width) for cell, width in zip(row, [*widths, 0])]).rstrip() for row in rows]
