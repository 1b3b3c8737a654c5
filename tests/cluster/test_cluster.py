# SPDX-License-Identifier: Apache-2.0
"""Tests that the test cluster does what its README says. They run by `make test-cluster`, or by hand: python3 -m pytest
tests/cluster"""

import json
import subprocess
import threading
from pathlib import Path

import pytest
from cluster import Cluster, ClusterError, NotFound, TimedOut, build, tools_image

PROGRAMS = ["/bin/bash", "/usr/bin/curl", "/usr/bin/getent", "/usr/bin/id", "/bin/cat", "/bin/sleep", "/bin/df"]
NAMESPACE = """
apiVersion: v1
kind: Namespace
metadata: {name: NAME, labels: {pod-security.kubernetes.io/enforce: restricted}}
"""


def pod(name: str, namespace: str, node: str = "", gpus: int = 0, volumes: dict[str, dict] | None = None) -> dict:
    container = {
        "name": "c",
        "image": "localhost/tools:test",
        "imagePullPolicy": "Never",
        "command": ["sleep", "infinity"],
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}},
        "volumeMounts": [{"name": name, "mountPath": "/" + name, "readOnly": True} for name in volumes or {}],
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": name, **source} for name, source in (volumes or {}).items()],
        "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": spec,
    }


def is_ready(cluster: Cluster, kind: str, name: str, namespace: str | None = None) -> bool:
    conditions = cluster.get(kind, name, namespace)["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def gpus(cluster: Cluster, node: str) -> str:
    return cluster.get("node", node)["status"]["allocatable"].get("nvidia.com/gpu", "0")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    tools = tools_image(tmp_path_factory.mktemp("image") / "tools.tar", PROGRAMS)
    with Cluster.up("selftest", nodes=2, fake_gpus=[4, 2], images=[tools], audit=True, fast_failure=True) as cluster:
        yield cluster


@pytest.fixture
def namespace(cluster, request):
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50].strip("-")
    cluster.apply(NAMESPACE.replace("NAME", name))
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def test_a_cluster_whose_test_run_was_killed_makes_way_and_one_in_use_does_not(tmp_path):
    start = (
        f"import sys, time; sys.path.insert(0, {str(Path(__file__).parent)!r}); from cluster import Cluster; "
        f"Cluster.up({str(tmp_path / 'left')!r}); print(flush=True); time.sleep(600)"
    )
    run = subprocess.Popen(["python3", "-c", start], stdout=subprocess.PIPE)
    try:
        assert run.stdout.readline() == b"\n"
        with pytest.raises(ClusterError, match="already up"):
            Cluster.up(str(tmp_path / "left"))
    finally:
        run.kill()
        run.wait()
    with Cluster.up(str(tmp_path / "left")) as cluster:
        assert cluster.list("nodes")


def test_a_restricted_pod_runs_and_an_unrestricted_one_is_refused(cluster, namespace):
    cluster.apply(pod("good", namespace))
    cluster.wait_for(lambda: is_ready(cluster, "pod", "good", namespace), 30)
    assert "uid=65532" in cluster.kubectl("exec", "-n", namespace, "good", "--", "id")
    with pytest.raises(ClusterError, match="violates PodSecurity"):
        cluster.kubectl("run", "bad", "-n", namespace, "--image=localhost/tools:test")


def test_pods_and_tests_reach_services_by_name_across_nodes(cluster, namespace):
    for node in ("node0", "node1"):
        cluster.apply(pod(node, namespace, node=node))
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "echo", "namespace": namespace},
            "spec": {"selector": {"app": "node1"}, "ports": [{"port": 80, "targetPort": 8080}]},
        }
    )
    for node in ("node0", "node1"):
        cluster.wait_for(lambda: is_ready(cluster, "pod", node, namespace), 30)
    inside = ["exec", "-n", namespace, "node0", "--"]
    address = cluster.get("service", "echo", namespace)["spec"]["clusterIP"]
    assert address in cluster.kubectl(*inside, "getent", "hosts", "echo")
    assert address in cluster.exec("getent", "hosts", f"echo.{namespace}")
    assert "401" in cluster.kubectl(
        *inside, "curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "https://kubernetes.default/"
    )
    peer = cluster.get("pod", "node1", namespace)["status"]["podIP"]
    refused = cluster.kubectl(
        *inside, "curl", "-s", "-o", "/dev/null", "-w", "%{errormsg}", f"http://{peer}:8080/", check=False
    )
    assert "Connection refused" in refused or "Couldn't connect" in refused


def test_fake_gpus_are_counted_and_handed_out(cluster, namespace):
    assert (gpus(cluster, "node0"), gpus(cluster, "node1")) == ("4", "2")
    cluster.apply(pod("three", namespace, gpus=3))
    cluster.apply(pod("five", namespace, gpus=5))
    cluster.wait_for(lambda: is_ready(cluster, "pod", "three", namespace), 30)
    assert (
        cluster.kubectl("exec", "-n", namespace, "three", "--", "bash", "-c", "echo $FAKE_VISIBLE_DEVICES").count(
            "fake-"
        )
        == 3
    )
    conditions = cluster.wait_for(lambda: cluster.get("pod", "five", namespace)["status"].get("conditions"), 10)
    assert "Insufficient nvidia.com/gpu" in conditions[0]["message"]


def test_a_folder_of_the_machine_is_a_volume_of_a_restricted_pod(cluster, namespace, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    cluster.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": namespace},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadOnlyMany"],
                    "hostPath": {"path": str(tmp_path)},
                    "storageClassName": "",
                    "claimRef": {"namespace": namespace, "name": "model"},
                },
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "model", "namespace": namespace},
                "spec": {
                    "accessModes": ["ReadOnlyMany"],
                    "storageClassName": "",
                    "volumeName": namespace,
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            },
            pod("reader", namespace, volumes={"model": {"persistentVolumeClaim": {"claimName": "model"}}}),
        ]
    )
    cluster.wait_for(lambda: is_ready(cluster, "pod", "reader", namespace), 30)
    assert json.loads(cluster.kubectl("exec", "-n", namespace, "reader", "--", "cat", "/model/config.json")) == {
        "model_type": "gpt2"
    }


def test_an_image_loaded_later_runs_on_every_node(cluster, namespace, tmp_path):
    cluster.load(tools_image(tmp_path / "late.tar", ["/bin/sleep"], "localhost/late:test"))
    for node in ("node0", "node1"):
        late = pod("late-" + node, namespace, node=node)
        late["spec"]["containers"][0]["image"] = "localhost/late:test"
        cluster.apply(late)
    for node in ("node0", "node1"):
        cluster.wait_for(lambda: is_ready(cluster, "pod", "late-" + node, namespace), 30)


def test_helm_lints_installs_and_removes_a_chart(cluster, namespace, tmp_path):
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text(
        "apiVersion: v2\nname: tiny\nversion: 0.1.0\nicon: https://localhost/icon.png\n"
    )
    (tmp_path / "values.yaml").write_text("word: hello\n")
    (tmp_path / "templates" / "map.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tiny}\n"
        "data: {word: {{ .Values.word }}, version: {{ .Capabilities.KubeVersion }}}\n"
    )
    assert "0 chart(s) failed" in cluster.helm("lint", str(tmp_path))
    cluster.helm("install", "tiny", str(tmp_path), "-n", namespace, "--set", "word=goodbye")
    assert cluster.get("configmap", "tiny", namespace)["data"] == {"word": "goodbye", "version": "v1.36.3"}
    cluster.helm("uninstall", "tiny", "-n", namespace)
    assert not cluster.exists("configmap", "tiny", namespace)


def test_a_webhook_call_from_the_api_server_reaches_a_cluster_ip(cluster, namespace):
    """The api server's proxy goes the same way as a webhook: over the control plane's own kube-proxy."""
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "api", "namespace": "default"},
            "spec": {"ports": [{"port": 443, "targetPort": 6443}]},
        }
    )
    cluster.apply(
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "addressType": "IPv4",
            "metadata": {"name": "api-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "api"}},
            "endpoints": [{"addresses": ["10.99.0.1"]}],
            "ports": [{"port": 6443}],
        }
    )
    address = cluster.get("service", "api", "default")["spec"]["clusterIP"]
    cluster.wait_for(
        lambda: (
            "401"
            in cluster.exec(
                "curl", "-sk", "-m", "2", "-o", "/dev/null", "-w", "%{http_code}", f"https://{address}/", check=False
            )
        ),
        10,
    )


def test_the_audit_log_names_who_asked_for_what(cluster):
    cluster.kubectl("get", "configmaps", "-n", "kube-system")
    requests = [
        (entry["user"]["username"], entry["verb"], entry["objectRef"].get("resource"))
        for entry in cluster.audit()
        if "objectRef" in entry
    ]
    assert ("admin", "list", "configmaps") in requests


def test_missing_objects_and_waits_that_fail_are_told_apart(cluster):
    with pytest.raises(NotFound):
        cluster.get("pod", "nobody", "default")
    with pytest.raises(TimedOut, match="the moon.*last: False"):
        cluster.wait_for(lambda: False, 0.1, what="the moon")


def test_the_control_plane_comes_back_after_sigkill(cluster):
    for part in ("apiserver", "kcm", "scheduler"):
        cluster.kill("control", part)
    cluster.start("control", "apiserver")
    cluster.wait_for(lambda: "ok" in cluster.kubectl("get", "--raw", "/readyz"), 60)
    cluster.start("control", "kcm")
    cluster.start("control", "scheduler")


def test_pods_survive_containerd_and_kubelet(cluster, namespace):
    cluster.apply(pod("keep", namespace, node="node0"))
    cluster.wait_for(lambda: is_ready(cluster, "pod", "keep", namespace), 30)
    for part in ("containerd", "kubelet"):
        cluster.kill("node0", part)
        cluster.start("node0", part)
    cluster.wait_for(lambda: "uid" in cluster.kubectl("exec", "-n", namespace, "keep", "--", "id"), 60)
    assert cluster.get("pod", "keep", namespace)["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_node_without_power_is_noticed_and_returns(cluster, namespace):
    cluster.apply(pod("lost", namespace, node="node1"))
    cluster.wait_for(lambda: is_ready(cluster, "pod", "lost", namespace), 60)
    cluster.kill("node1", "node")
    cluster.wait_for(lambda: not is_ready(cluster, "node", "node1"), 30, "node1 counted as dead")
    cluster.wait_for(
        lambda: "deletionTimestamp" in cluster.get("pod", "lost", namespace)["metadata"], 60, "pod evicted"
    )
    with pytest.raises(ClusterError, match="node1 is off"):
        cluster.load("/dev/null")
    cluster.start("node1", "node")
    cluster.wait_for(lambda: is_ready(cluster, "node", "node1"), 90, "node1 back")
    cluster.wait_for(lambda: gpus(cluster, "node1") == "2", 60, "fake devices back")


def traces() -> set[str]:
    """What a cluster could leave on the machine."""

    def output(*command: str) -> list[str]:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    links = {"link " + line.split()[0] for line in output("ip", "-br", "link")}
    mounts = {"mount " + line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    cgroups = {"cgroup " + str(path) for path in Path("/sys/fs/cgroup").glob("**/pm-leave*")}
    programs = {"process " + line for line in output("ps", "-eo", "args=") if "/leave" in line and "pytest" not in line}
    sysctls = {
        f"{name}={Path('/proc/sys', name).read_text()}"
        for name in ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "net/ipv4/ip_forward")
    }
    return links | mounts | cgroups | programs | sysctls


def test_two_clusters_side_by_side_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.delenv("PM_CLUSTER", raising=False)
    build()
    before = traces()
    names = [str(tmp_path / "leave-1"), str(tmp_path / "leave-2")]
    clusters: list[Cluster] = []
    threads = [threading.Thread(target=lambda name=name: clusters.append(Cluster.up(name))) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(clusters) == 2
    assert any("pm-leave" in trace for trace in traces() - before)
    for cluster in clusters:
        cluster.down()
    assert traces() - before == set()
    assert before - traces() == set()
