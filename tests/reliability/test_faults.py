# SPDX-License-Identifier: Apache-2.0
"""Tests faults of networks and busy servers: lost responses, error storms, watches that are delayed, cut, duplicated,
frozen or expired. Each fault has its own scenario. All scenarios run concurrently, because most of their time is spent
waiting. The final state equals that of a run without faults."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from world import World, differences

GONE = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",'
    b'"reason":"Expired","code":410,"message":"too old resource version"}}\n'
)
AWAY = 3  # seconds


def storm(code: int, reason: str, retry_after: int = 0):
    """Answers a quarter of all requests except watches with this error."""

    def set_up(proxy):
        chance = random.Random(7)
        proxy.fault = lambda call: (
            ("answer", code, reason, retry_after)
            if not call.watch and call.resource != "events" and chance.random() < 0.25
            else None
        )

    return set_up


def loss(what: str):
    """Loses a quarter of the writes, or their responses."""

    def set_up(proxy):
        chance = random.Random(8)
        proxy.fault = lambda call: ("lose", what) if call.mutates and chance.random() < 0.25 else None

    return set_up


def watches(stream):
    def set_up(proxy):
        proxy.stream = stream

    return set_up


def frozen(plural: str):
    """Freezes the watch of one collection repeatedly for seconds while the others continue: nothing may be created
    twice."""
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
    "cut-events": watches(lambda call, n, line: [line] if n < 2 else [line[: len(line) // 2], None]),
    "doubled-events": watches(lambda call, n, line: [line, line]),
    "expired-versions": watches(lambda call, n, line: [line] if n < 3 else [GONE, None]),
    "frozen-pods": frozen("pods"),
    "frozen-models": frozen("parallelmodels"),
    "server-away": away,
}


@pytest.fixture(scope="module")
def scenarios(plane, machine, tmp_path_factory):
    """Maps each fault to the final state of its scenario, the proxy and the start time."""
    folder = tmp_path_factory.mktemp("stories")

    def tell(name: str):
        begin = time.monotonic()
        scenario = World(plane, name, folder, FAULTS[name])
        try:
            return scenario.play(), scenario.proxy, begin
        finally:
            scenario.close()

    with ThreadPoolExecutor(8) as pool:
        yield {name: pool.submit(tell, name) for name in FAULTS}


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "nothing"])
def test_the_final_state_equals_that_of_a_run_without_faults(scenarios, machine, fault):
    assert not differences(scenarios[fault].result()[0], scenarios["nothing"].result()[0])
    assert not machine.violations


def test_an_unavailable_server_is_not_overloaded(scenarios):
    _, proxy, begin = scenarios["server-away"].result()
    early = [call for call in proxy.calls if call.time < begin + AWAY and call.resource != "events"]
    assert len(early) < 60, f"{len(early)} requests in {AWAY} s of an outage"
