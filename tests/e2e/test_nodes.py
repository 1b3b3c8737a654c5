# SPDX-License-Identifier: Apache-2.0
"""Replicas over two pods: they connect over the pod network, return the same answers as one node, restart as a whole
and leave nothing."""

import os
import signal
import time

from test_failures import seconds_until_unready, wait_healed
from test_life import Load
from world import MODELS, processes

PROMPT = "Once upon a time"


def pods_by_node(world, name):
    return sorted(world.pods(name), key=lambda pod: int(pod["metadata"]["labels"]["parallelmodel.dev/node-rank"]))


def uids(pods):
    return [pod["metadata"]["uid"] for pod in pods]


def test_a_replica_over_two_pods_answers_heals_and_leaves(world, name, oracle):
    world.apply(name, count=2, devices={"perNode": 1})
    status = world.wait_ready(name, timeout=150)["status"]
    [replica] = status["replicaStatuses"]
    assert status["plan"]["tensor"] == 2 and len(set(replica["nodes"])) == 2 and all(replica["nodes"]), replica
    pods = pods_by_node(world, name)
    assert len(pods) == 2
    assert world.wait_answer(name, PROMPT, tokens=24) == oracle.greedy(PROMPT, tokens=24)
    for pod in pods:  # every pod reports the whole replica
        report = world.get(world.admin(pod, "/status")).json()
        assert report["ready"] and [rank["state"] for rank in report["ranks"]] == ["Ready", "Ready"], report
        assert all(rank["loadBytes"] == rank["loadTotal"] > 0 for rank in report["ranks"]), report
    assert [rank["rank"] for rank in replica["ranks"]] == [0, 1] and all(
        rank["measuredAtLoad"] for rank in replica["ranks"]
    ), replica

    os.kill(world.process(pods[1], "--rank", "1"), signal.SIGKILL)
    assert seconds_until_unready(world, pods[0]) <= 5  # a rank that only stops answering is noticed after 6 s
    wait_healed(world, name, replica["replicaGeneration"])
    failure = world.pm(name)["status"]["lastFailure"]
    assert (
        failure["reason"] == "RankLost" and failure["rank"] == 1 and "rank 1 died of signal 9" in failure["message"]
    ), failure
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)

    [replica] = world.pm(name)["status"]["replicaStatuses"]
    again = pods_by_node(world, name)
    world.cluster.kubectl("delete", "pod", again[1]["metadata"]["name"], "-n", MODELS, "--wait=false")
    wait_healed(world, name, replica["replicaGeneration"])
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)
    world.cluster.wait_for(
        lambda: not any(processes(uid) for uid in uids(pods) + uids(again)),
        20,
        "no process of earlier generations is left",
    )

    last = pods_by_node(world, name)
    begin = time.monotonic()
    world.cluster.kubectl("delete", "pm", name, "-n", MODELS, "--wait=false")
    world.cluster.wait_for(
        lambda: not any(processes(uid) for uid in uids(last)), 30, "no process is left", interval=0.1
    )
    assert time.monotonic() - begin <= 12, "10 s from SIGTERM, and the garbage collector's two"


def test_a_replica_that_moves_to_one_node_answers_all_along_and_leaves_no_service_of_names(world, name, oracle):
    update = {"drainSeconds": 20}
    world.apply(name, count=2, devices={"perNode": 1}, update=update)
    world.wait_ready(name, timeout=150)
    extra = f"service/{name}-ranks"
    assert extra in world.children(name), world.children(name)
    load = Load(world, name, clients=2)
    load.until(30)
    world.apply(name, count=2, update=update)
    world.cluster.wait_for(lambda: extra not in world.children(name), 120, "the Service of the ranks is gone")
    load.until(load.answers + 30)
    load.stop()
    assert len(world.pods(name)) == 1
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)
