# SPDX-License-Identifier: Apache-2.0
"""Defines the same work for both controllers: a number of groups of pods on KWOK's nodes. A peer says how its
objects are made, when they are done, and where its process is.
"""

from __future__ import annotations

from kwok import NODE_LABEL, NS

TOLERATES = [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]


class ParallelModels:
    name, path, process = (
        "parallelmodel-controller",
        f"/apis/parallelmodel.dev/v1alpha1/namespaces/{NS}/parallelmodels",
        "/usr/bin/parallelmodel-controller",
    )
    user, helpers = "system:serviceaccount:parallelmodel-system:parallelmodel", ()
    owner_label, resource, deployment = (
        "parallelmodel.dev/name",
        "parallelmodels",
        "parallelmodel-system/deployments/parallelmodel",
    )

    def manifest(self, name: str, replicas: int, size: int) -> dict:
        devices = {"count": size, "type": "CPU", "memory": "1Gi"}
        return {
            "apiVersion": "parallelmodel.dev/v1alpha1",
            "kind": "ParallelModel",
            "metadata": {"name": name, "namespace": NS},
            "spec": {
                "model": {"source": "pvc://models/stories"},
                "devices": {**devices, **({"perNode": 1} if size > 1 else {})},
                "replicas": replicas,
                "resources": {"cpu": "100m", "memory": "1Gi"},
                "scheduling": {"nodeSelector": NODE_LABEL, "tolerations": TOLERATES},
            },
        }

    def done(self, item: dict, replicas: int) -> bool:
        status = item.get("status", {})
        conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
        return (
            status.get("observedGeneration") == item["metadata"]["generation"]
            and status.get("readyReplicas") == replicas
            and conditions.get("Reconciling") == "False"
        )


class LeaderWorkerSets:
    name, path, process = (
        "LeaderWorkerSet 0.9.0",
        f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{NS}/leaderworkersets",
        "/usr/bin/manager",
    )
    user, helpers = (
        "system:serviceaccount:lws-system:lws-controller-manager",
        ("system:serviceaccount:kube-system:statefulset-controller",),
    )
    owner_label, resource, deployment = (
        "leaderworkerset.sigs.k8s.io/name",
        "leaderworkersets",
        "lws-system/deployments/lws-controller-manager",
    )

    def manifest(self, name: str, replicas: int, size: int) -> dict:
        container = {
            "name": "worker",
            "image": "worker:1",
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        }
        template = {"spec": {"containers": [container], "nodeSelector": NODE_LABEL, "tolerations": TOLERATES}}
        return {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": name, "namespace": NS},
            "spec": {
                "replicas": replicas,
                "leaderWorkerTemplate": {
                    "size": size,
                    "restartPolicy": "RecreateGroupOnPodRestart",
                    "workerTemplate": template,
                },
            },
        }

    def done(self, item: dict, replicas: int) -> bool:
        status = item.get("status", {})
        conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
        return (
            status.get("readyReplicas") == replicas
            and status.get("replicas") == replicas
            and conditions.get("Available") == "True"
        )
