# SPDX-License-Identifier: Apache-2.0
"""How many replicas per second, how soon after an event, with how much memory and how many requests: our controller and
LeaderWorkerSet's, one after the other on the same cluster. Nodes and pods are KWOK's; etcd, kube-apiserver,
kube-controller-manager and kube-scheduler are real; every figure about requests is from the audit log.

    create    OBJECTS objects of one replica each, RATE a second: until all are ready
    rest      nothing happens for REST seconds: writes
    lose      a pod is deleted, again and again: until its replica is ready again
    grow      every object is scaled to REPLICAS: until all pods are ready
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import requests
import urllib3
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / "cluster"), str(Path(__file__).parent)]
from cluster import Cluster, _checked, _run, extra, image
from kwok import NS, claim, node, stages
from measures import WRITES, Audit, cpu_of, cpu_of_cluster, delays, memory_of, percentile, processes_of
from peers import LeaderWorkerSets, ParallelModels

urllib3.disable_warnings()


class Api:
    """Sends requests as administrator, one object per thread; usable only inside the cluster's network."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        self.server, user = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]
        self.session = requests.Session()
        self.session.trust_env, self.session.verify = False, False
        self.session.cert = (user["client-certificate"], user["client-key"])

    def request(self, method: str, path: str, body=None, content: str = "application/json") -> dict:
        for attempt in range(8):
            try:
                reply = self.session.request(
                    method,
                    self.server + path,
                    data=None if body is None else json.dumps(body),
                    headers={"Content-Type": content},
                    timeout=120,
                )
                if reply.status_code not in (429, 500, 503, 504):
                    break
            # a server with too much to do hangs up; nothing is asked here that may not be asked twice, but to create
            except requests.ConnectionError:
                if method == "POST" or attempt == 7:
                    raise
            time.sleep(0.2 * 2**attempt)
        if not reply.ok:
            raise RuntimeError(f"{method} {path}: {reply.status_code} {reply.text[:300]}")
        return reply.json()

    def list(self, path: str) -> list[dict]:
        out, more = [], ""
        while True:
            page = self.request("GET", f"{path}{'&' if '?' in path else '?'}limit=500&continue={more}")
            out += page["items"]
            more = page["metadata"].get("continue", "")
            if not more:
                return out


class Trial:
    def __init__(self, peer, options, api: Api, audit: Audit, metrics: str | None) -> None:
        self.peer, self.options, self.api, self.audit, self.metrics = peer, options, api, audit, metrics
        [self.pid] = processes_of(peer.process)
        self.figures = {"controller": peer.name}

    def all_done(self, replicas: int, timeout: float, wanted: int | None = None) -> float:
        begin = time.monotonic()
        while True:
            asked = time.monotonic()
            items = self.api.list(self.peer.path)
            took = time.monotonic() - asked
            done = sum(self.peer.done(item, replicas) for item in items)
            if done == (wanted or self.options.objects):
                return time.monotonic() - begin
            if time.monotonic() - begin > timeout:
                waits = next(item.get("status") for item in items if not self.peer.done(item, replicas))
                raise RuntimeError(
                    f"{self.peer.name}: {done} of {self.options.objects} after {timeout:.0f} s; one that is "
                    f"not: {json.dumps(waits)[:1500]}"
                )
            time.sleep(max(1.0, 4 * took))  # lists of all objects are a fifth of the work at most

    def requests(self, mark: int, what: str) -> list[dict]:
        """Counts the requests, with those of Kubernetes' own controllers that create the peer's pods apart; watches
        and leader election are not counted.
        """
        entries = self.audit.since(mark)
        counted = [
            entry
            for entry in entries
            if entry.get("objectRef", {}).get("resource") != "leases" and entry["verb"] != "watch"
        ]
        figures = {}
        for whose, users in (("", (self.peer.user,)), (" of the StatefulSet controller", self.peer.helpers)):
            if users:
                own = [entry["verb"] in WRITES for entry in counted if entry["user"]["username"] in users]
                figures |= {f"{what}: requests{whose}": len(own), f"{what}: writes{whose}": sum(own)}
        self.note(**figures)
        return entries

    def reconciles(self) -> float:
        if not self.metrics:
            return float("nan")
        text = requests.get(self.metrics, timeout=10).text
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.startswith("controller_runtime_reconcile_total")
        )

    @contextlib.contextmanager
    def cluster_at_work(self, what: str):
        """Records the CPU seconds of etcd and of Kubernetes' own processes."""
        before = cpu_of_cluster()
        yield
        self.note(
            **{
                f"{what}: CPU seconds of {program}": seconds - before[program]
                for program, seconds in cpu_of_cluster().items()
            }
        )

    def note(self, **figures) -> None:
        self.figures.update(figures)
        print(
            f"{self.peer.name}: "
            + ", ".join(
                f"{key.replace('_', ' ')} {value:.1f}"
                if isinstance(value, float)
                else f"{key.replace('_', ' ')} {value}"
                for key, value in figures.items()
            ),
            flush=True,
        )

    def warm_up(self) -> None:
        """Waits until the controller leads and has made one object ready."""
        self.api.request("POST", self.peer.path, self.peer.manifest("first", 1, self.options.size))
        self.all_done(1, 180, wanted=1)
        self.clear()

    def create(self) -> None:
        mark, cpu, passes, begin = self.audit.mark(), cpu_of(self.pid), self.reconciles(), time.monotonic()
        for i in range(self.options.objects):
            time.sleep(max(0.0, begin + i / self.options.rate - time.monotonic()))
            self.api.request("POST", self.peer.path, self.peer.manifest(f"g{i:04d}", 1, self.options.size))
        sent = time.monotonic() - begin
        self.all_done(1, 1200)
        took = time.monotonic() - begin
        entries = self.requests(mark, "create")
        owners = {
            pod["metadata"]["name"]: pod["metadata"]["labels"].get(self.peer.owner_label, "")
            for pod in self.api.list(f"/api/v1/namespaces/{NS}/pods")
        }
        used, passed = cpu_of(self.pid) - cpu, self.reconciles() - passes
        self.note(sent_in_seconds=sent, all_ready_after_seconds=took, cpu_seconds=used, rss_mib=memory_of(self.pid)[0])
        if self.metrics:
            self.note(reconciles=passed, reconciles_per_cpu_second=passed / max(0.01, used))
        for what, found in delays(entries, self.peer, owners).items():
            self.note(
                **{
                    f"{what} (n)": len(found),
                    f"{what} P50 ms": percentile(found, 0.5),
                    f"{what} P99 ms": percentile(found, 0.99),
                }
            )

    def rest(self, when: str) -> None:
        """Waits until trailing Events are sent, which are sent one after the other."""
        begin, silent = time.monotonic(), 0
        while silent < 2:
            assert time.monotonic() - begin < 600, f"{self.peer.name} does not come to rest"
            mark = self.audit.mark()
            time.sleep(5)
            silent = (
                0
                if any(
                    entry["user"]["username"] == self.peer.user
                    and entry["verb"] in WRITES
                    and entry["objectRef"]["resource"] != "leases"
                    for entry in self.audit.since(mark)
                )
                else silent + 1
            )
        self.note(**{f"last write {when}, s at most": time.monotonic() - begin - 10})
        mark = self.audit.mark()
        time.sleep(self.options.rest)
        self.requests(mark, f"{self.options.rest} s of rest {when}")

    def lose(self) -> None:
        took = []
        for i in range(self.options.losses):
            owner = f"g{i * self.options.objects // self.options.losses:04d}"
            pods = f"/api/v1/namespaces/{NS}/pods?labelSelector={self.peer.owner_label}={owner}"
            before = {pod["metadata"]["uid"] for pod in self.api.list(pods)}
            victim = self.api.list(pods)[0]["metadata"]["name"]
            begin = time.monotonic()
            self.api.request("DELETE", f"/api/v1/namespaces/{NS}/pods/{victim}", {"gracePeriodSeconds": 0})

            def again() -> bool:
                now = [pod for pod in self.api.list(pods) if "deletionTimestamp" not in pod["metadata"]]
                ready = [
                    pod
                    for pod in now
                    if any(
                        c["type"] == "Ready" and c["status"] == "True"
                        for c in pod.get("status", {}).get("conditions", [])
                    )
                ]
                return len(ready) == self.options.size and not before & {pod["metadata"]["uid"] for pod in now}

            while not again():
                assert time.monotonic() - begin < 120, f"{owner} is not ready again"
                time.sleep(0.02)
            took.append(time.monotonic() - begin)
        self.note(**{"replica again after a pod's loss, median s": statistics.median(took), "most s": max(took)})

    def grow(self) -> None:
        mark, begin, cpu = self.audit.mark(), time.monotonic(), cpu_of(self.pid)
        for i in range(self.options.objects):
            self.api.request(
                "PATCH",
                f"{self.peer.path}/g{i:04d}",
                {"spec": {"replicas": self.options.replicas}},
                "application/merge-patch+json",
            )
        self.all_done(self.options.replicas, 2400)
        took = time.monotonic() - begin
        self.requests(mark, "grow")
        now, most = memory_of(self.pid)
        self.note(
            **{
                f"{self.options.objects * self.options.replicas * self.options.size} pods after s": took,
                "cpu seconds to grow": cpu_of(self.pid) - cpu,
                "rss MiB at all pods": now,
                "rss MiB at most": most,
            }
        )

    def clear(self) -> None:
        self.api.request("DELETE", self.peer.path)
        end = time.monotonic() + 1200
        while self.api.list(f"/api/v1/namespaces/{NS}/pods") or self.api.list(self.peer.path):
            assert time.monotonic() < end, "the pods do not go"
            time.sleep(2)

    def run(self) -> dict:
        self.warm_up()
        with self.cluster_at_work("create"):
            self.create()
        self.rest("after create")
        self.lose()
        if self.options.replicas > 1:
            with self.cluster_at_work("grow"):
                self.grow()
            self.rest("after grow")
        return self.figures


def install_lws(cluster: Cluster, folder: Path) -> None:
    source = subprocess.run(
        [ROOT / "tests/cluster/extras/build.sh", "--source", "lws"], capture_output=True, text=True, check=True
    ).stdout.strip()
    text = cluster.kubectl("kustomize", f"{source}/config/default")
    objects = [one for one in yaml.safe_load_all(text) if one]
    for one in objects:
        if one["kind"] == "Deployment":
            one["spec"]["replicas"] = 1
            container = one["spec"]["template"]["spec"]["containers"][0]
            container.update(image="localhost/lws:test", imagePullPolicy="Never", command=["/usr/bin/manager"])
            container["resources"] = {"requests": {"cpu": "100m", "memory": "256Mi"}}
    cluster.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(objects))
    cluster.kubectl(
        "wait", "-n", "lws-system", "--for=condition=Available", "deployment/lws-controller-manager", "--timeout=180s"
    )


def outer(options) -> None:
    """Starts the cluster and everything on it, then runs this script once more inside its network."""
    folder = Path(tempfile.mkdtemp(prefix="scale"))
    shutil.copy(extra("lws"), folder / "manager")
    (folder / "manager").chmod(0o755)
    _checked(
        _run(
            [
                str(ROOT / "tests/cluster/image.sh"),
                "programs",
                "localhost/lws:test",
                str(folder / "lws.tar"),
                str(folder / "manager"),
            ]
        )
    )
    images = [image("controller", options.build, folder / "controller.tar"), folder / "lws.tar"]
    kwok, source = (
        extra("kwok"),
        Path(
            subprocess.run(
                [ROOT / "tests/cluster/extras/build.sh", "--source", "kwok"], capture_output=True, text=True, check=True
            ).stdout.strip()
        ),
    )
    worker = Path(options.build) / "bin" / "parallelmodel-worker"
    metadata = subprocess.run(
        [worker, "inspect", "--model", ROOT / "examples" / "tiny-stories", "--json"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (folder / "stages.yaml").write_text(stages(source, json.dumps(json.loads(metadata))))
    settings = {
        "SCHEDULER_FLAGS": "--kube-api-qps=1000 --kube-api-burst=2000",
        "KCM_FLAGS": "--concurrent-statefulset-syncs=10",
        "APISERVER_FLAGS": "--max-requests-inflight=1000 "
        "--max-mutating-requests-inflight=500 --audit-log-maxsize=100000",
    }
    with Cluster.up("scale", nodes=1, images=images, audit=True, environment=settings) as cluster:
        cluster.apply(
            [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}},
                *claim(),
                *[node(i) for i in range(options.nodes)],
            ]
        )
        with open(folder / "kwok.log", "wb") as log:
            fake = subprocess.Popen(
                cluster.command(
                    str(kwok),
                    "--config",
                    str(folder / "stages.yaml"),
                    "--kubeconfig",
                    str(cluster.kubeconfig),
                    "--manage-all-nodes=false",
                    "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                    "--node-lease-duration-seconds=40",
                ),
                stdout=log,
                stderr=log,
            )
        workers = subprocess.Popen(
            cluster.command(sys.executable, str(Path(__file__).parent / "worker_status.py"), str(options.size))
        )
        try:
            cluster.wait_for(
                lambda: (
                    cluster.kubectl("get", "nodes", "-l", "type=kwok", "--no-headers").count(" Ready") == options.nodes
                ),
                120,
                "KWOK's nodes are ready",
            )
            images = (
                "image.repository=localhost/parallelmodel-controller,image.tag=test,"
                "worker.image.repository=localhost/parallelmodel-worker,worker.image.tag=test"
            )
            cluster.helm(
                "install",
                "parallelmodel",
                str(ROOT / "helm/parallelmodel"),
                "-n",
                "parallelmodel-system",
                "--create-namespace",
                "--wait",
                "--timeout",
                "120s",
                "--set",
                images,
                "--set",
                options.chart,
            )
            address = next(
                pod["status"]["podIP"]
                for pod in cluster.list("pods", "parallelmodel-system")
                if pod["status"].get("podIP")
            )
            install_lws(cluster, folder)
            inner = [
                sys.executable,
                __file__,
                *sys.argv[1:],
                "--inside",
                str(cluster.folder),
                "--metrics",
                f"http://{address}:8080/metrics",
            ]
            subprocess.run(cluster.command(*inner), check=True)
        finally:
            for process in (fake, workers):
                process.kill()
                process.wait()
            print(f"logs: {cluster.folder}/log, {folder}", file=sys.stderr)


def run_replicas(api: Api, peer, replicas: int) -> None:
    path = f"/apis/apps/v1/namespaces/{peer.deployment}"
    api.request("PATCH", path, {"spec": {"replicas": replicas}}, "application/merge-patch+json")
    end = time.monotonic() + 120
    while (
        api.request("GET", path).get("status", {}).get("availableReplicas", 0) != replicas
        or len(processes_of(peer.process)) != replicas
    ):
        assert time.monotonic() < end, f"{peer.deployment} does not come to {replicas} replicas"
        time.sleep(1)


def inside(options) -> None:
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"
    folder = Path(options.inside)
    api, audit = Api(folder / "admin.kubeconfig"), Audit(folder / "log" / "audit.log")
    out, peers = [], (ParallelModels(), LeaderWorkerSets())
    for peer in peers:
        for one in peers:  # one at a time, so that neither knows of the other's pods
            run_replicas(api, one, int(one is peer))
        trial = Trial(peer, options, api, audit, options.metrics if isinstance(peer, ParallelModels) else None)
        out.append(trial.run())
        if peer is not peers[-1]:
            trial.clear()
    print(
        json.dumps(
            {
                "objects": options.objects,
                "size": options.size,
                "nodes": options.nodes,
                "rate": options.rate,
                "replicas": options.replicas,
                "results": out,
            },
            indent=1,
        )
    )
    if options.out:
        Path(options.out).write_text(json.dumps(out, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--objects", type=int, default=1000)
    parser.add_argument("--size", type=int, default=1, help="pods of a group")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rate", type=float, default=75, help="objects created per second, at most")
    parser.add_argument(
        "--replicas", type=int, default=10, help="replicas of each object in the second part; 1: no second part"
    )
    parser.add_argument("--rest", type=int, default=30)
    parser.add_argument("--losses", type=int, default=20)
    parser.add_argument("--chart", default="replicas=1", help="further values of the chart")
    parser.add_argument("--out", help="figures as JSON")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--metrics", help=argparse.SUPPRESS)
    options = parser.parse_args()
    inside(options) if options.inside else outer(options)


if __name__ == "__main__":
    main()
