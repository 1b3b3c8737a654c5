# SPDX-License-Identifier: Apache-2.0
"""Tests changes of a running ParallelModel: a new spec replaces the replica, scaling does not restart running replicas,
a deletion leaves nothing."""

from world import MODELS

PROMPT = "The little dog"


def uid(pod: dict) -> str:
    return pod["metadata"]["uid"]


def replaced(world, name: str, old: dict) -> bool:
    """Returns whether only a newer pod than `old` exists, and it serves."""
    pods = world.pods(name)
    [replica] = world.pm(name)["status"]["replicaStatuses"]
    return (
        len(pods) == 1
        and uid(pods[0]) != uid(old)
        and replica["ready"]
        and str(replica["replicaGeneration"]) == pods[0]["metadata"]["labels"]["parallelmodel.dev/replica-generation"]
    )


def test_an_edit_replaces_the_replica_and_a_restart_annotation_does_too(world, name, oracle):
    world.apply(name)
    world.wait_ready(name)
    first = world.pod(name)
    world.apply(name, serving={"maxSequenceLength": 64})
    world.cluster.wait_for(lambda: replaced(world, name, first), 120, "the replica is replaced")
    world.wait_ready(name)
    world.wait_plan(name, lambda plan: plan["sequenceLength"] == 64, "of 64 tokens")
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)

    second = world.pod(name)
    world.cluster.kubectl("annotate", "pm", name, "-n", MODELS, "parallelmodel.dev/restarted-at=now")
    world.cluster.wait_for(lambda: replaced(world, name, second), 120, "the annotation restarts the replica")
    world.wait_ready(name)
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)


def test_another_precision_changes_the_bytes(world, name):
    world.apply(name, precision="F32")
    world.wait_ready(name)
    first, weights = world.pod(name), world.get(world.url(name) + "/plan").json()["ranks"][0]["predicted"]["weights"]
    world.apply(name, precision="BF16")
    world.cluster.wait_for(lambda: replaced(world, name, first), 120, "the replica is replaced")
    world.wait_ready(name)
    world.wait_plan(name, lambda plan: plan["ranks"][0]["predicted"]["weights"] * 2 == weights, "of half the bytes")
    assert world.wait_answer(name, PROMPT)


def test_an_edit_that_cannot_be_planned_leaves_the_last_good_replica_serving(world, name, oracle):
    world.apply(name)
    world.wait_ready(name)
    pod = world.pod(name)
    world.apply(name, devices={"memory": "1Mi"})
    world.wait_condition(name, "Planned", "False", "DoesNotFit")
    assert uid(world.pod(name)) == uid(pod)
    assert world.complete(name, PROMPT) == oracle.greedy(PROMPT)


def test_scaling_to_two_and_back_does_not_touch_the_first_replica(world, name, oracle):
    world.apply(name)
    world.wait_ready(name)
    first = world.pod(name)
    world.cluster.kubectl("scale", "pm", name, "-n", MODELS, "--replicas=2")
    world.cluster.wait_for(lambda: world.pm(name)["status"].get("readyReplicas") == 2, 120, "two replicas serve")
    assert sorted(pod["metadata"]["labels"]["parallelmodel.dev/replica"] for pod in world.pods(name)) == ["0", "1"]
    assert uid(first) in [uid(pod) for pod in world.pods(name)]
    assert {world.wait_answer(name, PROMPT) for _ in range(6)} == {oracle.greedy(PROMPT)}
    world.cluster.kubectl("scale", "pm", name, "-n", MODELS, "--replicas=1")
    world.cluster.wait_for(
        lambda: len(world.pods(name)) == 1 and world.pm(name)["status"]["replicas"] == 1, 120, "one replica is left"
    )
    assert uid(world.pod(name)) == uid(first)
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)


def test_scaling_to_zero_is_reported_and_reverted(world, name):
    world.apply(name)
    world.wait_ready(name)
    world.cluster.kubectl("scale", "pm", name, "-n", MODELS, "--replicas=0")
    world.wait_condition(name, "Ready", "False", "ScaledToZero")
    world.cluster.wait_for(lambda: not world.pods(name), 60, "no pod is left")
    world.cluster.kubectl("scale", "pm", name, "-n", MODELS, "--replicas=1")
    world.wait_ready(name)


def test_a_delete_during_inspect_leaves_nothing(world, name):
    world.apply(name)
    world.cluster.wait_for(
        lambda: any(f"{name}-inspect" in child for child in world.children(name)),
        30,
        "the inspect pod is there",
        interval=0.01,
    )
    world.cluster.kubectl("delete", "pm", name, "-n", MODELS)
    world.wait_gone(name, timeout=60)


def test_a_delete_of_a_running_model_leaves_nothing_and_the_name_can_be_used_again(world, name):
    world.apply(name)
    world.wait_ready(name)
    world.cluster.kubectl("delete", "pm", name, "-n", MODELS)
    world.apply(name)
    world.wait_ready(name)
    world.cluster.kubectl("delete", "pm", name, "-n", MODELS)
    world.wait_gone(name)
