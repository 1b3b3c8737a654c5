# SPDX-License-Identifier: Apache-2.0
"""InferencePools and HTTPRoutes on a real API server with the CRDs of the Gateway API and of its inference extension,
which are installed while a ParallelModel waits for them."""

import sys

import pytest
import yaml
from apiserver import MERGE, ROOT, Api, ApiError
from test_children import start
from world import NAME

sys.path.append(str(ROOT / "tests" / "cluster"))
from cluster import gateway_crds  # noqa: E402

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROUTER = {
    "inferencePool": {"endpointPicker": {"name": "picker"}},
    "httpRoute": {
        "gateways": [{"name": "front", "namespace": "infra", "sectionName": "web"}],
        "hostnames": ["chat.example.com", "*.models.example.com"],
        "weight": 90,
        "canaries": [{"name": "next", "weight": 10}],
    },
}


def path(kind: str, ns: str, name: str = NAME) -> str:
    group = {"inferencepools": "inference.networking.k8s.io", "httproutes": "gateway.networking.k8s.io"}[kind]
    return f"/apis/{group}/v1/namespaces/{ns}/{kind}/{name}"


def planned(scenario) -> str:
    return next(c["message"] for c in scenario.model()["status"]["conditions"] if c["type"] == "Planned")


@pytest.fixture
def install(plane):
    """Returns a function that installs the CRDs; they are removed after the test."""
    api, made = Api(plane), []

    def install_all():
        for file in gateway_crds():
            definition = yaml.safe_load(file.read_text())
            api.request("POST", DEFINITIONS, definition)
            made.append(definition["metadata"]["name"])
        for name in made:
            plural, group = name.split(".", 1)
            api.wait_until(lambda: api.exists(f"/apis/{group}/v1/{plural}"), 30, f"the kind {name}")  # noqa: B023

    yield install_all
    for name in made:
        api.request("DELETE", f"{DEFINITIONS}/{name}")
        api.wait_until(lambda: not api.exists(f"{DEFINITIONS}/{name}"), 30, f"the end of {name}")  # noqa: B023


def create_canary(scenario) -> None:
    """A ParallelModel of the same model, which serves."""
    spec = {k: v for k, v in scenario.model()["spec"].items() if k != "router"}
    model = {"apiVersion": "parallelmodel.dev/v1alpha1", "kind": "ParallelModel", "metadata": {"name": "next"}}
    scenario.api.create("parallelmodels", scenario.ns, model | {"spec": spec | {"service": {"port": 80}}})


def test_a_pool_and_a_route_follow_the_spec_once_their_crds_exist(world, install):
    scenario = start(world, "gateway", router=ROUTER)
    for message in (
        "the cluster has no HTTPRoute: the Gateway API is not installed",
        "the cluster has no InferencePool: the inference extension of the Gateway API is not installed",
        "canary next takes no requests: there is no ParallelModel of this name",
    ):
        scenario.api.wait_until(lambda: message in planned(scenario), 10, message)  # noqa: B023
    scenario.quiet(1)
    install()
    create_canary(scenario)  # its changes queue the model that names it: nobody waits for five minutes
    route, pool = path("httproutes", scenario.ns), path("inferencepools", scenario.ns)

    def backends():
        if not scenario.api.exists(route):
            return None
        rule = scenario.api.request("GET", route)["spec"]["rules"][0]
        return [(one["kind"], one["name"], one.get("port"), one["weight"]) for one in rule["backendRefs"]]

    both = [("InferencePool", NAME, None, 90), ("Service", "next", 80, 10)]
    scenario.api.wait_until(lambda: backends() == both, 60, "the share of the canary")
    assert scenario.api.request("GET", route)["spec"]["parentRefs"] == [
        {
            "group": "gateway.networking.k8s.io",
            "kind": "Gateway",
            "name": "front",
            "namespace": "infra",
            "sectionName": "web",
        }
    ]
    assert scenario.api.request("GET", pool)["spec"]["endpointPickerRef"]["failureMode"] == "FailOpen"
    scenario.api.wait_until(lambda: "HTTPRoute" not in planned(scenario), 10, "the message goes")
    scenario.quiet(1)

    scenario.api.request("PATCH", route, {"spec": {"hostnames": ["wrong.example.com"]}}, MERGE)
    scenario.kill()  # a new process reads the existing state
    scenario.api.wait_until(
        lambda: scenario.api.request("GET", route)["spec"]["hostnames"] == ROUTER["httpRoute"]["hostnames"],
        30,
        "the host is corrected",
    )
    scenario.edit({"router": {"inferencePool": {"endpointPicker": {"port": 9003}}}})
    scenario.api.wait_until(
        lambda: scenario.api.request("GET", pool)["spec"]["endpointPickerRef"]["port"] == {"number": 9003},
        20,
        "the pool follows",
    )
    scenario.api.patch("parallelmodels", scenario.ns, "next", {"spec": {"replicas": 0}})
    scenario.api.wait_until(lambda: backends() == both[:1], 60, "a canary that does not serve takes no requests")
    scenario.api.patch("parallelmodels", scenario.ns, "next", {"spec": {"replicas": 1}})
    scenario.api.wait_until(lambda: backends() == both, 60, "its share again")
    scenario.edit({"router": {"httpRoute": {"canaries": None, "weight": None}, "inferencePool": None}})
    scenario.api.wait_until(lambda: backends() == [("Service", NAME, 8000, 100)], 20, "the canary ends in one patch")
    scenario.api.wait_until(lambda: not scenario.api.exists(pool), 20, "the pool goes")
    scenario.edit({"router": None})
    scenario.api.wait_until(lambda: not scenario.api.exists(route), 20, "the route goes")
    scenario.quiet(1)


def test_what_no_gateway_could_do_is_refused_at_admission(world):
    scenario = start(world, "gateway-refused")
    for router, message in (
        ({"httpRoute": {}}, "gateways"),
        ({"httpRoute": {"gateways": []}}, "gateways"),
        ({"inferencePool": {}}, "endpointPicker"),
        ({"httpRoute": {"gateways": [{"name": "Front"}]}}, "must be a name"),
        ({"httpRoute": {"gateways": [{"name": "front"}], "hostnames": ["http://x"]}}, "must be a host"),
        (
            {"httpRoute": {"gateways": [{"name": "front"}], "canaries": [{"name": NAME, "weight": 1}]}},
            "must name other ParallelModels",
        ),
        ({"httpRoute": {"gateways": [{"name": "front"}], "canaries": [{"name": "a", "weight": -1}]}}, "weight"),
        (
            {"httpRoute": {"gateways": [{"name": "front"}], "canaries": [{"name": "a", "weight": 1}] * 2}},
            "Duplicate value",
        ),
    ):
        with pytest.raises(ApiError, match=message):
            scenario.edit({"router": router})
    with pytest.raises(ApiError, match="gateways speak plain HTTP"):
        scenario.edit({"router": ROUTER, "service": {"tlsSecretRef": {"name": "certificate"}}})
