#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the machine instructions of each kernel in compiled objects, of all kinds and in the loops without a loop
inside, and checks what the emulation cannot see: no kernel waits in a compare-and-swap loop on shared memory, no loop
of the sampling kernel that loads scores has arithmetic in fp64, and norms of aligned rows load no single 16-bit number.
Launches for sm_90 and later overlap, so there no kernel touches memory or ends before the kernels ahead of it have
ended. Only those of READS_AHEAD load before, what no kernel writes, and GEMV has at least its first turn under way;
thread blocks without work end before in those of ENDS_AHEAD.

    instructions.py FOLDER [--arch sm_90] [--all]     --all: every kernel, not only the worst variant of each

Exits 1 when a kernel breaks a rule, 77 where there is no cuobjdump (the wheel of Triton brings one)."""

import argparse
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

KINDS = {
    "loads": r"LDG\b",
    "mma": r"HMMA\b",
    "fp32": r"F(FMA|MUL|ADD)\b",
    "shuffles": r"SHFL\b",
    "shared atomics": r"ATOMS\b",
    "fp64": r"D(ADD|MUL|FMA|SETP)\b|MUFU\.RCP64H",
}
# global memory, and the end of a thread
LOADS = re.compile(r"\b(LDG|LD|LDGSTS)\b")
TOUCHES = re.compile(r"\b(STG|ST|ATOMG|ATOM|RED|REDG)\b")
READS_AHEAD = {"gemv_mma_kernel": 2, "gemv_kernel": 1, "norm_kernel": 1, "decode_mma_kernel": 0, "combine_kernel": 0}
ENDS_AHEAD = {"decode_mma_kernel"}  # its first split always waits
WAITS = re.compile(r"\bACQBULK\b")  # griddepcontrol.wait
SPIN = re.compile(r"ATOMS\.CAST?\.|ATOMS\.CAS\b")


def cuobjdump():
    if found := shutil.which("cuobjdump"):
        return found
    triton = importlib.util.find_spec("triton")
    for folder in triton.submodule_search_locations if triton else []:
        program = pathlib.Path(folder) / "backends/nvidia/bin/cuobjdump"
        if program.exists():
            return str(program)
    return None


def kernels(program, path, arch):
    """Yields (mangled name, [(address, instruction)]) of an object's kernels."""
    text = subprocess.run([program, "-sass", "-arch", arch, str(path)], capture_output=True, text=True).stdout
    for part in re.split(r"^\s*Function : ", text, flags=re.M)[1:]:
        name = part.split(None, 1)[0]
        found = re.findall(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.+?)\s*;", part, re.M)
        code = [(int(address, 16), instruction) for address, instruction in found]
        yield name, [line for line in code if not re.search(r"\bNOP\b", line[1])]


def innermost_loops(code):
    """Returns the instructions of each loop that contains no other: from a branch's earlier target to the branch. An
    unconditional branch back is the end of code that the compiler moved out of line."""
    loops = []
    for address, instruction in code:
        if target := re.match(r"@\S+\s+BRA\b.*?(0x[0-9a-f]+)", instruction):
            begin = int(target[1], 16)
            if begin < address:
                loops.append((begin, address))
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    return [[i for address, i in code if begin <= address <= end] for begin, end in inner]


def short_name(mangled):
    """Returns the kernel's name with its template arguments, such as decode_mma_kernel<bfloat16, 2>."""
    found = re.search(r"(?<=\d)([a-z][a-z_]*_kernel)(?:I(.+?)E)?Ev?N", mangled)
    if not found:
        return mangled
    types = {"f": "float", "6__half": "half", "13__nv_bfloat16": "bfloat16"}
    arguments = re.findall(r"L[a-z](\d+)E|(6__half|13__nv_bfloat16|f)", (found[2] or "") + "E")
    listed = ", ".join(value or types[kind] for value, kind in arguments)
    return f"{found[1]}<{listed}>" if listed else found[1]


def waits_first(name, code):
    """Returns whether a kernel waits for those ahead of it before it touches memory or ends, but for the exceptions.
    One of READS_AHEAD loads at least so many times before."""
    waits = next((i for i, line in enumerate(code) if WAITS.search(line)), None)
    kernel = name.split("<")[0]
    if waits is None or any(TOUCHES.search(line) for line in code[:waits]):
        return False
    if kernel not in ENDS_AHEAD and any(re.search(r"\bEXIT\b", line) for line in code[:waits]):
        return False
    loads = sum(LOADS.search(line) is not None for line in code[:waits])
    least = READS_AHEAD.get(kernel)
    return loads == 0 if least is None else loads >= least


def count(kind, code):
    return sum(re.search(KINDS[kind], instruction) is not None for instruction in code)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--arch", default="sm_90")
    arguments.add_argument("--all", action="store_true")
    given = arguments.parse_args()
    program = cuobjdump()
    if not program:
        print("no cuobjdump here")
        return 77
    rows, wrong = [], []
    for path in sorted(given.folder.rglob("*.o")):
        for name, lines in kernels(program, path, given.arch):
            short, code = short_name(name), [instruction for _, instruction in lines]
            loops = [loop for loop in innermost_loops(lines) if count("loads", loop)]
            if any(SPIN.search(instruction) for instruction in code):
                wrong.append(f"{short} waits in a loop of compare-and-swap on shared memory")
            if "sample_kernel" in short and any(count("fp64", loop) for loop in loops):
                wrong.append(f"{short} has fp64 arithmetic for each score")
            if int(given.arch.removeprefix("sm_")) >= 90 and not waits_first(short, code):
                wrong.append(
                    f"{short} waits for the kernels ahead of it too late, or too early to have loads under way"
                )
            is_aligned_norm = short.startswith("norm_kernel")  # any_norm_kernel is for rows that are not
            if is_aligned_norm and any(re.search(r"LDG\S*\.U16", instruction) for instruction in code):
                wrong.append(f"{short} loads 16-bit numbers one by one")
            rows.append((short, code, max(loops, key=len, default=[])))
    if not rows:
        wrong.append(f"no kernel for {given.arch} under {given.folder}")
    if not given.all:
        worst = {}
        for row in rows:
            kernel = row[0].split("<")[0]
            if len(row[1]) > len(worst.get(kernel, ("", []))[1]):
                worst[kernel] = row
        rows = list(worst.values())
    width = max((len(row[0]) for row in rows), default=0)
    print(f"{'kernel':{width}} {'all':>6} " + " ".join(f"{kind:>14}" for kind in KINDS) + "   longest loop with loads")
    for short, code, loop in sorted(rows):
        in_loop = ", ".join(f"{n} {kind}" for kind in KINDS if (n := count(kind, loop)))
        counts = " ".join(f"{count(kind, code):14}" for kind in KINDS)
        print(f"{short:{width}} {len(code):6} {counts}   {len(loop)}: {in_loop}")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
