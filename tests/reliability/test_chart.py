# SPDX-License-Identifier: Apache-2.0
"""Tests of the chart: an upgrade from the previous release, the alert rules and the metadata. `charts/` holds the
archive of the previous release."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from apiserver import OPERATOR, ROOT, SYSTEM, TOKEN, ApiError, ControlPlane
from cluster import build

CHART = ROOT / "helm" / "parallelmodel"
[FORMER] = (ROOT / "tests" / "reliability" / "charts").glob("*.tgz")
MODELS = "/apis/parallelmodel.dev/v1alpha1/namespaces/default/parallelmodels"


def example(name: str) -> dict:
    return next(
        o for o in yaml.safe_load_all((ROOT / "examples" / name).read_text()) if o and o["kind"] == "ParallelModel"
    )


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """An API server without any objects, and helm configured for it."""
    folder = tmp_path_factory.mktemp("fresh")
    plane = ControlPlane(folder, build() / "bin", bare=True)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {"token": TOKEN}}],
                "clusters": [
                    {
                        "name": "c",
                        "cluster": {"server": f"https://127.0.0.1:{plane.port}", "insecure-skip-tls-verify": True},
                    }
                ],
            }
        )
    )

    def helm(*arguments: str) -> str:
        done = subprocess.run(
            [build() / "bin" / "helm", *arguments, "--kubeconfig", kubeconfig, "-n", SYSTEM],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "HOME": str(folder),
                **{f"HELM_{kind}_HOME": str(folder / kind) for kind in ("CACHE", "CONFIG", "DATA")},
            },
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield plane.api, helm
    plane.close()


def allowed(api, verb: str, resource: str, group: str, user: str, groups: list[str]) -> bool:
    review = {
        "spec": {
            "user": user,
            "groups": groups,
            "resourceAttributes": {"verb": verb, "resource": resource, "group": group, "namespace": "default"},
        }
    }
    return api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]


def test_an_upgrade_from_the_previous_release_installs_the_new_crd_and_keeps_the_objects(fresh):
    api, helm = fresh
    helm("install", "parallelmodel", str(FORMER), "--create-namespace")
    api.wait_until(lambda: api.exists(MODELS), 30, "the previous CRD is served")
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/parallelmodels.parallelmodel.dev"
    old = api.request("GET", path)
    before = api.request("POST", MODELS, example("stories.yaml") | {"metadata": {"name": "stories"}})

    helm("upgrade", "parallelmodel", str(CHART))
    new = api.request("GET", path)
    assert (
        new["spec"]["versions"][0]["schema"]
        == yaml.safe_load((ROOT / "crds" / "parallelmodel.yaml").read_text())["spec"]["versions"][0]["schema"]
    )
    assert (
        new["metadata"]["uid"] == old["metadata"]["uid"]
        and new["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    )
    after = api.request("GET", f"{MODELS}/stories")
    assert after["metadata"]["uid"] == before["metadata"]["uid"] and all(
        after["spec"].get(key) == value for key, value in before["spec"].items()
    )
    api.request(
        "PATCH", f"{MODELS}/stories", {"spec": {"replicas": 2}}, "application/merge-patch+json"
    )  # the new schema accepts the old object
    deployment = api.request("GET", f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/parallelmodel")
    assert (
        deployment["metadata"]["generation"] >= 1
        and not deployment["spec"]["selector"]["matchLabels"].keys()
        - deployment["spec"]["template"]["metadata"]["labels"].keys()
    )

    helm("rollback", "parallelmodel", "1")
    helm("upgrade", "parallelmodel", str(CHART))
    helm("uninstall", "parallelmodel")
    assert api.request("GET", f"{MODELS}/stories")["metadata"]["uid"] == before["metadata"]["uid"], (
        "the definition and its objects stay"
    )
    helm("install", "parallelmodel", str(CHART))
    assert api.request("GET", f"{MODELS}/stories")["metadata"]["uid"] == before["metadata"]["uid"]


def test_the_roles_for_users_aggregate_to_view_and_edit(fresh):
    api, helm = fresh
    roles = {
        role["metadata"]["name"]: role
        for role in api.request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles")["items"]
    }
    assert {"rbac.authorization.k8s.io/aggregate-to-view"} <= roles["parallelmodel-view"]["metadata"]["labels"].keys()
    assert {"rbac.authorization.k8s.io/aggregate-to-edit"} <= roles["parallelmodel-edit"]["metadata"]["labels"].keys()
    assert not [
        rule
        for name in ("parallelmodel-view", "parallelmodel-edit")
        for rule in roles[name]["rules"]
        if "parallelmodels/status" in rule["resources"] and set(rule["verbs"]) - {"get", "list", "watch"}
    ]
    bind = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "subjects": [{"kind": "User", "name": "vera", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    for name in ("parallelmodel-view", "parallelmodel-edit"):
        api.request(
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            bind
            | {
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            },
        )
    for verb in ("get", "list", "create", "patch", "delete"):
        api.wait_until(
            lambda: allowed(api, verb, "parallelmodels", "parallelmodel.dev", "vera", []), 10, f"a user may {verb}"
        )
    assert not allowed(api, "get", "secrets", "", "vera", []) and not allowed(
        api, "get", "secrets", "", OPERATOR, ["system:serviceaccounts"]
    )


def test_an_unknown_value_of_the_chart_is_rejected_at_every_depth():
    """additionalProperties is false for every object of the values that the chart defines itself."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    free = {"resources", "affinity", "global"}  # passed through unchanged

    def walk(node: dict, path: str):
        if node.get("type") == "object" and "properties" in node:
            assert node.get("additionalProperties") is False, path
        for name, child in node.get("properties", {}).items():
            if name not in free:
                walk(child, f"{path}.{name}")

    walk(schema, "")
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) <= set(schema["properties"]), "a default without a schema"


def test_the_alert_rules_are_valid_and_use_existing_metrics():
    rules = CHART / "alerts" / "parallelmodel.yaml"
    done = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    documented = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for group in yaml.safe_load(rules.read_text())["groups"]:
        for rule in group["rules"]:
            for metric in re.findall(
                r"\b(?:parallelmodel|controller_runtime|workqueue|rest_client)_[a-z_]+", rule["expr"]
            ):
                assert metric in documented, metric
            page, _, section = rule["annotations"]["runbook"].partition("#")
            headings = re.findall(r"^## (\w+)$", (ROOT / page).read_text(), re.M)
            assert rule["alert"] in headings and section == rule["alert"].lower()
            assert rule["annotations"].keys() >= {"summary", "description"} and rule["labels"]["severity"] in (
                "warning",
                "critical",
            )


def test_the_script_of_helm_test_sees_the_controller_reconcile_and_leaves_nothing(plane, errands, tmp_path):
    """Runs without a source, which would need kubelets; the model refers to a missing PVC."""
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "ca.crt").write_text(Path(plane.certificate).read_text())
    done = subprocess.run(
        ["sh", CHART / "files" / "test.sh"],
        capture_output=True,
        text=True,
        timeout=60,
        env={
            "PATH": os.environ["PATH"],
            "ACCOUNT": str(tmp_path),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(plane.port),
            "no_proxy": "*",
            "NS": errands.ns,
            "NAME": "tried",
            "SOURCE": "",
            "SECONDS_TO_SERVE": "30",
        },
    )
    assert done.returncode == 0 and "the controller reconciles" in done.stdout, done.stdout + done.stderr
    assert not plane.api.get("parallelmodels", errands.ns, "tried")


def test_the_archive_has_the_metadata_of_a_chart_index():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    notes = chart["annotations"]
    assert [crd["kind"] for crd in yaml.safe_load(notes["artifacthub.io/crds"])] == ["ParallelModel"]
    [manifest] = yaml.safe_load(notes["artifacthub.io/crdsExamples"])
    assert manifest["spec"]["model"]["source"] and notes["artifacthub.io/operator"] == "true"
    assert all(change.keys() == {"kind", "description"} for change in yaml.safe_load(notes["artifacthub.io/changes"]))


def test_the_example_of_the_archive_is_accepted(plane):
    [manifest] = yaml.safe_load(
        yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]["artifacthub.io/crdsExamples"]
    )
    try:
        plane.api.request("POST", MODELS + "?dryRun=All&fieldValidation=Strict", manifest)
    except ApiError as error:
        raise AssertionError(str(error)) from None
