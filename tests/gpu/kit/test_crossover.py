# SPDX-License-Identifier: Apache-2.0
"""gemv beside cuBLAS: up to how many rows it is not slower."""

import re

import crossover
import libraries
import pytest
import report
import run

MATRIX, OTHER = libraries.MATRICES[0], libraries.MATRICES[1]


def measured(matrix, ours, theirs, widen=30.0):
    """Figures as both stages print them; `ours` and `theirs` map rows to microseconds."""
    shape = f"{matrix[0]}->{matrix[1]}"
    name = lambda rows: f"{shape}, {rows} row{'s' * (rows > 1)}"
    found = {f"{kernel} {name(r)}": {"us": us} for kernel in crossover.GEMV.values() for r, us in ours.items()}
    found |= {f"cublas bf16 {name(r)}": {"us": us} for r, us in theirs.items()}
    found[f"widen i8 to bf16 {shape}"] = {"us": widen}
    return found


def test_the_widening_counts_as_part_of_the_product():
    found = measured(MATRIX, {1: 10.0, 4: 11.0, 8: 15.0, 16: 28.0, 32: 56.0}, dict.fromkeys((1, 4, 8, 16, 32), 12.0))
    rows = crossover.compared(found, "bf16")
    assert [(row["rows"], row["gemv"], row["cublas"]) for row in rows[:2]] == [(1, 10.0, 12.0), (4, 11.0, 12.0)]
    assert crossover.summary(rows) == "up to 4 rows"
    rows = crossover.compared(found, "int8 of bf16")
    assert rows[-1]["cublas"] == 42.0 and crossover.summary(rows) == "up to 16 rows"


def test_sums_are_over_the_matrices_that_both_measured_for_every_number_of_rows():
    found = measured(MATRIX, {1: 10.0, 4: 20.0}, {1: 12.0, 4: 12.0}) | measured(OTHER, {1: 5.0}, {1: 1.0})
    rows = crossover.compared(found, "bf16")
    assert [(row["rows"], row["gemv"], row["wins"], row["of"]) for row in rows] == [(1, 10.0, 1, 1), (4, 20.0, 0, 1)]


@pytest.mark.parametrize(
    "slower, expected", [((), "up to 4 rows"), ((1,), "for no number of rows"), ((2,), "up to 1 row")]
)
def test_the_crossover_has_no_gap(slower, expected):
    ours = {rows: 99.0 if rows in slower else 1.0 for rows in (1, 2, 3, 4)}
    rows = crossover.compared(measured(MATRIX, ours, dict.fromkeys(ours, 10.0)), "bf16")
    assert crossover.summary(rows) == expected


def test_nothing_is_compared_where_one_of_both_was_not_measured():
    found = measured(MATRIX, {1: 1.0}, {})
    assert crossover.compared(found, "bf16") == [] and crossover.compared({}, "int8 of bf16") == []


def test_the_report_shows_both_crossovers():
    found = measured(MATRIX, {1: 1.0, 2: 9.0}, {1: 5.0, 2: 5.0})
    calls = [{"figures": {"bench": found, "libraries": {}}}]
    text = "\n".join(report.crossover_part(calls))
    assert "bf16: `gemv` is not slower up to 1 row. This is `crossover_rows` of" in text
    assert "int8 of bf16: `gemv` is not slower up to 2 rows. This is `quantised_crossover_rows` of" in text
    assert "| 2 | 9.0 | 5.0 | 0 of 1 |" in text
    assert report.crossover_part([{"figures": {}}]) == []


def test_the_kernel_benchmark_multiplies_the_rows_that_cublas_multiplies():
    source = (run.REPOSITORY / "bench/gpu_kernels/cases.cpp").read_text()
    products = source[source.index("void add_gemv") : source.index("void add_row_kernels")]
    rows = re.findall(r": std::vector<int64_t>\{([\d, ]+)\}", products)  # of the large shapes
    assert sorted(int(row) for some in rows for row in some.split(",")) == [row for row in libraries.ROWS if row <= 64]
    backend = (run.REPOSITORY / "worker/ops/cuda/backend_linear.cpp").read_text()
    assert all(f"constexpr int64_t {constant} =" in backend for constant in crossover.CONSTANTS.values())
