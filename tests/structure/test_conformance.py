# SPDX-License-Identifier: Apache-2.0
"""Holds docs/reference/ai-conformance.md to the tree: every test that it names exists, every claim has one, and every
line that is not met says what is missing."""

import re

import pytest
from test_structure import ROOT

PAGE = (ROOT / "docs" / "reference" / "ai-conformance.md").read_text()
LINES = dict(re.findall(r"^\| `(\w+)` \| (?:MUST|SHOULD) \| (\w+) \|$", PAGE, re.M))
SHOWN = re.findall(r"^\| `(\w+)` \| [^|]+ \| `([^`]+)` \|$", PAGE, re.M)
MISSING = set(re.findall(r"^- `(\w+)`: ", PAGE, re.M))


def exists(test):
    """Whether FILE::NAME is a function of pytest, or FILE::SUITE.NAME a test of GoogleTest."""
    file, _, name = test.partition("::")
    if not (ROOT / file).is_file():
        return False
    text = (ROOT / file).read_text()
    if file.endswith(".py"):
        return re.search(rf"^def {re.escape(name)}\(", text, re.M) is not None
    suite, _, case = name.partition(".")
    return re.search(rf"^TEST(?:_F|_P)?\({re.escape(suite)}, {re.escape(case)}\)", text, re.M) is not None


@pytest.mark.parametrize("test", [test for _, test in SHOWN])
def test_a_test_that_the_page_names_exists(test):
    assert exists(test)


def test_the_search_notices_a_test_that_does_not_exist():
    file, name = SHOWN[0][1].split("::")
    assert not exists(f"{file}::{name}_too") and not exists(f"tests/e2e/none.py::{name}")
    assert not exists("tests/unit/controller/operator/builders_test.cpp::Builders.Nothing")


def test_the_page_has_every_line_once():
    assert len(LINES) == len(re.findall(r"^\| `\w+` \| (?:MUST|SHOULD) \|", PAGE, re.M)) == 13
    assert set(LINES.values()) <= {"met", "part", "platform", "no"}
    assert len(SHOWN) == PAGE.count("::"), "a row of tests is malformed"


def test_every_claim_has_a_test_and_every_gap_a_reason():
    shown = {line for line, _ in SHOWN}
    assert shown == {line for line, state in LINES.items() if state in {"met", "part"}}
    assert MISSING == {line for line, state in LINES.items() if state != "met"}
