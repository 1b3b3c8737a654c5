# SPDX-License-Identifier: Apache-2.0
"""Requests reach replicas through gateways of the field (gateways.py) by the HTTPRoutes and InferencePools that the
operator writes: shares of a canary, roll-outs, drains and scaling without a failed request, and an endpoint picker that
reads the replicas' queues. PM_GATEWAY_REQUESTS=10000 makes the load of the second test that long."""

import json
import os
import threading
import time

import gateways
import pytest
from gateways import HOST, NAMESPACE, pick, ready
from test_life import Load
from world import MODELS, fetch, parse_metrics

REQUESTS = int(os.environ.get("PM_GATEWAY_REQUESTS", 600))
BODY = {"model": "chat", "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
# so little CPU that both replicas find room on one node, beside the models of other tests
SMALL = {
    "resources": {"cpu": "50m", "memory": "1Gi"},
    "serving": {"modelNames": ["chat"], "maxConcurrency": 4, "maxQueue": 64},
}


def route(gateway: str, **more) -> dict:
    return {"gateways": [{"name": gateway, "namespace": NAMESPACE}], "hostnames": [HOST], **more}


@pytest.fixture(scope="module", autouse=True)
def installed(world, tmp_path_factory):
    """The gateways, and two versions of a model with a name in common: one with two replicas, one with one."""
    if gateways.missing() and "PM_INTEGRATIONS" not in os.environ:
        pytest.skip(f"{gateways.missing()} are not built on this machine yet: make integrations")
    with gateways.running(world, tmp_path_factory.mktemp("gateways"), pool="chat"):
        world.apply("chat", count=1, replicas=2, router={"httpRoute": route("traefik", weight=90)}, **SMALL)
        world.apply("chat-next", count=1, **SMALL)
        for name in ("chat", "chat-next"):
            world.wait_ready(name)
        yield
        for name in ("chat", "chat-next"):
            world.delete(name)
        for kind in ("inferencepools", "httproutes"):
            assert world.cluster.list(kind, MODELS) == [], "what was made for gateways goes with the ParallelModel"


def finished(world, name: str) -> int:
    """Returns how many requests the running replicas of a model have answered."""
    count = 0.0
    for pod in world.pods(name):
        series = parse_metrics(world.get(world.admin(pod, "/metrics")).text)
        count += sum(value for _, value in series.get("parallelmodel_requests_finished_total", []))
    return int(count)


def wait_through(world, url: str, holds=lambda reply: reply.status_code == 200) -> None:
    def there():
        return holds(world.post(url + "/v1/completions", BODY, headers={"Host": HOST}))

    world.cluster.wait_for(there, 60, f"{url} leads to the model")


def edit(world, name: str, spec: dict) -> None:
    world.cluster.kubectl("patch", "pm", name, "-n", MODELS, "--type=merge", "-p", json.dumps({"spec": spec}))


def test_a_canary_gets_its_share_and_ends_in_one_patch(world):
    url = ready(world, "traefik")
    wait_through(world, url)
    edit(world, "chat", {"router": {"httpRoute": {"canaries": [{"name": "chat-next", "weight": 10}]}}})

    def share(requests: int) -> float:
        before = finished(world, "chat"), finished(world, "chat-next")
        for _ in range(requests):
            assert world.post(url + "/v1/completions", BODY, headers={"Host": HOST}).status_code == 200
        after = finished(world, "chat"), finished(world, "chat-next")
        assert after[0] + after[1] - before[0] - before[1] == requests
        return (after[1] - before[1]) / requests

    world.cluster.wait_for(lambda: share(20) > 0, 30, "the canary takes requests")
    assert abs(share(400) - 0.1) <= 0.02
    world.cluster.kubectl("scale", "pm", "chat-next", "-n", MODELS, "--replicas=0")
    world.wait_condition("chat-next", "Ready", "False")
    world.cluster.wait_for(
        lambda: "canary chat-next" in world.condition("chat", "Planned")["message"], 30, "the message"
    )
    world.cluster.kubectl("scale", "pm", "chat-next", "-n", MODELS, "--replicas=1")
    world.wait_ready("chat-next")
    world.cluster.wait_for(lambda: share(20) > 0, 30, "the canary takes requests again")
    edit(world, "chat", {"router": {"httpRoute": {"canaries": None}}})
    world.cluster.wait_for(lambda: share(20) == 0, 30, "the model takes all requests")


def test_no_request_fails_through_a_pool_while_replicas_change(world):
    """Kthena's router reads the InferencePool, and the replicas' queues by vLLM's names."""
    pool = {"endpointPicker": {"name": "picker"}}
    world.cluster.apply(gateways.model_server("chat"))
    edit(world, "chat", {"router": {"inferencePool": pool, "httpRoute": route("kthena")}})
    url = ready(world, "kthena")
    wait_through(world, url)
    load = Load(world, "chat", url=url, headers={"Host": HOST})
    begin = time.monotonic()
    edit(world, "chat", {"worker": {"env": [{"name": "PM_TEST", "value": "1"}]}})
    world.cluster.wait_for(
        lambda: (
            (status := world.pm("chat")["status"]).get("updatedReplicas") == 2
            and status["readyReplicas"] == 2
            and len(world.pods("chat")) == 2
        ),
        180,
        "the roll-out",
    )
    for replicas in (1, 2):
        world.cluster.kubectl("scale", "pm", "chat", "-n", MODELS, f"--replicas={replicas}")
        world.cluster.wait_for(
            lambda: len(world.pods("chat")) == replicas == world.pm("chat")["status"]["readyReplicas"],  # noqa: B023
            120,
            f"{replicas} replicas",
        )
    node = world.pods("chat")[0]["spec"]["nodeName"]
    try:
        world.cluster.kubectl(
            "drain",
            node,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--force",
            "--timeout=180s",
            "--pod-selector=parallelmodel.dev/name=chat",
            timeout=200,
        )
        world.cluster.wait_for(lambda: world.pm("chat")["status"]["readyReplicas"] == 2, 120, "replicas elsewhere")
    finally:
        world.cluster.kubectl("uncordon", node)
    load.until(REQUESTS, 1200)
    answers = load.stop()
    print(
        f"\n{answers} requests in {time.monotonic() - begin:.0f} s through a roll-out, scaling and a drain: none failed"
    )


def test_an_endpoint_picker_reads_the_queues_of_replicas(world):
    edit(world, "chat", {"router": {"inferencePool": {"endpointPicker": {"name": "picker"}}}})
    address = ready(world, "picker", MODELS).removeprefix("http://")
    first, second = sorted(pod["status"]["podIP"] for pod in world.pods("chat"))
    picked = world.cluster.wait_for(
        lambda: {world.inside(pick, address, BODY) for _ in range(20)}, 120, "the picker answers"
    )
    assert picked <= {f"{first}:8000", f"{second}:8000"}
    for busy, idle in ((first, second), (second, first)):
        stop = threading.Event()

        def fill(ip=busy, stop=stop):  # four run, and eight wait
            while not stop.is_set():
                body = BODY | {"max_tokens": 200, "ignore_eos": True}
                fetch("POST", f"http://{ip}:8000/v1/completions", json=body, timeout=600)

        clients = [world.inside.start(fill) for _ in range(12)]
        try:
            world.cluster.wait_for(
                lambda: [world.inside(pick, address, BODY) for _ in range(10)] == [f"{idle}:8000"] * 10,  # noqa: B023
                120,
                "the picker avoids the replica with the queue",
            )
            picks = [world.inside(pick, address, BODY) for _ in range(50)]
        finally:
            stop.set()
            for client in clients:
                client.result(660)
        assert picks.count(f"{idle}:8000") == 50, picks
