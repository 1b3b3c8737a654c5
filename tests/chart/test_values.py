# SPDX-License-Identifier: Apache-2.0
"""Tests of the chart's templates: every value has a schema, a row in the reference, and an effect."""

import base64
import json
import re
import shutil
import subprocess

import pytest
import yaml
from conftest import CHART, ROOT, SYSTEM

VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
PAGE = (ROOT / "docs" / "reference" / "chart.md").read_text()
DIGEST = "sha256:" + 64 * "a"
SPREAD = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}

# A value other than the default for each value of the chart; a pair has other values without which it has no effect.
OTHER = {
    "image.repository": "r/c",
    "image.tag": "2",
    "image.digest": DIGEST,
    "image.pullPolicy": "Always",
    "worker.image.repository": "r/w",
    "worker.image.tag": "2",
    "worker.image.digest": DIGEST,
    "worker.cudaImage.repository": "r/g",
    "worker.cudaImage.tag": "2",
    "worker.cudaImage.digest": DIGEST,
    "worker.readOnlyRootFilesystem": False,
    "imagePullSecrets": [{"name": "pull"}],
    "replicas": 3,
    "replicaCount": 3,
    "client.qps": 7,
    "client.burst": 7,
    "watchNamespace": "models",
    "nodes.read": False,
    "crds.install": False,
    "rbac.create": False,
    "rbac.aggregate": False,
    "dra.enabled": True,
    "gatewayApi.enabled": True,
    "networkPolicies.enabled": True,
    "podGroups.enabled": True,
    "podMonitors.enabled": True,
    "dashboard.create": True,
    "dashboard.labels": ({"a": "b"}, {"dashboard": {"create": True}}),
    "alerts.create": True,
    "alerts.labels": ({"a": "b"}, {"alerts": {"create": True}}),
    "alerts.runbooks": ("https://git.example/parallelmodel", {"alerts": {"create": True}}),
    "metrics.serviceMonitor.enabled": True,
    "metrics.serviceMonitor.interval": ("5s", {"metrics": {"serviceMonitor": {"enabled": True}}}),
    "metrics.serviceMonitor.labels": ({"a": "b"}, {"metrics": {"serviceMonitor": {"enabled": True}}}),
    "tests.image.repository": "r/t",
    "tests.image.tag": "2",
    "tests.image.digest": DIGEST,
    "tests.image.pullPolicy": "Always",
    "tests.shell": "/bin/bash",
    "tests.source": "pvc://models/gpt2",
    "tests.namespace": "models",
    "tests.timeoutSeconds": 7,
    "serviceAccount.create": False,
    "serviceAccount.name": "mine",
    "serviceAccount.annotations": {"a": "b"},
    "nameOverride": "other",
    "fullnameOverride": "other",
    "commonLabels": {"a": "b"},
    "podLabels": {"a": "b"},
    "podAnnotations": {"a": "b"},
    "resources.requests.cpu": "1",
    "resources.requests.memory": "1Gi",
    "resources.limits.memory": "1Gi",
    "podSecurityContext": {"fsGroup": 7},
    "securityContext": {"runAsUser": 7},
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [SPREAD],
    "priorityClassName": "high",
    "extraArgs": ["--verbose"],
    "extraEnv": [{"name": "A", "value": "b"}],
}


def leaves(values, path=""):
    """Returns {dotted path: default}; an empty object is a leaf, and so are the labels that have a default."""
    if isinstance(values, dict) and values and not path.endswith("labels"):
        return {k: v for name, one in values.items() for k, v in leaves(one, f"{path}.{name}".strip(".")).items()}
    return {path: values}


def nested(path, value):
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def merged(a, b):
    return {**a, **b, **{k: merged(a[k], b[k]) for k in a.keys() & b.keys() if isinstance(a[k], dict)}}


def deployment(objects):
    [found] = [one for one in objects if one["kind"] == "Deployment"]
    return found


def test_every_value_has_a_row_in_the_reference_with_its_default():
    rows = dict(re.findall(r"^\| `([\w.]+)` \| `?(.*?)`? \|", PAGE, re.M))
    assert rows.keys() == leaves(VALUES).keys()
    assert {name: yaml.safe_load(text) for name, text in rows.items()} == leaves(VALUES)


@pytest.mark.parametrize("path", leaves(VALUES))
def test_every_value_is_in_the_schema(path):
    node = SCHEMA
    for name in path.split("."):
        if path.startswith("resources."):  # passed through unchanged, as any container's
            break
        assert node["additionalProperties"] is False
        node = node["properties"][name]
    assert node.keys() & {"type", "enum", "$ref"}


def test_every_property_of_the_schema_is_a_value():
    def walk(node, path):
        for name, child in node.get("properties", {}).items():
            here = f"{path}.{name}".strip(".")
            yield from walk(child, here) if "properties" in child else [here]

    groups = {name for name, node in SCHEMA["properties"].items() if node.get("type") == "array"}
    ours = {re.sub(r"^resources\..*", "resources", path) for path in leaves(VALUES)}
    assert set(walk(SCHEMA, "")) - {"global"} == ours, "global is of Helm: every chart has it"
    assert groups == {"imagePullSecrets", "tolerations", "topologySpreadConstraints", "extraArgs", "extraEnv"}


def test_every_value_is_tried():
    assert OTHER.keys() == leaves(VALUES).keys()


@pytest.mark.parametrize("path", OTHER)
def test_another_value_changes_what_is_rendered(render, path):
    value, needs = OTHER[path] if isinstance(OTHER[path], tuple) else (OTHER[path], {})
    assert render(needs, text=True) != render(merged(needs, nested(path, value)), text=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicaCount": "three"},
        {"replicaCount": 11},
        {"image": {"digest": "latest"}},
        {"metrics": {"serviceMonitor": {"interval": "soon"}}},
        {"metrics": {"serviceMonitor": {"path": "/"}}},
        {"metrics": {"podMonitor": {}}},
        {"commonLabels": {"a": 1}},
        {"topologySpreadConstraints": [{"maxSkew": 1}]},
        {"extraEnv": [{"value": "b"}]},
    ],
)
def test_a_value_of_the_wrong_shape_is_refused(render, wrong):
    with pytest.raises(ValueError, match="values don't meet the specifications of the schema"):
        render(wrong)


def test_the_digest_wins_over_the_tag(render):
    pin = {"tag": "2", "digest": DIGEST}
    values = {"image": pin, "worker": {"image": pin, "cudaImage": pin}, "tests": {"image": pin}}
    objects = render(values)
    [container] = deployment(objects)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"parallelmodel-controller@{DIGEST}"
    assert f"--worker-image=parallelmodel-worker@{DIGEST}" in container["args"]
    assert f"--worker-cuda-image=parallelmodel-worker-cuda@{DIGEST}" in container["args"]
    [test] = [one for one in objects if one["kind"] == "Pod"]
    assert test["spec"]["containers"][0]["image"] == f"curlimages/curl@{DIGEST}"


@pytest.mark.parametrize("values, pods", [({}, 2), ({"replicas": 1}, 1), ({"replicaCount": 3, "replicas": 1}, 3)])
def test_replica_count_wins_over_replicas(render, values, pods):
    objects = render(values)
    assert deployment(objects)["spec"]["replicas"] == pods
    assert ("PodDisruptionBudget" in {one["kind"] for one in objects}) == (pods > 1)
    assert ("affinity" in deployment(objects)["spec"]["template"]["spec"]) == (pods > 1)


def test_a_replica_count_of_zero_is_no_missing_value(render):
    assert deployment(render({"replicaCount": 0}))["spec"]["replicas"] == 0


def test_common_labels_are_on_every_object_and_in_no_selector(render):
    on = {"create": True}
    values = {"commonLabels": {"team": "a"}, "alerts": on, "dashboard": on}
    objects = render(values | {"metrics": {"serviceMonitor": {"enabled": True}}})
    assert {"CustomResourceDefinition", "Deployment", "ServiceMonitor", "PrometheusRule", "ConfigMap", "Pod"} <= {
        one["kind"] for one in objects
    }
    assert not [one["kind"] for one in objects if one["metadata"]["labels"].get("team") != "a"]
    spec = deployment(objects)["spec"]
    assert spec["template"]["metadata"]["labels"]["team"] == "a" and "team" not in spec["selector"]["matchLabels"]


def test_alerts_link_to_their_runbooks_if_there_is_an_address(render):
    def annotations(runbooks):
        [rule] = [one for one in render({"alerts": {"create": True, **runbooks}}) if one["kind"] == "PrometheusRule"]
        return [alert["annotations"] for group in rule["spec"]["groups"] for alert in group["rules"]]

    assert len(annotations({})) > 7 and not [one for one in annotations({}) if "runbook_url" in one]
    for one in annotations({"runbooks": "https://git.example/parallelmodel/"}):
        assert one["runbook_url"] == "https://git.example/parallelmodel/" + one["runbook"]
        assert "{{ $labels." in one["summary"], "Prometheus fills these in, not Helm"


def test_every_dashboard_is_in_the_config_map(render):
    [found] = [one for one in render({"dashboard": {"create": True}}) if one["kind"] == "ConfigMap"]
    files = {f"parallelmodel-{path.name}": path.read_text() for path in (CHART / "dashboards").glob("*.json")}
    assert found["data"] == files and len(files) == 3


@pytest.mark.parametrize(
    "values, said",
    [
        ({"commonLabels": {"app.kubernetes.io/name": "a"}}, "which the chart sets itself"),
        ({"commonLabels": {"a": "b"}, "podLabels": {"a": "c"}}, "commonLabels and podLabels both have a"),
    ],
)
def test_a_label_that_is_set_twice_is_refused(render, values, said):
    with pytest.raises(ValueError, match=said):
        render(values)


def test_security_contexts_are_added_to_those_of_the_chart(render):
    normal = deployment(render())["spec"]["template"]["spec"]
    contexts = {"podSecurityContext": {"fsGroup": 7}, "securityContext": {"runAsUser": 7}}
    spec = deployment(render(contexts))["spec"]["template"]["spec"]
    assert spec["securityContext"] == normal["securityContext"] | {"fsGroup": 7}
    assert spec["containers"][0]["securityContext"] == normal["containers"][0]["securityContext"] | {"runAsUser": 7}
    spec = deployment(render({"securityContext": {"readOnlyRootFilesystem": False}}))["spec"]["template"]["spec"]
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is False


def test_a_spread_constraint_without_a_selector_gets_that_of_the_controller(render):
    own = SPREAD | {"labelSelector": {"matchLabels": {"a": "b"}}}
    spec = deployment(render({"topologySpreadConstraints": [SPREAD, own]}))["spec"]
    given, kept = spec["template"]["spec"]["topologySpreadConstraints"]
    assert given == SPREAD | {"labelSelector": {"matchLabels": spec["selector"]["matchLabels"]}}
    assert kept == own


def test_the_service_monitor_finds_the_metrics_of_every_controller(render):
    asked = {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}}
    objects = {one["kind"]: one for one in render({"metrics": {"serviceMonitor": asked}})}
    monitor, service, spec = objects["ServiceMonitor"], objects["Service"], objects["Deployment"]["spec"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [endpoint], [port] = monitor["spec"]["endpoints"], service["spec"]["ports"]
    assert endpoint == {"port": port["name"], "interval": "15s"}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    ports = {one["name"]: one["containerPort"] for one in spec["template"]["spec"]["containers"][0]["ports"]}
    assert ports[port["targetPort"]] == port["port"] and f"--metrics-port={port['port']}" in str(spec)
    assert not {one["kind"] for one in render()} & {"Service", "ServiceMonitor"}


@pytest.fixture
def notes(render, tmp_path):
    """Returns a function that renders NOTES.txt. Helm prints it only after an installation: a template has it."""
    copy = tmp_path / "parallelmodel"
    shutil.copytree(CHART, copy)
    (copy / "templates" / "_notes.tpl").write_text(
        '{{- define "notes" }}' + (copy / "templates" / "NOTES.txt").read_text() + "{{ end -}}"
    )
    (copy / "templates" / "notes.yaml").write_text('notes: {{ include "notes" . | toJson }}\n')

    def rendered(values=None):
        [one] = render(values, copy, "--show-only", "templates/notes.yaml")
        return one["notes"]

    return rendered


def commands(text):
    """Returns the indented blocks of a text, dedented."""
    blocks = re.findall(r"(?:^  .*\n?)+", text, re.M)
    return [re.sub(r"^  ", "", block, flags=re.M).strip() for block in blocks]


def test_the_notes_have_three_commands_for_this_cluster(notes):
    wait, apply, get = commands(notes())
    assert wait == f"kubectl -n {SYSTEM} rollout status deployment/parallelmodel"
    assert apply.startswith("kubectl apply -n default -f - <<'EOF'\n") and apply.endswith("\nEOF")
    assert get == "kubectl get -n default parallelmodels first -o wide"


def test_the_notes_follow_the_values(notes):
    values = {"fullnameOverride": "pm", "watchNamespace": "models", "tests": {"source": "pvc://store/gpt2"}}
    text = notes(values)
    wait, apply, get = commands(text)
    assert wait == f"kubectl -n {SYSTEM} rollout status deployment/pm" and " -n models " in get
    manifest = yaml.safe_load(apply.split("\n", 1)[1].removesuffix("EOF"))
    assert manifest["kind"] == "ParallelModel" and manifest["metadata"]["name"] == "first"
    assert manifest["spec"]["model"]["source"] == "pvc://store/gpt2" and "CLAIM" not in text
    assert "did not install the CRD" in notes({"crds": {"install": False}}) and "did not" not in text


def test_the_metadata_of_the_chart_names_no_address_that_does_not_exist():
    """There is no published address yet; RELEASE.md says when home and sources are filled in."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert not chart.keys() & {"home", "sources"} and "home" in (ROOT / "RELEASE.md").read_text()
    assert chart["kubeVersion"] == ">=1.31.0-0" and chart["annotations"]["artifacthub.io/license"] == "Apache-2.0"
    assert not [one for one in chart["maintainers"] if one.keys() - {"name"}]


def test_helm_lint_is_silent_when_it_is_strict(helm):
    done = subprocess.run([helm, "lint", "--strict", CHART], capture_output=True, text=True)
    remarks = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert done.returncode == 0 and not remarks and "1 chart(s) linted" in done.stdout, done.stdout + done.stderr


def test_the_icon_is_its_file():
    icon = yaml.safe_load((CHART / "Chart.yaml").read_text())["icon"]
    kind, _, data = icon.partition(",")
    assert kind == "data:image/svg+xml;base64" and base64.b64decode(data) == (CHART / "icon.svg").read_bytes()
