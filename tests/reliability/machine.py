# SPDX-License-Identifier: Apache-2.0
"""Simulates the scheduler, the kubelets and the garbage collector: binds, runs, terminates and deletes pods, and
removes orphans. It checks each new pod against the rules on generations of replicas."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import requests
from apiserver import Api, ApiError, ControlPlane

CHILDREN = ("pods", "services", "configmaps", "poddisruptionbudgets")
LABEL = "parallelmodel.dev/"


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def label(pod: dict, name: str) -> str:
    return pod["metadata"].get("labels", {}).get(LABEL + name, "")


def ended(pod: dict) -> bool:
    return any("terminated" in status.get("state", {}) for status in pod.get("status", {}).get("containerStatuses", []))


class Machine:
    def __init__(self, plane: ControlPlane, metadata: str) -> None:
        self._plane, self._metadata = plane, metadata
        self.violations: list[str] = []
        api = Api(plane)
        claims = api.exists("/apis/resource.k8s.io/v1")  # the oldest supported API server has none
        self._collected = CHILDREN + ("resourceclaimtemplates",) * claims
        api.request("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
        api.request(
            "PATCH",
            "/api/v1/nodes/node-a/status",
            {
                "status": {
                    "allocatable": {"memory": "64Gi", "cpu": "64", "pods": "500"},
                    "capacity": {"memory": "64Gi", "cpu": "64"},
                    "conditions": [
                        {
                            "type": "Ready",
                            "status": "True",
                            "reason": "x",
                            "message": "",
                            "lastHeartbeatTime": now(),
                            "lastTransitionTime": now(),
                        }
                    ],
                }
            },
            "application/merge-patch+json",
        )
        for follow in (self._pods, self._models):
            threading.Thread(target=follow, daemon=True).start()

    def _watch(self, path: str) -> Iterator[dict]:
        """Yields events of a collection endlessly; an API server disconnects slow watchers. Objects that were deleted
        while disconnected arrive as DELETED."""
        known = {}
        while self._plane.runs():
            with contextlib.suppress(requests.RequestException):
                present = {item["metadata"]["uid"] for item in Api(self._plane).request("GET", path)["items"]}
                for uid in known.keys() - present:
                    yield {"type": "DELETED", "object": known.pop(uid)}
                for event in Api(self._plane).watch(path):
                    uid = event["object"]["metadata"]["uid"]
                    if event["type"] == "DELETED":
                        known.pop(uid, None)
                    else:
                        event["type"] = "MODIFIED" if uid in known else "ADDED"
                        known[uid] = event["object"]
                    yield event
            time.sleep(0.2)

    def _pods(self) -> None:
        api = Api(self._plane)
        for event in self._watch("/api/v1/pods"):
            pod = event["object"]
            if event["type"] == "DELETED" or not label(pod, "name"):
                continue
            if event["type"] == "ADDED":
                self._patiently(self._check, api, pod)
            self._patiently(self._run, api, pod)

    def _patiently(self, what, api: Api, pod: dict) -> None:
        """Retries when the API server closed the connection."""
        while self._plane.runs():
            try:
                return what(api, pod)
            except ApiError as error:
                if error.code not in (404, 409):  # deleted or changed in the meantime: another event follows
                    self.violations.append(f"machine: {error}")
                return None
            except requests.ConnectionError:
                time.sleep(0.2)

    def _run(self, api: Api, pod: dict) -> None:
        ns, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"]:
            return api.delete("pods", ns, name, 0, pod["metadata"]["uid"])
        if pod["spec"].get("schedulingGates"):  # as a queue with room for all
            return api.patch("pods", ns, name, {"spec": {"schedulingGates": None}})
        if not pod["spec"].get("nodeName"):
            return api.request(
                "POST",
                api.path("pods", ns, name, "binding"),
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": name},
                    "target": {"kind": "Node", "name": "node-a"},
                },
            )
        if pod.get("status", {}).get("containerStatuses"):
            return None
        if "tests.parallelmodel.dev/stuck" in pod["metadata"]["labels"]:
            return api.patch(
                "pods",
                ns,
                name,
                {
                    "status": {
                        "phase": "Pending",
                        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}],
                        "containerStatuses": [
                            {
                                "name": "worker",
                                "image": "i",
                                "imageID": "",
                                "ready": False,
                                "restartCount": 0,
                                "state": {"waiting": {"reason": "ContainerCreating"}},
                            }
                        ],
                    }
                },
                "status",
            )
        if label(pod, "role") == "inspect":
            return self.end(api, ns, name, 0, self._metadata)
        api.patch(
            "pods",
            ns,
            name,
            {
                "status": {
                    "phase": "Running",
                    "conditions": [
                        {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()},
                        {"type": "Ready", "status": "True", "lastTransitionTime": now()},
                    ],
                    "containerStatuses": [
                        {
                            "name": "worker",
                            "image": "i",
                            "imageID": "i",
                            "ready": True,
                            "restartCount": 0,
                            "state": {"running": {"startedAt": now()}},
                        }
                    ],
                }
            },
            "status",
        )

    @staticmethod
    def end(api: Api, ns: str, name: str, code: int, message: str) -> None:
        """Ends the worker of a pod with this termination message."""
        api.patch(
            "pods",
            ns,
            name,
            {
                "status": {
                    "phase": "Failed" if code else "Succeeded",
                    "conditions": [
                        {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()},
                        {"type": "Ready", "status": "False", "lastTransitionTime": now()},
                    ],
                    "containerStatuses": [
                        {
                            "name": "worker",
                            "image": "i",
                            "imageID": "i",
                            "ready": False,
                            "restartCount": 0,
                            "state": {
                                "terminated": {
                                    "exitCode": code,
                                    "reason": "Error" if code else "Completed",
                                    "message": message,
                                    "startedAt": now(),
                                    "finishedAt": now(),
                                }
                            },
                        }
                    ],
                }
            },
            "status",
        )

    def _check(self, api: Api, pod: dict) -> None:
        """Checks that a replica has at most one live generation (two during a surge) and that its generation is in the
        status before the pod is created."""
        replica, generation = label(pod, "replica"), label(pod, "replica-generation")
        if not replica:
            return
        ns, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        model = api.get("parallelmodels", ns, label(pod, "name"))
        records = [r for r in (model or {}).get("status", {}).get("replicaStatuses", []) if str(r["index"]) == replica]
        if model and not any(
            max(r["replicaGeneration"], r.get("abandonedGeneration", 0)) >= int(generation) for r in records
        ):
            self.violations.append(f"{ns}: {name} was made before its generation was written")
        formers = {
            str(
                r["replicaGeneration"]
                if r.get("abandonedGeneration", 0) >= int(generation)
                else r.get("previousGeneration", 0)
            )
            for r in records
        }  # the update may have been reverted in the meantime
        for other in api.list("pods", ns):
            theirs = label(other, "replica-generation")
            same = label(other, "replica") == replica and label(other, "name") == label(pod, "name")
            lives = same and not ended(other) and "deletionTimestamp" not in other["metadata"]
            if lives and int(theirs) < int(generation) and theirs not in formers:
                self.violations.append(f"{ns}: {name} was made while {other['metadata']['name']} lives")

    def _models(self) -> None:
        for event in self._watch("/apis/parallelmodel.dev/v1alpha1/parallelmodels"):
            if event["type"] != "DELETED":
                continue
            threading.Thread(target=self._collect, args=(event["object"]["metadata"],), daemon=True).start()

    def _collect(self, gone: dict) -> None:
        """Removes the children of a deleted model, including those that a controller creates before it observes the
        deletion."""
        api, end = Api(self._plane), time.monotonic() + 10
        while time.monotonic() < end:
            with contextlib.suppress(requests.ConnectionError):  # the server is unavailable or has been stopped
                for plural in self._collected:
                    for child in api.request(
                        "GET", f"{api.path(plural, gone['namespace'])}?labelSelector={LABEL}name={gone['name']}"
                    )["items"]:
                        if any(owner["uid"] == gone["uid"] for owner in child["metadata"].get("ownerReferences", [])):
                            api.delete(
                                plural,
                                gone["namespace"],
                                child["metadata"]["name"],
                                0 if plural == "pods" else None,
                                child["metadata"]["uid"],
                            )
            time.sleep(0.2 if time.monotonic() < end - 8 else 1)
