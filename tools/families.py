#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/families.md from policies/ and from the cases of the parity tests (tests/parity/cases.py).
Without an argument it prints; FILE writes.
"""

import pathlib
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests/parity"
sys.path.insert(0, str(TESTS))
sys.dont_write_bytecode = True

import cases
import rag_models

CASES = [*cases.CASES, *rag_models.CASES]
HEAD = """# Model families
Made by tools/families.py from [policies/](../../policies) and the cases of tests/parity; do not edit.
A family is what config.json calls `model_type`. Other models that are saved under these types are served as well.
A family that is not here needs a [policy of its own](policies.md).

Each class is compared with transformers on randomly initialised checkpoints of small configurations. The comparison
covers the hidden states and attentions of every layer, every output, and generated tokens. *Configurations* counts the
checkpoints; *ranks* says over how many ranks each was sharded.
"""


def merged(base, over):
    """`over` laid on `base`, as policies extend each other."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    found = {key: value for key, value in base.items() if not (key in over and over[key] is None)}
    return found | {key: merged(base.get(key), value) for key, value in over.items() if value is not None}


def policy(name):
    found = yaml.load((ROOT / f"policies/{name}.yaml").read_text(), yaml.CSafeLoader)
    return (
        merged(policy(found["extends"]), {key: value for key, value in found.items() if key != "extends"})
        if "extends" in found
        else found
    )


def policies():
    return {path.stem: policy(path.stem) for path in sorted((ROOT / "policies").glob("*.yaml"))}


def listed(value):
    return value if isinstance(value, list) else [value]


def about(name):
    """The comment at the beginning of the policy."""
    lines = (ROOT / f"policies/{name}.yaml").read_text().splitlines()
    comment = [
        line.removeprefix("#").strip()
        for line in lines[: next(i for i, line in enumerate(lines) if not line.startswith("#"))]
    ]
    return " ".join(comment)


def section(name, found):
    covered = {}
    for case in CASES:
        if case.model_type in listed(found["model_type"]):
            covered.setdefault(case.model_class, []).append(case)
    rows, refused = [], []
    for kind, row in found["architectures"].items():
        if "alias_of" in row:
            refused.append(f"- {kind} is an old name of {row['alias_of']}")
            continue
        if isinstance(row.get("refuse"), str):
            refused.append(f"- {kind} is refused: {row['refuse']}")
            continue
        refused += [
            f"- {kind} is refused where `{condition}`: {sentence}"
            for condition, sentence in (row.get("refuse") or {}).items()
        ]
        ranks = (
            ", ".join(map(str, sorted({n for case in covered[kind] for n in case.ranks})))
            if kind in covered
            else "not tested"
        )
        rows.append(f"| {kind} | {row['task']} | {len(covered.get(kind, []))} | {ranks} |")
    refused += [
        f"- refused where `{condition}`: {sentence}" for condition, sentence in (found.get("refuse") or {}).items()
    ]
    types = ", ".join(f"`{kind}`" for kind in listed(found["model_type"]))
    lines = [
        f"## {name}",
        about(name),
        f"\n{types} · {found['kind']} · [policy](../../policies/{name}.yaml)\n",
    ]
    table = ["| class | task | configurations | ranks |", "|---|---|---|---|", *rows] if rows else []  # parts have none
    return "\n".join(lines + table + ([""] * bool(table) + refused if refused else [])) + "\n"


KNOWN = """## Well-known checkpoints
Names that users know, and the family by which each checkpoint is read. The last columns have the MiB (2^20 bytes) of
weights of the largest rank, in the stored type. tests/parity/test_known_checkpoints.py counts them from config.json,
without the weights. *Tokenizer* names the files that it is made from; with "none", requests carry token ids.
"""
COLUMNS = """
| name | checkpoint | family | task | type | tokenizer | ranks tested | MiB, 1 rank | MiB, 2 ranks | MiB, 4 ranks |
|---|---|---|---|---|---|---|---|---|---|
"""
PARALLELFORMERS = """
### The 72 models that Parallelformers lists
Those that it supports, those that it supports in part or not at all, and those that only its code knows. The bytes of
RAG are with an index of five passages.
"""


def known_checkpoints():
    """Rows of tests/parity/known_checkpoints.yaml, by the table that they stand in."""
    found = yaml.load((TESTS / "known_checkpoints.yaml").read_text(), yaml.CSafeLoader)
    return {
        table: [{"settings": {}, "stored": "F32", **row} for row in found[table]]
        for table in ("parallelformers", "others")
    }


def ids_only(rows):
    """Why checkpoints have no tokenizer; each one without must have its reason, and no other."""
    reasons = yaml.load((TESTS / "known_checkpoints.yaml").read_text(), yaml.CSafeLoader)["ids_only"]
    without = [row["name"] for row in rows if row["tokenizer"] == "none"]
    if set(without) != set(reasons):
        raise ValueError(f"reasons for {sorted(reasons)}, but no tokenizer for {sorted(without)}")
    return "\n### Ids only\n" + "\n".join(f"- {name}: {reasons[name]}" for name in without) + "\n"


def known_row(row, found):
    """A row of the tables of known names; `found` has the policies."""
    kind, model_class = row["model_type"], row["class"]
    family = next(stem for stem, policy in found.items() if kind in listed(policy["model_type"]))
    ranks = {n for case in CASES if (case.model_type, case.model_class) == (kind, model_class) for n in case.ranks}
    cells = [
        row["name"],
        row["checkpoint"],
        f"[{family}](#{family})",
        found[family]["architectures"][model_class]["task"],
        row["stored"],
        row["tokenizer"],
        ", ".join(map(str, sorted(ranks))),
        *(f"{count / 2**20:.1f}" for count in row["bytes"]),
    ]
    return f"| {' | '.join(cells)} |\n"


def known():
    found, tables = policies(), known_checkpoints()
    rows = {table: "".join(known_row(row, found) for row in tables[table]) for table in tables}
    return (
        KNOWN
        + PARALLELFORMERS
        + COLUMNS
        + rows["parallelformers"]
        + "\n### Others\n"
        + COLUMNS
        + rows["others"]
        + ids_only([*tables["parallelformers"], *tables["others"]])
    )


def page():
    return "\n".join([HEAD, known(), *(section(name, found) for name, found in policies().items())])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(page())
    else:
        print(page(), end="")
