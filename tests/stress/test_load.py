# SPDX-License-Identifier: Apache-2.0
"""64 concurrent clients use every route of a model: each reply equals that of a single client, none is lost, and no
resource grows.
"""

import json
import time

import pytest
from clients import CLIENTS, Load
from conftest import SECONDS
from serving import until

MIB = 1 << 20
GROWTH = (
    16 * MIB
)  # of a process's resident memory after warm-up: freed memory that the allocator keeps moves by some MiB


def settled(server):
    """Returns memory, files and threads of every process when the server is idle."""
    until(server.idle, 10)
    return server.held()


def watch(server, load, seconds):
    """Samples the maximum resources of each process during the load."""
    peaks, end = server.held(), time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.5)
        for peak, now in zip(peaks, server.held()):
            peak.resident, peak.files, peak.threads = (
                max(peak.resident, now.resident),
                max(peak.files, now.files),
                max(peak.threads, now.threads),
            )
        if load.failures:
            break
    return peaks


@pytest.mark.parametrize(
    "kind, sizes, strategy",
    [
        *((kind, "tensor=2", None) for kind in ("decoder", "encoder", "classifier", "encoder-decoder")),
        ("decoder", "pipeline=2", None),
        ("encoder-decoder", "pipeline=2", None),
        ("listener", "tensor=2", None),
        ("agent", "tensor=2", None),
        ("writer", "pipeline=2", None),
        ("decoder", "data=2", None),
        ("encoder", "data=2", None),
        ("decoder", "data=2", "Sharded"),
        ("encoder", "data=2", "Sharded"),
        ("encoder-decoder", "data=2", "Sharded"),
        ("decoder", "data=2", "Offload"),
    ],
)
def test_every_reply_is_right_and_nothing_grows(serve, folders, expected_of, kind, sizes, strategy):
    options = ()
    if kind == "agent":  # constraints and calls of tools with drafts; the replies are those of a server without
        expected_of(serve(kind, sizes=sizes), kind)
        options = ("--draft-model", folders(kind))
    server = serve(kind, *options, sizes=sizes, strategy=strategy)
    asks, expected = expected_of(server, kind)
    distinct = {json.dumps(value) for value in expected.values()}
    assert len(distinct) >= 0.9 * len(asks), "replies are too alike to tell one client's from another's"
    before = settled(server)

    load = Load(server.port, asks, expected)
    warm = watch(server, load, max(3, SECONDS / 4))  # threads, arenas and buffers for all clients come to be
    late = watch(server, load, SECONDS)
    tally = load.end()

    assert tally.faultless() and len(tally.right) == len(asks), "some request was never asked"
    settled(server)

    def let_go():
        """no process has files open that it had not before"""
        return all(now.files <= b.files + 1 for now, b in zip(server.held(), before))

    until(let_go, 20)  # a client's end is seen when its connection's thread comes to look
    after = server.held()
    preempted = server.metrics()["parallelmodel_num_preemptions_total"]
    print(
        f"\n{kind}: {sum(tally.right.values())} right replies, {preempted:.0f} preempted; resident MiB",
        [f"{w.resident / MIB:.1f} -> {l.resident / MIB:.1f}" for w, l in zip(warm, late)],
        "threads",
        [h.threads for h in after],
        "files",
        [(b.files, l.files, a.files) for b, l, a in zip(before, late, after)],
    )
    # a connection keeps its thread until its end is seen, by when its client may have opened others; the server has at
    # most 512
    for process, (b, w, l, a) in enumerate(zip(before, warm, late, after)):
        assert l.resident <= w.resident + GROWTH, (
            f"process {process}: resident memory grew from {w.resident} to {l.resident} bytes under the same load"
        )
        assert max(l.threads, a.threads) <= b.threads + 4 * CLIENTS, (
            f"process {process}: threads {b.threads} -> {l.threads} -> {a.threads}"
        )
        assert l.files <= b.files + CLIENTS + 8 and a.files <= b.files + 1, (
            f"process {process}: files {b.files} -> {l.files} -> {a.files}"
        )
    assert server.complaints() == []
    metrics = server.metrics()
    assert metrics["parallelmodel_kv_cache_usage_perc"] == 0 and metrics["parallelmodel_num_requests_running"] == 0
    assert not options or metrics["parallelmodel_spec_decode_num_accepted_tokens_total"] > 20
    assert preempted > 0 or "decoder" not in kind, "blocks were never short: give the server fewer"
