# SPDX-License-Identifier: Apache-2.0
"""Tests a private model on a hub: it is planned from its headers, downloaded to a PVC with the progress in status,
served, and reused by a new object of the same name."""

import base64
import os
import re
import shutil
import signal
import sys

import pytest
from conftest import CHECKPOINT, ROOT
from world import MODELS

sys.path.append(str(ROOT / "tests" / "hub"))

from faulty_hub import Fault, Hub  # noqa: E402

TOKEN = "hf_onlyforthehub"
PROMPT = "Once upon a time"
ADDRESS = "10.99.0.1"  # of the control plane: pods reach it


@pytest.fixture(scope="module")
def hub(world):
    """Listens in the network of the cluster."""
    server = world.inside(Hub, ADDRESS)
    server.add("org/stories", CHECKPOINT, token=TOKEN)
    yield server
    server.close()


@pytest.fixture
def cache(world, name, tmp_path_factory):
    """A volume that only the PVC NAME-cache binds, with group write permission, and the Secret with the token."""
    folder = tmp_path_factory.mktemp("cache")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    folder.chmod(0o777)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "hub", "namespace": MODELS},
        "data": {"token": base64.b64encode(TOKEN.encode()).decode()},
    }
    world.cluster.apply(
        [
            secret,
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"{name}-cache"},
                "spec": {
                    "capacity": {"storage": "1Ti"},
                    "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                    "hostPath": {"path": str(folder)},
                    "storageClassName": "",
                    "persistentVolumeReclaimPolicy": "Retain",
                    "claimRef": {"namespace": MODELS, "name": f"{name}-cache"},
                },
            },
        ]
    )
    yield folder
    world.delete(name)
    world.cluster.kubectl("delete", "pvc", f"{name}-cache", "-n", MODELS, "--ignore-not-found", "--wait=true")
    world.cluster.kubectl("delete", "pv", f"{name}-cache", "--ignore-not-found", "--wait=true")
    world.cluster.kubectl("delete", "secret", "hub", "-n", MODELS, "--ignore-not-found")
    shutil.rmtree(folder, ignore_errors=True)


def spec(hub: Hub, **model: object) -> dict:
    return {
        "source": "hf://org/stories",
        "model": {"tokenSecretRef": {"name": "hub"}, **model},
        "worker": {"env": [{"name": "HF_ENDPOINT", "value": hub.url}]},
    }


def test_a_private_model_is_planned_fetched_and_served(world, oracle, hub, cache, name):
    hub.bytes_per_second = 3e5
    world.apply(name, **spec(hub))
    said = set()

    def planned_with_bytes() -> bool:
        condition = world.condition(name, "ModelLoaded")
        if condition.get("reason") == "Fetching" and " of " in condition["message"]:
            said.add(condition["message"])
        timed = re.compile(r"[\d.]+ [KM]iB of [\d.]+ MiB, [\d.]+ KiB/s, \d+ s left")
        return len(said) >= 2 and any(map(timed.search, said))

    world.cluster.wait_for(planned_with_bytes, 90, "bytes in status")
    status = world.pm(name)["status"]
    commit = hub.models["org/stories"].commit
    assert status["plan"]["revision"] == commit and world.condition(name, "Planned")["status"] == "True", (
        "the plan is there before the bytes"
    )
    assert not world.pods(name), "and no replica yet"
    assert world.condition(name, "Ready")["reason"] == "Fetching"
    hub.bytes_per_second = 0
    world.wait_ready(name)
    world.cluster.wait_for(lambda: "startup" in world.pm(name)["status"], 30, "the times of the start in status")
    status = world.pm(name)["status"]
    stages = status["replicaStatuses"][0]["startupSeconds"]
    assert stages["total"] == pytest.approx(sum(stages.values()) / 2) and 0 <= stages["loaded"] <= stages["total"], (
        stages
    )
    assert status["fetchSeconds"] >= 2, "at least two messages of the download were seen"
    columns = world.cluster.kubectl("get", "pm", name, "-n", MODELS, "-o", "wide").splitlines()
    assert "STARTUP" in columns[0] and status["startup"] in columns[1], columns
    selector = f"involvedObject.kind=ParallelModel,involvedObject.name={name},reason=Fetched"
    events = world.cluster.kubectl("get", "events", "-n", MODELS, "--field-selector", selector)
    assert "the checkpoint is on the volume" in events, events
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)
    weights = (CHECKPOINT / "model.safetensors").stat().st_size
    assert weights <= hub.sent("cdn", "model.safetensors") <= weights + (1 << 20), "once, but for the headers"
    assert not [request for request in hub.requests if request.host == "cdn" and "authorization" in request.headers]
    assert (cache / "models--org--stories" / "snapshots" / commit / "config.json").exists()
    mounts = world.pod(name)["spec"]["volumes"]
    assert not [volume for volume in mounts if volume["name"] == "hub-token"], "workers need no token"
    claim = world.cluster.get("persistentvolumeclaim", f"{name}-cache", MODELS)
    assert "ownerReferences" not in claim["metadata"]

    world.delete(name)
    hub.requests.clear()
    world.apply(name, **spec(hub))
    world.wait_ready(name)
    assert hub.sent("cdn", "model.safetensors") <= 1 << 20, "the claim outlived its model"
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)


def test_a_replica_over_two_nodes_downloads_once_to_a_shared_pvc(world, oracle, hub, cache, name):
    hub.requests.clear()
    world.apply(name, count=2, devices={"perNode": 1}, **spec(hub))
    [replica] = world.wait_ready(name, timeout=150)["status"]["replicaStatuses"]
    assert world.cluster.get("persistentvolumeclaim", f"{name}-cache", MODELS)["spec"]["accessModes"] == [
        "ReadWriteMany"
    ]
    assert len(world.pods(name)) == 2 and len(set(replica["nodes"])) == 2, replica
    weights = (CHECKPOINT / "model.safetensors").stat().st_size
    assert weights <= hub.sent("cdn", "model.safetensors") <= weights + (1 << 20), "once, but for the headers"
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)


def test_a_failing_hub_is_reported_and_retried(world, oracle, hub, cache, name):
    hub.faults.append(Fault("model.safetensors", cut_after=200_000, times=3))  # too short for what inspection reads
    hub.faults.append(Fault("/resolve/", host="hub", status=503, times=3))
    world.apply(name, **spec(hub))
    world.wait_ready(name)
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)


def test_a_killed_fetch_pod_resumes_the_download(world, oracle, hub, cache, name):
    hub.requests.clear()
    hub.bytes_per_second = 5e5
    world.apply(name, **spec(hub))
    weights = (CHECKPOINT / "model.safetensors").stat().st_size
    world.cluster.wait_for(lambda: hub.sent("cdn", "model.safetensors") > weights // 3, 120, "a third is there")
    pod = world.cluster.get("pod", f"{name}-fetch", MODELS)
    os.kill(world.process(pod, "fetch", "--model"), signal.SIGKILL)
    world.cluster.wait_for(
        lambda: "it goes on at" in world.condition(name, "ModelLoaded").get("message", ""),
        30,
        "the end of the fetch is told",
    )
    assert world.condition(name, "ModelLoaded")["reason"] == "Fetching", "and no fault of anybody's"
    hub.bytes_per_second = 0
    world.wait_ready(name)
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)
    assert hub.sent("cdn", "model.safetensors") <= weights + (2 << 20), "the first third was not sent again"


@pytest.mark.parametrize(
    "change, reason, words",
    [
        ({"tokenSecretRef": None}, "AuthFailed", "tokenSecretRef"),
        ({"revision": "v9"}, "RevisionNotFound", "v9"),
        ({"cache": {"claimName": "nowhere"}}, "ClaimNotFound", "nowhere"),
    ],
)
def test_a_rejection_by_the_hub_is_reported_in_planned(world, hub, cache, name, change, reason, words):
    wanted = spec(hub)
    wanted["model"] = {key: value for key, value in (wanted["model"] | change).items() if value is not None}
    world.apply(name, **wanted)
    assert words in world.wait_condition(name, "Planned", "False", reason)["message"]
    assert not world.pods(name) and not world.cluster.exists("persistentvolumeclaim", f"{name}-cache", MODELS)
