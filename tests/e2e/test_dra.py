# SPDX-License-Identifier: Apache-2.0
"""Devices of dynamic resource allocation, on a cluster of its own: dra-example-driver publishes two mock GPUs on each
of two nodes, whose containerd has the Container Device Interface (CDI)."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from cluster import Cluster, extra, is_built
from conftest import install
from test_model_images import runtime
from world import MODELS, World, processes, volume

PROGRAMS = ("containerd", "containerd-shim", "dra")
DRIVER = "gpu.example.com"
EXTENDED = "example.com/gpu"
PROMPT = "Once upon a time"
SMALL = {"resources": {"cpu": "50m", "memory": "1Gi"}}
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {
        "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}],
        "extendedResourceName": EXTENDED,
    },
}


def start_driver(cluster: Cluster, node: str, log) -> subprocess.Popen:
    """Runs the driver's plugin of the kubelet in all namespaces of a node."""
    flags = ("--node-name", node, "--num-devices", "2", "--cdi-root", "/var/run/cdi")
    command = cluster.shell_command(node, str(extra("dra")), *flags)
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


@pytest.fixture(scope="module")
def devices(tmp_path_factory, images, models):
    missing = [name for name in PROGRAMS if not is_built(name)]
    if missing and "PM_INTEGRATIONS" not in os.environ:
        pytest.skip(f"{missing} are not built on this machine yet: make integrations")
    folder = tmp_path_factory.mktemp("dra")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PM_CLUSTER", raising=False)  # a cluster that is kept has another runtime
        settings = {"RUNTIME": str(runtime(folder / "bin"))}
        with (
            Cluster.up("dra", nodes=2, images=images, environment=settings) as cluster,
            (folder / "log").open("w") as log,
        ):
            cluster.apply(CLASS)
            drivers = [start_driver(cluster, node, log) for node in ("node0", "node1")]
            try:
                cluster.wait_for(
                    lambda: len(cluster.list("resourceslices")) == 2, 60, "the driver publishes its devices"
                )
                install(cluster, volume(models), "--set", "dra.enabled=true")
                yield World(cluster)
            finally:
                for driver in drivers:
                    driver.terminate()
                    driver.wait()


def claims(world: World) -> list[dict]:
    return world.cluster.list("resourceclaims", MODELS)


def allocated(world: World) -> dict[str, list[str]]:
    """Returns the devices that each pod has, as NODE/DEVICE."""
    out = {}
    for claim in claims(world):
        results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        for pod in claim.get("status", {}).get("reservedFor", []):
            out[pod["name"]] = sorted(f"{one['pool']}/{one['device']}" for one in results)
    return out


def templates(world: World) -> list[str]:
    return [one["metadata"]["name"] for one in world.cluster.list("resourceclaimtemplates", MODELS)]


def wait_nothing_left(world: World) -> None:
    world.cluster.wait_for(lambda: not templates(world) and not claims(world), 60, "no template and no claim is left")


def test_ranks_of_uneven_pods_run_with_the_devices_that_they_claim(devices, oracle):
    claim = {
        "deviceClassName": DRIVER,
        "selectors": [f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"],
        "matchAttribute": f"{DRIVER}/driverVersion",
    }
    spec = {"count": 3, "devices": {"perNode": 2, "claim": claim}, "parallelism": {"strategy": "Data"}}
    devices.apply("uneven", **spec, **SMALL)
    devices.wait_ready("uneven")
    assert devices.wait_answer("uneven", PROMPT) == oracle.greedy(PROMPT)
    held = allocated(devices)
    assert sorted(len(one) for one in held.values()) == [1, 2]
    assert len({device for one in held.values() for device in one}) == 3, held
    for pod in devices.pods("uneven"):
        mine = held[pod["metadata"]["name"]]
        assert {device.split("/")[0] for device in mine} == {pod["spec"]["nodeName"]}
        environment = Path(f"/proc/{processes(pod['metadata']['uid'], '--node-rank')[0]}/environ").read_bytes()
        assert environment.count(b"GPU_DEVICE_") >= len(mine), "the container has what the driver put into it"
    assert sorted(templates(devices)) == devices.pm("uneven")["status"]["resourceClaimTemplates"]

    devices.apply("waits", count=2, devices={"claim": {"deviceClassName": DRIVER}}, **SMALL)
    condition = devices.wait_condition("waits", "Scheduled", "False", "InsufficientDevices")
    assert f"needs 2 devices of DeviceClass {DRIVER} on one node" in condition["message"]
    assert "only the scheduler knows: see the events of pod waits-0-0-1" in condition["message"]
    devices.delete("uneven")
    devices.wait_ready("waits")
    devices.apply("waits", count=2, **SMALL)
    devices.cluster.wait_for(lambda: not allocated(devices), 90, "pods without a claim")
    devices.wait_ready("waits")
    wait_nothing_left(devices)
    devices.delete("waits")


def test_an_extended_resource_of_a_class_needs_no_claim(devices, oracle):
    devices.apply("extended", count=2, devices={"resource": EXTENDED}, **SMALL)
    devices.wait_ready("extended")
    assert devices.wait_answer("extended", PROMPT) == oracle.greedy(PROMPT)
    [held] = allocated(devices).values()
    assert len(held) == 2
    assert not templates(devices)
    devices.delete("extended")
    wait_nothing_left(devices)


def test_gpus_are_planned_by_what_the_driver_publishes(devices):
    """No rank can run on a mock GPU, so no replica is wanted; the plan is made all the same."""
    for name, more in (("by-resource", {"resource": EXTENDED}), ("by-claim", {"claim": {"deviceClassName": DRIVER}})):
        devices.apply(name, devices={"type": "GPU", **more}, replicas=0)
        devices.wait_condition(name, "Planned", "True")
        plan = f"{name}-plan-{devices.pm(name)['status']['plan']['planHash']}"
        stored = json.loads(devices.cluster.get("configmap", plan, MODELS)["data"]["plan.json"])
        assert stored["memorySource"] == "ResourceSlice"
        devices.delete(name)
    wait_nothing_left(devices)
