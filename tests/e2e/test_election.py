# SPDX-License-Identifier: Apache-2.0
"""Tests leader election with two controllers, as the chart installs them: the leader may be killed, stopped or deleted
without an effect on models."""

import os
import signal
import time

import pytest
from test_failures import wait_healed
from world import SYSTEM, processes

LEASE_SECONDS = 15


def controllers(world) -> dict[str, dict]:
    """Returns the pods of the controller by name."""
    pods = world.cluster.list("pods", SYSTEM, "app.kubernetes.io/component=controller")
    return {pod["metadata"]["name"]: pod for pod in pods if "deletionTimestamp" not in pod["metadata"]}


def holder(world) -> str:
    """Returns the identity of the leader, POD-NAME_NUMBER, or "" without a leader."""
    return world.cluster.get("lease", "parallelmodel", SYSTEM)["spec"].get("holderIdentity", "")


def leader(world) -> tuple[str, dict, int]:
    """Returns identity, pod and process of the leader."""

    def there() -> tuple[str, dict, int] | None:
        identity = holder(world)
        pod = controllers(world).get(identity.rsplit("_", 1)[0])
        found = processes(pod["metadata"]["uid"], "/usr/bin/parallelmodel-controller") if pod else []
        return (identity, pod, found[0]) if len(found) == 1 else None

    return world.cluster.wait_for(there, 60, "somebody leads")


def wait_follower(world, previous: str) -> float:
    """Waits until another process than `previous` leads and returns the seconds."""
    begin = time.monotonic()
    world.cluster.wait_for(lambda: holder(world) not in ("", previous), 90, "another one leads", interval=0.2)
    return time.monotonic() - begin


@pytest.fixture(autouse=True)
def both_ready(world):
    """Every test starts and ends with two ready controllers."""

    def there() -> bool:
        pods = controllers(world).values()
        return len(pods) == 2 and all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
            for pod in pods
        )

    world.cluster.wait_for(there, 120, "two controllers are ready")
    yield
    world.cluster.wait_for(there, 120, "two controllers are ready")


def test_two_controllers_are_ready_and_one_leads(world):
    identity, pod, _ = leader(world)
    assert pod["metadata"]["name"] in controllers(world)
    time.sleep(6)
    assert holder(world) == identity, "a leader that is well stays"
    [other] = [pod for name, pod in controllers(world).items() if not identity.startswith(name)]
    asked = [
        entry
        for entry in world.controller_requests()
        if other["status"]["podIP"] in entry["sourceIPs"] and "/leases" not in entry["requestURI"]
    ]
    assert not asked, "who follows asks for nothing but the Lease"


def test_a_killed_leader_is_replaced_and_a_model_is_created(world, name, oracle):
    identity, _, process = leader(world)
    os.kill(process, signal.SIGKILL)
    world.apply(name)
    seconds = wait_follower(world, identity)
    print(f"followed after {seconds:.1f} s")
    assert seconds < LEASE_SECONDS + 15, "the Lease lasts 15 s; beside it, what a loaded machine takes"
    world.wait_ready(name)
    assert world.wait_answer(name, "One day") == oracle.greedy("One day")


def test_a_stopped_leader_writes_nothing_after_it_continues(world, stories, oracle):
    [before] = world.wait_ready(stories)["status"]["replicaStatuses"]
    identity, pod, process = leader(world)
    os.kill(process, signal.SIGSTOP)
    try:
        os.kill(world.rank(stories, 1), signal.SIGKILL)
        print(f"followed after {wait_follower(world, identity):.1f} s")
        wait_healed(world, stories, before["replicaGeneration"])
    finally:
        went_on = time.time()
        try:
            os.kill(process, signal.SIGCONT)
        except ProcessLookupError:
            pytest.fail("its kubelet ended it before it could go on")
    world.cluster.wait_for(
        lambda: process not in processes(pod["metadata"]["uid"], "/usr/bin/parallelmodel-controller"),
        30,
        "the previous leader ends",
    )
    address = pod["status"]["podIP"]
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(went_on - 1))
    late = [
        f"{entry['verb']} {entry['requestURI']}"
        for entry in world.controller_requests("create", "update", "patch", "delete")
        if address in entry["sourceIPs"]
        and entry["requestReceivedTimestamp"] >= stamp
        and "/leases" not in entry["requestURI"]
    ]
    assert not late, late
    assert world.wait_answer(stories, "One day") == oracle.greedy("One day")


def test_a_leader_that_is_deleted_hands_over_at_once(world, name):
    identity, pod, _ = leader(world)
    world.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", SYSTEM, "--wait=false")
    seconds = wait_follower(world, identity)
    print(f"handed over in {seconds:.1f} s")
    assert seconds < LEASE_SECONDS, "it gave the Lease up"
    world.apply(name)
    world.wait_ready(name)
