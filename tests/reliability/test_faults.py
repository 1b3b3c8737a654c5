"""Networks and busy servers: answers that are lost, storms of errors, watches that are late, cut, doubled, frozen or expired. Each is done to a story of its
own, all of them at once, for most of their time is spent waiting; the end is that of an undisturbed one."""
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from world import World, differences

GONE = b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}}\n'
AWAY = 3        # seconds


def storm(code: int, reason: str, retry_after: int = 0):
    """A quarter of all requests but watches is answered with this error."""
    def set_up(proxy):
        chance = random.Random(7)
        proxy.fault = lambda call: ("answer", code, reason, retry_after) if not call.watch and call.resource != "events" and chance.random() < 0.25 else None
    return set_up


def loss(what: str):
    """A quarter of the writes is lost on its way, or its answer is."""
    def set_up(proxy):
        chance = random.Random(8)
        proxy.fault = lambda call: ("lose", what) if call.mutates and chance.random() < 0.25 else None
    return set_up


def watches(stream):
    def set_up(proxy):
        proxy.stream = stream
    return set_up


def frozen(plural: str):
    """One collection is silent for seconds, again and again, while the others go on: nothing may be made twice."""
    return watches(lambda call, n, line: [1.5, line] if call.resource == plural and n % 4 == 1 else [line])


def away(proxy):
    end = time.monotonic() + AWAY
    proxy.fault = lambda call: ("answer", 503, "ServiceUnavailable", 0) if time.monotonic() < end else None


FAULTS = {
    "nothing": lambda proxy: None,
    "conflicts": storm(409, "Conflict"),
    "too-many-requests": storm(429, "TooManyRequests", 1),
    "internal-errors": storm(500, "InternalError"),
    "unavailable": storm(503, "ServiceUnavailable", 1),
    "timeouts": storm(504, "Timeout"),
    "lost-requests": loss("request"),
    "lost-answers": loss("answer"),
    "late-events": watches(lambda call, n, line: [random.random() * 0.4, line]),
    "cut-events": watches(lambda call, n, line: [line] if n < 2 else [line[:len(line) // 2], None]),
    "doubled-events": watches(lambda call, n, line: [line, line]),
    "expired-versions": watches(lambda call, n, line: [line] if n < 3 else [GONE, None]),
    "frozen-pods": frozen("pods"),
    "frozen-models": frozen("parallelmodels"),
    "server-away": away,
}


@pytest.fixture(scope="module")
def stories(plane, machine, tmp_path_factory):
    """fault -> what its story left, the proxy, and when it began."""
    folder = tmp_path_factory.mktemp("stories")

    def tell(name: str):
        begin = time.monotonic()
        story = World(plane, name, folder, FAULTS[name])
        try:
            return story.play(), story.proxy, begin
        finally:
            story.close()
    with ThreadPoolExecutor(8) as pool:
        yield {name: pool.submit(tell, name) for name in FAULTS}


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "nothing"])
def test_the_end_is_that_of_an_undisturbed_story(stories, machine, fault):
    assert not differences(stories[fault].result()[0], stories["nothing"].result()[0])
    assert not machine.violations


def test_a_server_that_is_away_is_not_overrun(stories):
    _, proxy, begin = stories["server-away"].result()
    early = [call for call in proxy.calls if call.time < begin + AWAY and call.resource != "events"]
    assert len(early) < 60, f"{len(early)} requests in {AWAY} s of an outage"
