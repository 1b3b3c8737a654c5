# SPDX-License-Identifier: Apache-2.0
"""Draws a plan (JSON of GET /plan on the input) as one box per rank."""

import json
import sys

plan = json.load(sys.stdin)
ranks = plan["ranks"]
sizes = " x ".join(f"{axis} {size}" for axis, size in plan["sizes"].items() if size > 1) or "one rank"
print(
    f"  {plan['strategy']} ({sizes}), {plan['precision']}, "
    f"sequences of {plan['sequenceLength']} tokens, {plan['concurrency']} at once"
)
print(f"  {plan['reason']}: {plan['message']}")


def box(rank: dict) -> list[str]:
    """What one rank holds, a line per cut."""
    lines = [f"rank {rank['rank']}"]
    lines += [
        f"{stack} layers {begin}-{end - 1}"
        for stack, (begin, end) in ((one["stack"], one["range"]) for one in rank["layers"])
        if end > begin
    ]
    for row in rank["rows"]:
        begin, end = row["range"]
        lines.append(f"{row['stack']} {row['axis']} {begin}-{end - 1} of {row['units']}".strip())
    mib = {kind: value / (1 << 20) for kind, value in rank["predicted"].items()}
    lines += [f"weights {mib['weights']:.2f} MiB", f"KV {mib['kv']:.2f} MiB", f"in all {mib['total']:.1f} MiB"]
    return lines


shown = ranks[:4]
boxes = [box(rank) for rank in shown]
height = max(map(len, boxes))
width = [max(map(len, lines)) for lines in boxes]
rule = "  " + "  ".join("+" + "-" * (w + 2) + "+" for w in width)
print(rule)
for row in range(height):
    print("  " + "  ".join(f"| {(lines[row] if row < len(lines) else ''):<{w}} |" for lines, w in zip(boxes, width)))
print(rule)
if len(ranks) > len(shown):
    print(f"  and {len(ranks) - len(shown)} more ranks of the same kind")
for rejected in plan["rejected"]:
    print(f"  not {rejected['strategy']}: {rejected['reason']}, {rejected['message']}")
