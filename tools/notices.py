# SPDX-License-Identifier: Apache-2.0
"""Writes THIRD_PARTY_NOTICES.md: name, version and licence of everything that the images contain besides this
project's code.

Crates come from worker/tokenizer/ffi/Cargo.lock through `cargo metadata`, wheels from tools/wheels.txt through the
virtual environment of `make deps`, Debian packages from the copyright files of the machine. Usage: notices.py
[FILE].
"""

import json
import pathlib
import re
import subprocess
import sys
from importlib import metadata

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Shared libraries that the programs load, by Debian source package and the development package that brings them.
DEBIAN = {
    "glog": "libgoogle-glog-dev",
    "prometheus-cpp": "prometheus-cpp-dev",
    "nlohmann-json3": "nlohmann-json3-dev",
    "OpenSSL": "libssl-dev",
    "yaml-cpp": "libyaml-cpp-dev",
    "CLI11": "libcli11-dev",
    "libpng": "libpng-dev",
    "libjpeg-turbo": "libjpeg62-turbo-dev",
    "libwebp": "libwebp-dev",
    "libsndfile": "libsndfile1-dev",
    "soxr": "libsoxr-dev",
    "FLAC": "libflac-dev",
    "Ogg": "libogg-dev",
    "Vorbis": "libvorbis-dev",
    "Opus": "libopus-dev",
    "mpg123": "libmpg123-dev",
    "LAME": "libmp3lame0",
}


def crates():
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    found = subprocess.run(command, cwd=ROOT / "worker/tokenizer/ffi", check=True, capture_output=True, text=True)
    packages = [p for p in json.loads(found.stdout)["packages"] if p["source"]]
    return sorted((p["name"], p["version"], p["license"] or "see the crate's licence file") for p in packages)


def wheels():
    pinned = re.findall(r"^([\w.-]+)==([\w.+-]+)", (ROOT / "tools/wheels.txt").read_text(), re.MULTILINE)
    for name, version in pinned:
        about = metadata.metadata(name)
        licence = about.get("License-Expression") or about.get("License") or "see the wheel's licence files"
        yield name, version, licence.splitlines()[0][:80]


def debian():
    for name, package in DEBIAN.items():
        text = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_text(errors="replace")
        licences = sorted({line.strip() for line in re.findall(r"^License: *(\S.*)$", text, re.MULTILINE)})
        if not licences and "Neither the name of" in text and "Redistributions in binary form" in text:
            licences = ["BSD-3-clause"]  # libwebp's file has the licence without its name
        yield name, "as in Debian", ", ".join(licences)[:100] or "see its copyright file"
    yield "cpp-httplib", "0.18.7 or later", "MIT"


def table(rows):
    return "\n".join(
        ["| name | version | licence |", "|---|---|---|", *(f"| {n} | {v} | {lic} |" for n, v, lic in rows)]
    )


def main():
    page = f"""# Third-party notices
`tools/notices.py` writes this page from the lock files and from the packages' own metadata. The full licence texts are
in the packages themselves: the crates' and wheels' folders, and `/usr/share/doc/*/copyright` in the images.

## Rust crates, linked into the worker
{table(crates())}

## Python wheels, of which the images contain LibTorch and CUDA's libraries but no Python
{table(wheels())}

## Data
| name | version | licence |
|---|---|---|
| character classes and prefixes of the Moses tokenizer, from sacremoses | 0.2.0 | MIT |

## Debian packages
{table(debian())}
"""
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(page)
    else:
        print(page, end="")


if __name__ == "__main__":
    main()
