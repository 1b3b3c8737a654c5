# SPDX-License-Identifier: Apache-2.0
"""Makes hypothesis strategies for values of an openAPIV3Schema: types, bounds, enums, formats of lists and maps, and
patterns where a CEL rule has one. The other CEL rules are checked by the API server: `Generator.accepts` sends a dry
run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

WORD = st.from_regex(
    r"[a-z]([a-z0-9]{0,8}[a-z0-9])?", fullmatch=True
)  # a name that Kubernetes accepts nearly everywhere
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=24)
QUANTITIES = st.sampled_from(["1Gi", "2Gi", "512Mi", "3", "1500m", "4e9"])
ODD_QUANTITIES = st.one_of(
    st.integers(-1, 2**63 - 1),
    st.from_regex(
        r"[+-]?[0-9]{1,19}(\.[0-9]{1,9})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,2})?", fullmatch=True
    ),
    TEXT,
)
MOST_ITEMS = 3


def pattern_of(node: dict) -> str | None:
    """Returns the regular expression that a rule of this string requires."""
    for rule in node.get("x-kubernetes-validations", []):
        found = re.search(r"(?<!!)self\.matches\('(\^.*?\$)'\)", rule["rule"])
        if found:
            return found[1]
    return None


class Generator:
    """Generates values of `schema`. Kubernetes accepts most objects that are made of tame values; other values follow
    the schema only. `known` maps paths to strategies that replace those of the schema: (tame, other), where None keeps
    the schema's strategy. `always` names the fields that are never left out."""

    def __init__(
        self,
        schema: dict,
        known: dict[str, tuple[SearchStrategy | None, SearchStrategy | None]],
        always: set[str],
        accepts: Callable[[dict], bool],
    ) -> None:
        self.schema, self.known, self.always, self.accepts = schema, known, always, accepts

    def value(self, path: str, node: dict, tame: bool) -> SearchStrategy:
        own = self.known.get(path, (None, None))[0 if tame else 1]
        if own is not None:
            return own
        if node.get("x-kubernetes-int-or-string"):
            return QUANTITIES if tame else ODD_QUANTITIES
        return getattr(self, "_" + node["type"])(path, node, tame)

    def _string(self, path: str, node: dict, tame: bool) -> SearchStrategy:
        if "enum" in node:
            return st.sampled_from(node["enum"])
        if tame:
            return WORD
        text = st.text(
            st.characters(exclude_categories=["Cs"]),
            min_size=node.get("minLength", 0),
            max_size=min(node.get("maxLength", 64), 64),
        )
        pattern = pattern_of(node)
        return (
            st.one_of(
                text,
                st.from_regex(pattern, fullmatch=True).filter(lambda found: len(found) <= node.get("maxLength", 64)),
            )
            if pattern
            else text
        )

    def _integer(self, path: str, node: dict, tame: bool) -> SearchStrategy:
        least, most = node.get("minimum", -(2**31)), node.get("maximum", 2**31 - 1)
        return st.one_of(st.sampled_from([least, most]), st.integers(least, most))

    def _number(self, path: str, node: dict, tame: bool) -> SearchStrategy:
        return st.floats(node.get("minimum", -1e9), node.get("maximum", 1e9), allow_nan=False)

    def _boolean(self, path: str, node: dict, tame: bool) -> SearchStrategy:
        return st.booleans()

    def _array(self, path: str, node: dict, tame: bool) -> SearchStrategy:
        keys = node.get("x-kubernetes-list-map-keys")
        unique = (lambda item: tuple(item.get(key) for key in keys)) if keys else None
        return st.lists(
            self.value(path + "[]", node["items"], tame),
            min_size=node.get("minItems", 0),
            max_size=min(node.get("maxItems", MOST_ITEMS), MOST_ITEMS),
            unique_by=unique,
        )

    def _object(self, path: str, node: dict, tame: bool) -> SearchStrategy:
        inner = node.get("additionalProperties")
        if isinstance(inner, dict):
            return st.dictionaries(
                WORD if tame else st.one_of(WORD, TEXT),
                self.value(path + "{}", inner, tame),
                max_size=min(node.get("maxProperties", MOST_ITEMS), MOST_ITEMS),
            )
        return self._fields(path, node, tame)

    def _fields(self, path: str, node: dict, tame: bool) -> SearchStrategy:
        @st.composite
        def fields(draw):
            return {
                name: draw(self.value(f"{path}.{name}", child, tame))
                for name, child in node.get("properties", {}).items()
                if name in node.get("required", []) or f"{path}.{name}" in self.always or draw(st.integers(0, 2)) == 2
            }

        return fields()

    def spec(self) -> SearchStrategy:
        """Generates specs that the API server accepts, three quarters of them tame. Each field is drawn until it is
        accepted beside the smallest manifest, at most a few times."""

        @st.composite
        def spec(draw):
            tame, out = draw(st.integers(0, 3)) > 0, {}
            for name, node in self.schema["properties"].items():
                if name in self.schema["required"] or draw(st.integers(0, 2)) == 2:
                    self.draw_field(draw, out, name, node, tame)
            return out

        return spec()

    def edited(self, spec: dict) -> SearchStrategy:
        """Returns the same spec with some fields changed."""

        @st.composite
        def edit(draw):
            out = dict(spec)
            for name in draw(
                st.lists(st.sampled_from(sorted(self.schema["properties"])), min_size=1, max_size=3, unique=True)
            ):
                if name not in self.schema["required"]:
                    out.pop(name, None)
                if name in self.schema["required"] or draw(st.integers(0, 3)) > 0:
                    self.draw_field(draw, out, name, self.schema["properties"][name], draw(st.integers(0, 3)) > 0)
            return out

        return edit()

    def draw_field(self, draw, out: dict, name: str, node: dict, tame: bool) -> None:
        for _ in range(6):
            found = draw(self.value(f".{name}", node, tame))
            if self.accepts({**out, name: found}):
                out[name] = found
                return


def violations(node: dict, value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Returns (path, bad value) for every way in which one place of a value can break the schema `node`. A path is the
    text of a list of keys, which `put` reads."""
    out: list[tuple[str, Any]] = []
    if node.get("x-kubernetes-int-or-string"):
        return [(path, [1]), (path, {"a": 1}), (path, True)]
    kind = node["type"]
    wrong = {"string": 7, "integer": "seven", "number": "seven", "boolean": "yes", "array": "list", "object": "map"}[
        kind
    ]
    out.append((path, wrong))
    if "enum" in node:
        out.append((path, node["enum"][0] + "x"))
    if kind == "integer":
        out += [(path, node["minimum"] - 1)] if "minimum" in node else []
        out += [(path, node["maximum"] + 1)] if "maximum" in node else []
        out.append((path, 1.5))
    if kind == "string" and "enum" not in node:
        out += [(path, "a" * (node["maxLength"] + 1))] if "maxLength" in node else []
        out += [(path, "")] if node.get("minLength") else []
    if kind == "array":
        out += [(path, value[:1] * (node["maxItems"] + 1))] if value and "maxItems" in node else []
        out += [(path, [])] if node.get("minItems") else []
        for i, item in enumerate(value):
            out += violations(node["items"], item, f"{path}/{i}")
    if kind == "object":
        for name in node.get("required", []):
            out.append((path, {key: item for key, item in value.items() if key != name}))
        inner = node.get("additionalProperties")
        if isinstance(inner, dict) and value and "maxProperties" in node:
            out.append(
                (
                    path,
                    {f"{i}-{next(iter(value))}": next(iter(value.values())) for i in range(node["maxProperties"] + 1)},
                )
            )
        for name, item in value.items():
            child = node.get("properties", {}).get(name, inner)
            if isinstance(child, dict) and "/" not in name:
                out += violations(child, item, f"{path}/{name}")
    return out


def put(value: Any, path: str, new: Any) -> Any:
    """Returns `value` with the element at `path` replaced."""
    if not path:
        return new
    key, _, rest = path.removeprefix("/").partition("/")
    rest = "/" + rest if rest else ""
    if isinstance(value, list):
        return [put(item, rest, new) if i == int(key) else item for i, item in enumerate(value)]
    return {name: put(item, rest, new) if name == key else item for name, item in value.items()}
