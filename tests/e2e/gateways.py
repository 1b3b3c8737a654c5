# SPDX-License-Identifier: Apache-2.0
"""Gateways and an endpoint picker of the field, in pods of the test cluster: Kthena's router reads InferencePools,
Traefik HTTPRoutes; the picker is that of the inference extension of the Gateway API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import extra, extra_source, is_built, tools_image
from world import MODELS, World

NAMESPACE = "gateways"
IMAGE = "localhost/gateways:test"
PROGRAMS = ("kthena", "traefik", "epp")
PORTS = {"kthena": 8081, "traefik": 8082, "picker": 9002}  # 8080 is the port of Kthena without a Gateway
HOST = "chat.example.com"


def missing() -> list[str]:
    """The programs that this machine has not built yet."""
    return [name for name in PROGRAMS if not is_built(name)]


def definitions() -> list[Path]:
    """The CRDs that the three programs read."""
    standard = extra_source("kthena", "sigs.k8s.io/gateway-api") / "config" / "crd" / "standard"
    inference = extra_source("epp") / "config" / "crd" / "bases"
    kthena = extra_source("kthena") / "charts" / "kthena" / "charts" / "networking" / "crds"
    return [file for folder in (standard, inference, kthena) for file in sorted(folder.glob("*.yaml"))]


# which of a model's replicas Kthena's router prefers: the one with the shortest queue
KTHENA = """
scheduler:
  pluginConfig:
  - {name: least-request, args: {maxWaitingRequests: 1000}}
  plugins:
    Filter: {enabled: [least-request], disabled: []}
    Score: {enabled: [{name: least-request, weight: 1}]}
"""


def workload(name: str, namespace: str, program: Path, *arguments: str) -> list[dict[str, Any]]:
    """A pod of the program behind a Service with its port, with the ConfigMap `name` as /etc/config."""
    labels, port = {"app": name}, PORTS[name]
    container = {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": [f"/usr/bin/{program.name}"],
        "args": list(arguments),
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [{"containerPort": port}],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}],
    }
    volumes = [{"name": "config", "configMap": {"name": name, "optional": True}}]
    pod = {"serviceAccountName": "gateways", "containers": [container], "volumes": volumes}
    template = {"metadata": {"labels": labels}, "spec": pod}
    at = {"name": name, "namespace": namespace}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": at,
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": at,
            "spec": {"selector": labels, "ports": [{"port": port}]},
        },
    ]


def account(namespace: str) -> list[dict[str, Any]]:
    """A ServiceAccount that may do everything: what these programs may do is not tested here."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "gateways", "namespace": namespace}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"gateways-{namespace}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "gateways", "namespace": namespace}],
        },
    ]


def gateway(name: str, class_name: str) -> dict[str, Any]:
    """A Gateway that takes routes of all namespaces."""
    listener = {
        "name": "web",
        "protocol": "HTTP",
        "port": PORTS[name],
        "allowedRoutes": {"namespaces": {"from": "All"}},
    }
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"gatewayClassName": class_name, "listeners": [listener]},
    }


def model_server(name: str) -> dict[str, Any]:
    """Kthena's object that makes its router read the metrics of a model's pods, by vLLM's names."""
    labels = {
        "parallelmodel.dev/name": name,
        "parallelmodel.dev/role": "worker",
        "parallelmodel.dev/node-rank": "0",
    }
    return {
        "apiVersion": "networking.serving.volcano.sh/v1alpha1",
        "kind": "ModelServer",
        "metadata": {"name": name, "namespace": MODELS},
        "spec": {
            "workloadSelector": {"matchLabels": labels},
            "workloadPort": {"port": 8000},
            "model": "chat",
            "inferenceEngine": "vLLM",
            "trafficPolicy": {"timeout": "60s"},
        },
    }


def picker(program: Path, pool: str) -> list[dict[str, Any]]:
    """The endpoint picker of a pool, with its defaults but for TLS."""
    return [
        *account(MODELS),
        *workload(
            "picker",
            MODELS,
            program,
            f"--pool-name={pool}",
            f"--pool-namespace={MODELS}",
            "--grpc-port=9002",
            "--secure-serving=false",
            "--metrics-endpoint-auth=false",
            "--v=2",
        ),
    ]


@contextmanager
def running(world: World, folder: Path, pool: str) -> Iterator[None]:
    """Installs CRDs, gateways and the picker of the pool, and removes them afterwards."""
    programs = {name: extra(name) for name in PROGRAMS}
    world.cluster.load(tools_image(folder / "gateways.tar", map(str, programs.values()), IMAGE))
    files = [argument for file in definitions() for argument in ("-f", str(file))]
    world.cluster.kubectl("apply", "--server-side", *files)
    world.cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *files)
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *account(NAMESPACE),
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": "traefik"},
            "spec": {"controllerName": "traefik.io/gateway-controller"},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kthena", "namespace": NAMESPACE},
            "data": {"routerConfiguration.yaml": KTHENA},
        },
        gateway("kthena", "kthena-router"),
        gateway("traefik", "traefik"),
        *workload(
            "kthena",
            NAMESPACE,
            programs["kthena"],
            "--port=8080",
            "--enable-webhook=false",
            "--enable-gateway-api",
            "--enable-gateway-api-inference-extension",
        ),
        *workload(
            "traefik",
            NAMESPACE,
            programs["traefik"],
            f"--entrypoints.web.address=:{PORTS['traefik']}",
            "--providers.kubernetesgateway",
            "--providers.providersthrottleduration=100ms",
            "--global.checknewversion=false",
        ),
    ]
    world.cluster.apply(objects)
    world.cluster.apply(picker(programs["epp"], pool))
    try:
        yield
    finally:
        world.cluster.kubectl("delete", "deployment,service", "-n", MODELS, "picker", "--ignore-not-found")
        world.cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")
        world.cluster.kubectl("delete", "clusterrolebinding", f"gateways-{NAMESPACE}", f"gateways-{MODELS}")
        world.cluster.kubectl("delete", "--wait=true", *files)


def ready(world: World, name: str, namespace: str = NAMESPACE) -> str:
    """Waits for a program's pod, and returns the URL of its port."""
    world.cluster.kubectl("rollout", "status", f"deployment/{name}", "-n", namespace, "--timeout=90s")
    address = world.cluster.get("service", name, namespace)["spec"]["clusterIP"]
    return f"http://{address}:{PORTS[name]}"
