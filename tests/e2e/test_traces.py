"""The last file: what the audit log says of the controller after all the other tests."""
import collections
import time

WRITES = ("create", "update", "patch", "delete", "deletecollection")


def count(entries: list[dict]) -> dict[str, int]:
    return dict(collections.Counter(f"{entry['verb']} {entry['requestURI'].split('?')[0]}" for entry in entries))


def test_a_converged_world_causes_no_write(world, stories):
    world.wait_ready(stories)
    time.sleep(5)
    before = len(world.controller_requests(*WRITES))
    time.sleep(20)
    assert count([entry for entry in world.controller_requests(*WRITES)[before:] if "/leases/" not in entry["requestURI"]]) == {}


def test_no_request_of_the_controller_was_forbidden(world, stories):
    assert world.controller_requests(), "the audit log has requests of the controller"
    assert count([entry for entry in world.controller_requests() if entry.get("responseStatus", {}).get("code") in (401, 403)]) == {}


def test_no_request_of_the_controller_was_malformed(world, stories):
    assert count([entry for entry in world.controller_requests() if entry.get("responseStatus", {}).get("code") in (400, 415, 422)]) == {}
