# SPDX-License-Identifier: Apache-2.0
"""Replicas that Kubernetes' own scheduler places as a PodGroup, on a cluster of its own with the feature gates."""

import time

import pytest
from cluster import Cluster
from conftest import install
from world import MODELS, World, volume

GATES = {
    "APISERVER_FLAGS": "--feature-gates=GenericWorkload=true --runtime-config=scheduling.k8s.io/v1alpha2=true",
    "KCM_FLAGS": "--feature-gates=GenericWorkload=true",
    "SCHEDULER_FLAGS": "--feature-gates=GenericWorkload=true,GangScheduling=true",
}
DEVICE = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def gangs(images, models):
    """A cluster with three devices, for one and a half replicas of two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PM_CLUSTER", raising=False)  # a cluster that is kept has other flags
        with Cluster.up("gangs", nodes=2, fake_gpus=[2, 1], images=images, environment=GATES) as cluster:
            install(cluster, volume(models), "--set", "podGroups.enabled=true")
            yield World(cluster)


def start(world: World, name: str) -> None:
    world.apply(
        name,
        count=2,
        devices={"perNode": 1},
        resources={"cpu": "50m", "memory": "1Gi"},
        worker={"extraResources": {DEVICE: "1"}},
        scheduling={"podGroup": True},
    )


def nodes_of(world: World, name: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in world.pods(name)]


def groups(world: World) -> list[str]:
    return sorted(one["metadata"]["name"] for one in world.cluster.list("podgroups", MODELS))


def test_devices_for_one_and_a_half_replicas_serve_one_and_none_of_the_other(gangs):
    start(gangs, "first")
    gangs.wait_ready("first")
    start(gangs, "second")
    gangs.wait_condition("second", "Scheduled", "False", "Unschedulable")
    end = time.monotonic() + 10
    while time.monotonic() < end:
        assert nodes_of(gangs, "second") == ["", ""], "half a replica"
        time.sleep(0.5)
    assert groups(gangs) == ["first-0-1", "second-0-1"]
    gangs.delete("first")
    gangs.wait_ready("second")
    status = gangs.pm("second")["status"]["replicaStatuses"][0]
    assert (status["restarts"], status["replicaGeneration"]) == (0, 1), "it was placed, not tried again"
    gangs.cluster.wait_for(lambda: groups(gangs) == ["second-0-1"], 30, "the first group goes with its pods")


def test_a_lost_replica_comes_back_as_a_group_of_its_own(gangs):
    gangs.cluster.kubectl("delete", "pod", "second-0-1-1", "-n", MODELS, "--wait=false")
    gangs.cluster.wait_for(lambda: groups(gangs) == ["second-0-2"], 60, "the next generation")
    gangs.wait_ready("second")
    gangs.delete("second")
    gangs.cluster.wait_for(lambda: groups(gangs) == [], 30, "no group is left")
