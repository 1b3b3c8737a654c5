# SPDX-License-Identifier: Apache-2.0
"""Several models on one device: the fake plugin hands out four shares, as NVIDIA's does with time slices. Each model
has a cap by devices.memory, and one that does not fit beside the others waits until it does."""

import json

import pytest
from world import MIB, MODELS

RESOURCE = "nvidia.com/gpu"
SHARING = {
    "memory": "2048",
    "replicas": "4",
    "sharing-strategy": "time-slicing",
}  # labels of NVIDIA's feature discovery


@pytest.fixture
def shared(world):
    """The node whose four devices are shares of one device of 2 GiB."""
    set_labels = [f"{RESOURCE}.{name}={value}" for name, value in SHARING.items()]
    world.cluster.kubectl("label", "node", "node0", *set_labels)
    yield "node0"
    world.cluster.kubectl("label", "node", "node0", *[f"{RESOURCE}.{name}-" for name in SHARING])


def apply(world, name: str, memory: str) -> None:
    devices = {"resource": RESOURCE, "memory": memory}
    world.apply(name, count=1, devices=devices, resources={"cpu": "50m", "memory": "1Gi"})


def test_two_models_serve_within_their_caps_and_a_third_waits_for_one_to_go(world, shared):
    try:
        apply(world, "large", "1280Mi")
        world.wait_ready("large")
        apply(world, "small", "512Mi")
        world.wait_ready("small")
        for name, cap in (("large", 1280 * MIB), ("small", 512 * MIB)):
            assert world.pod(name)["spec"]["nodeName"] == shared
            assert world.complete(name, "Once upon a time")
            (rank,) = world.get(world.url(name) + "/memory").json()["ranks"]
            assert max(rank["predicted"]["total"], rank["measured"]["total"]) <= cap, json.dumps(rank)
        apply(world, "third", "512Mi")
        world.wait_condition("third", "Planned", "False", "DoesNotFit")
        message = world.condition("third", "Planned")["message"]
        assert "leave 256.0 MiB of 2.0 GiB of a shared device on node0" in message, message
        world.delete("large")
        world.wait_ready("third")  # within half a minute, without a change to it
    finally:
        for name in ("large", "small", "third"):
            world.delete(name)
    assert not world.cluster.list("pods", MODELS, "parallelmodel.dev/name in (large,small,third)")
