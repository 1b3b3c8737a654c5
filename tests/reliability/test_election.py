# SPDX-License-Identifier: Apache-2.0
"""Tests leader election with two controllers on one scenario, each behind its own proxy: the leader is killed or
stopped at a request, the other takes over, and the final state is the same."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from world import World, differences

LEASE = ("--leader-elect", "--lease-name", "election")
MOMENTS = (1, 4, 9, 16)  # indices of mutating requests, from the first status to the update
TAKEOVER = 17  # seconds: 15 s of the Lease, a check every 1 to 1.5 s, and slack for a loaded machine


class Rival(World):
    """A second controller on the scenario of another World."""

    def __init__(self, scenario: "Pair") -> None:
        super().__init__(
            scenario.plane,
            scenario.ns.removeprefix("scenario-of-"),
            scenario.folder / "rival",
            arguments=scenario.arguments,
        )


class Pair(World):
    """The first controller leads and the rival starts with it. `fall()` is the fault of the leader at the request `at`;
    the leader is not restarted."""

    def __init__(self, plane, ns, folder, at: int | None, way: str = "before") -> None:
        self.fallen: float | None = None
        self.rival: Rival | None = None
        super().__init__(plane, ns, folder, arguments=(*LEASE, "--lease-namespace", f"scenario-of-{ns}"))
        try:
            self.proxy.fault = lambda call: ("kill", way) if call.number == at and self.fallen is None else None
            self.api.wait_until(lambda: self.holder(), 30, "a leader")
            (folder / "rival").mkdir(exist_ok=True)
            self.rival = Rival(self)
        except BaseException:  # stops the running controller, to which nothing else refers
            self.close()
            raise

    def holder(self) -> str:
        try:
            return self.api.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/{self.ns}/leases/election")[
                "spec"
            ]["holderIdentity"]
        except Exception:
            return ""

    def kill(self) -> None:
        self.fallen = time.monotonic()
        self.fall()

    def fall(self) -> None:
        self.program.kill()

    def quiet(self, seconds: float) -> None:
        self.api.wait_until(
            lambda: not any(proxy.writes_since(time.monotonic() - seconds) for proxy in (self.proxy, self.rival.proxy)),
            40,
            "silence",
        )

    def close(self) -> None:
        self.program.send_signal(signal.SIGCONT)
        super().close()
        if self.rival:
            self.rival.close()


class Stopped(Pair):
    def fall(self) -> None:
        self.program.send_signal(signal.SIGSTOP)

    def go_on(self) -> float:
        self.program.send_signal(signal.SIGCONT)
        return time.monotonic()


@pytest.fixture(scope="module")
def calm(plane, machine, tmp_path_factory):
    """The final state of the scenario without a fault, with two controllers; the second writes nothing."""
    scenario = Pair(plane, "calm-pair", tmp_path_factory.mktemp("calm-pair"), at=None)
    try:
        end = scenario.play()
        assert not scenario.rival.proxy.writes_since(0), "who does not lead writes nothing"
        assert not [call for call in scenario.rival.proxy.calls if call.resource != "leases"], "nor does it watch"
        return end
    finally:
        scenario.close()


def test_a_killed_leader_is_replaced_and_the_final_state_is_the_same(plane, machine, calm, tmp_path_factory):
    def one(at: int):
        way = ("before", "forwarded", "replied")[at % 3]
        scenario = Pair(plane, f"dead-leader-{at}", tmp_path_factory.mktemp("dead"), at, way)
        try:
            end = scenario.play()
            first = min(call.time for call in scenario.rival.proxy.writes_since(0))
            return at, differences(end, calm), first - scenario.fallen
        finally:
            scenario.close()

    with ThreadPoolExecutor(len(MOMENTS)) as pool:
        results = list(pool.map(one, MOMENTS))
    print("took over after", ", ".join(f"{seconds:.1f} s" for _, _, seconds in results))
    assert not {at: wrong for at, wrong, _ in results if wrong}
    assert all(TAKEOVER - 7 < seconds < TAKEOVER + 8 for _, _, seconds in results), results
    assert not machine.violations, machine.violations


def test_a_leader_that_was_stopped_writes_nothing_after_it_continues(plane, machine, calm, tmp_path_factory):
    def one(case: tuple[int, bool]):
        at, early = case
        scenario = Stopped(
            plane,
            f"stopped-leader-{at}-{early}".lower(),
            tmp_path_factory.mktemp("stopped"),
            at,
            "before" if at % 2 else "replied",
        )
        try:
            if early:  # it continues when the other has just started
                pool.submit(
                    lambda: (
                        scenario.api.wait_until(
                            lambda: scenario.fallen and scenario.rival.proxy.writes_since(0), 60, "the takeover"
                        ),
                        setattr(scenario, "went_on", scenario.go_on()),
                    )
                )
            end = scenario.play()
            if not early:
                scenario.went_on = scenario.go_on()
            code = scenario.program.wait(20)
            late = [
                str(call) for call in scenario.proxy.calls if call.time >= scenario.went_on and call.method != "GET"
            ]
            return case, differences(end, calm), late, code
        finally:
            scenario.close()

    cases = [(at, early) for at in MOMENTS[:3] for early in (True, False)]
    with ThreadPoolExecutor(2 * len(cases)) as pool:
        results = list(pool.map(one, cases))
    assert not {case: wrong for case, wrong, _, _ in results if wrong}
    # A process can be stopped between its last check of the Lease and the write: one request may follow, and the final
    # state is still the same.
    assert not {case: late for case, _, late, _ in results if len(late) > 1}, "it wrote after it had lost the lease"
    assert {code for _, _, _, code in results} == {1}, "who lost the lease ends"
    assert not machine.violations, machine.violations


def test_a_leader_whose_lease_is_taken_exits(plane, machine, tmp_path):
    scenario = Pair(plane, "stolen-lease", tmp_path, at=None)
    try:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{scenario.ns}/leases/election"
        scenario.api.request("PATCH", path, {"spec": {"holderIdentity": "thief"}}, "application/merge-patch+json")
        assert scenario.program.wait(10) == 1
    finally:
        scenario.close()


def test_a_terminated_leader_releases_the_lease_at_once(plane, machine, tmp_path):
    scenario = Pair(plane, "handed-over", tmp_path, at=None)
    try:
        before = scenario.holder()
        begin = time.monotonic()
        scenario.program.terminate()
        scenario.api.wait_until(lambda: scenario.holder() not in ("", before), 30, "the other leads")
        took = time.monotonic() - begin
        print(f"handed over in {took:.1f} s")
        assert scenario.program.wait(10) == 0 and took < 10, took  # the target is 3 s; a loaded machine may take longer
    finally:
        scenario.close()
