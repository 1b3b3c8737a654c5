# SPDX-License-Identifier: Apache-2.0
"""Provides one ParallelModel in its own namespace, a real controller behind a proxy, and a scenario that covers the
life of the object."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path

import yaml
from apiserver import ROOT, Api, ControlPlane
from machine import CHILDREN, Machine
from ports import free_port
from proxy import Proxy

BUILD = Path(os.environ.get("PM_BUILD", ROOT / "build" / "release"))
CONTROLLER = BUILD / "bin" / "parallelmodel-controller"
NAME = "m"


def differences(found, wanted, path: str = "") -> list[str]:
    """Returns the differences of two digests in readable form."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return [
            line
            for key in sorted({*found, *wanted})
            for line in differences(found.get(key), wanted.get(key), f"{path}/{key}")
        ]
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return [line for n, (a, b) in enumerate(zip(found, wanted)) for line in differences(a, b, f"{path}/{n}")]
    return [] if found == wanted else [f"{path}: {str(found)[:300]} instead of {str(wanted)[:300]}"]


class World:
    """Starts the controller; `revive` starts another whenever a fault has killed it."""

    def __init__(
        self,
        plane: ControlPlane,
        ns: str,
        folder: Path,
        disturb=lambda proxy: None,
        arguments: tuple[str, ...] | list[str] = (),
    ) -> None:
        self.ns = ns = f"scenario-of-{ns}"
        self.plane, self.folder, self.api, self.arguments = plane, folder, Api(plane), arguments
        if not self.api.exists(f"/api/v1/namespaces/{ns}"):
            self.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": ns}})
        self.proxy = Proxy(plane)
        self.proxy.killed = self.kill
        disturb(self.proxy)
        self.lives = 0
        self._closed, self._lock = False, threading.Lock()
        self._kubeconfig = folder / f"{ns}.kubeconfig"
        self._kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c"}}],
                    "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.proxy.port}"}}],
                }
            )
        )
        self._start()

    def _start(self) -> None:
        self.lives += 1
        with open(self.folder / f"{self.ns}.log", "ab") as log:
            self.program = subprocess.Popen(
                [
                    CONTROLLER,
                    "--kubeconfig",
                    self._kubeconfig,
                    "--namespace",
                    self.ns,
                    "--worker-image",
                    "worker:1",
                    "--probe-port",
                    str(free_port()),
                    "--metrics-port",
                    str(free_port()),
                    *self.arguments,
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def kill(self) -> None:
        """Kills the controller with SIGKILL and starts a new one at once."""
        with self._lock:
            if not self._closed:
                self.program.kill()
                self.program.wait()
                self._start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.program.kill()
            self.program.wait()
        self.proxy.close()

    def log(self) -> str:
        return (self.folder / f"{self.ns}.log").read_text(errors="replace")

    # The scenario.
    def model(self) -> dict:
        return self.api.get("parallelmodels", self.ns, NAME) or {}

    def edit(self, spec: dict) -> None:
        self.api.patch("parallelmodels", self.ns, NAME, {"spec": spec})

    def rest(self, what: str, **wanted) -> dict:
        """Waits until the status reflects the current spec, nothing is in progress and these fields have these
        values."""

        def there():
            model = self.model()
            status = model.get("status", {})
            conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
            same = (
                status.get("observedGeneration") == model["metadata"]["generation"]
                and conditions.get("Reconciling") == "False"
                and conditions.get("Ready") == "True"
            )
            return model if same and all(status.get(key) == value for key, value in wanted.items()) else None

        try:
            return self.api.wait_until(there, 60, what)
        except TimeoutError as error:
            raise TimeoutError(
                f"{error}: {json.dumps(self.model().get('status', {}).get('conditions'))}\n{self.log()[-3000:]}"
            ) from None

    def play(self) -> dict:
        """Creates the model, loses a rank, scales up, edits the pods, scales down, takes a digest and deletes the
        model. Returns the digest."""
        self.api.create(
            "parallelmodels",
            self.ns,
            {
                "apiVersion": "parallelmodel.dev/v1alpha1",
                "kind": "ParallelModel",
                "metadata": {"name": NAME},
                "spec": {
                    "model": {"source": "pvc://models/stories"},
                    "devices": {"count": 2, "type": "CPU"},
                    "resources": {"memory": "1Gi", "cpu": 1},
                },
            },
        )
        self.rest("the start", readyReplicas=1)
        Machine.end(
            self.api,
            self.ns,
            f"{NAME}-0-0-1",
            5,
            json.dumps({"rank": 1, "reason": "RankLost", "exitCode": 5, "message": "killed"}),
        )
        self.rest("the restart", readyReplicas=1, restarts=1)
        self.edit({"replicas": 2})
        self.rest("two replicas", readyReplicas=2)
        self.edit({"worker": {"env": [{"name": "A", "value": "1"}]}})
        self.rest("the update", readyReplicas=2, updatedReplicas=2)
        self.edit({"replicas": 1})
        self.rest("one replica", replicas=1, readyReplicas=1)
        self.quiet(0.2)
        found = self.digest()
        self.api.delete("parallelmodels", self.ns, NAME)
        self.api.wait_until(
            lambda: (
                not any(self.api.list(plural, self.ns) for plural in CHILDREN if plural != "configmaps")
                and not self.own_maps()
            ),
            20,
            "the end of all children",
        )
        return found

    def own_maps(self) -> list[dict]:
        return [m for m in self.api.list("configmaps", self.ns) if m["metadata"].get("ownerReferences")]

    def quiet(self, seconds: float) -> None:
        """Waits until nothing was written for `seconds`."""
        self.api.wait_until(lambda: not self.proxy.writes_since(time.monotonic() - seconds), 20, "silence")

    def digest(self) -> dict:
        """Returns the final state that must not depend on the faults."""
        out = {}
        for plural in CHILDREN:
            for item in self.own_maps() if plural == "configmaps" else self.api.list(plural, self.ns):
                spec = {k: v for k, v in item.get("spec", {}).items() if k not in ("clusterIP", "clusterIPs")}
                meta = item["metadata"]
                out[f"{plural}/{meta['name']}"] = {
                    "spec": spec,
                    "data": item.get("data"),
                    "labels": meta.get("labels"),
                    "annotations": meta.get("annotations"),
                }
        status = json.loads(json.dumps(self.model()["status"]))
        for entry in [status, *status["conditions"], *status["replicaStatuses"]]:
            for key in (
                "lastTransitionTime",
                "restartTimes",
                "loadSeconds",
                "startupSeconds",
                "startup",
                "fetchSeconds",
            ):
                entry.pop(key, None)
        status["lastFailure"].pop("time", None)
        text = json.dumps({"children": out, "status": status})
        return json.loads(
            text.replace(status["plan"]["podHash"], "HASH").replace(self.ns, "NS")
        )  # the namespace is part of the pod template
