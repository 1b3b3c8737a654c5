# SPDX-License-Identifier: Apache-2.0
"""Provides the helpers of the end-to-end tests: a cluster with the chart installed, models in a volume, and short
functions for common steps.

Test processes belong to the machine, so ranks are found and signalled by their own PIDs; only the network is the
cluster's, entered by the threads of `Inside`.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests
from cluster import Cluster, NotFound

SYSTEM = "parallelmodel-system"
MODELS = "models"
CONTROLLER_USER = f"system:serviceaccount:{SYSTEM}:parallelmodel"
MIB = 1 << 20
NAME_LABEL = "parallelmodel.dev/name"


def volume(folder: Path) -> list[dict[str, Any]]:
    """Returns the manifests of the PVC "models" for the folder."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "models"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadOnlyMany"],
                "hostPath": {"path": str(folder)},
                "storageClassName": "",
                "claimRef": {"namespace": MODELS, "name": "models"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models", "namespace": MODELS},
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "volumeName": "models",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    ]


def namespace(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }


class Inside:
    """Runs functions on threads whose network is the cluster's: setns() moves one thread and no other."""

    CLONE_NEWNET = 0x40000000

    def __init__(self, cluster: Cluster) -> None:
        first_process = (cluster.folder / "pid").read_text().split()[0]
        self.pool = ThreadPoolExecutor(32, initializer=self._enter, initargs=(f"/proc/{first_process}/ns/net",))

    def _enter(self, namespace: str) -> None:
        descriptor = os.open(namespace, os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, self.CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns({namespace})")
        os.close(descriptor)

    def start(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Future:
        return self.pool.submit(function, *args, **keywords)

    def __call__(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        return self.start(function, *args, **keywords).result(300)


def fetch(method: str, url: str, timeout: float = 60, **keywords: Any) -> requests.Response:
    """One request on a connection of its own."""
    return requests.request(method, url, timeout=timeout, **keywords)


SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse_metrics(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Parses Prometheus text into name -> [(labels, value)]. A real Prometheus in test_serving.py proves that the text
    is well-formed."""
    series: dict[str, list[tuple[dict[str, str], float]]] = {}
    for line in text.splitlines():
        if found := SAMPLE.match(line):
            series.setdefault(found[1], []).append((dict(LABEL.findall(found[2] or "")), float(found[3])))
    return series


def processes(pod_uid: str, *words: str) -> list[int]:
    """PIDs of the pod's processes whose arguments contain `words` one after the other."""
    found = []
    wanted = "\0".join(words) + "\0" if words else ""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if pod_uid in (folder / "cgroup").read_text() and wanted in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except OSError:
            continue  # it has just ended
    return sorted(found)


class World:
    """The cluster as the tests see it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.inside = Inside(cluster)

    # --- ParallelModels -----------------------------------------------------------------------------------------------
    def manifest(self, name: str, source: str = "pvc://models/stories", count: int = 2, **spec: Any) -> dict[str, Any]:
        """Returns the manifest of a small ParallelModel on CPU with tensor parallelism that stops quickly; `spec` adds
        fields and replaces whole ones, `devices` and `model` update theirs."""
        devices = {"count": count, "type": "CPU", **spec.pop("devices", {})}
        model = {"source": source, **spec.pop("model", {})}
        return {
            "apiVersion": "parallelmodel.dev/v1alpha1",
            "kind": "ParallelModel",
            "metadata": {"name": name, "namespace": MODELS},
            "spec": {
                "model": model,
                "devices": devices,
                "parallelism": {"strategy": "Tensor"},
                "resources": {"cpu": "500m", "memory": "1Gi"},
                "update": {"drainSeconds": 1},
                **spec,
            },
        }

    def apply(self, name: str, **spec: Any) -> None:
        self.cluster.apply(self.manifest(name, **spec))

    def pm(self, name: str) -> dict[str, Any]:
        return self.cluster.get("parallelmodel", name, MODELS)

    def stored_plan(self, name: str) -> dict[str, Any]:
        """Returns the plan that the ConfigMap of the current plan holds."""
        plan = f"{name}-plan-{self.pm(name)['status']['plan']['planHash']}"
        return json.loads(self.cluster.get("configmap", plan, MODELS)["data"]["plan.json"])

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """Returns a condition of the current spec, or {} without one."""
        pm = self.pm(name)
        for condition in pm.get("status", {}).get("conditions", []):
            if condition["type"] == kind and condition.get("observedGeneration", 0) == pm["metadata"]["generation"]:
                return condition
        return {}

    def wait_condition(
        self, name: str, kind: str, status: str, reason: str = "", timeout: float = 90
    ) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            condition = self.condition(name, kind)
            return condition if condition.get("status") == status and reason in ("", condition["reason"]) else None

        try:
            return self.cluster.wait_for(there, timeout, f"{name}: {kind}={status} {reason}")
        except Exception as error:
            raise AssertionError(f"{error}\n{json.dumps(self.pm(name).get('status'), indent=1)}") from error

    def wait_ready(self, name: str, timeout: float = 120) -> dict[str, Any]:
        self.wait_condition(name, "Ready", "True", timeout=timeout)
        return self.pm(name)

    def delete(self, name: str) -> None:
        """Deletes the ParallelModel and waits until everything it owned is gone."""
        self.cluster.kubectl("delete", "pm", name, "-n", MODELS, "--ignore-not-found", "--wait=true")
        self.wait_gone(name)

    def wait_gone(self, name: str, timeout: float = 90) -> None:
        self.cluster.wait_for(lambda: not self.children(name), timeout, f"children of {name} are gone")

    def children(self, name: str) -> list[str]:
        """kind/name of everything with the label of this ParallelModel."""
        out = self.cluster.kubectl(
            "get",
            "pods,services,configmaps,poddisruptionbudgets",
            "-n",
            MODELS,
            "-l",
            f"{NAME_LABEL}={name}",
            "-o",
            "name",
        )
        return out.split()

    # --- pods and processes -------------------------------------------------------------------------------------------
    def pods(self, name: str) -> list[dict[str, Any]]:
        """Returns the replica pods that are not being deleted."""
        pods = self.cluster.list("pods", MODELS, f"{NAME_LABEL}={name},parallelmodel.dev/replica")
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def pod(self, name: str) -> dict[str, Any]:
        """Returns the only replica pod."""
        pods = self.pods(name)
        assert len(pods) == 1, f"expected one pod of {name}, found {[pod['metadata']['name'] for pod in pods]}"
        return pods[0]

    def rank(self, name: str, rank: int) -> int:
        """Returns the PID, on this machine, of a rank of the only replica pod."""
        return self.process(self.pod(name), "--rank", str(rank))

    @staticmethod
    def process(pod: dict[str, Any], *words: str) -> int:
        found = processes(pod["metadata"]["uid"], *words)
        assert len(found) == 1, (
            f"expected one process {' '.join(words)} in pod {pod['metadata']['name']}, found {found}"
        )
        return found[0]

    def kill_controller(self) -> None:
        pods = self.cluster.list("pods", SYSTEM, "app.kubernetes.io/component=controller")
        for pod in pods:
            for pid in processes(pod["metadata"]["uid"], "/usr/bin/parallelmodel-controller"):
                os.kill(pid, signal.SIGKILL)

    def controller_address(self) -> str:
        pods = self.cluster.list("pods", SYSTEM, "app.kubernetes.io/component=controller")
        return pods[0]["status"]["podIP"]

    # --- HTTP ---------------------------------------------------------------------------------------------------------
    def url(self, name: str) -> str:
        """Returns the URL of the Service by its ClusterIP: test threads use the network of the cluster, not its DNS."""
        service = self.cluster.get("service", name, MODELS)["spec"]
        return f"http://{service['clusterIP']}:{service['ports'][0]['port']}"

    def admin(self, pod: dict[str, Any], path: str) -> str:
        return f"http://{pod['status']['podIP']}:8001{path}"

    def wait_plan(
        self, name: str, holds: Callable[[dict[str, Any]], bool], what: str, timeout: float = 30
    ) -> dict[str, Any]:
        """Returns the plan that the Service reports, once `holds` is true of it: after a change the Service may still
        lead to the previous replica, or to none."""

        def matching() -> dict[str, Any] | None:
            try:
                answer = self.get(self.url(name) + "/plan").json()
            except requests.RequestException:
                return None
            return answer if holds(answer) else None

        return self.cluster.wait_for(matching, timeout, f"the Service reports a plan {what}")

    def get(self, url: str, **keywords: Any) -> requests.Response:
        return self.inside(fetch, "GET", url, **keywords)

    def post(self, url: str, body: Any, **keywords: Any) -> requests.Response:
        return self.inside(fetch, "POST", url, json=body, **keywords)

    @staticmethod
    def complete_at(url: str, name: str, prompt: str, tokens: int) -> str:
        """The greedy completion, asked from the calling thread."""
        body = {"model": name, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
        answer = fetch("POST", url + "/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["text"]

    def complete(self, name: str, prompt: str, tokens: int = 16) -> str:
        """The greedy completion, through the Service."""
        return self.inside(self.complete_at, self.url(name), name, prompt, tokens)

    def wait_answer(self, name: str, prompt: str, tokens: int = 16, timeout: float = 30) -> str:
        """As complete(), but a connection that the changing endpoints refuse is tried again."""
        end = time.monotonic() + timeout
        while True:
            try:
                return self.complete(name, prompt, tokens)
            except (requests.RequestException, AssertionError, NotFound):
                if time.monotonic() > end:
                    raise
            time.sleep(0.2)

    def take_certificates(self, namespace: str) -> None:
        """Lets the pods of a program see the Secret that it fills with certificates when it starts: kubelets look
        within a minute, or when a pod changes."""

        def written() -> bool:
            secrets = self.cluster.list("secrets", namespace)
            return any("ca.crt" in (one.get("data") or {}) for one in secrets)

        self.cluster.wait_for(written, 60, f"certificates in {namespace}")
        self.cluster.kubectl("annotate", "pods", "-n", namespace, "--all", "tests/certificates=written")

    # --- audit --------------------------------------------------------------------------------------------------------
    def controller_requests(self, *verbs: str) -> list[dict[str, Any]]:
        """Returns the requests of the controller, oldest first; with `verbs` only those."""
        return [
            entry
            for entry in self.cluster.audit()
            if entry["user"]["username"] == CONTROLLER_USER and (not verbs or entry["verb"] in verbs)
        ]

    # --- what to read when a test has failed --------------------------------------------------------------------------
    def report(self) -> str:
        def say(*command: str) -> str:
            return f"$ kubectl {' '.join(command)}\n" + self.cluster.kubectl(*command, check=False)[-12000:]

        parts = [
            say("get", "pm", "-A", "-o", "wide"),
            say("get", "pods", "-A", "-o", "wide"),
            say("describe", "pm", "-n", MODELS),
            say("get", "events", "-n", MODELS, "--sort-by=.metadata.creationTimestamp"),
        ]
        for pod in self.cluster.kubectl("get", "pods", "-n", MODELS, "-o", "name", check=False).split():
            parts += [say("describe", "-n", MODELS, pod)[-4000:], say("logs", "-n", MODELS, pod, "--tail=60")]
        parts.append(say("logs", "-n", SYSTEM, "deployment/parallelmodel", "--tail=150"))
        parts.append(say("logs", "-n", SYSTEM, "deployment/parallelmodel", "--tail=40", "--previous"))
        return "\n".join(parts)


class Oracle:
    """Reference answers of Hugging Face transformers for a checkpoint folder, with a LoRA adapter by PEFT."""

    def __init__(self, folder: Path, adapter: Path | None = None) -> None:
        import torch
        import transformers

        torch.set_num_threads(1)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        if adapter:
            import peft

            self.model = peft.PeftModel.from_pretrained(self.model, adapter).eval()

    @functools.lru_cache
    def greedy(self, prompt: str, tokens: int = 16) -> str:
        """The text that greedy search appends to the prompt."""
        import torch

        inputs = self.tokenizer(prompt, return_tensors="pt")
        with torch.no_grad():
            ids = self.model.generate(**inputs, max_new_tokens=tokens, do_sample=False, pad_token_id=0)[0]
        return self.tokenizer.decode(
            ids[inputs["input_ids"].shape[1] :], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
