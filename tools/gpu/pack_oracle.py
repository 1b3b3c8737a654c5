#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pack_oracle.py FOLDER: makes checkpoints and answers of transformers with which tests/gpu/worker compares, and copies
them to FOLDER. Their key names the versions that made them (FOLDER/KEY), so that they are found by another Python with
other versions that has the key in PM_ORACLE_KEY.
pack_oracle.py --check KIT: tells whether each of them is found in an empty cache with the oracle of a kit."""

import importlib.metadata
import json
import os
import pathlib
import shutil
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests/parity"), str(REPOSITORY / "tests/gpu/worker")]


def make_answers():
    """Makes the answers for the families that run every kernel between them. What other tests compare with is made
    where they run: that takes seconds there, and would take 55 MB here."""
    import fixtures
    import inputs
    import oracle
    import test_devices
    import test_generate

    for case in test_devices.KERNELS:
        fixtures.checkpoint(case)
        oracle.forward(case, inputs.make(case, inputs.kinds(case)[0]))
        for row in test_generate.rows_of(case):
            oracle.greedy(case, row, test_generate.COUNT)


def found_folders():
    """Returns the folders of the cache that make_answers() reads; what is missing is made."""
    import fixtures

    folders, cached = set(), fixtures.cached

    def noted(*arguments):
        folder = cached(*arguments)
        folders.add(folder)
        return folder

    fixtures.cached = noted
    try:
        make_answers()
    finally:
        fixtures.cached = cached
    return folders


def make(target):
    os.environ["PM_ORACLE_KEY"] = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers")
    )
    for folder in found_folders():
        shutil.copytree(folder, target / folder.name, dirs_exist_ok=True)
    (target / "KEY").write_text(os.environ["PM_ORACLE_KEY"] + "\n")


def check(kit):
    os.environ["PM_ORACLE_KEY"] = json.loads((kit / "manifest.json").read_text())["oracle_key"]
    with tempfile.TemporaryDirectory() as cache:
        os.environ["PM_CACHE"] = cache
        there = {path.name for path in shutil.copytree(kit / "oracle", pathlib.Path(cache) / "oracle").iterdir()}
        missing = {folder.name for folder in found_folders()} - there
    if missing:
        sys.exit(f"pack_oracle.py: {len(missing)} answers were not found: {', '.join(sorted(missing)[:5])}")
    print(f"every answer was found: {len(there)} folders")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"] and len(sys.argv) == 3:
        check(pathlib.Path(sys.argv[2]))
    elif len(sys.argv) == 2:
        make(pathlib.Path(sys.argv[1]))
    else:
        sys.exit(__doc__)
