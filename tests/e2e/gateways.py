# SPDX-License-Identifier: Apache-2.0
"""Gateways and an endpoint picker of the field, in pods of the test cluster: Kthena's router reads InferencePools,
Traefik HTTPRoutes; the picker is that of the inference extension of the Gateway API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import extra, extra_source, is_built, tools_image
from workloads import account, account_binding, workload
from world import MODELS, World

NAMESPACE = "gateways"
IMAGE = "localhost/gateways:test"
PROGRAMS = ("kthena", "traefik", "epp")
PORTS = {"kthena": 8081, "traefik": 8082, "picker": 9002}  # 8080 is the port of Kthena without a Gateway
PICKER_METRICS = 9090
HOST = "chat.example.com"


def missing(programs: Sequence[str] = PROGRAMS) -> list[str]:
    """The programs that this machine has not built yet."""
    return [name for name in programs if not is_built(name)]


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


def picker(program: Path, pool: str, *arguments: str) -> list[dict[str, Any]]:
    """The endpoint picker of a pool, with its defaults but for TLS and these arguments."""
    return [
        *account(MODELS),
        *workload(
            "picker",
            namespace=MODELS,
            image=IMAGE,
            program=program,
            arguments=[
                f"--pool-name={pool}",
                f"--pool-namespace={MODELS}",
                f"--grpc-port={PORTS['picker']}",
                f"--metrics-port={PICKER_METRICS}",
                "--secure-serving=false",
                "--metrics-endpoint-auth=false",
                "--v=2",
                *arguments,
            ],
            ports=[PORTS["picker"], PICKER_METRICS],
        ),
    ]


@contextmanager
def defined(world: World) -> Iterator[None]:
    """Installs the CRDs, and removes them afterwards."""
    files = [argument for file in definitions() for argument in ("-f", str(file))]
    world.cluster.kubectl("apply", "--server-side", *files)
    try:
        world.cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *files)
        yield
    finally:
        world.cluster.kubectl("delete", "--wait=true", *files)


@contextmanager
def picking(world: World, pool: str, *arguments: str) -> Iterator[None]:
    """Runs the endpoint picker of the pool from the image, and removes it afterwards."""
    world.cluster.apply(picker(extra("epp"), pool, *arguments))
    try:
        yield
    finally:
        world.cluster.kubectl("delete", "deployment,service", "-n", MODELS, "picker", "--ignore-not-found")
        world.cluster.kubectl("delete", "clusterrolebinding", account_binding(MODELS))


def load(world: World, folder: Path, programs: Sequence[str] = PROGRAMS) -> dict[str, Path]:
    """Brings the image with the programs to the nodes, and returns their paths on this machine."""
    paths = {name: extra(name) for name in programs}
    world.cluster.load(tools_image(folder / "gateways.tar", map(str, paths.values()), IMAGE))
    return paths


@contextmanager
def running(world: World, folder: Path, pool: str) -> Iterator[None]:
    """Installs CRDs, gateways and the picker of the pool, and removes them afterwards."""
    programs = load(world, folder)
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
            namespace=NAMESPACE,
            image=IMAGE,
            program=programs["kthena"],
            arguments=[
                "--port=8080",
                "--enable-webhook=false",
                "--enable-gateway-api",
                "--enable-gateway-api-inference-extension",
            ],
            ports=[PORTS["kthena"]],
        ),
        *workload(
            "traefik",
            namespace=NAMESPACE,
            image=IMAGE,
            program=programs["traefik"],
            arguments=[
                f"--entrypoints.web.address=:{PORTS['traefik']}",
                "--providers.kubernetesgateway",
                "--providers.providersthrottleduration=100ms",
                "--global.checknewversion=false",
            ],
            ports=[PORTS["traefik"]],
        ),
    ]
    with defined(world), picking(world, pool):
        world.cluster.apply(objects)
        try:
            yield
        finally:
            world.cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")
            world.cluster.kubectl("delete", "clusterrolebinding", account_binding(NAMESPACE))


def ready(world: World, name: str, namespace: str = NAMESPACE) -> str:
    """Waits for a program's pod, and returns the URL of its port."""
    world.cluster.kubectl("rollout", "status", f"deployment/{name}", "-n", namespace, "--timeout=90s")
    address = world.cluster.get("service", name, namespace)["spec"]["clusterIP"]
    return f"http://{address}:{PORTS[name]}"


def pick(address: str, body: dict[str, Any], timeout: float = 20) -> str:
    """Asks the endpoint picker, as a gateway does, for the replica of a request; returns IP:PORT."""
    import grpc
    from envoy.config.core.v3 import base_pb2
    from envoy.service.ext_proc.v3 import external_processor_pb2 as messages
    from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as services

    headers = {":method": "POST", ":path": "/v1/completions", "content-type": "application/json", "x-request-id": "1"}
    values = [base_pb2.HeaderValue(key=key, raw_value=value.encode()) for key, value in headers.items()]
    parts = [
        messages.ProcessingRequest(
            request_headers=messages.HttpHeaders(headers=base_pb2.HeaderMap(headers=values), end_of_stream=False)
        ),
        messages.ProcessingRequest(request_body=messages.HttpBody(body=json.dumps(body).encode(), end_of_stream=True)),
    ]
    with grpc.insecure_channel(address) as channel:
        for reply in services.ExternalProcessorStub(channel).Process(iter(parts), timeout=timeout):
            for answer in (reply.request_headers, reply.request_body):
                for option in answer.response.header_mutation.set_headers:
                    if option.header.key == "x-gateway-destination-endpoint":
                        return option.header.raw_value.decode()
    raise AssertionError("the picker names no endpoint")
