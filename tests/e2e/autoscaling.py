# SPDX-License-Identifier: Apache-2.0
"""What makes HorizontalPodAutoscalers work in the test cluster. KEDA, from its own manifests: an operator that reads
triggers and starts the first replica, and an API server of external metrics. Prometheus with prometheus-adapter: an API
server of the metrics of pods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from cluster import extra, extra_source, is_built, tools_image
from workloads import account, account_binding, workload
from world import MODELS, World

KEDA = "keda"
KEDA_IMAGE = "localhost/keda:test"
KEDA_PROGRAMS = {"keda-operator": "keda", "keda-metrics-apiserver": "keda-adapter"}  # of each Deployment

MONITORING = "monitoring"
MONITORING_IMAGE = "localhost/monitoring:test"
ADAPTER = "prometheus-adapter"
CUSTOM_METRICS = "v1beta1.custom.metrics.k8s.io"
VALUES = Path(__file__).resolve().parents[2] / "examples" / "prometheus-adapter" / "values.yaml"
PROMETHEUS = """
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: models
  kubernetes_sd_configs:
  - {role: pod, namespaces: {names: [%s]}}
  relabel_configs:
  - {source_labels: [__meta_kubernetes_pod_container_port_name], regex: http, action: keep}
  - {source_labels: [__meta_kubernetes_namespace], target_label: namespace}
  - {source_labels: [__meta_kubernetes_pod_name], target_label: pod}
"""


def missing() -> list[str]:
    """The programs that this machine has not built yet."""
    return [name for name in (*KEDA_PROGRAMS.values(), ADAPTER) if not is_built(name)]


def keda_manifests(world: World, programs: dict[str, Path]) -> list[dict[str, Any]]:
    """KEDA's manifests with the programs of this machine, ready sooner and with less of a node."""
    text = world.cluster.kubectl("kustomize", str(extra_source("keda") / "config" / "minimal"))
    objects = list(yaml.safe_load_all(text))
    for one in objects:
        if one["kind"] != "Deployment":
            continue
        pod = one["spec"]["template"]["spec"]
        pod["securityContext"]["runAsUser"] = 65532
        (container,) = pod["containers"]
        container |= {
            "image": KEDA_IMAGE,
            "imagePullPolicy": "Never",
            "command": [f"/usr/bin/{programs[one['metadata']['name']].name}"],
            "resources": {"requests": {"cpu": "50m", "memory": "100Mi"}},
        }
        container["readinessProbe"] |= {"initialDelaySeconds": 1, "periodSeconds": 1}
    return objects


def wait_registered(world: World, api: str) -> None:
    world.cluster.kubectl("wait", "--for=condition=Available", f"apiservice/{api}", "--timeout=90s")


@contextmanager
def keda(world: World, folder: Path) -> Iterator[None]:
    """Installs KEDA, and removes it afterwards."""
    programs = {name: extra(program) for name, program in KEDA_PROGRAMS.items()}
    world.cluster.load(tools_image(folder / "keda.tar", map(str, programs.values()), KEDA_IMAGE))
    objects = keda_manifests(world, programs)
    world.cluster.apply(objects, "--server-side")
    try:
        world.take_certificates(KEDA)
        for name in KEDA_PROGRAMS:
            world.cluster.kubectl("rollout", "status", f"deployment/{name}", "-n", KEDA, "--timeout=180s")
        wait_registered(world, "v1beta1.external.metrics.k8s.io")
        yield
    finally:
        # the API that it registers goes first: while nobody answers there, no namespace can be deleted
        for kinds in (["APIService"], ["Deployment"], sorted({one["kind"] for one in objects})):
            chosen = [one for one in objects if one["kind"] in kinds]
            world.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=yaml.safe_dump_all(chosen))


@contextmanager
def prometheus_adapter(world: World, folder: Path) -> Iterator[None]:
    """Installs a Prometheus that scrapes the API port of replicas, and the adapter with the rules of the example."""
    prometheus, adapter = Path("/usr/bin/prometheus"), extra(ADAPTER)
    archive = tools_image(folder / "monitoring.tar", [str(prometheus), str(adapter)], MONITORING_IMAGE)
    world.cluster.load(archive)
    rules = yaml.safe_load(VALUES.read_text())["rules"]["custom"]
    files = {"prometheus": PROMETHEUS % MODELS, ADAPTER: yaml.safe_dump({"rules": rules})}
    maps = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": MONITORING},
            "data": {"config.yaml": text},
        }
        for name, text in files.items()
    ]
    at = {"namespace": MONITORING, "image": MONITORING_IMAGE}
    api = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": CUSTOM_METRICS},
        "spec": {
            "group": "custom.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,  # it makes a certificate of its own
            "service": {"name": ADAPTER, "namespace": MONITORING, "port": 6443},
        },
    }
    world.cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MONITORING}}, *maps])
    world.cluster.apply(
        [
            *account(MONITORING),
            *workload(
                "prometheus",
                program=prometheus,
                arguments=["--config.file=/etc/config/config.yaml", "--storage.tsdb.path=/tmp"],
                ports=[9090],
                **at,
            ),
            *workload(
                ADAPTER,
                program=adapter,
                arguments=[
                    "--config=/etc/config/config.yaml",
                    "--cert-dir=/tmp",
                    f"--prometheus-url=http://prometheus.{MONITORING}:9090",
                    "--metrics-relist-interval=2s",
                    "--secure-port=6443",
                ],
                ports=[6443],
                **at,
            ),
            api,
        ]
    )
    try:
        wait_registered(world, CUSTOM_METRICS)
        yield
    finally:
        world.cluster.kubectl("delete", "apiservice", CUSTOM_METRICS)
        world.cluster.kubectl("delete", "namespace", MONITORING, "--wait=true")
        world.cluster.kubectl("delete", "clusterrolebinding", account_binding(MONITORING))
