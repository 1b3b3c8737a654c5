# SPDX-License-Identifier: Apache-2.0
"""Replicas in a queue of Kueue (queues.py): all pods of a replica or none, preemption and return, and nothing that is
left in the queue."""

import os
import time
from pathlib import Path

import pytest
import queues
from queues import QUEUE, workloads
from world import MODELS

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kueue" / "queued.yaml"


def queued(world, name: str, **more) -> None:
    """Applies a model over two nodes; the quota is that of one and a half."""
    world.apply(
        name,
        count=2,
        devices={"perNode": 1},
        resources={"cpu": "50m", "memory": "1Gi"},
        scheduling={"queueName": QUEUE, **more},
    )


@pytest.fixture(scope="module")
def usual(world, tmp_path_factory):
    """A model of the lower priority that has been admitted; the last test deletes it."""
    if queues.missing() and "PM_INTEGRATIONS" not in os.environ:
        pytest.skip("Kueue is not built on this machine yet: make integrations")
    with queues.running(world, tmp_path_factory.mktemp("kueue"), cpu="150m"):
        queued(world, "usual", queuePriorityClassName="usual")
        world.wait_ready("usual")
        yield "usual"


def nodes_of(world, name: str) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in world.pods(name)]


def wait_queued(world, name: str) -> None:
    def there():
        return nodes_of(world, name) == ["", ""] and world.condition(name, "Scheduled").get("reason") == "QueueWaiting"

    world.cluster.wait_for(there, 90, f"{name} waits in the queue")


def wait_gone(world, name: str) -> None:
    def gone():
        return not world.pods(name) and not [one for one in workloads(world) if one.startswith(f"{name}-")]

    world.cluster.wait_for(gone, 60, f"no pod and no Workload of {name}")


def test_quota_for_one_and_a_half_replicas_serves_one_and_holds_the_other_whole(world, usual):
    queued(world, "second", queuePriorityClassName="usual")
    wait_queued(world, "second")
    assert workloads(world) == ["second-0-1", "usual-0-1"]
    message = world.condition("second", "Scheduled")["message"]
    assert f"the queue {QUEUE} has not admitted it yet" in message
    assert "kubectl describe workloads.kueue.x-k8s.io second-0-1" in message
    end = time.monotonic() + 5
    while time.monotonic() < end:
        assert nodes_of(world, "second") == ["", ""], "half a replica"
        time.sleep(0.5)


def test_a_replica_that_waits_leaves_the_queue_when_it_is_not_wanted_any_more(world, usual):
    for replicas in (0, 1):
        world.cluster.kubectl("scale", "pm", "second", "-n", MODELS, f"--replicas={replicas}")
        (wait_queued if replicas else wait_gone)(world, "second")
    world.delete("second")
    wait_gone(world, "second")


def test_a_higher_priority_preempts_a_replica_which_returns_with_its_restarts_unspent(world, usual):
    queued(world, "urgent", queuePriorityClassName="urgent")
    world.wait_ready("urgent")
    wait_queued(world, usual)
    status = world.pm(usual)["status"]["replicaStatuses"][0]
    assert (status["restarts"], status["disruptions"]) == (0, 1)
    world.delete("urgent")
    wait_gone(world, "urgent")
    world.wait_ready(usual)
    world.delete(usual)
    wait_gone(world, usual)


def test_the_example_is_accepted(world, usual):
    world.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-n", MODELS, "-f", str(EXAMPLE))
