# SPDX-License-Identifier: Apache-2.0
"""The worker says the same of families as tools/families.py, which writes docs/reference/families.md."""

import importlib.util
import json
import subprocess

from resolution import TOOLS

import worker

spec = importlib.util.spec_from_file_location("families", worker.REPOSITORY / "tools/families.py")
families = importlib.util.module_from_spec(spec)
spec.loader.exec_module(families)


def test_the_generator_reads_policies_as_the_worker_does():
    said = json.loads(subprocess.run([TOOLS / "resolve_dump", "--families"], capture_output=True, check=True).stdout)
    ours = families.policies()
    assert [family["name"] for family in said] == list(ours)
    for family in said:
        found = ours[family["name"]]
        assert family["model_types"] == families.listed(found["model_type"]) and family["kind"] == found["kind"]
        rows = {name: row for name, row in found["architectures"].items() if "alias_of" not in row}
        assert {one["name"]: one.get("task") or one["refused"] for one in family["classes"]} == {
            name: row["refuse"] if isinstance(row.get("refuse"), str) else row["task"] for name, row in rows.items()
        }


def test_families_prints_the_same():
    said = json.loads(subprocess.run([TOOLS / "resolve_dump", "--families"], capture_output=True, check=True).stdout)
    assert json.loads(worker.run("families", "--json").stdout) == said
    plain = worker.run("families").stdout
    assert all(one["name"] in plain for family in said for one in family["classes"])


def test_every_case_is_of_a_class_that_is_served():
    served = {
        (kind, name)
        for found in families.policies().values()
        for kind in families.listed(found["model_type"])
        for name, row in found["architectures"].items()
        if "alias_of" not in row and not isinstance(row.get("refuse"), str)
    }
    assert {(case.model_type, case.model_class) for case in families.CASES} <= served
    assert {name for _, name in served} == {case.model_class for case in families.CASES}
