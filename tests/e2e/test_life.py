# SPDX-License-Identifier: Apache-2.0
"""Replicas under load, node failures, missing capacity, names of maximum length and deletions at any time.
PM_DRAINS=8 drains the node of an only replica that often."""

import os
import threading
import time

import pytest
from cluster import ClusterError
from test_changes import uid
from test_failures import wait_healed
from world import MODELS, SYSTEM, fetch

PROMPT = "Once upon a time"
LONGEST = 40  # characters of a name
DRAINS = int(os.environ.get("PM_DRAINS", 2))


class Load:
    """Clients that send one short request after the other, each on a new connection."""

    def __init__(self, world, name: str, clients: int = 4, url: str = "", headers: dict | None = None) -> None:
        """Clients of the Service of the model, or of `url`, with more headers."""
        self.answers, self.failures, self._stop = 0, [], threading.Event()
        url = (url or world.url(name)) + "/v1/completions"
        body = {"model": name, "prompt": PROMPT, "max_tokens": 4, "temperature": 0}

        def ask() -> None:
            while not self._stop.is_set():
                try:
                    answer = fetch("POST", url, json=body, headers=headers, timeout=60)
                    said = (
                        ""
                        if answer.status_code == 200 and answer.json()["choices"]
                        else f"{answer.status_code}: {answer.text[:200]}"
                    )
                except OSError as error:  # requests' exceptions are OSErrors
                    said = f"{type(error).__name__}: {error}"
                self.answers += 1
                if said:
                    self.failures.append(said)

        self._clients = [world.inside.start(ask) for _ in range(clients)]

    def until(self, answers: int, timeout: float = 120) -> None:
        end = time.monotonic() + timeout
        while self.answers < answers and not self.failures:
            assert time.monotonic() < end, f"{self.answers} of {answers} requests in {timeout:g} s"
            time.sleep(0.1)

    def stop(self) -> int:
        """Stops the clients, fails unless every request succeeded, and returns the number of requests."""
        self._stop.set()
        for client in self._clients:
            client.result(60)
        assert not self.failures, f"{len(self.failures)} of {self.answers} requests failed: {self.failures[:3]}"
        return self.answers


def scale(world, name: str, replicas: int) -> None:
    world.cluster.kubectl("scale", "pm", name, "-n", MODELS, f"--replicas={replicas}")
    world.cluster.wait_for(
        lambda: (
            (s := world.pm(name)["status"]).get("readyReplicas") == replicas == s["replicas"]
            and len(world.pods(name)) == replicas
        ),
        120,
        f"{replicas} replicas serve",
    )


def test_scaling_from_one_to_three_and_back_under_load_fails_none_of_a_thousand_requests(world, name):
    world.apply(name, update={"drainSeconds": 20})
    world.wait_ready(name)
    load = Load(world, name)
    load.until(100)
    scale(world, name, 3)
    load.until(load.answers + 300)
    scale(world, name, 1)
    load.until(max(1000, load.answers + 200), timeout=240)
    assert load.stop() >= 1000


def test_a_rollout_or_a_drain_without_a_spare_device_announces_the_gap(world, name, oracle):
    """One replica has all four devices: the surge replica cannot be scheduled. An update abandons it after the timeout;
    a drain may go on then."""
    spec = {
        "count": 4,
        "devices": {"resource": "nvidia.com/gpu", "memory": "1Gi"},
        "update": {"drainSeconds": 1, "surgeTimeoutSeconds": 4},
    }
    world.apply(name, **spec)
    world.wait_ready(name)
    old, said = world.pod(name), set()
    world.apply(name, **spec, serving={"maxSequenceLength": 64})

    def replaced() -> bool:
        said.add(world.condition(name, "Ready").get("message", ""))
        pods = world.pods(name)
        return (
            len(pods) == 1
            and uid(pods[0]) != uid(old)
            and world.condition(name, "Ready").get("status") == "True"
            and world.pm(name)["status"].get("updatedReplicas") == 1
        )

    world.cluster.wait_for(replaced, 90, "the replica is replaced in place")
    assert any("in place" in message or "no room" in message for message in said), said
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)

    node = world.pod(name)["spec"]["nodeName"]
    [before] = world.pm(name)["status"]["replicaStatuses"]
    world.cluster.kubectl("cordon", node)
    try:
        world.cluster.wait_for(
            lambda: "evictions may end generation" in world.condition(name, "Ready").get("message", ""),
            60,
            "the gap is announced",
        )
        drain(world, name, node)
        world.wait_condition(name, "Ready", "False")
    finally:
        world.cluster.kubectl("uncordon", node)
    world.wait_ready(name)
    [after] = world.pm(name)["status"]["replicaStatuses"]
    assert after["restarts"] == before["restarts"] == 0, after
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)


def drain(world, name: str, node: str, timeout: int = 120) -> None:
    """Drains the pods of one ParallelModel, as kubectl drain does with all."""
    options = ["--ignore-daemonsets", "--delete-emptydir-data", f"--pod-selector=parallelmodel.dev/name={name}"]
    world.cluster.kubectl("drain", node, *options, f"--timeout={timeout}s", timeout=timeout + 30)


def test_the_only_replica_leaves_drained_nodes_without_a_failed_request_and_spends_no_restart(world, name):
    """More often than maxRestarts allows failures. The budget refuses evictions until the replica serves elsewhere."""
    world.apply(
        name,
        update={"drainSeconds": 20},
        failure={"maxRestarts": 1},
        serving={"modelNames": [name, "also"]},
    )
    world.wait_ready(name)
    load = Load(world, name, clients=2)
    load.until(20)
    for drains in range(DRAINS):
        node = world.pod(name)["spec"]["nodeName"]
        try:
            drain(world, name, node)
            assert world.pod(name)["spec"]["nodeName"] != node
            load.until(load.answers + 20)
        finally:
            world.cluster.kubectl("uncordon", node)
        status = world.pm(name)["status"]
        [replica] = status["replicaStatuses"]
        assert replica["ready"] and replica["restarts"] == 0 and "lastFailure" not in status, (drains, status)
    print(f"\n{load.stop()} requests through {DRAINS} drains, none failed")
    body = {"model": "also", "prompt": PROMPT, "max_tokens": 2}
    answer = world.inside(fetch, "POST", world.url(name) + "/v1/completions", json=body)
    assert answer.status_code == 200 and answer.json()["model"] == name, answer.text


def test_a_node_without_power_costs_its_replica_and_no_more(world, name, oracle):
    """Pods of a node that is powered off count as fenced, and the next generation starts on another node."""
    nodes = [node["metadata"]["name"] for node in world.cluster.list("nodes")]
    controllers = {
        pod["spec"]["nodeName"] for pod in world.cluster.list("pods", SYSTEM, "app.kubernetes.io/component=controller")
    }
    victim = next((node for node in nodes if node not in controllers), nodes[-1])
    prefer = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "preference": {
                    "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [victim]}]
                },
            }
        ]
    }
    world.apply(name, scheduling={"nodeAffinity": prefer})
    [before] = world.wait_ready(name)["status"]["replicaStatuses"]
    assert before["nodes"] == [victim], before
    world.cluster.kill(victim, "node")
    begin = time.monotonic()
    try:
        after = wait_healed(world, name, before["replicaGeneration"], timeout=90)
        print(f"\nserved again {time.monotonic() - begin:.0f} s after the power failure of {victim}")
        assert victim not in after["nodes"], after
        assert world.pm(name)["status"]["lastFailure"]["reason"] == "NodeLost", world.pm(name)["status"]["lastFailure"]
        assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)
    finally:
        world.cluster.start(victim, "node")
    world.cluster.kubectl("wait", "--for=condition=Ready", f"node/{victim}", "--timeout=90s")
    world.cluster.wait_for(lambda: len(world.pods(name)) == 1, 60, "the pod of the dead node is gone")


def test_the_longest_name_serves(world, oracle):
    name = "m" + "0123456789" * 3 + "-abcdefgh"
    assert len(name) == LONGEST
    try:
        world.apply(name)
        world.wait_ready(name)
        assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)
        [pod] = world.pods(name)
        assert pod["spec"]["hostname"] == pod["metadata"]["name"] and len(pod["metadata"]["name"]) <= 63
    finally:
        world.delete(name)
    with pytest.raises(ClusterError, match="shortened to 40 characters"):
        world.apply(name + "x")


BROKEN = {"worker": {"extraArgs": ["--no-such-option"]}, "count": 1}
STATES = {  # name -> (spec, is it there?)
    "refused": (
        {"devices": {"memory": "1Mi"}},
        lambda world, name: world.condition(name, "Planned").get("reason") == "DoesNotFit",
    ),
    "unreadable": (
        {"source": "pvc://models/truncated"},
        lambda world, name: world.condition(name, "Planned").get("reason") == "ModelUnreadable",
    ),
    "homeless": (
        {"devices": {"memory": "1Gi"}, "scheduling": {"nodeSelector": {"no": "node"}}},
        lambda world, name: world.condition(name, "Scheduled").get("status") == "False" and world.children(name),
    ),
    "imageless": (
        {"count": 1, "worker": {"image": "localhost/nobody:1", "imagePullPolicy": "Never"}},
        lambda world, name: world.condition(name, "Ready").get("reason") == "ImagePullFailed",
    ),
    "starting": ({"count": 1}, lambda world, name: world.pods(name)),
    "waiting": (
        {**BROKEN, "failure": {"maxRestarts": 9, "backoffBaseSeconds": 300}},
        lambda world, name: world.condition(name, "Ready").get("reason") == "BackingOff",
    ),
    "stalled": (
        {**BROKEN, "failure": {"maxRestarts": 0}},
        lambda world, name: world.condition(name, "Stalled").get("reason") == "RestartBudgetExhausted",
    ),
    "scaled-to-zero": (
        {"count": 1, "replicas": 0},
        lambda world, name: world.condition(name, "Ready").get("reason") == "ScaledToZero",
    ),
}


def test_a_delete_in_every_state_leaves_nothing(world, stories):
    """Runs all states concurrently and deletes each model as soon as it is in its state. In the surge state a model
    serves while its successor cannot start."""
    world.apply("state-of-surge", count=1)
    for state, (spec, _) in STATES.items():
        world.apply(f"state-of-{state}", **spec)
    world.wait_ready("state-of-surge")
    world.apply("state-of-surge", count=1, worker={"image": "localhost/nobody:2", "imagePullPolicy": "Never"})
    states = {**STATES, "surge": (None, lambda world, name: len(world.pods(name)) == 2)}
    end, waiting = time.monotonic() + 120, dict(states)
    while waiting:
        assert time.monotonic() < end, "not reached: " + str(
            {state: world.pm(f"state-of-{state}").get("status", {}).get("conditions") for state in waiting}
        )
        for state, (_, there) in list(waiting.items()):
            if there(world, f"state-of-{state}"):
                world.cluster.kubectl("delete", "pm", f"state-of-{state}", "-n", MODELS, "--wait=false")
                del waiting[state]
    for state in states:
        world.wait_gone(f"state-of-{state}")
    world.wait_ready(stories)
