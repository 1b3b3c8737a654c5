# SPDX-License-Identifier: Apache-2.0
"""A replica over two nodes under load: replies are right, a node that dies, freezes or loses power ends the replica
everywhere and in time, and a stop reaches all nodes.
"""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest
from clients import Load
from conftest import SECONDS
from nodes import Nodes
from serving import children, held_by, running, until


class Pair(Nodes):
    """Two nodes; their processes are identified by node."""

    def __init__(self, folder, **more):
        super().__init__(folder, [1, 1], "tensor=2", options=("--max-queue", "1024"), **more)
        self.ranks = [children(process.pid) for process in self.processes]

    @property
    def everyone(self):
        return [process.pid for process in self.processes] + [pid for ranks in self.ranks for pid in ranks]

    def reason(self, node):
        found = re.findall(
            r"the group ends: (\w+): (.*)", pathlib.Path(self.logs[node].name).read_text(errors="replace")
        )
        return found[-1] if found else None

    def files(self):
        """In shared memory, of launchers that could have removed them; those of killed ones go now."""
        found = [
            (process, path)
            for path in pathlib.Path("/dev/shm").iterdir()
            for process in self.processes
            if path.name.startswith(f"parallelmodel-{process.pid}-")
        ]
        for process, path in found:
            if process.returncode == -signal.SIGKILL:
                path.unlink()
        return [path.name for process, path in found if process.returncode != -signal.SIGKILL]

    def left_behind(self):
        return [pid for pid in self.everyone if running(pid)] + self.files()


class Apart(Pair):
    """Each node is in a network namespace of its own, connected by a veth pair."""

    host = "10.213.77.1"

    def __init__(self, folder, **more):
        self.names = [f"pm-{os.getpid()}-{node}" for node in (0, 1)]
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip(
            "link",
            "add",
            "wire",
            "netns",
            self.names[0],
            "type",
            "veth",
            "peer",
            "name",
            "wire",
            "netns",
            self.names[1],
        )
        for node, name in enumerate(self.names):
            ip("-n", name, "address", "add", f"10.213.77.{node + 1}/24", "dev", "wire")
            ip("-n", name, "link", "set", "wire", "up")
        super().__init__(folder, **more)

    def enter(self, node):
        return ["ip", "netns", "exec", self.names[node]]

    def ready(self, node):
        script = (
            f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{self.admin_ports[node]}/ready', "
            f"timeout=2)"
        )
        return (
            subprocess.run(
                [*self.enter(node), sys.executable, "-S", "-c", script], stderr=subprocess.DEVNULL
            ).returncode
            == 0
        )

    def cut(self):
        """Drops all packets in both directions from now on, as when a node has lost its power."""
        for node, name in enumerate(self.names):  # frames to a card that nobody has
            ip(
                "-n",
                name,
                "neighbour",
                "replace",
                f"10.213.77.{2 - node}",
                "lladdr",
                "02:00:00:00:00:77",
                "nud",
                "permanent",
                "dev",
                "wire",
            )

    def close(self):
        codes = super().close()
        for name in self.names:
            ip("netns", "del", name)
        return codes


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def pair(folders):
    made = []

    def make(kind=Pair, **more):
        made.append(kind(folders("decoder"), **more))
        return made[-1]

    yield make
    for group in made:
        for pid in group.everyone:
            if running(pid):
                os.kill(pid, signal.SIGCONT)
        group.close()
        until(lambda: not group.left_behind(), 10)


@pytest.fixture
def loaded(pair, expected_of):
    group = pair()
    asks, expected = expected_of(group, "decoder")
    load = Load(group.port, asks, expected, clients=16, after_loss="end")
    time.sleep(1)
    return group, load


def ended(group, load, nodes, reason, words):
    """Every launcher of `nodes` ends by itself and names what happened; clients have their answers."""
    for node in nodes:
        assert group.processes[node].wait(15) == 5
        found, message = group.reason(node)
        assert found == reason and words in message, (node, found, message)
    tally = load.end(timeout=10)
    assert not tally.wrong, json.dumps(tally.wrong[0])
    return tally


def test_every_reply_is_right(loaded):
    group, load = loaded
    time.sleep(4)
    tally = load.end()
    assert tally.faultless() and sum(tally.right.values()) > 50
    print(f"\n{sum(tally.right.values())} right replies over two nodes")


@pytest.mark.parametrize(
    "victim, number, reason, words, survivors",
    [
        ("rank", signal.SIGKILL, "RankLost", "rank 1 died of signal 9", [0, 1]),
        ("rank", signal.SIGSTOP, "RankHung", "rank 1 is frozen", [0, 1]),
        ("launcher", signal.SIGKILL, "RankLost", "node 1 (rank 1) at 127.0.0.1 is lost: it closed the connection", [0]),
        (
            "launcher",
            signal.SIGSTOP,
            "NodeLost",
            "node 1 (rank 1) at 127.0.0.1 is lost: it has been silent for 5 s",
            [0],
        ),
        ("node", signal.SIGSTOP, "NodeLost", "node 1 (rank 1) at 127.0.0.1 is lost: it has been silent for 5 s", [0]),
    ],
    ids=["rank killed", "rank stopped", "launcher killed", "launcher stopped", "node frozen"],
)
def test_what_befalls_node_1_ends_the_group_on_both(loaded, victim, number, reason, words, survivors):
    group, load = loaded
    victims = {
        "rank": group.ranks[1],
        "launcher": [group.processes[1].pid],
        "node": [group.processes[1].pid, *group.ranks[1]],
    }[victim]
    begin = time.monotonic()
    for pid in victims:
        os.kill(pid, number)
    unready = until(lambda: not group.ready(0), 3.5, every=0.01)
    tally = ended(group, load, survivors, reason, words)
    print(
        f"\nunready after {unready:.2f} s, ended after {time.monotonic() - begin:.2f} s, "
        f"{sum(tally.right.values())} right, {dict(tally.refused)} refused, {len(tally.lost)} found nobody"
    )
    assert not tally.lost_before_refusals() or victim != "rank", tally.lost_before_refusals()[:3]


@pytest.mark.parametrize(
    "number, reason, words",
    [
        (signal.SIGKILL, "RankLost", "node 0 (rank 0) at 127.0.0.1 is lost"),
        (signal.SIGSTOP, "NodeLost", "node 0 (rank 0) at 127.0.0.1 is lost"),
    ],
    ids=["killed", "frozen"],
)
def test_when_node_0_goes_node_1_ends_by_itself(pair, number, reason, words):
    group = pair()
    victims = [group.processes[0].pid, *group.ranks[0]]
    for pid in victims:
        os.kill(pid, number)
    until(lambda: not group.ready(1), 3.5, every=0.01)
    assert group.processes[1].wait(15) == 5
    found, message = group.reason(1)
    assert found == reason and words in message, (found, message)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and iproute2")
def test_nodes_that_lose_sight_of_each_other_end_each_by_itself(pair):
    group = pair(kind=Apart)
    begin = time.monotonic()
    group.cut()
    until(lambda: not group.ready(0) and not group.ready(1), 4, every=0.05)
    unready = time.monotonic() - begin
    assert [process.wait(15) for process in group.processes] == [5, 5]
    print(f"\nunready after {unready:.2f} s, ended after {time.monotonic() - begin:.2f} s")
    for node, other in ((0, "node 1 (rank 1) at 10.213.77.2"), (1, "node 0 (rank 0) at 10.213.77.1")):
        found, message = group.reason(node)
        assert found == "NodeLost" and f"{other} is lost: it has been silent for 5 s" in message, (found, message)


def test_a_node_that_is_stopped_for_a_moment_goes_on_and_so_do_its_requests(loaded):
    group, load = loaded
    stopped = [group.processes[1].pid, *group.ranks[1]]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3)
    ready = group.ready(0)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    until(lambda: group.ready(0) and group.ready(1), 5)
    assert not ready, "a group with a node that has been silent for 2 s is unready"
    right = sum(load.tally.right.values())
    until(lambda: sum(load.tally.right.values()) > right + 16, 10)
    assert load.end().faultless()


@pytest.mark.parametrize("node", [0, 1])
def test_a_stop_of_either_node_drains_the_whole_group(loaded, node):
    group, load = loaded
    begin = time.monotonic()
    group.processes[node].send_signal(signal.SIGTERM)
    codes = [process.wait(15) for process in group.processes]
    took = time.monotonic() - begin
    tally = load.end(timeout=10)
    assert codes == [0, 0] and not tally.wrong and not tally.lost_before_refusals(), (codes, tally.lost[:3])
    assert {error["code"] for *_, error in tally.errors} <= {"draining"} and group.left_behind() == []
    print(f"\nended {took:.2f} s after SIGTERM")


def listening(pid):
    """Ports that the process listens on."""
    own = {os.readlink(path) for path in pathlib.Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    rows = [
        line.split()
        for kind in ("tcp", "tcp6")
        for line in pathlib.Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]
    ]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own}


def test_strangers_on_the_ports_of_launchers_and_ranks_disturb_nobody(loaded):
    group, load = loaded
    ports = {group.rendezvous, *(port for ranks in group.ranks for pid in ranks for port in listening(pid))} - {
        group.port
    }
    assert len(ports) == 3, "node 0's launcher and both ranks"
    draw, silent, end = random.Random(3), [], time.monotonic() + SECONDS
    hello = json.dumps({"hello": {"replicaGeneration": 1, "nodes": 2, "node": "one"}}).encode()
    while time.monotonic() < end:
        for port in ports:
            says = draw.choice(
                [
                    b"",
                    draw.randbytes(draw.randrange(1, 5000)),
                    b"GET / HTTP/1.1\r\n\r\n",
                    b"PMGROUP1" + struct.pack("<I", draw.choice([0, 5, 1000, 2**31])) + draw.randbytes(300),
                    b"PMGROUP1" + struct.pack("<I", len(hello)) + hello,
                    struct.pack("<Q", 0x3168_7365_6D6D70) + draw.randbytes(200),
                ]
            )
            stranger = socket.create_connection(("127.0.0.1", port))
            with contextlib.suppress(OSError):
                stranger.sendall(says)
            silent.append(stranger)
            if says or len(silent) > 150:
                silent.pop(0).close()
    assert group.ready(0) and group.ready(1)
    assert load.end().faultless()
    assert all(held_by(pid).files < 200 for pid in group.everyone)


def test_a_late_node_is_awaited_and_another_generation_is_refused(pair):
    group = pair(wait=False)
    group.processes = [group.start(0)]
    time.sleep(3)
    assert not group.ready(0) and group.processes[0].poll() is None
    stranger = group.start(1, replica_generation=0)
    assert stranger.wait(30) == 5
    assert (
        "this is node 0 of 2, replica generation 1, and you are of replica generation 0"
        in pathlib.Path(group.logs[1].name).read_text()
    )
    assert group.processes[0].poll() is None, "no harm done"
    group.processes.append(group.start(1))
    group.wait_ready(60)
    group.ranks = [children(process.pid) for process in group.processes]
    begin = time.monotonic()
    assert group.close() == [0, 0]
    assert time.monotonic() - begin < 10 and group.left_behind() == []


def test_a_node_that_waits_for_the_others_ends_when_told(pair):
    for node in (0, 1):
        group = pair(wait=False)
        group.processes = [group.start(node)]
        time.sleep(2)
        group.processes[0].send_signal(signal.SIGTERM)
        assert group.processes[0].wait(10) == 6
