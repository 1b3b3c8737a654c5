# SPDX-License-Identifier: Apache-2.0
"""A rank dies or freezes under load: all clients are notified in time, and nothing outlives the replica."""

import json
import signal
import time

import pytest
from clients import Load, connect
from serving import until

HEALTHY_END = (
    12  # seconds from the loss to the end of the launcher: limits of detection, 2 s of farewell, a busy machine
)


@pytest.fixture
def sizes():
    return "tensor=2"


@pytest.fixture
def strategy():
    return None


@pytest.fixture
def loaded(serve, expected_of, sizes, strategy):
    """A server whose 64 clients go away at their first loss of a connection."""
    server = serve("decoder", sizes=sizes, strategy=strategy)
    asks, expected = expected_of(server, "decoder")
    load = Load(server.port, asks, expected, after_loss="end")
    time.sleep(1)
    return server, load


def unready_within(server, seconds):
    return until(lambda: not server.ready(), seconds, every=0.01)


def ended(server, load, reason, words):
    """The group is over: its exit code, reason, processes, files; and every client has been answered or hung up on."""
    assert server.wait(HEALTHY_END) == 5
    tally = load.end(timeout=10)
    assert not tally.wrong, json.dumps(tally.wrong[0])
    assert set(tally.refused) <= {200, 503}, tally.refused  # 200: an error as the last event of a stream
    for _, name, status, headers, error in tally.errors:
        assert error["code"] in ("rank_lost", "draining"), (
            name,
            status,
            error,
        )  # the latter from a server that is on its way out already
    found, message = server.reason()
    assert found == reason and words in message, (found, message)
    assert server.left_behind() == []
    return tally


@pytest.mark.parametrize(
    "sizes, strategy", [("tensor=2", None), ("pipeline=2", None), ("data=2", None), ("data=2", "Sharded")]
)
def test_a_killed_follower_ends_the_group_and_every_request_has_an_answer(loaded):
    server, load = loaded
    begin = time.monotonic()
    server.signal(1, signal.SIGKILL)
    unready = unready_within(server, 3)
    tally = ended(server, load, "RankLost", "rank 1 died of signal 9")
    assert sum(tally.refused.values()) >= 32, "requests that were open get 503"
    print(
        f"\nunready after {unready:.2f} s, ended after {time.monotonic() - begin:.2f} s, "
        f"{sum(tally.right.values())} right, {dict(tally.refused)} refused, "
        f"{len(tally.lost)} found nobody"
    )
    assert not tally.lost_before_refusals(), f"open requests without an answer: {tally.lost_before_refusals()[:3]}"


def test_when_rank_0_is_killed_connections_close_at_once(loaded):
    server, load = loaded
    begin = time.monotonic()
    server.signal(0, signal.SIGKILL)
    unready = unready_within(server, 3)
    load.stop.set()
    for thread in load.threads:
        thread.join(3)
    assert not any(thread.is_alive() for thread in load.threads), "a client still waits"
    tally = ended(server, load, "RankLost", "rank 0 died of signal 9")
    print(f"\nunready after {unready:.2f} s, ended after {time.monotonic() - begin:.2f} s")
    assert not tally.refused and tally.lost


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_stopped_for_a_moment_goes_on_and_so_do_its_requests(loaded, rank):
    server, load = loaded
    server.signal(rank, signal.SIGSTOP)
    time.sleep(3)
    stopped_ready = server.ready()
    server.signal(rank, signal.SIGCONT)
    until(server.ready, 3)
    right = sum(load.tally.right.values())
    until(lambda: sum(load.tally.right.values()) > right + 64, 10)
    assert load.end().faultless()
    assert not stopped_ready, "a group with a rank that has been silent for 2 s is unready"
    until(server.idle, 5)
    assert server.process.poll() is None and server.complaints() == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_frozen_rank_ends_the_group(loaded, rank):
    server, load = loaded
    begin = time.monotonic()
    server.signal(rank, signal.SIGSTOP)
    unready = unready_within(server, 5)
    tally = ended(server, load, "RankHung", f"rank {rank} is frozen")
    print(
        f"\nunready after {unready:.2f} s, ended after {time.monotonic() - begin:.2f} s, "
        f"{dict(tally.refused)} refused, {len(tally.lost)} without an answer"
    )
    if rank == 1:
        assert sum(tally.refused.values()) >= 32 and not tally.lost_before_refusals(), tally.lost_before_refusals()[:3]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_wakes_after_the_limit_ends_as_well(loaded, rank):
    server, load = loaded
    server.signal(rank, signal.SIGSTOP)
    until(lambda: "is frozen" in server.log(), 9)
    server.signal(rank, signal.SIGCONT)
    tally = ended(server, load, "RankHung", f"rank {rank} is frozen")
    if rank == 0:
        assert tally.refused, "awake again, rank 0 tells its clients"


def test_an_idle_group_notices_a_dead_rank_too(serve):
    server = serve("decoder")
    connection = connect(server.port)  # kept open
    server.signal(1, signal.SIGKILL)
    unready_within(server, 3)
    assert server.wait(HEALTHY_END) == 5 and server.reason()[0] == "RankLost" and server.left_behind() == []
    connection.close()


def test_a_rank_that_dies_while_loading_ends_the_group(serve):
    server = serve("decoder", wait=False)
    server.signal(1, signal.SIGKILL)
    assert server.wait(HEALTHY_END) == 5 and server.reason()[0] == "RankLost" and server.left_behind() == []
