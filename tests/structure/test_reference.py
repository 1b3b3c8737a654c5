# SPDX-License-Identifier: Apache-2.0
"""Holds the reference pages to the sources: no flag, variable or metric exists that its page does not have.

tests/parity/test_metrics.py compares the metrics of a running server, test_openapi.py its routes, and test_policies.py
the keys of policies.
"""

import importlib.util
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs/reference"
spec = importlib.util.spec_from_file_location("families", ROOT / "tools/families.py")
families = importlib.util.module_from_spec(spec)
spec.loader.exec_module(families)
HIDDEN_FLAGS = {"--segment", "--group-plan"}  # the launcher passes them to its ranks; --help does not show them


def sources(*tops):
    return "\n".join(path.read_text() for top in tops for path in sorted((ROOT / top).rglob("*.cpp")))


def words_in_backticks(page):
    return {word.strip(",") for code in re.findall(r"`([^`\n]+)`", (PAGES / page).read_text()) for word in code.split()}


def test_every_flag_of_the_worker_is_documented():
    declared = set(re.findall(r'add_(?:option|flag)\(\s*"(--[a-z-]+)', sources("worker"))) - HIDDEN_FLAGS
    declared |= set(re.findall(r'\{"(--[a-z-]+)"\}', (ROOT / "contract/worker_arguments.h").read_text()))
    parameters = re.findall(r'{\.name = "(\w+)",\s*(?://.*\s*)?\.group', sources("worker/engine/sampling"))
    assert len(parameters) > 20
    declared |= {"--" + name.replace("_", "-") for name in parameters}
    assert len(declared) > 60
    assert not declared - words_in_backticks("flags.md")


def test_every_flag_of_the_controller_is_documented():
    declared = set(re.findall(r'"(--[a-z-]{3,})"', (ROOT / "controller/flags.cpp").read_text()))
    assert len(declared) > 10
    assert not declared - words_in_backticks("flags.md")


def test_every_environment_variable_that_is_read_is_documented():
    read = set(re.findall(r'(?:getenv|setenv|environment)\("([A-Za-z_0-9]+)"', sources("worker", "controller")))
    assert len(read) > 5
    assert not read - words_in_backticks("environment.md")


def test_every_metric_of_the_controller_is_documented_and_no_other():
    text = (PAGES / "metrics.md").read_text().partition("\n## Controller")[2]
    kinds = "controller_runtime|workqueue|rest_client|reflector|leader_election|parallelmodel_operator"
    declared = set(re.findall(rf'"((?:{kinds})_[a-z_]+)"', sources("controller")))
    assert set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE)) == declared


def test_the_readme_counts_the_families():
    counted = re.search(r"(\d+) families", (ROOT / "README.md").read_text())
    towers = set(ROOT.glob("policies/*_vision.yaml"))  # which are parts of models of other families
    assert towers and int(counted[1]) == len(set(ROOT.glob("policies/*.yaml")) - towers)


def test_the_page_of_families_is_the_one_that_policies_and_cases_make():
    assert (PAGES / "families.md").read_text() == families.page(), "run tools/families.py docs/reference/families.md"
