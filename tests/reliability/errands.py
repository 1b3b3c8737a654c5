# SPDX-License-Identifier: Apache-2.0
"""Provokes rare actions of the operator, so that the audit log shows that each of its permissions is used."""

from __future__ import annotations

import json
import time

from apiserver import ApiError
from machine import Machine
from world import World

STUCK = {"tests.parallelmodel.dev/stuck": "true"}  # pods that the simulated kubelet binds and never starts
NAMES = ("stranger-service", "stranger-budget", "stranger-pod")


def model(name: str, **spec) -> dict:
    return {
        "apiVersion": "parallelmodel.dev/v1alpha1",
        "kind": "ParallelModel",
        "metadata": {"name": name},
        "spec": {
            "model": {"source": "pvc://models/stories"},
            "devices": {"count": 2, "type": "CPU"},
            "resources": {"memory": "1Gi", "cpu": 1},
            **spec,
        },
    }


class Errands:
    def __init__(self, world: World) -> None:
        self.world, self.api, self.ns = world, world.api, world.ns
        self.api.create("parallelmodels", self.ns, model("stuck", worker={"labels": STUCK}))
        self.api.create("services", self.ns, {"metadata": {"name": NAMES[0]}, "spec": {"ports": [{"port": 1}]}})
        self.api.create(
            "poddisruptionbudgets",
            self.ns,
            {"metadata": {"name": NAMES[1]}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
        )
        self.api.create(
            "pods",
            self.ns,
            {"metadata": {"name": f"{NAMES[2]}-inspect-1"}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
        )
        for name in NAMES:
            self.api.create("parallelmodels", self.ns, model(name, replicas=2))
        self.api.create(
            "configmaps", self.ns, {"metadata": {"name": "policy"}, "data": {"mine.yaml": "model_type: mine\n"}}
        )
        self.api.create(
            "parallelmodels",
            self.ns,
            model("policy", model={"source": "pvc://models/stories", "policyRef": {"name": "policy"}}),
        )
        self.api.create("parallelmodels", self.ns, model("m", replicas=3))
        self.api.create(
            "persistentvolumeclaims",
            self.ns,
            {
                "metadata": {"name": "shared"},
                "spec": {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}},
            },
        )
        self.api.create(
            "parallelmodels",
            self.ns,
            model("nodes", model={"source": "pvc://shared/stories"}, devices={"count": 2, "type": "CPU", "perNode": 1}),
        )

    def condition(self, name: str, kind: str) -> dict:
        status = self.api.get("parallelmodels", self.ns, name).get("status", {})
        return next((c for c in status.get("conditions", []) if c["type"] == kind), {})

    def reason(self, name: str, kind: str, reason: str, seconds: float = 30) -> None:
        try:
            self.api.wait_until(
                lambda: self.condition(name, kind).get("reason") == reason, seconds, f"{name}: {kind} {reason}"
            )
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.condition(name, kind)}") from None

    def finish(self) -> None:
        """Waits for the actions that were started and performs the remaining ones."""
        for name in NAMES:
            self.reason(name, "Stalled", "NameConflict")
        self.world.rest("the start", readyReplicas=3)
        self.world.edit(
            {"service": {"port": 9000}, "update": {"maxSurge": 0, "maxUnavailable": 2}}
        )  # a Service and a PodDisruptionBudget are corrected
        self.world.rest("another port", readyReplicas=3)
        self.world.edit({"devices": {"memory": "1023Mi"}})  # another plan
        self.world.rest("another plan", readyReplicas=3, updatedReplicas=3)
        again = {
            "metadata": {"annotations": {"parallelmodel.dev/restarted-at": "now"}}
        }  # inspects the checkpoint again and finds the same plan
        generation = self.world.model()["status"]["replicaStatuses"][-1]["replicaGeneration"]
        self.api.patch("parallelmodels", self.ns, "m", again)
        self.api.wait_until(
            lambda: self.world.model()["status"]["replicaStatuses"][-1]["replicaGeneration"] > generation,
            40,
            "the restart by hand",
        )
        self.world.rest("a restart by hand", readyReplicas=3, updatedReplicas=3)
        for _ in range(2):  # an Event that is repeated
            [*_, replica] = self.world.model()["status"]["replicaStatuses"]
            Machine.end(
                self.api,
                self.ns,
                f"m-{replica['index']}-0-{replica['replicaGeneration']}",
                5,
                json.dumps({"rank": 1, "reason": "RankLost", "exitCode": 5, "message": "killed"}),
            )
            self.api.wait_until(
                lambda: (
                    self.world.model()["status"]["replicaStatuses"][-1]["replicaGeneration"]
                    > replica["replicaGeneration"]
                ),
                40,
                "the restart",
            )
            self.world.rest("a restart", readyReplicas=3)
        self._redundant_children()
        self._mount()

    def _redundant_children(self) -> None:
        """A replica that moved to one node needs no headless Service of the ranks, and a single pod that may not surge
        needs no PodDisruptionBudget."""
        self.reason("nodes", "Ready", "Serving")
        children = [
            self.api.path("services", self.ns, "nodes-ranks"),
            self.api.path("poddisruptionbudgets", self.ns, "nodes"),
        ]
        assert all(self.api.exists(path) for path in children), children
        self.api.patch(
            "parallelmodels", self.ns, "nodes", {"spec": {"devices": {"perNode": 2}, "update": {"maxSurge": 0}}}
        )
        self.api.wait_until(lambda: not any(self.api.exists(path) for path in children), 40, f"{children} are gone")

    def _mount(self) -> None:
        """A kubelet records an Event about the volume of the stuck pod; the operator lists it after 20 s."""
        name = "stuck-0-0-1"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.1", "namespace": self.ns},
            "type": "Warning",
            "reason": "FailedMount",
            "message": 'secret "keys" not found',
            "involvedObject": {"kind": "Pod", "namespace": self.ns, "name": name, "apiVersion": "v1"},
            "firstTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        try:
            self.api.request("POST", f"/api/v1/namespaces/{self.ns}/events", event)
        except ApiError as error:
            if error.code != 409:
                raise
        self.reason("stuck", "Scheduled", "VolumeNotMounted", 60)
