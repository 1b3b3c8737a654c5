#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes KIT/manifest.json: what the kit was made of, the newest system libraries that it needs, a digest of each file.
manifest.py KIT"""

import hashlib
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Ubuntu 24.04, the oldest system that machines with a GPU are expected to have
NEWEST = {"GLIBC": "2.39", "GLIBCXX": "3.4.33"}


def said(*command):
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


def number(version):
    return tuple(map(int, version.split(".")))


def needed(kit):
    """Returns the newest version of each system library that a program or library of the kit refers to."""
    found = {name: "0" for name in NEWEST}
    for path in (*(kit / "libexec").iterdir(), *(kit / "lib").iterdir()):
        for name, version in set(re.findall(r"\((GLIBC|GLIBCXX)_([\d.]+)\)", said("objdump", "-T", str(path)))):
            found[name] = max(found[name], version, key=number)
    return found


def torch_versions():
    text = pathlib.Path(importlib.util.find_spec("torch").origin).with_name("version.py").read_text()
    version, git = (re.search(rf"^{name}.*= '([^']+)'", text, re.M)[1] for name in ("__version__", "git_version"))
    return {"version": version, "git": git}


def main():
    kit = pathlib.Path(sys.argv[1])
    system = needed(kit)
    for name, version in system.items():
        if number(version) > number(NEWEST[name]):
            print(f"manifest.py: the kit needs {name} {version}, Ubuntu 24.04 has {NEWEST[name]}: build it elsewhere")
    manifest = {
        "commit": said("git", "rev-parse", "HEAD").strip(),
        "dirty": bool(said("git", "status", "--porcelain").strip()),
        "torch": torch_versions(),
        "oracle_key": (kit / "oracle/KEY").read_text().strip(),
        "glibc": system["GLIBC"],
        "glibcxx": system["GLIBCXX"],
        "files": {
            path.relative_to(kit).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(kit.rglob("*"))
            if path.is_file() and path.name != "manifest.json"
        },
    }
    (kit / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
