# SPDX-License-Identifier: Apache-2.0
"""Invalid specs are rejected as early as possible, with a message that says what to do; other models are not
affected."""

import pytest
from cluster import ClusterError
from world import MODELS


def test_a_model_that_does_not_fit_is_refused_with_the_arithmetic_and_without_a_pod(world, name):
    world.apply(name, devices={"memory": "1Mi"})
    planned = world.wait_condition(name, "Planned", "False", "DoesNotFit")
    assert any(letter.isdigit() for letter in planned["message"]) and "iB" in planned["message"], planned
    assert world.condition(name, "Ready")["reason"] == "DoesNotFit"
    assert not world.cluster.list("pods", MODELS, f"parallelmodel.dev/name={name},parallelmodel.dev/replica")
    world.apply(name, devices={"memory": "2Gi"})
    world.wait_ready(name)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"name": "llama-3.1-8b"}, "llama-3-1-8b"),
        ({"name": "7b-chat"}, "7b-chat"),
        ({"count": 0}, "spec.devices.count"),
        ({"source": "s3://bucket/gpt2"}, "hf://ORG/NAME"),
        ({"source": "hf://org/name@v1"}, "model.revision"),
        ({"model": {"revision": "v1"}}, "set model.source to hf://ORG/NAME"),
        ({"source": "hf://org/name", "model": {"revision": "../x"}}, "model.revision must be"),
        (
            {"source": "hf://org/name", "model": {"cache": {"claimName": "mine", "size": "1Gi"}}},
            "model.cache.claimName names an existing PersistentVolumeClaim",
        ),
        ({"source": "hf://org/name", "model": {"cache": {"size": "much"}}}, "quantity"),
        ({"source": "pvc://models/../secrets"}, "path elements"),
        ({"source": "oci://registry.example.com/models:latest"}, "must name an image by its digest"),
        ({"source": f"oci://registry.example.com/models@sha256:{'A' * 64}"}, "must name an image by its digest"),
        ({"model": {"path": "stories"}}, "model.path applies only to a model in an image"),
        (
            {"source": f"oci://registry.example.com/models@sha256:{'0' * 64}", "model": {"path": "../etc"}},
            "model.path must be a relative path",
        ),
        ({"model": {"draft": {"source": "hf://org/small"}}}, "Download a draft model of the hub to a PVC"),
        (
            {"model": {"draft": {"source": "oci://registry.example.com/models:latest"}}},
            "model.draft.source must name an image by its digest",
        ),
        ({"model": {"draft": {"source": "pvc://models/../secrets"}}}, "model.draft.source must not contain"),
        (
            {"model": {"draft": {"source": "pvc://models/draft", "path": "draft"}}},
            "model.draft.path applies only to a draft model in an image",
        ),
        ({"model": {"draft": {"path": "draft"}}}, "spec.model.draft.source"),
        ({"serving": {"speculation": "DraftModel"}}, "set model.draft.source"),
        (
            {"model": {"draft": {"source": "pvc://models/draft"}}, "serving": {"speculation": "NGram"}},
            "remove one of them",
        ),
        (
            {"model": {"draft": {"source": "pvc://models/draft"}}, "serving": {"speculation": "MTP"}},
            "remove one of them",
        ),
        ({"scheduling": {"queuePriorityClassName": "high"}}, "set scheduling.queueName"),
        ({"scheduling": {"queueName": "Not A Queue"}}, "queueName must be"),
        ({"model": {"policyRef": {"name": "Not A Name"}}}, "model.policyRef.name must be"),
        ({"model": {"policyRef": {"name": "mine", "key": "a/b"}}}, "model.policyRef.key must be"),
        ({"model": {"policyRef": {"key": "a"}}}, "spec.model.policyRef.name"),
        ({"precision": "FP8"}, "spec.precision"),
        ({"kvPrecision": "F16"}, "spec.kvPrecision"),
        ({"devices": {"memory": "much"}}, "quantity"),
        ({"devices": {"type": "TPU"}}, "devices.type"),
        ({"replicas": -1}, "spec.replicas"),
    ],
    ids=lambda value: next(iter(value.items()))[0] if isinstance(value, dict) else "",
)
def test_a_bad_manifest_is_refused_by_the_api_server(world, change, says):
    change = {"name": "bad", **change}
    with pytest.raises(ClusterError) as refused:
        world.apply(**change)
    assert says in str(refused.value), refused.value
    assert not world.cluster.exists("pm", change["name"], MODELS)


def test_an_unknown_field_is_refused_by_strict_validation(world):
    with pytest.raises(ClusterError, match='unknown field "spec.devises"'):
        world.cluster.apply(world.manifest("bad", devises={"count": 2}), "--validate=strict")


@pytest.mark.parametrize(
    "folder, names", [("truncated", "model.safetensors"), ("misshapen", "transformer.h.0.ln_1.bias")]
)
def test_a_corrupt_checkpoint_is_named(world, name, folder, names):
    world.apply(name, source=f"pvc://models/{folder}")
    planned = world.wait_condition(name, "Planned", "False", "ModelUnreadable")
    assert names in planned["message"], planned
    world.apply(name)  # the intact one
    world.wait_ready(name)


def test_a_folder_without_a_model_is_named(world, name):
    world.apply(name, source="pvc://models/nowhere")
    planned = world.wait_condition(name, "Planned", "False", "ModelUnreadable")
    assert "nowhere" in planned["message"] or "config.json" in planned["message"], planned


def test_a_missing_pvc_is_named(world, name):
    world.apply(name, source="pvc://nothing/stories")
    planned = world.wait_condition(name, "Planned", "False", "ClaimNotFound")
    assert "nothing" in planned["message"], planned


def test_a_foreign_service_of_the_same_name_is_left_alone(world, name):
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": MODELS, "labels": {"owner": "somebody"}},
        "spec": {"selector": {"app": "somebody"}, "ports": [{"port": 80}]},
    }
    world.cluster.apply(foreign)
    before = world.cluster.get("service", name, MODELS)
    world.apply(name)
    stalled = world.wait_condition(name, "Stalled", "True", "NameConflict")
    assert name in stalled["message"] and "ervice" in stalled["message"], stalled
    assert world.cluster.get("service", name, MODELS) == before
    world.cluster.kubectl("delete", "service", name, "-n", MODELS)
    world.wait_ready(name)
    assert world.condition(name, "Stalled")["status"] == "False"


def test_too_few_devices_are_counted_and_other_models_keep_serving(world, name, stories, oracle):
    world.apply(name, count=6, devices={"resource": "nvidia.com/gpu", "memory": "1Gi"})
    scheduled = world.wait_condition(name, "Scheduled", "False", "InsufficientDevices")
    assert "needs 6" in scheduled["message"] and "free 4" in scheduled["message"], scheduled
    assert world.condition(name, "Planned")["status"] == "True"
    assert world.complete(stories, "The little dog") == oracle.greedy("The little dog")
    world.apply(name, count=2, devices={"resource": "nvidia.com/gpu", "memory": "1Gi"})
    world.wait_ready(name)


def test_gpus_of_unknown_memory_are_named_before_a_pod_is_made(world, name):
    world.apply(name, devices={"type": "GPU"})
    planned = world.wait_condition(name, "Planned", "False", "DeviceMemoryUnknown")
    assert "set spec.devices.memory" in planned["message"], planned


def test_a_resource_that_no_node_offers_is_named(world, name):
    world.apply(name, devices={"type": "GPU", "memory": "8Gi", "resource": "nvidia.com/mig-1g.5gb"})
    scheduled = world.wait_condition(name, "Scheduled", "False", "InsufficientDevices")
    assert (
        "needs 2 nvidia.com/mig-1g.5gb on one node, and no node that the spec admits offers it" in scheduled["message"]
    ), scheduled


def test_a_worker_without_cuda_on_a_node_that_says_it_has_gpus_says_so(world, name):
    """A cluster without GPUs: the pod is bound to fake GPUs and runs the CPU image."""
    world.apply(
        name,
        devices={"type": "GPU", "memory": "8Gi"},
        worker={"image": "localhost/parallelmodel-worker:test"},
        failure={"maxRestarts": 1, "backoffBaseSeconds": 1},
    )
    world.cluster.wait_for(
        lambda: world.pm(name)["status"].get("lastFailure", {}).get("reason") == "NoDevice",
        90,
        "lastFailure is NoDevice",
    )
    assert "--device cuda: this worker was built without it" in world.pm(name)["status"]["lastFailure"]["message"]
    world.wait_condition(name, "Stalled", "True", "RestartBudgetExhausted", timeout=90)
    world.apply(name)
    world.wait_ready(name)
