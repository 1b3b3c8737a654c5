#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the resource usage that ptxas reports for each kernel (cmake/ptxas.sh stores it beside the objects): no kernel
spills registers, only the kernels named here use a stack, and the occupancy of a multiprocessor by each kernel is at
least what its speed needs. Prints the table; exits 1 when a kernel breaks a rule."""

import pathlib
import re
import sys

REGISTERS = 65536  # of a multiprocessor, sm_80 to sm_120
# threads of a block, and blocks that must fit at once by registers
BLOCKS = {
    "decode_kernel": (128, 2),
    "decode_mma_kernel": (128, 2),
    "combine_kernel": (128, 8),
    "prefill_kernel": (128, 2),
    "prefill_mma_kernel": (128, 2),
    "gather_kernel": (256, 4),
    "gemv_kernel": (512, 1),
    "gemv_mma_kernel": (512, 2),
    "edit_kernel": (128, 4),
    "norm_kernel": (1024, 1),
    "any_norm_kernel": (256, 2),
    "activate_kernel": (256, 2),
    "rotary_kernel": (128, 4),
    "angles_kernel": (128, 4),
    "sample_kernel": (512, 1),
    "best_kernel": (512, 2),
    "widen_kernel": (256, 4),
}
STACK = {"angles_kernel": 64}  # cosf and sinf reduce large angles there


def kernels(folder):
    """Yields (architecture, name, mangled template arguments, resource usage)."""
    for path in sorted(folder.rglob("*.ptxas")):
        name = figures = None
        for line in path.read_text().splitlines():
            if found := re.search(r"Compiling entry function '(\S+)' for '(\S+)'", line):
                name, figures = found, {}
            elif name and (
                found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
            ):
                figures.update(stack=int(found[1]), stores=int(found[2]), loads=int(found[3]))
            elif name and (found := re.search(r"Used (\d+) registers", line)):
                shared = re.search(r"(\d+) bytes smem", line)
                figures.update(registers=int(found[1]), shared=int(shared[1]) if shared else 0)
                short = next((k for k in sorted(BLOCKS, key=len, reverse=True) if k in name[1]), None)
                yield name[2], short or name[1], name[1].split(short)[-1] if short else "", figures
                name = None


def main():
    rows = list(kernels(pathlib.Path(sys.argv[1])))
    wrong = [] if rows else [f"no ptxas output under {sys.argv[1]}"]
    worst = {}
    for architecture, kernel, template, f in rows:
        where = f"{kernel}{template} for {architecture}"
        if kernel not in BLOCKS:
            wrong.append(f"{where} is not in the list of this test")
            continue
        threads, blocks = BLOCKS[kernel]
        taken = (f["registers"] + 7) // 8 * 8 * threads
        if f["stores"] or f["loads"]:
            wrong.append(f"{where} spills {f['stores']} bytes")
        if f["stack"] > STACK.get(kernel, 0):
            wrong.append(f"{where} has a stack of {f['stack']} bytes")
        if REGISTERS // taken < blocks:
            wrong.append(
                f"{where} takes {f['registers']} registers a thread: "
                f"{REGISTERS // taken} blocks of {threads} threads fit, {blocks} should"
            )
        seen = worst.setdefault((kernel, architecture), [0, 0, 0, 0])
        worst[kernel, architecture] = [
            seen[0] + 1,
            max(seen[1], f["registers"]),
            max(seen[2], f["stores"]),
            max(seen[3], f["shared"]),
        ]
    if missing := set(BLOCKS) - {kernel for _, kernel, _, _ in rows}:
        wrong.append(f"never compiled: {', '.join(sorted(missing))}")
    print(f"{'kernel':20} {'for':8} {'variants':>8} {'registers':>9} {'spilled':>8} {'shared':>7}")
    for (kernel, architecture), (count, registers, spilled, shared) in sorted(worst.items()):
        print(f"{kernel:20} {architecture:8} {count:8} {registers:9} {spilled:8} {shared:7}")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
