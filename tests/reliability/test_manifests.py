# SPDX-License-Identifier: Apache-2.0
"""Runs kube-score and kube-linter on the rendered chart and the objects of the controller. Each finding is fixed or has
an exception with a reason in exceptions.yaml; an unused exception is a finding too. kube-linter takes 2 to 3 minutes to
build: it runs if it is already built, or with PM_KUBELINTER=1."""

import fnmatch
import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from apiserver import ROOT, SYSTEM
from cluster import build, extra
from machine import CHILDREN

CHART = ROOT / "helm" / "parallelmodel"
EXCEPTIONS = yaml.safe_load((Path(__file__).parent / "exceptions.yaml").read_text())
SETS = [
    "",
    "alerts.create=true,dashboard.create=true,tests.source=pvc://models/stories",
    "watchNamespace=models,nodes.read=false",
]
KINDS = {
    "pods": ("v1", "Pod"),
    "services": ("v1", "Service"),
    "configmaps": ("v1", "ConfigMap"),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget"),
}
GRADES = {1: "critical", 5: "warning"}  # of kube-score; 7 is almost ok, 10 ok


@pytest.fixture(scope="module")
def rendered() -> list[dict]:
    """Returns all objects that the chart renders, for several sets of values."""
    out = {}
    for values in SETS:
        text = subprocess.run(
            [
                build() / "bin" / "helm",
                "template",
                "parallelmodel",
                CHART,
                "-n",
                SYSTEM,
                *(["--set", values] if values else []),
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for one in yaml.safe_load_all(text):
            if one and one["kind"] != "CustomResourceDefinition":
                out.setdefault((one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]), one)
    return list(out.values())


@pytest.fixture(scope="module")
def made(errands) -> list[dict]:
    """Returns the children of a ParallelModel of three replicas and of one over two nodes, as they were sent, without
    the defaults of the API server."""
    errands.world.rest("the start", readyReplicas=3)
    errands.reason("nodes", "Ready", "Serving")
    out = []
    for plural in CHILDREN:
        for item in errands.api.request(
            "GET", errands.api.path(plural, errands.ns) + "?labelSelector=parallelmodel.dev/name+in+(m,nodes)"
        )["items"]:
            version, kind = KINDS[plural]
            meta = {
                key: item["metadata"][key]
                for key in ("name", "namespace", "labels", "annotations", "ownerReferences")
                if key in item["metadata"]
            }
            out.append(
                {
                    "apiVersion": version,
                    "kind": kind,
                    "metadata": meta,
                    **{key: item[key] for key in ("spec", "data", "immutable") if key in item},
                }
            )
    assert {one["kind"] for one in out} == {"Pod", "Service", "ConfigMap", "PodDisruptionBudget"} and any(
        one["metadata"]["name"] == "nodes-ranks" for one in out
    )
    return out


def kube_score(manifests: list[dict]) -> list[tuple[str, str, str]]:
    text = yaml.safe_dump_all(manifests)
    done = subprocess.run(
        [extra("kubescore"), "score", "--output-format", "json", "-"], input=text, capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    found = []
    for one in json.loads(done.stdout):
        for check in one["checks"]:
            if check["grade"] in GRADES and not check["skipped"]:
                said = "; ".join(
                    f"{comment['path']} {comment['summary']}".strip() for comment in check["comments"] or []
                )
                found.append(
                    (
                        check["check"]["id"],
                        f"{one['type_meta']['kind']}/{one['object_meta']['name']}",
                        f"{GRADES[check['grade']]}: {said}",
                    )
                )
    return found


def kube_linter(manifests: list[dict]) -> list[tuple[str, str, str]]:
    built = list(
        (Path(os.environ.get("PM_CACHE", Path.home() / ".cache" / "parallelmodel")) / "extras").glob(
            "kubelinter-????????????"
        )
    )
    if not built and not os.environ.get("PM_KUBELINTER"):
        pytest.skip(
            "kube-linter is not built on this machine: tests/cluster/extras/build.sh kubelinter, or PM_KUBELINTER=1"
        )
    done = subprocess.run(
        [extra("kubelinter"), "lint", "--format", "json", "-"],
        input=yaml.safe_dump_all(manifests),
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    return [
        (
            one["Check"],
            f"{one['Object']['K8sObject']['GroupVersionKind']['Kind']}/{one['Object']['K8sObject']['Name']}",
            one["Diagnostic"]["Message"],
        )
        for one in report["Reports"] or []
    ]


TOOLS = {"kube-score": kube_score, "kube-linter": kube_linter}


@pytest.mark.parametrize("tool", TOOLS)
def test_every_finding_is_fixed_or_explained(rendered, made, tool):
    exceptions = [one for one in EXCEPTIONS if one["tool"] == tool]
    used, open_ = set(), []
    for check, about, said in TOOLS[tool](rendered + made):
        fits = [
            n
            for n, one in enumerate(exceptions)
            if one["check"] == check and any(fnmatch.fnmatch(about, pattern) for pattern in one["objects"])
        ]
        used.update(fits)
        if not fits:
            open_.append(f"{check} on {about}: {said}")
    assert not open_, "\n".join(open_)
    idle = [exceptions[n]["check"] for n in range(len(exceptions)) if n not in used]
    assert not idle, f"exceptions that nothing needs: {idle}"


def test_every_exception_has_a_reason():
    assert all(one.keys() == {"tool", "check", "objects", "why"} and len(one["why"]) > 30 for one in EXCEPTIONS)
