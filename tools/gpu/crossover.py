# SPDX-License-Identifier: Apache-2.0
"""Compares gemv with cuBLAS by number of rows: stages `bench` and `libraries` of the first call have both. What the
worker launches beside a product counts as part of it: the widening of int8."""

import libraries

# weights: the constant of worker/ops/cuda/backend_linear.cpp that has the rows up to which gemv() multiplies
CONSTANTS = {"bf16": "crossover_rows", "int8 of bf16": "quantised_crossover_rows"}
GEMV = {"bf16": "gemv bf16 x bf16", "int8 of bf16": "gemv i8 for bf16 x bf16"}


def us(found, figure):
    """Returns the microseconds of a figure, or None where it was not measured."""
    return found.get(figure, {}).get("us")


def times(found, weights, matrix, rows):
    """Returns the microseconds of a product by gemv and by cuBLAS, or None where one is missing."""
    name = f"{matrix[0]}->{matrix[1]}, {rows} row{'s' * (rows > 1)}"
    ours = us(found, f"{GEMV[weights]} {name}")
    parts = [us(found, f"cublas bf16 {name}")]
    if weights != "bf16":
        parts.append(us(found, f"widen i8 to bf16 {matrix[0]}->{matrix[1]}"))
    return None if ours is None or None in parts else (ours, sum(parts))


def compared(found, weights):
    """Returns, for each number of rows, the sums of both over the matrices whose times are known for every such number,
    and how many of these matrices gemv multiplies no slower than cuBLAS. `found` maps figures to their fields."""
    by_rows = {
        rows: {matrix: both for matrix in libraries.MATRICES if (both := times(found, weights, matrix, rows))}
        for rows in libraries.ROWS
    }
    by_rows = {rows: known for rows, known in by_rows.items() if known}
    common = set.intersection(*map(set, by_rows.values())) if by_rows else set()
    return [
        {
            "rows": rows,
            "gemv": sum(known[matrix][0] for matrix in common),
            "cublas": sum(known[matrix][1] for matrix in common),
            "wins": sum(known[matrix][0] <= known[matrix][1] for matrix in common),
            "of": len(common),
        }
        for rows, known in by_rows.items()
        if common
    ]


def summary(rows):
    """Returns up to how many rows, without a gap, the sums of gemv are not larger."""
    last = 0
    for row in rows:
        if row["gemv"] > row["cublas"]:
            break
        last = row["rows"]
    return f"up to {last} row{'s' * (last != 1)}" if last else "for no number of rows"
