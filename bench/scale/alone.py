# SPDX-License-Identifier: Apache-2.0
"""Measures the controller alone on a real etcd and kube-apiserver: creates OBJECTS ParallelModels of one replica,
RATE a second, while a thread binds, runs and removes pods as a scheduler and kubelets would. Reports the duration,
the resources of the controller, its latency from event to write, and its writes when idle; with --replicas also the
cost of scaling each object. With --instructions valgrind counts what the controller executes in user space, the same on
a busy and on an idle machine; choose a RATE that it keeps up with, about one a second. bench/reconcile.sh runs it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import requests
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / "reliability"), str(ROOT / "tests" / "cluster"), str(Path(__file__).parent)]
from apiserver import OPERATOR, OPERATOR_TOKEN, ControlPlane, free_port
from cluster import build
from machine import Machine
from measures import WRITES, Audit, cpu_of, delays, memory_of, percentile

NS = "default"


class Kubelets(Machine):
    """Runs pods without validation, which is the task of the tests."""

    def _check(self, api, pod) -> None:
        pass


class Peer:
    user, resource = OPERATOR, "parallelmodels"


def manifest(i: int) -> dict:
    return {
        "apiVersion": "parallelmodel.dev/v1alpha1",
        "kind": "ParallelModel",
        "metadata": {"name": f"g{i:04d}"},
        "spec": {
            "model": {"source": "pvc://models/stories"},
            "devices": {"count": 1, "type": "CPU", "memory": "1Gi"},
            "resources": {"cpu": "100m", "memory": "1Gi"},
        },
    }


class Instructions:
    """Counts the instructions of a program under valgrind's callgrind, from one call of `taken` to the next."""

    def __init__(self, folder: Path) -> None:
        self.file, self.dumps = folder / "callgrind.out", 0
        self.command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.file}"]

    def taken(self, pid: int) -> int:
        """Returns the instructions since the last call, or since the start, of the process PID."""
        subprocess.run(["callgrind_control", f"--dump=part {self.dumps}", str(pid)], check=True, capture_output=True)
        self.dumps += 1
        [total] = re.findall(r"^totals: (\d+)", Path(f"{self.file}.{self.dumps}").read_text(), re.MULTILINE)
        return int(total)


def start(
    plane: ControlPlane, program: Path, folder: Path, instructions: Instructions | None
) -> tuple[subprocess.Popen, int]:
    (folder / "kubeconfig").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {"token": OPERATOR_TOKEN}}],
                "clusters": [
                    {
                        "name": "c",
                        "cluster": {
                            "server": f"https://127.0.0.1:{plane.port}",
                            "certificate-authority": plane.certificate,
                        },
                    }
                ],
            }
        )
    )
    port = free_port()
    with open(folder / "controller.log", "wb") as log:
        return subprocess.Popen(
            [
                *(instructions.command if instructions else []),
                program,
                "--kubeconfig",
                folder / "kubeconfig",
                "--worker-image",
                "worker:1",
                "--probe-port",
                str(free_port()),
                "--metrics-port",
                str(port),
            ],
            stdout=log,
            stderr=log,
        ), port


def answers(port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).ok
    except requests.ConnectionError:
        return False


def reconciles(port: int) -> float:
    text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("controller_runtime_reconcile_total")
    )


def measure(plane: ControlPlane, pid: int, port: int, options, instructions: Instructions | None) -> dict:
    api, audit = plane.api, Audit(plane.folder / "audit.log")
    if instructions:
        api.wait_until(lambda: answers(port), 300, "the controller answers", interval=1)
        instructions.taken(pid)
    path, mark, cpu, begin = api.path("parallelmodels", NS), audit.mark(), cpu_of(pid), time.monotonic()
    for i in range(options.objects):
        time.sleep(max(0.0, begin + i / options.rate - time.monotonic()))
        api.request("POST", path, manifest(i))
    sent = time.monotonic() - begin

    def ready() -> bool:
        items = api.request("GET", path)["items"]
        return all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in item.get("status", {}).get("conditions", []))
            for item in items
        )

    api.wait_until(ready, 600, "all replicas are ready", interval=1)
    took, used = time.monotonic() - begin, cpu_of(pid) - cpu
    entries = audit.since(mark)
    owners = {
        pod["metadata"]["name"]: pod["metadata"]["labels"]["parallelmodel.dev/name"] for pod in api.list("pods", NS)
    }
    out = {
        "objects": options.objects,
        "creates per second": options.objects / sent,
        "seconds until all are ready": took,
        "reconciles": reconciles(port),
        "CPU seconds": used,
        "reconciles per CPU second": reconciles(port) / used,
        "RSS MiB": memory_of(pid)[0],
        "writes": sum(e["user"]["username"] == OPERATOR and e["verb"] in WRITES for e in entries),
    }
    if instructions:
        out["million instructions per object"] = round(instructions.taken(pid) / options.objects / 1e6, 2)
    for what, found in delays(entries, Peer, owners).items():
        out[what] = {
            "n": len(found),
            "P50 ms": round(percentile(found, 0.5), 1),
            "P99 ms": round(percentile(found, 0.99), 1),
        }
    if options.replicas > 1:
        begin, cpu, grown = time.monotonic(), cpu_of(pid), options.objects * options.replicas
        for i in range(options.objects):
            api.patch("parallelmodels", NS, f"g{i:04d}", {"spec": {"replicas": options.replicas}})
        api.wait_until(
            lambda: (
                sum(item.get("status", {}).get("readyReplicas", 0) for item in api.request("GET", path)["items"])
                == grown
            ),
            1800,
            f"{grown} replicas are ready",
            interval=5,
        )
        out |= {
            f"seconds until {grown} replicas are ready": time.monotonic() - begin,
            "CPU seconds for that": cpu_of(pid) - cpu,
            "RSS MiB, and at most": memory_of(pid),
        }
        if instructions:
            out["million instructions per object for that"] = round(instructions.taken(pid) / options.objects / 1e6, 2)
    while True:  # Events trail
        mark = audit.mark()
        time.sleep(5)
        if not any(e["user"]["username"] == OPERATOR and e["verb"] in WRITES for e in audit.since(mark)):
            break
    mark = audit.mark()
    time.sleep(options.rest)
    if options.replicas > 1:
        out["RSS MiB at rest"] = memory_of(pid)[0]
    out[f"writes in {options.rest} s of rest"] = sum(
        e["user"]["username"] == OPERATOR and e["verb"] in WRITES for e in audit.since(mark)
    )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--objects", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=75)
    parser.add_argument("--rest", type=int, default=15)
    parser.add_argument(
        "--replicas", type=int, default=1, help="replicas of each ParallelModel in a second part; 1: no second part"
    )
    parser.add_argument("--instructions", action="store_true", help="run the controller under valgrind and count")
    options = parser.parse_args()
    programs, folder = Path(options.build) / "bin", Path(tempfile.mkdtemp(prefix="reconcile"))
    metadata = subprocess.run(
        [programs / "parallelmodel-worker", "inspect", "--model", ROOT / "examples" / "tiny-stories", "--json"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    plane = ControlPlane(folder, build() / "bin")
    instructions = Instructions(folder) if options.instructions else None
    controller, port = start(plane, programs / "parallelmodel-controller", folder, instructions)
    try:
        Kubelets(plane, json.dumps(json.loads(metadata)))
        print(json.dumps(measure(plane, controller.pid, port, options, instructions), indent=1))
        assert controller.poll() is None, "the controller has ended"
    finally:
        controller.kill()
        plane.close()


if __name__ == "__main__":
    main()
