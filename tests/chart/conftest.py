# SPDX-License-Identifier: Apache-2.0
"""Provides Helm, as the test cluster builds it. These tests need no cluster."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "cluster"))

from cluster import build  # noqa: E402

CHART = ROOT / "helm" / "parallelmodel"
SYSTEM = "parallelmodel-system"


@pytest.fixture(scope="session")
def helm():
    """Returns the path of the program."""
    return build() / "bin" / "helm"


@pytest.fixture(scope="session")
def render(helm, tmp_path_factory):
    """Returns a function that renders the chart, or another one, with values as a nested dictionary."""
    file = tmp_path_factory.mktemp("values") / "values.yaml"

    def rendered(values=None, chart=CHART, *arguments, text=False):
        file.write_text(yaml.safe_dump(values or {}))
        done = subprocess.run(
            [helm, "template", "parallelmodel", chart, "-n", SYSTEM, "--values", file, *arguments],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise ValueError(done.stderr)
        return done.stdout if text else [one for one in yaml.safe_load_all(done.stdout) if one]

    return rendered
