# SPDX-License-Identifier: Apache-2.0
"""Tests server-side apply of children with a real API server: ports that change next to ports of other owners, a
PodMonitor whose CRD is missing or installed later, and a NetworkPolicy."""

import pytest
from apiserver import MERGE, ApiError
from world import NAME

MONITOR = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podmonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                },
            }
        ],
    },
}


OVER_NODES = {"model": {"source": "pvc://shared/stories"}, "devices": {"count": 2, "type": "CPU", "perNode": 1}}


def create(world, ns: str, **spec):
    """Creates a ParallelModel in a namespace of its own."""
    scenario = world(ns)
    scenario.api.create(
        "persistentvolumeclaims",
        scenario.ns,
        {
            "metadata": {"name": "shared"},
            "spec": {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    )
    scenario.api.create(
        "parallelmodels",
        scenario.ns,
        {
            "apiVersion": "parallelmodel.dev/v1alpha1",
            "kind": "ParallelModel",
            "metadata": {"name": NAME},
            "spec": {
                "model": {"source": "pvc://models/stories"},
                "devices": {"count": 2, "type": "CPU"},
                "resources": {"memory": "1Gi", "cpu": 1},
                **spec,
            },
        },
    )
    return scenario


def start(world, ns: str, **spec):
    """Creates a ParallelModel and waits until it serves."""
    scenario = create(world, ns, **spec)
    scenario.rest("the start", readyReplicas=spec.get("replicas", 1))
    return scenario


def ports(scenario) -> dict[int, str]:
    return {port["port"]: port["name"] for port in scenario.api.get("services", scenario.ns, NAME)["spec"]["ports"]}


def test_a_changed_port_replaces_ours_and_keeps_those_of_other_owners(world):
    scenario = start(world, "ports")
    assert ports(scenario) == {8000: "http"}
    for port in (80, 90):
        scenario.edit({"service": {"port": port}})
        scenario.api.wait_until(lambda: ports(scenario) == {port: "http"}, 20, f"port {port}")
    scenario.api.request(
        "PATCH",
        scenario.api.path("services", scenario.ns, NAME) + "?fieldManager=somebody",
        {"spec": {"ports": [{"name": "http", "port": 90, "targetPort": "http"}, {"name": "admin", "port": 9000}]}},
        MERGE,
    )
    scenario.edit({"service": {"port": 100, "type": "NodePort"}})
    scenario.api.wait_until(
        lambda: ports(scenario) == {100: "http", 9000: "admin"}, 20, "our port changes beside theirs"
    )
    scenario.quiet(1)
    service = scenario.api.get("services", scenario.ns, NAME)
    assert service["spec"]["type"] == "NodePort"
    ours = [entry for entry in service["metadata"]["managedFields"] if entry["manager"] == "parallelmodel-controller"]
    assert [entry["operation"] for entry in ours] == ["Apply"], ours


def test_a_changed_field_of_a_child_is_corrected(world):
    scenario = start(world, "corrected", replicas=2, **OVER_NODES)
    for plural, name, change in (
        ("services", NAME, {"spec": {"selector": {"parallelmodel.dev/node-rank": "7"}}}),
        ("services", f"{NAME}-ranks", {"spec": {"publishNotReadyAddresses": False}}),
        ("poddisruptionbudgets", NAME, {"spec": {"minAvailable": 9}}),
        ("services", NAME, {"metadata": {"labels": {"parallelmodel.dev/role": None}}}),
    ):
        before = scenario.api.get(plural, scenario.ns, name)
        scenario.api.patch(plural, scenario.ns, name, change)
        scenario.api.wait_until(
            lambda: (
                (now := scenario.api.get(plural, scenario.ns, name))["spec"] == before["spec"]
                and now["metadata"]["labels"] == before["metadata"]["labels"]
            ),
            20,
            f"{plural}/{name} is mended",
        )
    scenario.quiet(1)


def test_a_deleted_child_is_recreated_and_no_pod_restarts(world):
    scenario = start(world, "deleted", replicas=2, **OVER_NODES)
    pods = sorted(pod["metadata"]["uid"] for pod in scenario.api.list("pods", scenario.ns))
    for plural, name in (("services", NAME), ("services", f"{NAME}-ranks"), ("poddisruptionbudgets", NAME)):
        before = scenario.api.get(plural, scenario.ns, name)
        scenario.api.delete(plural, scenario.ns, name)
        scenario.api.wait_until(
            lambda: (
                (now := scenario.api.get(plural, scenario.ns, name))
                and now["metadata"]["uid"] != before["metadata"]["uid"]
            ),
            20,
            f"{plural}/{name} is back",
        )
    scenario.quiet(1)
    assert sorted(pod["metadata"]["uid"] for pod in scenario.api.list("pods", scenario.ns)) == pods


def test_children_of_multi_node_replicas_are_deleted_when_replicas_fit_one_node(world):
    scenario = start(world, "moved", **OVER_NODES)
    assert {item["metadata"]["name"] for item in scenario.api.list("services", scenario.ns)} == {
        NAME,
        f"{NAME}-ranks",
    } and scenario.api.list("poddisruptionbudgets", scenario.ns)
    scenario.edit({"devices": {"perNode": 2}, "update": {"maxSurge": 0}})
    scenario.rest("one node", readyReplicas=1, updatedReplicas=1)
    scenario.api.wait_until(
        lambda: (
            [item["metadata"]["name"] for item in scenario.api.list("services", scenario.ns)] == [NAME]
            and not scenario.api.list("poddisruptionbudgets", scenario.ns)
        ),
        20,
        "they go",
    )
    scenario.quiet(1)


def test_a_pod_monitor_is_created_once_its_crd_exists_and_deleted_when_disabled(world):
    scenario = start(world, "monitor", metrics={"podMonitor": True})
    path = f"/apis/monitoring.coreos.com/v1/namespaces/{scenario.ns}/podmonitors/{NAME}"

    def planned() -> str:
        return next(c["message"] for c in scenario.model()["status"]["conditions"] if c["type"] == "Planned")

    scenario.api.wait_until(lambda: "the Prometheus operator is not installed" in planned(), 10, "the message")
    scenario.quiet(1)
    scenario.api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", MONITOR)
    try:
        scenario.api.wait_until(
            lambda: scenario.api.exists("/apis/monitoring.coreos.com/v1/podmonitors"), 30, "the kind"
        )
        scenario.edit({"metrics": {"podMonitor": False}})
        scenario.api.wait_until(lambda: "podMonitor" not in scenario.model()["status"], 10, "it is not wanted any more")
        scenario.edit({"metrics": {"podMonitor": True}})
        scenario.api.wait_until(lambda: scenario.api.exists(path), 20, "the PodMonitor")
        assert scenario.api.request("GET", path)["spec"]["podMetricsEndpoints"] == [
            {"port": "admin", "path": "/metrics"}
        ]
        assert "Prometheus" not in planned()
        scenario.quiet(1)
        wanted = scenario.api.request("GET", path)["spec"]
        scenario.api.request("PATCH", path, {"spec": {"podMetricsEndpoints": [{"port": "other"}]}}, MERGE)
        scenario.kill()  # a new process reads the existing state
        scenario.api.wait_until(lambda: scenario.api.request("GET", path)["spec"] == wanted, 20, "it is corrected")
        scenario.edit({"metrics": {"podMonitor": False}})
        scenario.api.wait_until(lambda: not scenario.api.exists(path), 20, "its removal")
    finally:
        scenario.api.request(
            "DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podmonitors.monitoring.coreos.com"
        )


@pytest.mark.parametrize("way", ["before", "forwarded", "replied"])
def test_a_crash_at_any_request_of_a_port_change_converges_to_the_same_state(world, way):
    for number in range(4):
        scenario = start(world, f"port-{way}-{number}")
        done = scenario.proxy.mutating
        scenario.proxy.fault = lambda call: ("kill", way) if call.number == done + number else None
        scenario.edit({"service": {"port": 80}})
        scenario.api.wait_until(lambda: ports(scenario) == {80: "http"}, 30, "the port")
        scenario.quiet(0.5)
        scenario.close()


def test_a_network_policy_follows_the_spec(world):
    wanted = {"apiFrom": [{"namespaceLabels": {"team": "web"}, "podLabels": {"app": "chat"}}, {"cidr": "10.0.0.0/8"}]}
    scenario = start(world, "network", networkPolicy=wanted)
    path = f"/apis/networking.k8s.io/v1/namespaces/{scenario.ns}/networkpolicies/{NAME}"
    scenario.api.wait_until(lambda: scenario.api.exists(path), 20, "the NetworkPolicy")
    spec = scenario.api.request("GET", path)["spec"]
    among_ranks, api = spec["ingress"]
    assert among_ranks == {"from": [{"podSelector": spec["podSelector"]}]}
    assert api == {
        "ports": [{"port": 8000, "protocol": "TCP"}],
        "from": [
            {
                "namespaceSelector": {"matchLabels": {"team": "web"}},
                "podSelector": {"matchLabels": {"app": "chat"}},
            },
            {"ipBlock": {"cidr": "10.0.0.0/8"}},
        ],
    }, "without a namespace of its own the controller has no rule"
    scenario.quiet(1)
    scenario.edit({"networkPolicy": {"apiFrom": None, "adminFrom": [{"namespaceLabels": {"team": "metrics"}}]}})
    scenario.api.wait_until(
        lambda: (
            (rules := scenario.api.request("GET", path)["spec"]["ingress"])
            and len(rules) == 3
            and "from" not in rules[1]
            and rules[2]["from"] == [{"namespaceSelector": {"matchLabels": {"team": "metrics"}}}]
        ),
        20,
        "the API is open, and the admin port for metrics",
    )
    for peer, message in (
        ({}, "at least 1"),
        ({"cidr": "10.0.0.0"}, "must be a range of addresses"),
        ({"cidr": "10.0.0.0/8", "podLabels": {"a": "b"}}, "either cidr"),
    ):
        with pytest.raises(ApiError, match=message):
            scenario.edit({"networkPolicy": {"apiFrom": [peer]}})
    scenario.edit({"networkPolicy": None})
    scenario.api.wait_until(lambda: not scenario.api.exists(path), 20, "its removal")
