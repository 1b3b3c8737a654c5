"""One etcd and one kube-apiserver for all tests of this folder. PM_BUILD names the folder of the binaries (default build/release), PM_WORKER another worker:
it is asked once what the example checkpoint is like. KUBERNETES=oldest takes the API server of the oldest release that is supported."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from apiserver import ROOT, ControlPlane                # noqa: E402
from errands import Errands                            # noqa: E402
from machine import Machine                             # noqa: E402
from world import BUILD, World                          # noqa: E402
from cluster import build, extra                        # noqa: E402


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
    facts = subprocess.run([worker, "inspect", "--model", ROOT / "examples" / "tiny-stories", "--json"], capture_output=True, text=True, check=True).stdout
    return Machine(plane, json.dumps(json.loads(facts)))


@pytest.fixture(scope="session", autouse=True)
def errands(plane, machine, tmp_path_factory):
    """Begun with the first test, for one of them takes long; see errands.py."""
    errands = Errands(World(plane, "errands", tmp_path_factory.mktemp("errands")))
    yield errands
    errands.world.close()


@pytest.fixture
def world(plane, machine, tmp_path):
    """world(ns) -> a World; ended, and looked after, at the test's end."""
    worlds = []

    def make(ns: str) -> World:
        worlds.append(World(plane, ns, tmp_path))
        return worlds[-1]
    yield make
    for one in worlds:
        one.close()
    assert not machine.violations, machine.violations
