# SPDX-License-Identifier: Apache-2.0
"""Writes KWOK's configuration for nodes and pods without kubelets. An inspect pod ends at once with the metadata of
the example checkpoint as its termination message. The address of a worker encodes the generation of its replica, so
that one process (worker_status.py) can answer for all admin ports.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

NS = "scale"
NODE_LABEL = {"type": "kwok"}
ADDRESSES = "10.250"  # of workers: ADDRESSES.0.REPLICA_GENERATION


def stage(
    name: str, selector: list[tuple[str, str, list[str]]], then: dict, weight: int = 0, kind: str = "Pod"
) -> dict:
    matches = [
        {"key": key, "operator": operator, **({"values": values} if values else {})}
        for key, operator, values in selector
    ]
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": matches},
            "weight": weight,
            "next": then,
        },
    }


def stages(source: Path, metadata: str) -> str:
    """Returns KWOK's own fast stages, except that inspect pods do not become ready, and a stage for inspect pods."""
    shipped = source / "kustomize" / "stage"
    own = [
        yaml.safe_load((shipped / path).read_text())
        for path in (
            "node/fast/node-initialize.yaml",
            "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
            "pod/fast/pod-ready.yaml",
            "pod/fast/pod-delete.yaml",
        )
    ]
    role = '.metadata.labels["parallelmodel.dev/role"]'
    own[2]["spec"]["selector"]["matchExpressions"].append(
        {"key": role, "operator": "NotIn", "values": ["inspect", "worker"]}
    )
    said = json.dumps(metadata)  # a JSON text is a YAML text
    ended = f"""{{{{ $now := Now }}}}
phase: Succeeded
startTime: {{{{ $now | Quote }}}}
conditions:
- {{type: PodScheduled, status: "True", lastTransitionTime: {{{{ $now | Quote }}}}}}
- {{type: Ready, status: "False", lastTransitionTime: {{{{ $now | Quote }}}}}}
containerStatuses:
- name: worker
  image: worker
  imageID: worker
  ready: false
  restartCount: 0
  state:
    terminated:
      exitCode: 0
      reason: Completed
      startedAt: {{{{ $now | Quote }}}}
      finishedAt: {{{{ $now | Quote }}}}
      message: {said}
"""
    running = f"""{{{{ $now := Now }}}}
phase: Running
podIP: {ADDRESSES}.0.{{{{ index .metadata.labels "parallelmodel.dev/replica-generation" }}}}
startTime: {{{{ $now | Quote }}}}
conditions:
- {{type: PodScheduled, status: "True", lastTransitionTime: {{{{ $now | Quote }}}}}}
- {{type: Ready, status: "True", lastTransitionTime: {{{{ $now | Quote }}}}}}
containerStatuses:
- name: worker
  image: worker
  imageID: worker
  ready: true
  restartCount: 0
  state: {{running: {{startedAt: {{{{ $now | Quote }}}}}}}}
"""
    own.append(
        stage(
            "worker-runs",
            [
                (role, "In", ["worker"]),
                (".metadata.deletionTimestamp", "DoesNotExist", []),
                (".status.phase", "In", ["Pending"]),
            ],
            {"statusTemplate": running},
        )
    )
    own.append(
        stage(
            "inspect-ends",
            [
                (role, "In", ["inspect"]),
                (".metadata.deletionTimestamp", "DoesNotExist", []),
                (".status.phase", "In", ["Pending"]),
            ],
            {"statusTemplate": ended},
        )
    )
    return yaml.safe_dump_all(own)


def claim() -> list[dict]:
    """Returns the PVC of the checkpoint, which no pod mounts."""
    spec = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "models"},
            "spec": {
                **spec,
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/nowhere"},
                "claimRef": {"namespace": NS, "name": "models"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models", "namespace": NS},
            "spec": {**spec, "volumeName": "models", "resources": {"requests": {"storage": "1Gi"}}},
        },
    ]


def node(number: int) -> dict:
    room = {"cpu": "64", "memory": "512Gi", "pods": "200"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"kwok-{number:03d}",
            "labels": {**NODE_LABEL, "kubernetes.io/hostname": f"kwok-{number:03d}"},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": room, "capacity": room, "phase": "Running"},
    }
