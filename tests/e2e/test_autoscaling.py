# SPDX-License-Identifier: Apache-2.0
"""Autoscalers of the field (autoscaling.py) scale a model by the examples. A HorizontalPodAutoscaler does so by a
metric of pods. KEDA does so by the queues of replicas under load, to none without requests, and to one again for
requests that an endpoint picker holds meanwhile. Periods are shorter than in the examples."""

import os
import threading
import time
from pathlib import Path

import autoscaling
import gateways
import pytest
import yaml
from gateways import pick
from world import MODELS, fetch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAME = "elastic"
BODY = {"model": NAME, "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}


def example(file: str, **spec) -> list[dict]:
    """The objects of an example for the model and the picker of this test, with short periods and more of `spec`, which
    replaces fields of an autoscaler's."""
    text = (EXAMPLES / file).read_text().replace(".default.svc:", f".{MODELS}.svc:")
    objects = list(yaml.safe_load_all(text.replace("stories-picker", "picker").replace("stories", NAME)))
    for one in objects:
        one["metadata"]["namespace"] = MODELS
        if one["kind"] == "ConfigMap":
            continue
        hpa = one["spec"]
        if one["kind"] == "ScaledObject":
            one["spec"]["pollingInterval"] = 1
            hpa = one["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
        one["spec"] |= spec
        hpa["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 2
    return objects


@pytest.fixture(scope="module", autouse=True)
def installed(world, tmp_path_factory):
    """KEDA, and a model of one replica with an endpoint picker that holds requests."""
    if missing := autoscaling.missing() + gateways.missing(["epp"]):
        if "PM_INTEGRATIONS" not in os.environ:
            pytest.skip(f"{missing} are not built on this machine yet: make integrations")
    folder = tmp_path_factory.mktemp("autoscaling")
    gateways.load(world, folder, ["epp"])
    world.cluster.apply([one for one in example("keda/scale-to-zero.yaml") if one["kind"] == "ConfigMap"])
    with (
        gateways.defined(world),
        gateways.picking(world, NAME, "--config-file=/etc/config/config.yaml"),
        autoscaling.keda(world, folder),
        autoscaling.prometheus(world, folder, NAME) as prometheus,
        autoscaling.prometheus_adapter(world, folder, prometheus),
    ):
        world.apply(
            NAME,
            count=1,
            resources={"cpu": "50m", "memory": "1Gi"},
            serving={"maxConcurrency": 2, "maxQueue": 64},
            router={"inferencePool": {"endpointPicker": {"name": "picker"}}},
            update={"drainSeconds": 30},
        )
        world.wait_ready(NAME)
        try:
            yield
        finally:  # a test that failed leaves some; KEDA has a finalizer on its own
            for kind in ("scaledobjects", "horizontalpodautoscalers"):
                world.cluster.kubectl("delete", kind, "--all", "-n", MODELS, "--wait=true")
            world.delete(NAME)


class Requests:
    """A load whose requests begin at a rate, however long they take, while not too many wait for their answers."""

    MOST = 28

    def __init__(self, world, url: str, per_second: float, tokens: int) -> None:
        self._stop, self._begun = threading.Event(), []

        def one() -> int:
            body = BODY | {"max_tokens": tokens, "ignore_eos": True}
            return fetch("POST", url + "/v1/completions", json=body, timeout=600).status_code

        def begin() -> None:
            while not self._stop.wait(1 / per_second):
                if sum(not request.done() for request in self._begun[-200:]) < self.MOST:
                    self._begun.append(world.inside.start(one))

        self._clock = threading.Thread(target=begin)
        self._clock.start()

    def stop(self) -> list[int]:
        """Begins no more requests, and returns the status of each."""
        self._stop.set()
        self._clock.join()
        return [request.result(660) for request in self._begun]


def replicas(world) -> int:
    return world.pm(NAME)["spec"].get("replicas", 1)


def wait_replicas(world, count: int, what: str, timeout: float = 400) -> float:
    """Returns the seconds until this number of replicas is wanted and ready, and no other one is there."""
    begin = time.monotonic()

    def there() -> bool:
        ready = world.pm(NAME)["status"].get("readyReplicas", 0)
        return replicas(world) == count == ready and len(world.pods(NAME)) == count

    world.cluster.wait_for(there, timeout, what)
    return time.monotonic() - begin


def scale_by_load(world, autoscaler: list[dict], most: int) -> None:
    """Under load, of which a replica can run two sequences at a time, the model gets `most` replicas, and one
    afterwards. The autoscaler is removed then."""
    world.cluster.apply(autoscaler)
    load = Requests(world, world.url(NAME), per_second=40, tokens=200)
    try:
        up = wait_replicas(world, most, "replicas under load")
    finally:
        codes = load.stop()
    assert set(codes) == {200}, codes
    down = wait_replicas(world, 1, "one replica without load")
    print(f"\n{len(codes)} requests, none failed; {most} replicas after {up:.1f} s, one {down:.1f} s after the end")
    for one in autoscaler:
        world.cluster.kubectl("delete", one["kind"], NAME, "-n", MODELS, "--wait=true")


def test_an_hpa_scales_by_the_queues_of_pods(world):
    scale_by_load(world, example("hpa.yaml", maxReplicas=2), most=2)


def test_keda_scales_by_the_queues_of_replicas_without_a_prometheus(world):
    scale_by_load(world, example("keda/scaledobject.yaml", maxReplicaCount=3), most=3)


def test_requests_at_zero_replicas_are_held_until_one_serves(world):
    world.cluster.apply(example("keda/scale-to-zero.yaml", cooldownPeriod=5))
    address = gateways.ready(world, "picker", MODELS).removeprefix("http://")

    def ask(timeout: float) -> int:
        """A request through the picker, as a gateway sends it."""
        endpoint = pick(address, BODY, timeout)
        return fetch("POST", f"http://{endpoint}/v1/completions", json=BODY).status_code

    world.cluster.wait_for(lambda: world.inside(ask, 60) == 200, 240, "the picker leads to the replica")
    wait_replicas(world, 0, "no replica without requests")
    begin = time.monotonic()
    held = [world.inside.start(ask, 400) for _ in range(10)]
    codes = [one.result(500) for one in held]
    assert codes == [200] * 10
    seconds = time.monotonic() - begin
    ready = [event for event in world.cluster.list("events", MODELS) if event["reason"] == "ReplicaReady"]
    print(f"\n10 requests held at zero replicas, answered after {seconds:.1f} s: {ready[-1]['message']}")
    wait_replicas(world, 0, "no replica again")
