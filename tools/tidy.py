#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy (.clang-tidy: names) on the C++ files that differ from main: tidy.py CLANG_TIDY [BUILD_FOLDER].

"Differ" means from the merge base of HEAD with origin/main or main; on main itself, from the commit before HEAD.
Changes that are not committed count. A changed header is checked in one translation unit that includes it. Files that
the build folder does not compile (those of the GPU, the fuzzers) are left to tests/structure, which checks the whole
tree by patterns.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
# GCC's precompiled headers and warnings, which clang does not know.
GCC_ONLY = re.compile(r"-Winvalid-pch|-fpch-preprocess|-W.*")


def git(*arguments):
    """Returns the lines that git prints; none if it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else []


def changed_files():
    head = git("rev-parse", "HEAD")
    for main in ("origin/main", "main"):
        base = git("merge-base", "HEAD", main)
        if base and base != head:
            break
    else:
        base = git("rev-parse", "HEAD~1")
    names = git("diff", "--name-only", *base) + git("ls-files", "--others", "--exclude-standard")
    return {name for name in names if re.search(r"\.(cpp|h|cu|cuh)$", name) and (ROOT / name).is_file()}


def compile_commands(build):
    """Returns the commands by file name, as clang understands them."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        kept, skip = [], False
        for word, following in zip(words, [*words[1:], ""]):
            if skip or (word == "-include" and following.endswith("cmake_pch.hxx")):
                skip = not skip
            elif not GCC_ONLY.fullmatch(word):
                kept.append(word)
        for file in sources_of(pathlib.Path(entry["file"])):
            if file.is_relative_to(ROOT):
                commands[str(file.relative_to(ROOT))] = {
                    "directory": entry["directory"],
                    "file": str(file),
                    "arguments": [str(file) if word == entry["file"] else word for word in kept],
                }
    return commands


def sources_of(file):
    """Returns the files that are compiled with this one: several where it is a unit of cmake/units.py."""
    if "units" not in file.parts:
        return [file]
    return [ROOT / found for found in re.findall(r'^#include "(.+)"', file.read_text(), re.M)]


def included_files(name, known):
    """Returns the project's files that a file includes, directly or not."""
    if name not in known:
        known[name] = set()
        path = ROOT / name
        for header in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M) if path.is_file() else []:
            known[name] |= {header} | included_files(header, known)
    return known[name]


def translation_units(changed, commands):
    """Returns the fewest sources, about, that hold all changed files."""
    known = {}
    units = {name for name in changed if name in commands}
    covered = set().union(*(included_files(name, known) for name in units))
    sources = sorted(commands, key=lambda name: ("ATen" in (ROOT / name).read_text(), name))  # the quickest first
    for header in sorted(changed - units - covered):
        twin = re.sub(r"\.c?u?h$", ".cpp", header)
        for name in [twin, *sources]:
            if name in commands and header in included_files(name, known):
                units.add(name)
                covered |= included_files(name, known)
                break
    return sorted(units)


def main():
    clang_tidy = sys.argv[1]
    build = ROOT / (sys.argv[2] if len(sys.argv) > 2 else "build/release")
    if not (build / "compile_commands.json").is_file():
        print(f"clang-tidy: not run, {build} has no compile_commands.json; `make build` writes it")
        return 0
    commands = {name: c for name, c in compile_commands(build).items() if (ROOT / name).is_file()}
    units = translation_units(changed_files(), commands)
    begin = time.monotonic()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        database = pathlib.Path(folder) / "compile_commands.json"
        database.write_text(json.dumps([commands[name] for name in units]))

        def check(name):
            return subprocess.run([clang_tidy, "--quiet", "-p", folder, name], cwd=ROOT, capture_output=True, text=True)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for done in pool.map(check, units):
                if done.returncode != 0:
                    failed += 1
                    print(done.stdout, end="")
    print(f"clang-tidy: {len(units)} translation units, {failed} with findings, {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
