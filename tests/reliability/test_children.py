"""What a real API server makes of our applies: ports that change beside ports of others, and a PodMonitor where its kind is not, or only later, known."""
import pytest
from apiserver import MERGE
from world import NAME

MONITOR = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "podmonitors.monitoring.coreos.com"},
           "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
                    "versions": [{"name": "v1", "served": True, "storage": True,
                                  "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}}}]}}


OVER_NODES = {"model": {"source": "pvc://shared/stories"}, "devices": {"count": 2, "type": "CPU", "perNode": 1}}


def start(world, ns: str, **spec):
    story = world(ns)
    story.api.create("persistentvolumeclaims", story.ns, {"metadata": {"name": "shared"}, "spec": {"accessModes": ["ReadOnlyMany"], "resources": {"requests": {"storage": "1Gi"}}}})
    story.api.create("parallelmodels", story.ns, {
        "apiVersion": "parallelmodel.dev/v1alpha1", "kind": "ParallelModel", "metadata": {"name": NAME},
        "spec": {"model": {"source": "pvc://models/stories"}, "devices": {"count": 2, "type": "CPU"}, "resources": {"memory": "1Gi", "cpu": 1}, **spec}})
    story.rest("the start", readyReplicas=spec.get("replicas", 1))
    return story


def ports(story) -> dict[int, str]:
    return {port["port"]: port["name"] for port in story.api.get("services", story.ns, NAME)["spec"]["ports"]}


def test_a_port_that_changes_replaces_ours_and_leaves_those_of_others(world):
    story = start(world, "ports")
    assert ports(story) == {8000: "http"}
    for port in (80, 90):
        story.edit({"service": {"port": port}})
        story.api.wait_until(lambda: ports(story) == {port: "http"}, 20, f"port {port}")
    story.api.request("PATCH", story.api.path("services", story.ns, NAME) + "?fieldManager=somebody",
                      {"spec": {"ports": [{"name": "http", "port": 90, "targetPort": "http"}, {"name": "admin", "port": 9000}]}}, MERGE)
    story.edit({"service": {"port": 100, "type": "NodePort"}})
    story.api.wait_until(lambda: ports(story) == {100: "http", 9000: "admin"}, 20, "our port changes beside theirs")
    story.quiet(1)
    service = story.api.get("services", story.ns, NAME)
    assert service["spec"]["type"] == "NodePort"
    ours = [entry for entry in service["metadata"]["managedFields"] if entry["manager"] == "parallelmodel-controller"]
    assert [entry["operation"] for entry in ours] == ["Apply"], ours


def test_fields_of_ours_that_somebody_changes_come_back(world):
    story = start(world, "mended", replicas=2, **OVER_NODES)
    for plural, name, change in (("services", NAME, {"spec": {"selector": {"parallelmodel.dev/node-rank": "7"}}}), ("services", f"{NAME}-ranks", {"spec": {"publishNotReadyAddresses": False}}),
                                 ("poddisruptionbudgets", NAME, {"spec": {"minAvailable": 9}}), ("services", NAME, {"metadata": {"labels": {"parallelmodel.dev/role": None}}})):
        before = story.api.get(plural, story.ns, name)
        story.api.patch(plural, story.ns, name, change)
        story.api.wait_until(lambda: (now := story.api.get(plural, story.ns, name))["spec"] == before["spec"] and now["metadata"]["labels"] == before["metadata"]["labels"], 20, f"{plural}/{name} is mended")
    story.quiet(1)


def test_children_that_somebody_deletes_come_back_and_no_pod_notices(world):
    story = start(world, "deleted", replicas=2, **OVER_NODES)
    pods = sorted(pod["metadata"]["uid"] for pod in story.api.list("pods", story.ns))
    for plural, name in (("services", NAME), ("services", f"{NAME}-ranks"), ("poddisruptionbudgets", NAME)):
        before = story.api.get(plural, story.ns, name)
        story.api.delete(plural, story.ns, name)
        story.api.wait_until(lambda: (now := story.api.get(plural, story.ns, name)) and now["metadata"]["uid"] != before["metadata"]["uid"], 20, f"{plural}/{name} is back")
    story.quiet(1)
    assert sorted(pod["metadata"]["uid"] for pod in story.api.list("pods", story.ns)) == pods


def test_what_groups_over_nodes_ask_for_goes_when_they_are_on_one(world):
    story = start(world, "moved", **OVER_NODES)
    assert {item["metadata"]["name"] for item in story.api.list("services", story.ns)} == {NAME, f"{NAME}-ranks"} and story.api.list("poddisruptionbudgets", story.ns)
    story.edit({"devices": {"perNode": 2}})
    story.rest("one node", readyReplicas=1, updatedReplicas=1)
    story.api.wait_until(lambda: [item["metadata"]["name"] for item in story.api.list("services", story.ns)] == [NAME] and not story.api.list("poddisruptionbudgets", story.ns), 20, "they go")
    story.quiet(1)


def test_a_pod_monitor_is_made_when_its_kind_is_known_and_removed_when_not_wanted(world):
    story = start(world, "monitor", metrics={"podMonitor": True})
    path = f"/apis/monitoring.coreos.com/v1/namespaces/{story.ns}/podmonitors/{NAME}"

    def planned() -> str:
        return next(c["message"] for c in story.model()["status"]["conditions"] if c["type"] == "Planned")
    story.api.wait_until(lambda: "the Prometheus operator is not installed" in planned(), 10, "the message")
    story.quiet(1)
    story.api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", MONITOR)
    try:
        story.api.wait_until(lambda: story.api.exists("/apis/monitoring.coreos.com/v1/podmonitors"), 30, "the kind")
        story.edit({"metrics": {"podMonitor": False}})
        story.api.wait_until(lambda: "podMonitor" not in story.model()["status"], 10, "it is not wanted any more")
        story.edit({"metrics": {"podMonitor": True}})
        story.api.wait_until(lambda: story.api.exists(path), 20, "the PodMonitor")
        assert story.api.request("GET", path)["spec"]["podMetricsEndpoints"] == [{"port": "ops", "path": "/metrics"}]
        assert "Prometheus" not in planned()
        story.quiet(1)
        wanted = story.api.request("GET", path)["spec"]
        story.api.request("PATCH", path, {"spec": {"podMetricsEndpoints": [{"port": "other"}]}}, MERGE)
        story.kill()        # a new process looks at what is there
        story.api.wait_until(lambda: story.api.request("GET", path)["spec"] == wanted, 20, "it is mended")
        story.edit({"metrics": {"podMonitor": False}})
        story.api.wait_until(lambda: not story.api.exists(path), 20, "its removal")
    finally:
        story.api.request("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podmonitors.monitoring.coreos.com")


@pytest.mark.parametrize("way", ["before", "forwarded", "replied"])
def test_killed_at_any_request_of_a_changed_port_it_ends_the_same(world, way):
    for number in range(4):
        story = start(world, f"port-{way}-{number}")
        done = story.proxy.mutating
        story.proxy.fault = lambda call: ("kill", way) if call.number == done + number else None
        story.edit({"service": {"port": 80}})
        story.api.wait_until(lambda: ports(story) == {80: "http"}, 30, "the port")
        story.quiet(0.5)
        story.close()
