# SPDX-License-Identifier: Apache-2.0
"""Installs and upgrades from the folders of two releases alone, on a Kubernetes whose nodes pull from a registry in its
network. The tests are the steps of one story and run in this order; each prints its seconds (-s)."""

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
import requests
from cluster import Cluster
from conftest import FORMER, REGISTRY, ROOT

sys.path.append(str(ROOT / "tests" / "e2e"))

from world import MODELS, SYSTEM, World, fetch, namespace, volume  # noqa: E402

os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"  # a proxy of the machine cannot reach the cluster
CHART = f"oci://{REGISTRY}/charts/parallelmodel"
PLAIN = ["-n", SYSTEM, "--plain-http"]
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def world(tmp_path_factory, crane, release, former):
    """Provides a cluster that has no image of ours, a registry beside its control plane with both releases, and a
    volume with the example checkpoint."""
    folder = tmp_path_factory.mktemp("install")
    (folder / "models").mkdir()
    shutil.copytree(ROOT / "examples" / "tiny-stories", folder / "models" / "stories")
    for parent in (folder / "models", folder, folder.parent):
        parent.chmod(0o755)  # the worker's user 65532 has to read it
    (folder / "store").mkdir()
    with Cluster.up("release") as cluster:
        address = REGISTRY.partition("/")[0]
        command = cluster.command(
            str(crane), "registry", "serve", "--address", address, "--disk", str(folder / "store")
        )
        with (folder / "registry.log").open("w") as log:
            registry = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            ready = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://{address}/v2/"]
            cluster.wait_for(lambda: cluster.exec(*ready, check=False) == "200", 30, "the registry answers")
            for made in (former, release):
                cluster.exec("env", f"PUSH_WITH={crane}", str(made / "push.sh"), "--plain-http", REGISTRY)
            cluster.apply([namespace(SYSTEM), namespace(MODELS), *volume(folder / "models")])
            yield World(cluster)
        finally:
            registry.terminate()
            registry.wait()


@pytest.fixture(autouse=True)
def seconds(request):
    begin = time.monotonic()
    yield
    print(f"\n{request.node.name}: {time.monotonic() - begin:.1f} s")


class Asking:
    """Asks a model without a pause from a thread of its own; `failed` has the reason of each request that failed."""

    def __init__(self, world, name):
        self.failed, self.answers, self._end = [], set(), threading.Event()
        self._done = world.inside.start(self._run, world.url(name), name)

    def _run(self, url, name):
        while not self._end.is_set():
            body = {"model": name, "prompt": PROMPT, "max_tokens": 8, "temperature": 0}
            try:
                reply = fetch("POST", url + "/v1/completions", json=body)
                if reply.status_code == 200:
                    self.answers.add(reply.json()["choices"][0]["text"])
                else:
                    self.failed.append(reply.text)
            except requests.RequestException as error:
                self.failed.append(str(error))

    def stop(self):
        """Ends the thread; one answer and no failure are expected."""
        self._end.set()
        self._done.result(60)
        assert not self.failed and len(self.answers) == 1, (self.failed, self.answers)


def image_of(pod):
    return pod["spec"]["containers"][0]["image"]


def controller_images(world):
    pods = world.cluster.list("pods", SYSTEM, "app.kubernetes.io/component=controller")
    return {image_of(pod) for pod in pods if "deletionTimestamp" not in pod["metadata"]}


def image(artefacts, folder, name):
    """Returns how an image of a release is pulled."""
    return f"{REGISTRY}/{name}@{artefacts(folder)[name][1]}"


def wait_for_controller(world, expected):
    world.cluster.kubectl("rollout", "status", "deployment/parallelmodel", "-n", SYSTEM, "--timeout=120s")
    world.cluster.wait_for(lambda: controller_images(world) == {expected}, 60, f"the controller runs {expected}")


def test_the_former_release_is_installed_by_its_chart_in_the_registry(world, former, artefacts):
    arguments = ["--version", FORMER, "--wait", "--timeout", "180s"]
    world.cluster.helm("install", "parallelmodel", CHART, *PLAIN, *arguments)
    wait_for_controller(world, image(artefacts, former, "parallelmodel-controller"))
    world.apply("old")
    world.wait_ready("old", timeout=240)
    assert image_of(world.pod("old")) == image(artefacts, former, "parallelmodel-worker")
    assert world.complete("old", PROMPT)


def test_an_upgrade_replaces_the_controller_and_no_replica(world, former, release, artefacts):
    asking, before = Asking(world, "old"), world.pod("old")["metadata"]["uid"]
    world.cluster.helm("upgrade", "parallelmodel", CHART, *PLAIN, "--wait", "--timeout", "180s")
    wait_for_controller(world, image(artefacts, release, "parallelmodel-controller"))
    world.apply("new")
    world.wait_ready("new", timeout=240)
    assert image_of(world.pod("new")) == image(artefacts, release, "parallelmodel-worker")
    assert world.pod("old")["metadata"]["uid"] == before
    asking.stop()
    assert world.complete("new", PROMPT) == world.complete("old", PROMPT)


def test_a_roll_back_has_the_former_controller_again(world, former, artefacts):
    asking = Asking(world, "old")
    world.cluster.helm("rollback", "parallelmodel", "1", "-n", SYSTEM, "--wait", "--timeout", "180s")
    wait_for_controller(world, image(artefacts, former, "parallelmodel-controller"))
    world.delete("new")
    world.wait_ready("old")
    asking.stop()


def test_an_uninstall_leaves_models_and_their_pods(world):
    asking = Asking(world, "old")
    world.cluster.helm("uninstall", "parallelmodel", "-n", SYSTEM, "--wait")
    world.cluster.wait_for(lambda: not world.cluster.list("pods", SYSTEM), 60, "the controller's pods are gone")
    assert world.pm("old")["spec"]["devices"]["count"] == 2
    assert world.cluster.exists("crd", "parallelmodels.parallelmodel.dev")
    asking.stop()


def test_install_yaml_takes_over_and_differs_in_nothing(world, release, artefacts):
    asking, before = Asking(world, "old"), world.pod("old")["metadata"]["uid"]
    manifest = str(release / "install.yaml")
    world.cluster.kubectl("apply", "--server-side", "-f", manifest)
    wait_for_controller(world, image(artefacts, release, "parallelmodel-controller"))
    assert world.cluster.kubectl("diff", "--server-side", "-f", manifest) == ""
    world.cluster.kubectl("patch", "pm", "old", "-n", MODELS, "--type=merge", "-p", '{"spec": {"replicas": 2}}')
    world.cluster.wait_for(lambda: len(world.pods("old")) == 2, 60, "the new controller adds a replica")
    world.wait_ready("old", timeout=240)
    assert before in {pod["metadata"]["uid"] for pod in world.pods("old")}
    asking.stop()


def test_the_folder_alone_can_be_removed_again(world, release):
    world.delete("old")
    world.cluster.kubectl("delete", "-f", str(release / "install.yaml"), "--wait=true")
    assert not world.cluster.exists("crd", "parallelmodels.parallelmodel.dev")
