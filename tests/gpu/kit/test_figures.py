# SPDX-License-Identifier: Apache-2.0
"""What is read out of the output of programs, on lines that they print."""

import figures
import pytest


def read(reader, text):
    one = figures.READERS[reader]()
    found = [figure for line in text.splitlines() for figure in one.feed(line)] + list(one.end())
    return {figure["figure"]: figure for figure in found}, one


def test_lines_of_json_with_a_name_are_figures_and_others_are_not():
    found, _ = read("lines", 'warm\n{"figure": "copy", "GBps": 4300.5}\n{"other": 1}\n{"figure": "cut", "GB\n[1]\n{}\n')
    assert found == {"copy": {"figure": "copy", "GBps": 4300.5}}


GTEST = """[==========] Running 3 tests from 2 test suites.
[ RUN      ] Gemvs.AnyShape
[       OK ] Gemvs.AnyShape (12 ms)
[ RUN      ] Gemvs.Int8
a.cpp:3: Failure
[  FAILED  ] Gemvs.Int8, where GetParam() = 3 (1 ms)
[ RUN      ] Samples.Greedy
tests/gpu/kernels/device.h:43: Skipped
no GPU here: no device node of one
[  SKIPPED ] Samples.Greedy (0 ms)
[  PASSED  ] 1 test.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Samples.Greedy
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Gemvs.Int8
"""


def test_tests_of_google_test_are_counted_once():
    found, reader = read("gtest", GTEST)
    assert found == {
        "tests": {"figure": "tests", "passed": 1, "failed": 1, "skipped": 1, "names_of_failed": ["Gemvs.Int8"]}
    }
    assert reader.why_skipped == "no GPU here: no device node of one"


def test_a_program_that_is_stopped_has_the_counts_of_the_tests_that_ran():
    found, _ = read("gtest", GTEST[: GTEST.index("[ RUN      ] Samples")])
    assert (found["tests"]["passed"], found["tests"]["failed"]) == (1, 1)


PYTEST = """============ test session starts ============
tests/gpu/worker/test_a.py::test_one[a case-1] PASSED        [ 50%]
tests/gpu/worker/test_a.py::test_two FAILED                 [100%]
tests/gpu/worker/test_a.py::test_three SKIPPED (no GPU here: /dev has no nvidia0, nvidia1, ...) [100%]
=========== short test summary info ============
FAILED tests/gpu/worker/test_a.py::test_two - AssertionError: off
1 skipped: no GPU here: /dev has no nvidia0, nvidia1, ...
"""
# pytest-xdist writes a space at the end of these lines.
XDIST = """[gw1] [ 33%] PASSED tests/gpu/worker/test_a.py::test_one[a case-1]$
[gw0] [ 66%] FAILED tests/gpu/worker/test_a.py::test_two$
[gw0] [100%] SKIPPED tests/gpu/worker/test_a.py::test_three$
FAILED tests/gpu/worker/test_a.py::test_two - AssertionError: off
1 skipped: no GPU here: /dev has no nvidia0, nvidia1, ...
""".replace("$", " ")


@pytest.mark.parametrize("text", [PYTEST, XDIST], ids=["alone", "in parallel"])
def test_tests_of_pytest_are_counted_once(text):
    found, reader = read("pytest", text)
    assert {state: found["tests"][state] for state in ("passed", "failed", "skipped")} == {
        "passed": 1,
        "failed": 1,
        "skipped": 1,
    }
    assert found["tests"]["names_of_failed"] == ["tests/gpu/worker/test_a.py::test_two"]
    assert reader.why_skipped == "no GPU here: /dev has no nvidia0, nvidia1, ..."


def test_reports_of_the_sanitizer_are_counted_beside_the_tests():
    found, _ = read("sanitizer", "[       OK ] Norms.Any (3 ms)\n========= ERROR SUMMARY: 2 errors\n")
    assert found["reports"]["count"] == 2 and found["tests"]["passed"] == 1
    found, _ = read("sanitizer", "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n")
    assert found["reports"]["count"] == 0


def test_rows_of_bench_ops_are_figures():
    row = "%-20s %-62s %-11s %9s %9s %-11s %12s %16s %8s"
    lines = [
        row % ("op", "case", "device", "error", "tolerance", "check", "time", "rate", "vs ATen"),
        row
        % (
            "linear",
            "bf16, 1 row of 4096 -> 14336",
            "cuda:0",
            "1.0e-06",
            "4.0e-06",
            "ok",
            "30.10 us",
            "3.9 GB/s",
            "1.25",
        ),
        row % ("sample", "greedy", "cpu-aten", "-", "0.0e+00", "FAILED", "", "", ""),
    ]
    found, _ = read("operations", "\n".join(lines))
    assert found["linear: bf16, 1 row of 4096 -> 14336, cuda:0"]["us"] == 30.1
    assert found["linear: bf16, 1 row of 4096 -> 14336, cuda:0"]["vs_aten"] == 1.25
    assert found["sample: greedy, cpu-aten"]["right"] is False and len(found) == 2


@pytest.mark.parametrize(
    "prediction, value, verdict",
    [
        ({"low": 4, "high": 5}, 4.5, "as predicted"),
        ({"low": 4, "high": 5}, 3.9, "lower"),
        ({"low": 4, "high": 5}, 5.1, "higher"),
        ({"low": 4}, 99, "as predicted"),
        ({"is": True}, True, "as predicted"),
        ({"is": 0}, 2, "otherwise"),
        ({"is": 0}, None, "not measured"),
    ],
)
def test_a_figure_is_compared_with_its_prediction(prediction, value, verdict):
    figure = None if value is None else {"figure": "a", "ms": value}
    assert figures.judge({"figure": "a", "field": "ms", **prediction}, figure)[2] == verdict
