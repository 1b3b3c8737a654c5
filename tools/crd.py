#!/usr/bin/env python3
"""Writes docs/crd.md from crds/parallelmodel.yaml. Without an argument it prints; FILE writes."""
import pathlib
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]

HEAD = """# The ParallelModel API
Made by tools/crd.py from [crds/parallelmodel.yaml](../crds/parallelmodel.yaml); do not edit. `kubectl explain parallelmodel.spec` says the same.
Group `{group}`, version `{version}`, kind {kind}, plural `{plural}`, short name{s} {short}. A field that is left out is planned by the operator;
durations are whole seconds; a quantity is a number or a text such as `80Gi` or `500m`. *Rules* are checked by the API server when you apply.
"""
QUANTITY = "must be a quantity above zero, such as 80Gi, 500m or 16"    # said once above, not of every such field


def one_line(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def type_of(field):
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field["type"] == "array":
        return f"list of {type_of(field['items'])}"
    if field["type"] == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"map of {type_of(field['additionalProperties'])}"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    return "time" if field.get("format") == "date-time" else field["type"]


def bounds(field):
    """What values may be, beside the type."""
    said = []
    if "minimum" in field:
        said.append(f"{field['minimum']} to {field['maximum']}" if "maximum" in field else f"at least {field['minimum']}")
    if field.get("default") not in (None, {}):
        said.append(f"default {field['default']}")
    for key, unit in (("maxLength", "characters"), ("maxItems", "entries"), ("maxProperties", "entries")):
        if key in field and not field.get("x-kubernetes-int-or-string"):
            said.append(f"at most {field[key]} {unit}")
    return "; ".join(said)


def rows(node, path, root):
    """A line for every field below `node`, those of a list's items and a map's values behind []."""
    for name, child in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        required = " *(required)*" if name in node.get("required", []) and root == "spec" else ""
        limits = f" ({bounds(child)})" if bounds(child) and root == "spec" else ""
        yield f"| `{here}`{required} | {type_of(child)} | {one_line(child.get('description', ''))}{limits} |"
        yield from rows(child, here, root)
        for inner in (child.get("items"), child.get("additionalProperties")):
            if isinstance(inner, dict):
                yield from rows(inner, here + "[]", root)


def rules(node, path):
    """(path, message) of every rule the API server checks."""
    for rule in node.get("x-kubernetes-validations", []):
        if rule["message"] != QUANTITY:
            yield path, rule["message"]
    for name, child in node.get("properties", {}).items():
        yield from rules(child, f"{path}.{name}" if path else name)
    for inner in (node.get("items"), node.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from rules(inner, path + "[]")


def page():
    spec = yaml.safe_load((ROOT / "crds/parallelmodel.yaml").read_text())["spec"]
    [version] = spec["versions"]
    schema, names = version["schema"]["openAPIV3Schema"], spec["names"]
    parts = [HEAD.format(group=spec["group"], version=version["name"], kind=names["kind"], plural=names["plural"], s="s" if len(names["shortNames"]) > 1 else "",
                         short=", ".join(f"`{name}`" for name in names["shortNames"]))]
    parts.append(one_line(schema["description"]) + "\n")
    for root in ("spec", "status"):
        parts.append(f"## {root}\n{one_line(schema['properties'][root]['description'])}\n")
        parts.append("\n".join(["| field | type | meaning |", "|---|---|---|", *rows(schema["properties"][root], "", root)]) + "\n")
    parts.append("## Rules\n" + "\n".join(f"- `{path or 'metadata.name'}`: {one_line(message)}" for path, message in rules(schema, "")) + "\n")
    columns = version["additionalPrinterColumns"]
    parts.append("## Columns of `kubectl get pm`\n" + "\n".join(
        f"- {column['name']}{' (with -o wide)' if column.get('priority') else ''}: {column.get('description', 'Time since it was made')}" for column in columns) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(page())
    else:
        print(page(), end="")
