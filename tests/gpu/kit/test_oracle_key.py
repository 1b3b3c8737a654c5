# SPDX-License-Identifier: Apache-2.0
"""Answers of transformers that are brought to another machine are found there, whatever versions it has."""

import importlib.metadata

import fixtures
import pytest
from cases import CASES


@pytest.fixture
def folder_of(tmp_path, monkeypatch):
    """Returns a function: the name of the folder of an answer under versions and a cache."""

    def found(case, versions, cache, key=""):
        monkeypatch.setattr(importlib.metadata, "version", lambda name: versions)
        monkeypatch.setattr(fixtures, "CACHE", tmp_path / cache)
        monkeypatch.setenv("PM_ORACLE_KEY", key)
        fixtures._versions.cache_clear()
        return fixtures.cached("test", case, None, lambda folder: None).name

    yield found
    fixtures._versions.cache_clear()


def test_without_a_key_other_versions_make_other_answers(folder_of):
    assert folder_of(CASES[0], "1.0", "a") == folder_of(CASES[0], "1.0", "b") != folder_of(CASES[0], "2.0", "a")


def test_with_a_key_only_the_key_counts(folder_of):
    assert folder_of(CASES[0], "1.0", "a", "torch 1") == folder_of(CASES[0], "2.0", "b", "torch 1")
    assert folder_of(CASES[0], "1.0", "a", "torch 1") != folder_of(CASES[0], "1.0", "a", "torch 2")
