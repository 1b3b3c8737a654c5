"""The controller is killed at every request that changes something, in three ways, and the end is the same as without. PM_RELIABILITY_STEP=1 takes every
request; the default takes every third one."""
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from world import World, differences

STEP = int(os.environ.get("PM_RELIABILITY_STEP", 3))
WAYS = ("before", "forwarded", "replied")
BESIDE = 3      # stories at once: most of their time is spent waiting


@pytest.fixture(scope="module")
def calm(plane, machine, tmp_path_factory):
    """What the story leaves without a fault, and how many requests it takes."""
    world = World(plane, "calm", tmp_path_factory.mktemp("calm"))
    try:
        return world.play(), world.proxy.mutating
    finally:
        world.close()


def test_a_story_without_a_fault_writes_nothing_at_rest_and_the_same_each_time(world, calm):
    one = world("again")
    assert not differences(one.play(), calm[0])
    begin = time.monotonic()
    time.sleep(1)
    assert not one.proxy.writes_since(begin)
    assert one.lives == 1


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_any_request_it_ends_the_same(world, calm, way):
    found, count = calm

    def one(number: int):
        story = world(f"kill-{way}-{number}")
        story.proxy.fault = lambda call: ("kill", way) if call.number == number else None
        try:
            return number, story.play(), story.lives
        finally:
            story.close()
    begin = time.monotonic()
    with ThreadPoolExecutor(BESIDE) as pool:
        results = list(pool.map(one, range(0, count, STEP)))
    wrong = {number: differences(end, found) for number, end, _ in results if end != found}
    assert not wrong
    killed = sum(lives - 1 for _, _, lives in results)
    print(f"killed {way}: {len(results)} stories, {killed} kills, {time.monotonic() - begin:.0f} s")
    assert killed > 0.9 * len(results), "the faults did not happen"
