# SPDX-License-Identifier: Apache-2.0
"""Holds the mutants of the operator to its sources: the text that each replaces is there once.

Running them is a tier of its own (tests/README.md)."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "unit/controller/operator"))

import mutations  # noqa: E402

ALL = mutations.mutations()


@pytest.mark.parametrize("one", ALL, ids=[one["what"] for one in ALL])
def test_a_mutant_applies(one):
    assert mutations.mutant(one) != (mutations.ROOT / one["file"]).read_text()
