# SPDX-License-Identifier: Apache-2.0
"""Models in OCI images (model.source oci://), on a cluster of its own whose nodes have a containerd with image volumes,
and a registry beside its control plane."""

import os
import re
import subprocess
import sys
import tarfile
import time

import pytest
from cluster import HERE, Cluster, extra, is_built
from conftest import install
from world import World

PROGRAMS = ("containerd", "containerd-shim", "crane")
REGISTRY = "10.99.0.1:5000"  # the nodes take plain HTTP from it
PROMPT = "Once upon a time"


def runtime(folder):
    """Returns a folder with the programs of containerd under the names that it knows."""
    folder.mkdir()
    (folder / "containerd").symlink_to(extra("containerd"))
    (folder / "containerd-shim-runc-v2").symlink_to(extra("containerd-shim"))
    return folder


@pytest.fixture(scope="module")
def registry_log(tmp_path_factory):
    return tmp_path_factory.mktemp("registry") / "log"


@pytest.fixture(scope="module")
def cluster_of_images(tmp_path_factory, images, registry_log):
    missing = [name for name in PROGRAMS if not is_built(name)]
    if missing and "PM_INTEGRATIONS" not in os.environ:
        pytest.skip(f"{missing} are not built on this machine yet: make integrations")
    crane = extra("crane")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PM_CLUSTER", raising=False)  # a cluster that is kept has another runtime
        settings = {"RUNTIME": str(runtime(tmp_path_factory.mktemp("runtime") / "bin"))}
        with Cluster.up("oci", nodes=2, images=images, environment=settings) as cluster, registry_log.open("w") as log:
            store = tmp_path_factory.mktemp("store")
            command = cluster.command(str(crane), "registry", "serve", "--address", REGISTRY, "--disk", str(store))
            registry = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                ready = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://{REGISTRY}/v2/")
                cluster.wait_for(lambda: cluster.exec(*ready, check=False) == "200", 30, "the registry answers")
                install(cluster, [])
                yield World(cluster)
            finally:
                registry.terminate()
                registry.wait()


@pytest.fixture(scope="module")
def reference(cluster_of_images, models, tmp_path_factory):
    """Returns the digest reference of an image with the folder `stories`."""
    folder = tmp_path_factory.mktemp("layout")
    layer = folder / "layer"
    layer.mkdir()
    (layer / "stories").symlink_to(models / "stories")
    archive, layout = folder / "model.tar", folder / "layout"
    with tarfile.open(folder / "layer.tar", "w", dereference=True) as tar:
        tar.add(layer / "stories", "stories")
    command = [HERE / "oci.py", "localhost/stories:1", archive, "--layer", folder / "layer.tar"]
    subprocess.run([sys.executable, *command], check=True)
    with tarfile.open(archive) as tar:
        tar.extractall(layout, filter="data")
    world = cluster_of_images
    pushed = world.cluster.exec(str(extra("crane")), "push", "--insecure", str(layout), f"{REGISTRY}/models:stories")
    return re.search(rf"{REGISTRY}/models@sha256:[0-9a-f]{{64}}", pushed)[0]


def pulls(log) -> int:
    """Counts the blobs that nodes have read."""
    return len(re.findall(r"GET /v2/models/blobs/sha256", log.read_text()))


def test_each_node_pulls_a_model_once_and_serves_it_without_a_copy(cluster_of_images, reference, registry_log, oracle):
    world = cluster_of_images
    spec = {"model": {"path": "stories"}, "devices": {"perNode": 1}, "resources": {"cpu": "50m", "memory": "1Gi"}}
    world.apply("packed", source=f"oci://{reference}", count=2, **spec)
    status = world.wait_ready("packed")["status"]
    assert status["plan"]["revision"] == reference.split("@")[1]
    assert world.wait_answer("packed", PROMPT) == oracle.greedy(PROMPT)
    pods = world.pods("packed")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    for pod in pods:
        volume = next(one for one in pod["spec"]["volumes"] if one["name"] == "model")
        assert volume["image"] == {"reference": reference, "pullPolicy": "IfNotPresent"}
        assert not [one for one in pod["spec"]["volumes"] if "persistentVolumeClaim" in one]
    # config and layer, on two nodes; the pod that inspects the model ran on one of them
    assert pulls(registry_log) == 4
    world.cluster.kubectl("annotate", "pm", "packed", "-n", "models", f"parallelmodel.dev/restarted-at={time.time()}")
    before = {pod["metadata"]["uid"] for pod in pods}

    def replaced():
        return not before & {pod["metadata"]["uid"] for pod in world.pods("packed")}

    world.cluster.wait_for(replaced, 90, "new pods")
    world.wait_ready("packed")
    assert world.wait_answer("packed", PROMPT) == oracle.greedy(PROMPT)
    assert pulls(registry_log) == 4, "nothing is pulled twice"
    world.delete("packed")


def test_an_image_that_there_is_not_and_a_folder_that_it_lacks_are_reported(cluster_of_images, reference):
    world = cluster_of_images
    absent = reference.split("@")[0] + "@sha256:" + "0" * 64
    world.apply("absent", source=f"oci://{absent}", count=1)
    condition = world.wait_condition("absent", "Scheduled", "False", "ImagePullFailed", timeout=120)
    assert "0" * 64 in condition["message"]
    world.delete("absent")
    world.apply("elsewhere", source=f"oci://{reference}", count=1, model={"path": "tales"})
    condition = world.wait_condition("elsewhere", "Planned", "False", timeout=120)
    world.cluster.wait_for(
        lambda: "/model/tales" in world.condition("elsewhere", "Planned")["message"], 60, "the folder in the message"
    )
    world.delete("elsewhere")
