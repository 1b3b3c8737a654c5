# SPDX-License-Identifier: Apache-2.0
"""Checks the requests of the controller in the audit log. This file runs after all other tests."""

import collections
import datetime
import time

from world import SYSTEM

WRITES = ("create", "update", "patch", "delete", "deletecollection")


def count(entries: list[dict]) -> dict[str, int]:
    return dict(collections.Counter(f"{entry['verb']} {entry['requestURI'].split('?')[0]}" for entry in entries))


def test_a_converged_cluster_causes_no_write(world, stories):
    world.wait_ready(stories)
    time.sleep(5)
    before = len(world.controller_requests(*WRITES))
    time.sleep(20)
    assert (
        count([entry for entry in world.controller_requests(*WRITES)[before:] if "/leases/" not in entry["requestURI"]])
        == {}
    )


def test_no_request_of_the_controller_was_forbidden(world, stories):
    assert world.controller_requests(), "the audit log has requests of the controller"
    # The API server learns of roles and bindings by its own watches: a controller that starts in the same second may be
    # earlier.
    bound = datetime.datetime.fromisoformat(
        world.cluster.get("rolebinding", "parallelmodel-lease", SYSTEM)["metadata"]["creationTimestamp"]
    )
    known = bound + datetime.timedelta(seconds=10)
    assert (
        count(
            [
                entry
                for entry in world.controller_requests()
                if entry.get("responseStatus", {}).get("code") in (401, 403)
                and datetime.datetime.fromisoformat(entry["requestReceivedTimestamp"]) > known
            ]
        )
        == {}
    )


def test_no_request_of_the_controller_was_malformed(world, stories):
    assert (
        count(
            [
                entry
                for entry in world.controller_requests()
                if entry.get("responseStatus", {}).get("code") in (400, 415, 422)
            ]
        )
        == {}
    )
