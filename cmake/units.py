#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the units in which sources of a target are compiled as one: units.py MOST FOLDER reads "TARGET|SOURCE" lines
of FOLDER/sources.txt, writes FOLDER/TARGET/NUMBER.cpp, and prints a line "TARGET|UNIT|SOURCE|SOURCE..." for each.

Compiled together, files see each other's anonymous namespaces and headers. So two files share a unit only if neither
uses a name, as anything, that the other defines for itself, nor includes a header that declares one, or another thing
of a name that the other uses: then each means what it means alone. A unit has at most MOST files. A file that fits to
no other is compiled as it is.
"""

import collections
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

LITERALS = re.compile(
    r"""R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?\*/""", re.S
)
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
NO_NAMES = {"bool", "char", "false", "int32_t", "int64_t", "nullptr", "size_t", "true", "void"}
NO_NAMES |= {"INSTANTIATE_TEST_SUITE_P", "MATCHER", "MATCHER_P", "TEST", "TEST_F", "TEST_P"}  # they declare another one
INCLUDED = re.compile(r'^\s*#\s*include\s+"(.+?)"', re.M)
DEFINED = re.compile(r"^\s*#\s*define\s+(\w+)", re.M)


def declarations(text):
    """Yields (internal, head) for what the file declares outside of classes and functions: whether it stands in an
    anonymous namespace, and its text up to its body or value."""
    scopes, start, at = [], 0, 0  # of namespaces: is it, or one around it, anonymous
    while at < len(text):
        if text[at] == "{":
            head = text[start:at]
            if re.search(r"(^|\s)namespace(\s+[\w:]+)?\s*$", head):
                scopes.append((scopes[-1] if scopes else False) or head.split()[-1] == "namespace")
                start = at = at + 1
                continue
            yield bool(scopes and scopes[-1]), head
            at = closing(text, at) + 1
            rest = re.match(r"[^;{}]*;", text[at:]) if re.match(r"\s*[,;]|\s*$", text[at : at + 8]) else None
            at += rest.end() if rest else 0
            start = at
        elif text[at] == "}":
            if scopes:
                scopes.pop()
            start = at = at + 1
        elif text[at] == ";":
            yield bool(scopes and scopes[-1]), text[start:at]
            start = at = at + 1
        elif text[at] == "(":
            at = closing(text, at) + 1
        else:
            at += 1


def closing(text, at):
    """Returns where the bracket that opens here is closed."""
    pairs, depth = {"{": "}", "(": ")"}, 0
    opening, close = text[at], pairs[text[at]]
    while at < len(text):
        depth += (text[at] == opening) - (text[at] == close)
        if depth == 0:
            return at
        at += 1
    return at


def names_of(head):
    """Returns the names that a declaration may define: more rather than fewer."""
    head = re.sub(r"\[\[.*?\]\]", " ", head)
    head = re.sub(r"\btemplate\s*<[^;{}]*?>\s*(?=\w)", " ", head)
    if found := re.search(r"\b(?:class|struct|union|enum(?:\s+class)?)\s+(\w+)", head):
        return {found[1]}
    while (simpler := re.sub(r"<[^<>()]*>", " ", head)) != head:  # arguments of templates
        head = simpler
    names = set()
    for part in re.split(r"=(?!=)", head):
        part = re.sub(r"\(.*", "", part, flags=re.S)
        for one in part.split(","):
            if found := IDENTIFIER.findall(re.sub(r"\[.*", "", one)):
                names.add(found[-1])
    return names - NO_NAMES


def without_literals(path):
    text = LITERALS.sub(" ", path.read_text())
    return text, re.sub(r"^\s*#(?:.*\\\n)*.*$", "", text, flags=re.M)


@functools.cache
def header(path):
    """Returns the names that a header declares, and the headers that it includes."""
    if not path.is_file():
        return frozenset(), frozenset()  # of a library, or made by the build
    names = set()
    for _, head in declarations(without_literals(path)[1]):
        names |= names_of(head)
    return frozenset(names), included(path)


def included(path):
    return frozenset(ROOT / found for found in INCLUDED.findall(path.read_text()))


class Source:
    def __init__(self, path):
        self.path = path
        text, code = without_literals(pathlib.Path(path))
        self.own = set(DEFINED.findall(text))
        self.alone = bool(re.search(r"^\s*using\s+namespace\b", code, re.M))
        self.aliases = {}
        for internal, head in declarations(code):
            if found := re.match(r"\s*using\s+(?:(\w+)\s*=)?.*?(\w+)\s*$", head, re.S):
                self.aliases[found[1] or found[2]] = head.split()
            elif internal or re.match(r"\s*static\b", head):
                self.own |= names_of(head)
        self.used = {found[1] for found in re.finditer(r"(?<![\w.])(?<!->)(?<!\w::)([A-Za-z_]\w*)", code)}
        self.headers, next_ones = set(), set(included(pathlib.Path(path)))
        while next_ones:
            self.headers |= next_ones
            next_ones = set().union(*(header(one)[1] for one in next_ones)) - self.headers
        self.declared = set().union(*(header(one)[0] for one in self.headers))

    def declared_beside(self, other):
        """Returns the names of headers that only the other includes."""
        return set().union(*(header(one)[0] for one in other.headers - self.headers))

    def fits(self, other):
        if self.alone or other.alone:
            return False
        if self.own & other.used or other.own & self.used:
            return False
        for one, another in ((self, other), (other, self)):
            if one.declared_beside(another) & (one.own | one.used & one.declared):
                return False
        return all(
            one.aliases[name] == another.aliases.get(name)  # the same alias may stand twice
            for one, another in ((self, other), (other, self))
            for name in one.aliases.keys() & another.used
        )


def groups(sources, most):
    """Returns lists of sources that may be compiled as one, the rest in lists of one."""
    found = []
    for source in sources:
        group = next((g for g in found if len(g) < most and all(map(source.fits, g))), None)
        if group is None:
            found.append(group := [])
        group.append(source)
    return found


def write(path, text):
    """Leaves a file that has the text already, which then need not be compiled again."""
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main():
    most, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    targets, sources = {}, {}
    for line in (folder / "sources.txt").read_text().split():
        target, path = line.split("|")
        sources[path] = sources.get(path) or Source(path)
        targets.setdefault(target, []).append(sources[path])
    uses = collections.Counter(source for own in targets.values() for source in own)
    for target, own in targets.items():
        for number, group in enumerate(groups(own, most)):
            # CMake compiles a source alone in all targets of a folder, or in none
            if len(group) == 1 and uses[group[0]] == 1:
                continue
            unit = folder / target / f"{number}.cpp"
            write(unit, "".join(f'#include "{pathlib.Path(source.path).relative_to(ROOT)}"\n' for source in group))
            print("|".join([target, str(unit), *(source.path for source in group)]))


if __name__ == "__main__":
    main()
