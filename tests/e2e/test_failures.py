# SPDX-License-Identifier: Apache-2.0
"""Failures are detected within seconds, reported with a reason and repaired; no client waits forever."""

import os
import signal
import time

import pytest
from world import MODELS, fetch, processes

PROMPT = "Once upon a time"


def long_requests(world, name: str, count: int = 3) -> list:
    """Starts requests that are long enough to be interrupted: as many tokens as fit, streamed without a reader."""
    url = world.url(name) + "/v1/completions"
    body = {"model": name, "prompt": PROMPT, "max_tokens": 200, "temperature": 1, "seed": 1, "ignore_eos": True}

    def keep_asking() -> tuple[str, float]:
        """Sends requests until one fails; returns the failure and the duration of the last request."""
        while True:
            begin = time.monotonic()
            try:
                answer = fetch("POST", url, json=body, timeout=60)
            except OSError as error:  # requests' exceptions are OSErrors
                return f"connection: {type(error).__name__}", time.monotonic() - begin
            if answer.status_code != 200:
                return f"{answer.status_code}: {answer.text}", time.monotonic() - begin

    return [world.inside.start(keep_asking) for _ in range(count)]


def is_ready(pod: dict) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def seconds_until_unready(world, pod: dict, limit: float = 30) -> float:
    """Returns how long Kubernetes still counts the pod as ready."""
    begin = time.monotonic()
    name = pod["metadata"]["name"]

    def gone_or_unready() -> bool:
        found = [p for p in world.cluster.list("pods", MODELS) if p["metadata"]["name"] == name]
        return not found or not is_ready(found[0])

    world.cluster.wait_for(gone_or_unready, limit, f"{name} is unready", interval=0.05)
    return time.monotonic() - begin


def wait_healed(world, name: str, old_generation: int, timeout: float = 120) -> dict:
    """Waits until a later generation of the replica serves and returns its status."""

    def healed() -> dict | None:
        [replica] = world.pm(name)["status"]["replicaStatuses"]
        return replica if replica["replicaGeneration"] > old_generation and replica["ready"] else None

    replica = world.cluster.wait_for(healed, timeout, f"{name} has healed")
    world.wait_condition(name, "Ready", "True")
    return replica


@pytest.mark.parametrize("rank", [1, 0])
def test_a_killed_rank_is_detected_within_three_seconds_and_the_replica_restarts(world, stories, oracle, rank):
    [before] = world.pm(stories)["status"]["replicaStatuses"]
    pod = world.pod(stories)
    requests = long_requests(world, stories)
    time.sleep(0.5)
    os.kill(world.rank(stories, rank), signal.SIGKILL)
    assert seconds_until_unready(world, pod) <= 3
    for request in requests:
        said, seconds = request.result(20)
        assert seconds < 10, f"a request waited {seconds:.1f} s for {said}"
        assert said.startswith(("503", "connection")), said
    after = wait_healed(world, stories, before["replicaGeneration"])
    assert (
        after["replicaGeneration"] == before["replicaGeneration"] + 1
        and after["restarts"] == before.get("restarts", 0) + 1
    )
    failure = world.pm(stories)["status"]["lastFailure"]
    assert (
        failure["reason"] == "RankLost"
        and failure["rank"] == rank
        and failure["replicaGeneration"] == before["replicaGeneration"]
    ), failure
    assert f"rank {rank}" in failure["message"]
    assert world.wait_answer(stories, PROMPT) == oracle.greedy(PROMPT)
    assert not processes(pod["metadata"]["uid"]), "processes of the old replica are gone"


def test_a_stopped_rank_makes_the_replica_unready_and_is_replaced(world, name, oracle):
    world.apply(name)
    [before] = world.wait_ready(name)["status"]["replicaStatuses"]
    pod = world.pod(name)
    requests = long_requests(world, name)
    time.sleep(0.5)
    os.kill(world.rank(name, 1), signal.SIGSTOP)
    assert seconds_until_unready(world, pod) <= 6
    for request in requests:
        said, seconds = request.result(30)
        assert seconds < 20, f"a request waited {seconds:.1f} s for {said}"
    wait_healed(world, name, before["replicaGeneration"])
    failure = world.pm(name)["status"]["lastFailure"]
    assert failure["reason"] == "RankHung" and failure["rank"] == 1, failure
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)


def test_a_pod_deleted_by_hand_is_replaced(world, name):
    world.apply(name)
    [before] = world.wait_ready(name)["status"]["replicaStatuses"]
    world.cluster.kubectl("delete", "pod", world.pod(name)["metadata"]["name"], "-n", MODELS, "--wait=false")
    wait_healed(world, name, before["replicaGeneration"])


@pytest.mark.parametrize("moment", ["inspect", "plan", "pod"])
def test_a_controller_killed_in_the_middle_of_a_start_converges(world, name, moment):
    def reached() -> bool:
        kinds = {"inspect": "pod/", "plan": "configmap/", "pod": f"pod/{name}-0-"}
        return any(child.startswith(kinds[moment]) for child in world.children(name))

    world.apply(name)
    world.cluster.wait_for(reached, 60, f"{name} has reached {moment}", interval=0.01)
    world.kill_controller()
    world.wait_ready(name, timeout=150)
    [replica] = world.pm(name)["status"]["replicaStatuses"]
    pod = world.pod(name)
    assert pod["metadata"]["labels"]["parallelmodel.dev/replica-generation"] == str(replica["replicaGeneration"])
    kinds = sorted(child.split("/")[0].split(".")[0] for child in world.children(name))
    assert kinds == ["configmap", "pod", "poddisruptionbudget", "service"], world.children(name)
