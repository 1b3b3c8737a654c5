# SPDX-License-Identifier: Apache-2.0
"""Provides one etcd and one kube-apiserver for all tests of this folder. PM_BUILD names the folder of the binaries
(default build/release), PM_WORKER another worker: it inspects the example checkpoint once. KUBERNETES=oldest uses the
API server of the oldest supported release."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from apiserver import ROOT, ControlPlane  # noqa: E402
from cluster import build, extra  # noqa: E402
from errands import Errands  # noqa: E402
from machine import Machine  # noqa: E402
from world import BUILD, World  # noqa: E402


@pytest.fixture(scope="session")
def plane(tmp_path_factory):
    oldest = extra("oldest") if os.environ.get("KUBERNETES") == "oldest" else None
    plane = ControlPlane(tmp_path_factory.mktemp("plane"), build() / "bin", oldest)
    print(f"\nAPI server {plane.api.request('GET', '/version')['gitVersion']}")
    yield plane
    plane.close()


@pytest.fixture(scope="session")
def machine(plane):
    worker = os.environ.get("PM_WORKER", BUILD / "bin" / "parallelmodel-worker")
    metadata = subprocess.run(
        [worker, "inspect", "--model", ROOT / "examples" / "tiny-stories", "--json"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return Machine(plane, json.dumps(json.loads(metadata)))


@pytest.fixture(scope="session", autouse=True)
def errands(plane, machine, tmp_path_factory):
    """Starts with the first test, because one of the actions takes long (errands.py)."""
    errands = Errands(World(plane, "errands", tmp_path_factory.mktemp("errands")))
    yield errands
    errands.world.close()


@pytest.fixture
def world(plane, machine, tmp_path):
    """Returns world(ns), which creates a World; the fixture closes and checks it after the test."""
    worlds = []

    def make(ns: str) -> World:
        worlds.append(World(plane, ns, tmp_path))
        return worlds[-1]

    yield make
    for one in worlds:
        one.close()
    assert not machine.violations, machine.violations
