# SPDX-License-Identifier: Apache-2.0
"""What makes HorizontalPodAutoscalers work in the test cluster. KEDA, from its own manifests: an operator that reads
triggers and starts the first replica, and an API server of external metrics. Prometheus with prometheus-adapter: an API
server of the metrics of pods."""

from __future__ import annotations

import json
import subprocess
import threading
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
CONTROL = "10.99.0.1"  # where pods reach processes of the tests
PROMETHEUS_PORT = 9098


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
def prometheus(world: World, folder: Path, model: str) -> Iterator[str]:
    """Runs Debian's Prometheus, and returns its URL. It cannot ask Kubernetes for pods, so a thread writes down those
    of the model."""
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        "scrape_configs:\n"
        f"- {{job_name: models, file_sd_configs: [{{files: [{folder}/pods.json], refresh_interval: 2s}}]}}\n"
    )
    stop = threading.Event()

    def write_pods() -> None:
        while True:
            targets = [
                {
                    "targets": [f"{pod['status']['podIP']}:8000"],
                    "labels": {"namespace": MODELS, "pod": pod["metadata"]["name"]},
                }
                for pod in world.pods(model)
                if "podIP" in pod["status"]
            ]
            (folder / "pods.new").write_text(json.dumps(targets))
            (folder / "pods.new").rename(folder / "pods.json")
            if stop.wait(2):
                return

    writer = threading.Thread(target=write_pods)
    writer.start()
    log = (folder / "prometheus.log").open("w")
    command = world.cluster.command(
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={CONTROL}:{PROMETHEUS_PORT}",
    )
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://{CONTROL}:{PROMETHEUS_PORT}"
    finally:
        stop.set()
        writer.join()
        process.terminate()
        process.wait(30)
        log.close()


@contextmanager
def prometheus_adapter(world: World, folder: Path, prometheus_url: str) -> Iterator[None]:
    """Installs the adapter with the rules of the example."""
    adapter = extra(ADAPTER)
    world.cluster.load(tools_image(folder / "monitoring.tar", [str(adapter)], MONITORING_IMAGE))
    rules = yaml.safe_load(VALUES.read_text())["rules"]["custom"]
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": ADAPTER, "namespace": MONITORING},
        "data": {"config.yaml": yaml.safe_dump({"rules": rules})},
    }
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
    program = workload(
        ADAPTER,
        namespace=MONITORING,
        image=MONITORING_IMAGE,
        program=adapter,
        arguments=[
            "--config=/etc/config/config.yaml",
            "--cert-dir=/tmp",
            f"--prometheus-url={prometheus_url}",
            "--metrics-relist-interval=2s",
            "--secure-port=6443",
        ],
        ports=[6443],
    )
    world.cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MONITORING}}, config])
    world.cluster.apply([*account(MONITORING), *program, api])
    try:
        wait_registered(world, CUSTOM_METRICS)
        yield
    finally:
        world.cluster.kubectl("delete", "apiservice", CUSTOM_METRICS)
        world.cluster.kubectl("delete", "namespace", MONITORING, "--wait=true")
        world.cluster.kubectl("delete", "clusterrolebinding", account_binding(MONITORING))
