# SPDX-License-Identifier: Apache-2.0
"""The CustomResourceDefinition and the chart, as users and tools read them."""

import pytest
import yaml
from conftest import CHART, ROOT
from world import MODELS

CRD = ROOT / "crds" / "parallelmodel.yaml"


def schema() -> dict:
    [version] = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def fields(node: dict, path: str = ""):
    """Yields (path, schema) of every field below `node`, including items of lists and values of maps."""
    for name, child in node.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from fields(child, f"{path}.{name}")
    for inner in (node.get("items"), node.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from fields(inner, path + "[]")


def test_every_field_has_a_description():
    silent = [
        path for path, field in fields(schema()) if not field.get("description") and not path.startswith(".metadata")
    ]
    assert not silent


def test_kubectl_explain_shows_it(world):
    for path, field in fields(schema()):
        if path.count(".") == 3 and "[]" not in path and path.startswith(".spec."):
            said = " ".join(world.cluster.kubectl("explain", "parallelmodel" + path).split())
            assert " ".join(field["description"].split()) in said, path
            break
    tree = world.cluster.kubectl("explain", "pm", "--recursive")
    missing = [path for path, _ in fields(schema()) if path.rsplit(".", 1)[1] not in tree]
    assert not missing


def test_every_list_map_and_string_of_the_spec_is_bounded():
    bounds = {"array": "maxItems", "object": "maxProperties", "string": "maxLength"}
    unbounded = [
        path
        for path, field in fields(schema()["properties"]["spec"], ".spec")
        if field.get("type") in bounds
        and bounds[field["type"]] not in field
        and "enum" not in field
        and "properties" not in field
    ]
    assert not unbounded


def test_the_crd_is_small_and_can_be_applied_by_a_client(world):
    assert CRD.stat().st_size <= 96 * 1024
    assert "parallelmodels.parallelmodel.dev" in world.cluster.kubectl("apply", "-f", str(CRD.parent))


def test_the_chart_is_clean_and_carries_that_crd(world):
    said = world.cluster.helm("lint", "--strict", str(CHART))
    assert "0 chart(s) failed" in said and "[WARNING]" not in said and "[ERROR]" not in said, said
    rendered = list(yaml.safe_load_all(world.cluster.helm("template", "parallelmodel", str(CHART))))
    [crd] = [o for o in rendered if o and o["kind"] == "CustomResourceDefinition"]
    assert crd["spec"] == yaml.safe_load(CRD.read_text())["spec"]


@pytest.mark.parametrize(
    "values",
    [
        "watchNamespace=models",
        "nodes.read=false,rbac.aggregate=false",
        "crds.install=false,serviceAccount.create=false,serviceAccount.name=mine",
        "image.digest=sha256:" + 64 * "0",
        "dashboard.create=true",
        "podLabels.a=b,podAnnotations.c=d,nodeSelector.e=f,priorityClassName=high,extraArgs[0]=--verbose",
    ],
)
def test_the_api_server_accepts_the_chart_with_every_option(world, values):
    rendered = world.cluster.helm("template", "other", str(CHART), "--no-hooks", "-n", MODELS, "--set", values)
    said = world.cluster.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-n", MODELS, "-f", "-", input=rendered
    )
    assert "deployment.apps/other-parallelmodel created" in said


def test_the_chart_rejects_an_unknown_value(world):
    with pytest.raises(Exception, match="copies"):
        world.cluster.helm("template", "other", str(CHART), "--set", "copies=3")


def test_the_controller_has_no_excessive_permission(world):
    me = "--as=system:serviceaccount:parallelmodel-system:parallelmodel"
    for right in (
        ["get", "secrets"],
        ["list", "secrets"],
        ["create", "pods", "--subresource=exec"],
        ["update", "parallelmodels"],
        ["delete", "parallelmodels"],
        ["create", "roles"],
        ["*", "*"],
    ):
        assert world.cluster.kubectl("auth", "can-i", *right, "-n", MODELS, me, check=False).strip() == "no", right


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda file: file.name)
def test_every_example_is_accepted(world, file):
    world.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-n", MODELS, "-f", str(file))
