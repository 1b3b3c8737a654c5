# SPDX-License-Identifier: Apache-2.0
"""Events around a ParallelModel: deleted children, reinstallation of the chart, pods that cannot start."""

import time

import pytest
from conftest import CHART, CHART_VALUES
from world import MODELS, SYSTEM, fetch

PROMPT = "One day"


def uids(world, name: str) -> list[str]:
    return sorted(pod["metadata"]["uid"] for pod in world.pods(name))


@pytest.mark.parametrize("kind", ["service", "configmap"])
def test_a_deleted_child_is_recreated_and_no_pod_restarts(world, stories, oracle, kind):
    world.wait_ready(stories)
    pods = uids(world, stories)
    children = [child for child in world.children(stories) if child.startswith(kind)]
    assert children
    for child in children:
        before = world.cluster.get(*child.split("/"), MODELS)["metadata"]["uid"]
        world.cluster.kubectl("delete", child, "-n", MODELS)
        world.cluster.wait_for(
            lambda: world.cluster.get(*child.split("/"), MODELS)["metadata"]["uid"] != before, 30, f"{child} is back"
        )
    assert uids(world, stories) == pods
    assert world.wait_answer(stories, PROMPT) == oracle.greedy(PROMPT)


def test_a_service_edit_is_applied_in_place(world, name, oracle):
    world.apply(name)
    world.wait_ready(name)
    pods = uids(world, name)
    world.apply(name, service={"port": 9000, "type": "NodePort"}, replicas=1)
    world.cluster.wait_for(
        lambda: world.cluster.get("service", name, MODELS)["spec"]["ports"][0]["port"] == 9000, 30, "the port changes"
    )
    assert world.cluster.get("service", name, MODELS)["spec"]["type"] == "NodePort"
    world.wait_ready(name)
    assert world.pm(name)["status"]["endpoint"].endswith(":9000") and uids(world, name) == pods
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)


def test_a_chart_that_is_removed_and_installed_again_disturbs_nothing(world, stories, oracle):
    world.wait_ready(stories)
    pods = uids(world, stories)
    world.cluster.helm("uninstall", "parallelmodel", "-n", SYSTEM, "--wait")
    try:
        assert world.complete(stories, PROMPT) == oracle.greedy(PROMPT)
        assert world.pm(stories)["spec"], "the definition and its objects stay"
    finally:
        world.cluster.helm(
            "install", "parallelmodel", str(CHART), "-n", SYSTEM, "--wait", "--timeout", "90s", *CHART_VALUES
        )
    time.sleep(3)
    world.wait_ready(stories)
    assert uids(world, stories) == pods


def test_helm_test_serves_a_model_and_leaves_nothing(world):
    said = world.cluster.helm("test", "parallelmodel", "-n", SYSTEM, "--logs", "--timeout", "150s")
    assert "served:" in said and "no pods are left" in said, said
    assert not world.cluster.exists("pm", "parallelmodel-test", MODELS)


def test_another_default_image_of_the_controller_starts_no_update(world, stories):
    world.wait_ready(stories)
    pods = uids(world, stories)
    values = [value.replace("worker.image.tag=test", "worker.image.tag=other") for value in CHART_VALUES]
    world.cluster.helm("upgrade", "parallelmodel", str(CHART), "-n", SYSTEM, "--wait", "--timeout", "90s", *values)
    try:
        time.sleep(5)
        assert uids(world, stories) == pods
    finally:
        world.cluster.helm(
            "upgrade", "parallelmodel", str(CHART), "-n", SYSTEM, "--wait", "--timeout", "90s", *CHART_VALUES
        )


def test_an_image_that_cannot_be_pulled_is_named(world, name):
    world.apply(name, worker={"image": "localhost/nobody:1", "imagePullPolicy": "Never"})
    world.cluster.wait_for(
        lambda: "localhost/nobody:1" in world.condition(name, "Ready").get("message", ""), 60, "the image is named"
    )
    world.apply(name)
    world.wait_ready(name)


def test_a_pod_that_exceeds_its_memory_limit_is_reported_as_oom_killed(world, name):
    world.apply(
        name,
        devices={"memory": "1Gi"},
        resources={"cpu": "500m", "memory": "60Mi"},
        failure={"maxRestarts": 1, "backoffBaseSeconds": 1},
    )
    world.cluster.wait_for(
        lambda: world.pm(name)["status"].get("lastFailure", {}).get("reason") == "OOMKilled",
        90,
        "lastFailure is OOMKilled",
    )
    world.wait_condition(name, "Stalled", "True", "RestartBudgetExhausted", timeout=90)


def test_a_worker_that_cannot_start_exhausts_its_restarts_and_reports_why(world, name):
    world.apply(name, worker={"extraArgs": ["--no-such-option"]}, failure={"maxRestarts": 1, "backoffBaseSeconds": 1})
    stalled = world.wait_condition(name, "Stalled", "True", "RestartBudgetExhausted", timeout=90)
    assert "--no-such-option" in str(world.pm(name)["status"]["lastFailure"]), (
        stalled,
        world.pm(name)["status"]["lastFailure"],
    )
    world.apply(name)
    world.wait_ready(name)


def test_limits_of_serving_reach_the_worker(world, name):
    world.apply(name, serving={"maxConcurrency": 1, "maxQueue": 1})
    world.wait_ready(name)
    url = world.url(name) + "/v1/completions"
    body = {"prompt": PROMPT, "max_tokens": 240, "ignore_eos": True, "temperature": 0}
    answers = [world.inside.start(fetch, "POST", url, json=body) for _ in range(8)]
    codes = sorted(answer.result(120).status_code for answer in answers)
    assert codes[0] == 200 and codes[-1] == 429 and set(codes) == {200, 429}, codes
