# SPDX-License-Identifier: Apache-2.0
"""Dynamic resource allocation on a real API server: a plan from a DeviceClass and ResourceSlices that are written by
hand, and the ResourceClaimTemplates of models that claim their devices."""

import json

import pytest
from apiserver import Api, ApiError
from test_children import create, start
from world import NAME

RESOURCE = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.example.com"
CLASS = "example-gpus"
EXTENDED = "example.com/gpu"
SHARED = {"model": {"source": "pvc://shared/stories"}}


@pytest.fixture(autouse=True)
def served(plane):
    if not Api(plane).exists(RESOURCE):
        pytest.skip("this API server has no resource.k8s.io/v1")


@pytest.fixture
def publish(plane):
    """Returns a function that creates an object without a namespace; all of them are removed after the test."""
    api, made = Api(plane), []

    def create(plural: str, name: str, spec: dict) -> None:
        kind = {"deviceclasses": "DeviceClass", "resourceslices": "ResourceSlice"}[plural]
        body = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        api.request("POST", f"{RESOURCE}/{plural}", body)
        made.append(f"{RESOURCE}/{plural}/{name}")

    yield create
    for path in made:
        api.request("DELETE", path)


def device_class(**more) -> dict:
    return {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}], **more}


def slice_of(node: str, *memory: str) -> dict:
    return {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": f"gpu-{n}",
                "attributes": {"productName": {"string": "Example"}, "index": {"int": n}},
                "capacity": {"memory": {"value": one}},
            }
            for n, one in enumerate(memory)
        ],
    }


def message(scenario, condition: str) -> str:
    conditions = scenario.model().get("status", {}).get("conditions", [])
    return next((one["message"] for one in conditions if one["type"] == condition), "")


def templates(scenario) -> dict[str, dict]:
    """Returns the request of each template by its name."""
    return {
        one["metadata"]["name"]: one["spec"]["spec"]["devices"]["requests"][0]["exactly"]
        for one in scenario.api.list("resourceclaimtemplates", scenario.ns)
    }


def workers(scenario) -> list[dict]:
    path = scenario.api.path("pods", scenario.ns)
    pods = scenario.api.request("GET", f"{path}?labelSelector=parallelmodel.dev/role=worker")["items"]
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def plan(scenario) -> dict:
    name = f"{NAME}-plan-{scenario.model()['status']['plan']['planHash']}"
    return json.loads(scenario.api.get("configmaps", scenario.ns, name)["data"]["plan.json"])


def test_gpus_of_slices_are_planned_without_a_claim(world, publish):
    publish("deviceclasses", CLASS, device_class(extendedResourceName=EXTENDED))
    publish("resourceslices", "elsewhere", slice_of("node-z", "1Gi"))
    gpus = {"count": 2, "type": "GPU", "resource": EXTENDED}
    scenario = create(world, "slices", devices=gpus, resources=None)
    wanted = f"DeviceClass {CLASS} selects no device of any ResourceSlice on admitted nodes"
    scenario.api.wait_until(lambda: wanted in message(scenario, "Planned"), 20, wanted)
    scenario.quiet(1)
    publish("resourceslices", "here", slice_of("node-a", "24Gi", "16Gi"))
    scenario.kill()  # slices are not watched: a new process looks at once, the old one within a minute
    scenario.rest("the plan", readyReplicas=1)
    assert plan(scenario)["memorySource"] == "ResourceSlice"
    [pod] = workers(scenario)
    assert pod["spec"]["containers"][0]["resources"]["limits"][EXTENDED] == "2"
    assert "resourceClaims" not in pod["spec"] and not templates(scenario)
    scenario.quiet(1)


def test_a_claim_plans_from_its_class_and_the_class_of_a_resource_may_be_named(world, publish):
    publish("deviceclasses", CLASS, device_class())
    publish("resourceslices", "here", slice_of("node-a", "24Gi", "1Mi"))
    claim = {"deviceClassName": CLASS, "selectors": [f"device.attributes['{DRIVER}'].index == 0"]}
    scenario = start(world, "slices-claimed", devices={"count": 1, "type": "GPU", "claim": claim}, resources=None)
    scenario.rest("the plan of the claim", readyReplicas=1)
    assert plan(scenario)["memorySource"] == "ResourceSlice"
    # The class alone selects the small device too.
    scenario.edit({"devices": {"claim": None, "resource": f"deviceclass.resource.kubernetes.io/{CLASS}"}})
    scenario.api.wait_until(lambda: "DoesNotFit" in str(scenario.model()["status"]["conditions"]), 20, "no room")
    scenario.edit({"devices": {"memory": "8Gi"}})
    scenario.rest("the class by its name as a resource", readyReplicas=1, updatedReplicas=1)
    scenario.api.wait_until(lambda: not templates(scenario), 20, "no template is left")


def test_templates_are_made_before_pods_and_removed_after_them(world):
    claim = {"deviceClassName": CLASS, "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    devices = {"count": 3, "perNode": 2, "type": "CPU", "claim": claim}
    data = {"parallelism": {"strategy": "Data"}, "resources": {"memory": "2Gi", "cpu": 1}}
    scenario = start(world, "claims", devices=devices, **SHARED, **data)
    scenario.rest("pods with claims", readyReplicas=1)
    first = templates(scenario)
    assert sorted(one["count"] for one in first.values()) == [1, 2]
    for pod in workers(scenario):
        [of_pod] = pod["spec"]["resourceClaims"]
        rank = int(pod["metadata"]["labels"]["parallelmodel.dev/node-rank"])
        assert first[of_pod["resourceClaimTemplateName"]]["count"] == 2 - rank
        assert pod["spec"]["containers"][0]["resources"]["claims"] == [{"name": of_pod["name"]}]
    scenario.quiet(1)
    scenario.kill()
    scenario.edit({"devices": {"claim": {"selectors": [f"device.driver == '{DRIVER}'"], "matchAttribute": None}}})
    scenario.rest("another claim", readyReplicas=1, updatedReplicas=1)
    scenario.api.wait_until(lambda: not first.keys() & templates(scenario).keys(), 20, "the first templates go")
    assert len(templates(scenario)) == 2

    def recorded():
        return scenario.model()["status"]["resourceClaimTemplates"] == sorted(templates(scenario))

    scenario.api.wait_until(recorded, 20, "the status names those that are left")
    scenario.edit({"devices": {"claim": None}})
    scenario.rest("no claim", readyReplicas=1, updatedReplicas=1)
    scenario.api.wait_until(lambda: not templates(scenario), 20, "no template is left")
    scenario.quiet(1)


def test_a_selector_that_is_no_cel_is_reported_and_makes_no_pod(world):
    claim = {"deviceClassName": CLASS, "selectors": ["device.driver =="]}
    scenario = create(world, "claims-refused", devices={"count": 1, "type": "CPU", "claim": claim})
    scenario.api.wait_until(lambda: "the API server refuses it" in message(scenario, "Scheduled"), 20, "the refusal")
    assert not workers(scenario)
    scenario.quiet(1)
    scenario.edit({"devices": {"claim": {"selectors": None}}})
    scenario.rest("a good claim", readyReplicas=1)


def test_a_template_of_somebody_else_is_a_conflict(world):
    scenario = start(world, "claims-foreign", devices={"count": 1, "type": "CPU", "claim": {"deviceClassName": CLASS}})
    scenario.rest("the template", readyReplicas=1)
    [name] = templates(scenario)
    path = scenario.api.path("resourceclaimtemplates", scenario.ns, name)
    scenario.api.request("PATCH", path, {"metadata": {"ownerReferences": None}}, "application/merge-patch+json")
    scenario.edit({"replicas": 2})
    expected = f"ResourceClaimTemplate {name} exists and is not owned by this ParallelModel"
    scenario.api.wait_until(lambda: expected in message(scenario, "Stalled"), 20, expected)
    scenario.api.delete("resourceclaimtemplates", scenario.ns, name)
    scenario.kill()
    scenario.rest("its own again", readyReplicas=2)


def test_what_no_pod_could_claim_is_refused_at_admission(world):
    scenario = start(world, "claims-admission")
    for devices, expected in (
        ({"claim": {}}, "deviceClassName"),
        ({"claim": {"deviceClassName": "A/b"}}, "must be the name of a DeviceClass"),
        ({"claim": {"deviceClassName": CLASS}, "resource": EXTENDED}, "both say which devices"),
        ({"claim": {"deviceClassName": CLASS, "selectors": []}}, "selectors"),
        ({"claim": {"deviceClassName": CLASS, "selectors": ["true"] * 9}}, "selectors"),
        ({"claim": {"deviceClassName": CLASS, "matchAttribute": "pcieRoot"}}, "must be DOMAIN/NAME"),
    ):
        with pytest.raises(ApiError, match=expected):
            scenario.edit({"devices": devices})
