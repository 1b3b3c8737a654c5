# SPDX-License-Identifier: Apache-2.0
"""Kueue in the test cluster, from its own chart: a ClusterQueue with a quota, and two priorities."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import extra, extra_source, is_built, tools_image
from world import MODELS, World

NAMESPACE = "kueue-system"
IMAGE = "localhost/kueue"
PROGRAM = "kueue"
QUEUE = "team"
API = "kueue.x-k8s.io/v1beta2"

CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: ":8443"}
webhook: {port: 9443}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: true}
integrations: {frameworks: [pod]}
"""


def missing() -> bool:
    """Says whether this machine has still to build Kueue."""
    return not is_built(PROGRAM)


def objects(cpu: str) -> list[dict]:
    """A queue with a quota of CPU, whose workloads of higher priority preempt those of lower."""
    quota = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "100Gi"}]
    return [
        {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {
            "apiVersion": API,
            "kind": "ClusterQueue",
            "metadata": {"name": "models"},
            "spec": {
                "namespaceSelector": {},
                "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [
                    {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "any", "resources": quota}]}
                ],
            },
        },
        {
            "apiVersion": API,
            "kind": "LocalQueue",
            "metadata": {"name": QUEUE, "namespace": MODELS},
            "spec": {"clusterQueue": "models"},
        },
        *(
            {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
            for name, value in (("usual", 10), ("urgent", 100))
        ),
    ]


def workloads(world: World) -> list[str]:
    return [one["metadata"]["name"] for one in world.cluster.list("workloads.kueue.x-k8s.io", MODELS)]


@contextmanager
def running(world: World, folder: Path, cpu: str) -> Iterator[None]:
    """Installs Kueue with a queue, and removes both afterwards."""
    program, chart = extra(PROGRAM), extra_source(PROGRAM) / "charts" / "kueue"
    world.cluster.load(tools_image(folder / "kueue.tar", [str(program)], f"{IMAGE}:test"))
    values = {
        "controllerManager": {
            "manager": {
                "image": {"repository": IMAGE, "tag": "test", "pullPolicy": "Never"},
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
            },
        },
        "managerConfig": {"controllerManagerConfigYaml": CONFIGURATION},
    }
    file = folder / "values.yaml"
    file.write_text(json.dumps(values))
    # the chart starts /manager, the image has another path
    world.cluster.helm("install", "kueue", str(chart), "-n", NAMESPACE, "--create-namespace", "-f", str(file))
    path = "/spec/template/spec/containers/0/command"
    patch = [{"op": "replace", "path": path, "value": [f"/usr/bin/{program.name}"]}]
    world.cluster.kubectl(
        "patch",
        "deployment/kueue-controller-manager",
        "-n",
        NAMESPACE,
        "--type=json",
        "-p",
        json.dumps(patch),
    )
    try:
        world.take_certificates(NAMESPACE)
        world.cluster.kubectl(
            "rollout", "status", "deployment/kueue-controller-manager", "-n", NAMESPACE, "--timeout=120s"
        )
        # its webhooks answer once it has made their certificates
        world.cluster.wait_for(lambda: world.cluster.apply(objects(cpu), "--server-side"), 60, "Kueue takes a queue")
        yield
    finally:
        for pm in world.cluster.list("pm", MODELS):  # a test that failed leaves some, which would hold the queue
            if "queueName" in pm["spec"].get("scheduling", {}):
                world.delete(pm["metadata"]["name"])
        for kind in ("localqueue", "clusterqueue", "resourceflavor", "workloadpriorityclass"):
            world.cluster.kubectl("delete", kind, "--all", "-n", MODELS, "--wait=true", check=False)
        world.cluster.helm("uninstall", "kueue", "-n", NAMESPACE, "--wait")
        world.cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")
        found = world.cluster.kubectl("get", "crd", "-o", "name").split()
        ours = [name for name in found if name.endswith("kueue.x-k8s.io")]
        world.cluster.kubectl("delete", *ours, "--wait=true", check=False)
