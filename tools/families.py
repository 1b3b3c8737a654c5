#!/usr/bin/env python3
"""Writes docs/families.md from policies/ and from what parity covers (tests/parity/cases.py). Without an argument it prints; FILE writes."""
import pathlib
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/parity"))
sys.dont_write_bytecode = True

import cases  # noqa: E402
import known_decoders  # noqa: E402
import known_encoders  # noqa: E402

HEAD = """# Model families
Made by tools/families.py from [policies/](../policies) and the table of tests/parity; do not edit. A family is what config.json calls
`model_type`; other models that are saved under these types are served as well. Each class is compared with transformers on tiny refilled
checkpoints: every layer's hidden states and attentions, every output, and for classes that generate the tokens. *Configurations* counts them,
*ranks* says over how many ranks each was cut. A family that is not here needs a [policy of its own](policies.md).
"""


def merged(base, over):
    """`over` laid on `base`, as policies extend each other."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    found = {key: value for key, value in base.items() if not (key in over and over[key] is None)}
    return found | {key: merged(base.get(key), value) for key, value in over.items() if value is not None}


def policy(name):
    found = yaml.safe_load((ROOT / f"policies/{name}.yaml").read_text())
    return merged(policy(found["extends"]), {key: value for key, value in found.items() if key != "extends"}) if "extends" in found else found


def policies():
    return {path.stem: policy(path.stem) for path in sorted((ROOT / "policies").glob("*.yaml"))}


def listed(value):
    return value if isinstance(value, list) else [value]


def about(name):
    """The comment at the beginning of the policy."""
    lines = (ROOT / f"policies/{name}.yaml").read_text().splitlines()
    comment = [line.removeprefix("#").strip() for line in lines[:next(i for i, line in enumerate(lines) if not line.startswith("#"))]]
    return " ".join(comment)


def section(name, found):
    covered = {}
    for case in cases.CASES:
        if case.model_type in listed(found["model_type"]):
            covered.setdefault(case.model_class, []).append(case)
    rows, refused = [], []
    for kind, row in found["architectures"].items():
        if "as" in row:
            refused.append(f"- {kind} is an old name of {row['as']}")
            continue
        if isinstance(row.get("refuse"), str):
            refused.append(f"- {kind} is refused: {row['refuse']}")
            continue
        refused += [f"- {kind} is refused where `{condition}`: {sentence}" for condition, sentence in (row.get("refuse") or {}).items()]
        ranks = ", ".join(map(str, sorted({n for case in covered[kind] for n in case.ranks}))) if kind in covered else "not tested"
        rows.append(f"| {kind} | {row['task']} | {len(covered.get(kind, []))} | {ranks} |")
    refused += [f"- refused where `{condition}`: {sentence}" for condition, sentence in (found.get("refuse") or {}).items()]
    types = ", ".join(f"`{kind}`" for kind in listed(found["model_type"]))
    lines = [f"## {name}", about(name), f"\n{types} · {found['topology']} · [policy](../policies/{name}.yaml)\n", "| class | task | configurations | ranks |",
             "|---|---|---|---|", *rows]
    return "\n".join(lines + ([""] + refused if refused else [])) + "\n"


KNOWN = """## Well-known checkpoints
What users call these models, and the family by which each is read. Weights of the largest rank in MiB (2^20 bytes) over n ranks, in the type that
is stored: counted from config.json by tests/parity/test_known_*.py, without the weights. *Tokenizer*: from what tokens are made; "ids only": requests
have to give token ids.

| name | checkpoint | family | task | type | tokenizer | n tested | n = 1 | n = 2 | n = 4 |
|---|---|---|---|---|---|---|---|---|---|
"""


def known():
    found, rows = policies(), []
    encoders = [(name, checkpoint, kind, model_class, None, None, "F32", tokens, sizes) for name, kind, checkpoint, model_class, _, _, tokens, sizes in known_encoders.KNOWN]
    for name, checkpoint, kind, model_class, _, _, stored, tokenizer, counts in [*encoders, *known_decoders.KNOWN]:
        family = next(stem for stem, policy in found.items() if kind in listed(policy["model_type"]))
        ranks = sorted({n for case in cases.CASES if (case.model_type, case.model_class) == (kind, model_class) for n in case.ranks})
        rows.append(f"| {name} | {checkpoint} | [{family}](#{family}) | {found[family]['architectures'][model_class]['task']} | {stored} | {tokenizer} | "
                    f"{', '.join(map(str, ranks))} | " + " | ".join(f"{count / 2 ** 20:.1f}" for count in counts) + " |")
    return KNOWN + "\n".join(rows) + "\n"


def page():
    return "\n".join([HEAD, known(), *(section(name, found) for name, found in policies().items())])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(page())
    else:
        print(page(), end="")
