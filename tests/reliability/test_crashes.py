# SPDX-License-Identifier: Apache-2.0
"""The controller is killed at every mutating request, in three ways, and the final state is the same as without a
crash. PM_RELIABILITY_STEP=1 tests every request; the default is every third one."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from world import World, differences

STEP = int(os.environ.get("PM_RELIABILITY_STEP", 3))
WAYS = ("before", "forwarded", "replied")
CONCURRENT_SCENARIOS = 3  # concurrent scenarios: most of their time is spent waiting


@pytest.fixture(scope="module")
def calm(plane, machine, tmp_path_factory):
    """The final state of the scenario without a fault, and its number of requests."""
    world = World(plane, "calm", tmp_path_factory.mktemp("calm"))
    try:
        return world.play(), world.proxy.mutating
    finally:
        world.close()


def test_a_run_without_faults_is_deterministic_and_writes_nothing_when_idle(world, calm):
    one = world("again")
    assert not differences(one.play(), calm[0])
    begin = time.monotonic()
    time.sleep(1)
    assert not one.proxy.writes_since(begin)
    assert one.lives == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_crash_at_any_request_converges_to_the_same_state(world, calm, way):
    found, count = calm

    def one(number: int):
        scenario = world(f"kill-{way}-{number}")
        scenario.proxy.fault = lambda call: ("kill", way) if call.number == number else None
        try:
            return number, scenario.play(), scenario.lives
        finally:
            scenario.close()

    begin = time.monotonic()
    with ThreadPoolExecutor(CONCURRENT_SCENARIOS) as pool:
        results = list(pool.map(one, range(0, count, STEP)))
    wrong = {number: differences(end, found) for number, end, _ in results if end != found}
    assert not wrong
    killed = sum(lives - 1 for _, _, lives in results)
    print(f"killed {way}: {len(results)} stories, {killed} kills, {time.monotonic() - begin:.0f} s")
    assert killed > 0.9 * len(results), "the faults did not happen"
