# SPDX-License-Identifier: Apache-2.0
"""Programs of the field as pods of the test cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def account(namespace: str) -> list[dict[str, Any]]:
    """A ServiceAccount that may do everything: what these programs may do is not tested here."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "programs", "namespace": namespace}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": account_binding(namespace)},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "programs", "namespace": namespace}],
        },
    ]


def account_binding(namespace: str) -> str:
    return f"programs-{namespace}"


def workload(
    name: str, *, namespace: str, image: str, program: Path, arguments: Sequence[str], ports: Sequence[int]
) -> list[dict[str, Any]]:
    """A pod of the program behind a Service with its ports, of which the first is open once it is ready, with the
    ConfigMap `name` as /etc/config, and the account of the namespace."""
    labels = {"app": name}
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "command": [f"/usr/bin/{program.name}"],
        "args": list(arguments),
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [{"containerPort": port} for port in ports],
        "readinessProbe": {"tcpSocket": {"port": ports[0]}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}, {"name": "scratch", "mountPath": "/tmp"}],
    }
    volumes = [
        {"name": "config", "configMap": {"name": name, "optional": True}},
        {"name": "scratch", "emptyDir": {}},
    ]
    pod = {"serviceAccountName": "programs", "containers": [container], "volumes": volumes}
    at = {"name": name, "namespace": namespace}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": at,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": at,
            "spec": {"selector": labels, "ports": [{"name": f"p{port}", "port": port} for port in ports]},
        },
    ]
