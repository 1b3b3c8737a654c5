# SPDX-License-Identifier: Apache-2.0
"""Checks the permissions of the operator against the audit log. This file runs after all other tests."""

import collections
import json

import pytest
from apiserver import SYSTEM
from world import World

# (API group, resource, verb) that no request uses, and why it is needed
UNSEEN = {
    (
        "parallelmodel.dev",
        "parallelmodels/finalizers",
        "update",
    ): "the admission plugin OwnerReferencesPermissionEnforcement, switched on here, asks for it when a child is made; "
    "it leaves no request",
    (
        "",
        "nodes",
        "get",
    ): "a pod was deleted on a node that answers no more: it is looked at once more before another is made in its "
    "place; tests/e2e/test_failures.py",
    ("", "persistentvolumeclaims", "create"): "the cache of a model on the hub; tests/e2e/test_hub.py",
}


def granted(roles: list[dict]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(entries: list[dict]) -> set[tuple[str, str, str]]:
    out = set()
    for entry in entries:
        about = entry.get("objectRef", {})
        resource = about.get("resource", "") + (f"/{about['subresource']}" if "subresource" in about else "")
        if entry.get("annotations", {}).get("authorization.k8s.io/decision") == "allow":
            out.add((about.get("apiGroup", ""), resource, entry["verb"]))
    return out


@pytest.fixture(scope="module")
def entries(plane, errands, tmp_path_factory):
    errands.finish()
    if any(resource == "leases" for _, resource, _ in granted(plane.roles)):
        elector = World(
            plane,
            "elector",
            tmp_path_factory.mktemp("elector"),
            arguments=["--leader-elect", "--lease-namespace", SYSTEM, "--lease-name", "parallelmodel"],
        )
        errands.api.wait_until(
            lambda: sum(e.get("objectRef", {}).get("resource") == "leases" for e in plane.audit()) > 3,
            30,
            "an election",
            interval=1,
        )
        elector.close()
    return plane.audit()


def test_every_permission_of_the_chart_is_used(plane, entries):
    unused = granted(plane.roles) - used(entries) - set(UNSEEN)
    assert not unused, f"rights that no test uses: {sorted(unused)}"
    assert set(UNSEEN) <= granted(plane.roles)


def test_no_request_lacks_a_permission(plane, entries):
    forbidden = collections.Counter(
        f"{e['verb']} {e['requestURI'].split('?')[0]}"
        for e in entries
        if e.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
    )
    assert not forbidden
    assert len(entries) > 100, "the audit log has the operator's requests"


def test_no_role_has_a_wildcard_or_a_secret(plane):
    assert "*" not in json.dumps([role["rules"] for role in plane.roles])
    assert not [right for right in granted(plane.roles) if right[1].startswith("secrets")]
