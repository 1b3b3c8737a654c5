# SPDX-License-Identifier: Apache-2.0
"""Ranks in processes with a device each, as `serve` starts them, give the results of transformers, and a lost rank
ends the replica in time.

The devices are fake ones here (tests/gpu/fake_device), and GPUs in tests/gpu. Ranks exchange tensors by the
communicator that serves GPUs with NCCL (worker/comm/nccl), over a fake NCCL library: its operations wait in the
device's stream, so that a rank notices a lost rank only when it needs a result.
"""

import contextlib
import os
import pathlib
import re
import signal
import threading
import time

import compare
import fixtures
import inputs
import oracle
import pytest
import requests
from cases import BY_NAME
from nodes import Nodes
from test_forward import places
from test_generate import COUNT, check_answer, rows_of
from test_nodes import forward
from test_strategies import ranks_of

import worker

LAYOUTS = ["tensor=2", "pipeline=2", "data=2"]
CAPTURED = {
    "kernels": True,
    "PM_FAKE_GRAPHS": "1",
}  # CUDA kernels (emulated on the fake device) and CUDA graphs


def tokens(server, row, **body):
    reply = server.post(
        "/v1/completions", {"prompt": row, "return_token_ids": True, "ignore_eos": True, "max_tokens": COUNT, **body}
    )
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["token_ids"]


def follows(device, name, server, sizes):
    """Asserts that greedy tokens of concurrent prompts equal those of transformers; after a near-tie `device`
    continues.
    """
    case = BY_NAME[name]
    rows, answers = rows_of(case), {}
    threads = [
        threading.Thread(target=lambda i=i, row=row: answers.update({i: tokens(server, row, temperature=0)}))
        for i, row in enumerate(rows)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, row in enumerate(rows):
        check_answer(device, case, server.folder, ranks_of(sizes), row, [*row, *answers[i]], sizes=sizes)


@pytest.mark.parametrize("sizes", ["tensor=1", *LAYOUTS, "tensor=2,pipeline=2", "tensor=3"])
def test_ranks_with_a_device_each_say_what_transformers_says(device, serve_on_devices, sizes):
    name = "GPT2LMHeadModel-all"
    server = serve_on_devices(name, sizes)
    follows(device, name, server, sizes)
    case = BY_NAME[name]
    given = inputs.make(case, inputs.kinds(case)[0])
    compare.tensors(forward(server.port, given), oracle.forward(case, given), places(case, given))


@pytest.mark.parametrize("sizes", ["tensor=1", "tensor=2", "pipeline=2"])
@pytest.mark.parametrize("name", ["BertForMaskedLM-all", "ViTForImageClassification-all", "CLIPModel-all"])
def test_models_that_keep_no_keys_are_served_on_devices(serve_on_devices, name, sizes):
    case = BY_NAME[name]
    given = inputs.make(case, inputs.kinds(case)[0])
    compare.tensors(
        forward(serve_on_devices(name, sizes).port, given), oracle.forward(case, given), places(case, given)
    )


@pytest.mark.parametrize("name, sizes", [("LlamaForCausalLM-all", "tensor=2"), ("LlamaForCausalLM-all", "pipeline=2")])
def test_with_the_cuda_kernels_too(serve_on_devices, name, sizes):
    """Uses the emulated CUDA kernels instead of ATen's operations."""
    row = rows_of(BY_NAME[name])[0]
    with_kernels = tokens(serve_on_devices(name, sizes, kernels=True), row, temperature=0, max_tokens=6)
    assert [*row, *with_kernels] == oracle.greedy(BY_NAME[name], row, COUNT)["sequence"][: len(row) + 6]


def graphs(server):
    """Returns for each rank the batch sizes of captured CUDA graphs, the replayed steps, and their bytes; None
    without graphs.
    """
    return [rank.get("graphs") for rank in server.get("/memory").json()["ranks"]]


def come_and_go(server, row):
    """Returns greedy tokens of one prompt in sequences that begin and end at different times."""
    answers, lengths = {}, [3, 16, 5, 7, 2]

    def ask(i):
        time.sleep(0.05 * i)
        answers[i] = tokens(server, row, temperature=0, max_tokens=lengths[i])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(lengths))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[i] for i in range(len(lengths))], lengths


@pytest.mark.parametrize(
    "name, sizes",
    [
        ("GPT2LMHeadModel-all", "tensor=3"),
        ("FalconForCausalLM-7b", "tensor=2"),
        ("LlamaForCausalLM-all", "tensor=2,data=2"),
    ],
)
def test_decode_steps_of_a_tensor_parallel_group_are_captured_as_cuda_graphs(serve_on_devices, name, sizes):
    """Each rank captures CUDA graphs of the same batch sizes at start, and every later decode step replays one of
    them, whatever sequences begin and end.
    """
    server = serve_on_devices(name, sizes, "--max-concurrency", "4" if "data" not in sizes else "8", **CAPTURED)
    before = graphs(server)
    assert [rank["captured"] for rank in before] == [3] * ranks_of(sizes), "4, 2 and 1"
    assert all(rank["bytes"] > 0 for rank in before)
    row = rows_of(BY_NAME[name])[0]
    wanted = oracle.greedy(BY_NAME[name], row, COUNT)["sequence"][len(row) :]
    found, lengths = come_and_go(server, row)
    assert found == [wanted[:length] for length in lengths]
    dp_rank_size = ranks_of(sizes) // (2 if "data" in sizes else 1)
    for _ in range(100):  # a rank that sees no results says a little later what it has done
        after = graphs(server)
        if all(
            len({rank["replayed"] for rank in after[first : first + dp_rank_size]}) == 1
            for first in range(0, len(after), dp_rank_size)
        ):
            break
        time.sleep(0.05)
    played = [now["replayed"] - then["replayed"] for now, then in zip(after, before)]
    print("\nsteps replayed by each rank:", played, "MiB held:", [round(rank["bytes"] / 2**20, 2) for rank in after])
    assert [rank["captured"] for rank in after] == [rank["captured"] for rank in before]
    for first in range(0, len(played), dp_rank_size):
        assert len(set(played[first : first + dp_rank_size])) == 1 and (
            played[first] >= 8 or dp_rank_size < len(played)
        ), "all ranks of a group play the same steps"


def test_launches_are_not_recorded_unless_asked_for(serve_on_devices):
    server = serve_on_devices("LlamaForCausalLM-all", "tensor=2", "--max-concurrency", "4", "--no-graphs", **CAPTURED)
    assert graphs(server) == [None, None]


@pytest.mark.parametrize("sizes", ["tensor=1"])
@pytest.mark.parametrize("concurrency, buckets", [(4, 3), (64, 11), (256, 11)])
def test_a_server_of_any_concurrency_captures_its_graphs_twice(serve_on_devices, sizes, concurrency, buckets):
    """`serve` captures its graphs over the KV blocks of the warm-up, drops both, and captures them again. From 40
    sequences on a step has products of cuBLAS, whose workspaces outlive the graphs.
    """
    name = "LlamaForCausalLM-all"
    server = serve_on_devices(name, sizes, "--max-concurrency", concurrency, patience=300, **CAPTURED)
    assert [rank["captured"] for rank in graphs(server)] == [buckets]
    assert log_of(server).count("captured the CUDA graph of a decode step for up to ") == 2 * buckets
    row = rows_of(BY_NAME[name])[0]
    wanted = oracle.greedy(BY_NAME[name], row, COUNT)["sequence"][len(row) :]
    found, lengths = come_and_go(server, row)
    assert found == [wanted[:length] for length in lengths]
    assert graphs(server)[0]["replayed"] > buckets, "the warm-up replays each graph once"


@pytest.mark.parametrize("sizes", ["tensor=1", "tensor=2"])
@pytest.mark.parametrize(
    "choice",
    [
        {"temperature": 0},
        {"temperature": 0.8, "top_p": 0.9, "seed": 4},
        {"temperature": 0.8, "top_k": 7, "repetition_penalty": 1.3, "presence_penalty": 0.4, "seed": 5},
    ],
    ids=["greedy", "sampled", "penalties"],
)
def test_a_decode_step_waits_for_its_tokens_only(serve_on_devices, sizes, choice):
    """Inputs and tokens of a captured step are copied within the order of the device. The host waits for copies of the
    prompt's step alone, so more tokens need no more of them, and are those of a server that captures nothing.
    """
    name = "LlamaForCausalLM-all"
    row = rows_of(BY_NAME[name])[0]
    found, waits = {}, {}
    for graphs_on in (True, False):
        options = ("--max-concurrency", "2", *(() if graphs_on else ("--no-graphs",)))
        server = serve_on_devices(name, sizes, *options, PM_FAKE_COPIES="1", **CAPTURED)
        counts = []
        for length in (2, 14):
            before = log_of(server).count("the host waits for a copy")
            found[graphs_on] = tokens(server, row, max_tokens=length, **choice)
            counts.append(log_of(server).count("the host waits for a copy") - before)
        waits[graphs_on] = counts[1] - counts[0]
        server.close()
    assert found[True] == found[False]
    assert waits[False] >= 12, "a step without graphs waits for copies, so the report works"
    assert waits[True] == 0


CAPTURE_FAULTS = {
    "memory": "fake out of memory for a graph",
    "operation": "operation not permitted when stream is capturing",
    "instantiate": "the graph cannot be instantiated",
}


@pytest.mark.parametrize("fault", CAPTURE_FAULTS)
@pytest.mark.parametrize("failing", [0, 1])
def test_one_rank_that_cannot_capture_makes_all_launch_kernel_by_kernel(serve_on_devices, failing, fault):
    server = serve_on_devices(
        "LlamaForCausalLM-all",
        "tensor=2",
        "--max-concurrency",
        "4",
        PM_FAKE_NO_GRAPHS_ON=str(failing),
        PM_FAKE_CAPTURE_FAULT=fault,
        **CAPTURED,
    )
    row = rows_of(BY_NAME["LlamaForCausalLM-all"])[0]
    wanted = oracle.greedy(BY_NAME["LlamaForCausalLM-all"], row, COUNT)["sequence"][len(row) :]
    found, lengths = come_and_go(server, row)
    assert found == [wanted[:length] for length in lengths]
    status = requests.get(f"http://127.0.0.1:{server.admin_port}/status", timeout=20).json()
    assert [rank["graphs"] for rank in status["ranks"]] == graphs(server)
    for rank, use in enumerate(graphs(server)):
        assert (use["captured"], use["replayed"], use["bytes"]) == (0, 0, 0)
        reason = CAPTURE_FAULTS[fault] if rank == failing else "another rank of the group cannot capture it"
        assert f"fake:{rank}: no CUDA graph of a decode step for up to 4 sequences: " in use["captureFailure"]
        assert reason in use["captureFailure"]
    assert log_of(server).count("no CUDA graph of a decode step for up to 4 sequences") == 2, "each rank once"


def log_of(server):
    server.log.flush()
    return pathlib.Path(server.log.name).read_text()


@pytest.mark.parametrize("sizes", ["tensor=2", "pipeline=2"])
def test_a_rank_has_a_context_on_its_own_device_only(serve_on_devices, sizes):
    """A context takes some hundred MiB of a GPU. A thread that selects no device makes one on device 0."""
    name = "LlamaForCausalLM-all"
    server = serve_on_devices(name, sizes, "--max-concurrency", "4", PM_FAKE_CONTEXTS="1", **CAPTURED)
    row = rows_of(BY_NAME[name])[0]
    wanted = oracle.greedy(BY_NAME[name], row, COUNT)["sequence"][len(row) : len(row) + 6]
    assert tokens(server, row, temperature=0, max_tokens=6) == wanted
    processes = ranks(server)
    server.close()
    found = re.findall(r"process (\d+) has a context on fake:(\d+)", log_of(server))
    assert [{int(device) for process, device in found if int(process) == rank} for rank in processes] == [{0}, {1}]


class OnDevices(Nodes):
    """Nodes that are hosts of their own to NCCL, each with devices 0, 1, ..."""

    def __init__(self, hardware, folder, counts, sizes, options=(), planned=(), **environment):
        self.environment = [f"{name}={value}" for name, value in environment.items()]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker, "BINARY", hardware.binary)
            super().__init__(folder, counts, sizes, options=("--device", hardware.name, *options), planned=planned)

    def enter(self, node):
        return ["env", f"NCCL_HOSTID=node{node}", *self.environment]


@pytest.mark.parametrize(
    "options_of_nodes",
    [[[], []], [[], ["--no-graphs"]], [["--no-graphs"], []]],
    ids=["both", "node 0 alone", "node 1 alone"],
)
def test_ranks_of_several_nodes_agree_on_cuda_graph_capture(hardware, options_of_nodes):
    """The agreement uses the host's connections: no rank waits for one that captures no graph."""
    case = BY_NAME["LlamaForCausalLM-all"]

    class Different(OnDevices):
        def enter(self, node):
            self.options = ["--device", hardware.name, *options_of_nodes[node]]
            return super().enter(node)

    nodes = Different(
        hardware,
        fixtures.checkpoint(case),
        [1, 1],
        "tensor=2",
        planned=("--max-concurrency", 4),
        **hardware.environment(1, kernels=True, graphs=True),
    )
    try:
        row = rows_of(case)[0]
        reply = requests.post(
            f"http://127.0.0.1:{nodes.port}/generate", json={"input_ids": row, "max_new_tokens": 6}, timeout=60
        ).json()
        assert reply["sequence"] == oracle.greedy(case, row, COUNT)["sequence"][: len(row) + 6]
        captured = [nodes.status(node)["ranks"][node].get("graphs", {}).get("captured", 0) for node in (0, 1)]
        assert captured[0] == captured[1] and (captured[0] > 0) == (not any(options_of_nodes))
    finally:
        codes = nodes.close()
    assert codes == [0, 0], nodes.log()[-4000:]


@pytest.mark.parametrize(
    "counts, sizes", [([1, 1], "tensor=2"), ([1, 1], "pipeline=2"), ([2, 2], "tensor=2,pipeline=2")]
)
def test_devices_of_several_nodes_say_what_transformers_says(hardware, counts, sizes):
    case = BY_NAME["GPT2LMHeadModel-all"]
    nodes = OnDevices(hardware, fixtures.checkpoint(case), counts, sizes)
    try:
        given = inputs.make(case, inputs.kinds(case)[0])
        compare.tensors(forward(nodes.port, given), oracle.forward(case, given), places(case, given))
        assert (
            nodes.log().count("NCCL joined rank") == {"tensor=2": 2, "pipeline=2": 2, "tensor=2,pipeline=2": 8}[sizes]
        ), "every collective group and every pair of stages once, by each of its ranks"
    finally:
        codes = nodes.close()
    assert codes == [0] * len(counts), nodes.log()[-4000:]


def ranks(server):
    children = pathlib.Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


def reason(server):
    return re.findall(r"the group ends: (\w+): (.*)", log_of(server))[-1]


@pytest.mark.parametrize("sizes", ["tensor=2", "pipeline=2"])
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize(
    "how, name, words",
    [(signal.SIGKILL, "RankLost", "rank {} died of signal 9"), (signal.SIGSTOP, "RankHung", "rank {} is frozen")],
    ids=["killed", "frozen"],
)
def test_a_lost_rank_ends_the_group_in_time_whatever_the_device_waits_for(
    serve_on_devices, sizes, lost, how, name, words
):
    lose_a_rank(serve_on_devices("GPT2LMHeadModel-all", sizes), lost, how, name, words)


@pytest.mark.parametrize("sizes", ["tensor=2"])
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize(
    "how, name, words",
    [(signal.SIGKILL, "RankLost", "rank {} died of signal 9"), (signal.SIGSTOP, "RankHung", "rank {} is frozen")],
    ids=["killed", "frozen"],
)
def test_a_rank_lost_during_graph_replay_ends_the_replica_in_time(serve_on_devices, sizes, lost, how, name, words):
    """Graphs hold operations of NCCL, whose abort waits until the graphs are destroyed."""
    server = serve_on_devices("GPT2LMHeadModel-all", sizes, "--max-concurrency", "4", **CAPTURED)
    assert [rank["captured"] for rank in graphs(server)] == [3, 3]
    lose_a_rank(server, lost, how, name, words)


def lose_a_rank(server, lost, how, name, words):
    body = {
        "prompt": rows_of(BY_NAME["GPT2LMHeadModel-all"])[0],
        "max_tokens": 40,
        "ignore_eos": True,
        "temperature": 0,
    }
    right, replies = server.ask("/v1/completions", body)["choices"][0]["text"], []

    def ask():
        with contextlib.suppress(requests.RequestException):  # rank 0's own end closes connections
            while True:
                replies.append(server.post("/v1/completions", body))

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    begin = time.monotonic()
    os.kill(ranks(server)[lost], how)
    try:
        assert server.process.wait(12) == 5
    finally:
        if server.process.poll() is None:
            for pid in ranks(server):
                os.kill(pid, signal.SIGCONT)
    print(f"\nended after {time.monotonic() - begin:.2f} s, {len(replies)} replies")
    found, message = reason(server)
    assert found == name and words.format(lost) in message, (found, message)
    for thread in threads:
        thread.join(5)
    texts = {reply.json()["choices"][0]["text"] for reply in replies if reply.status_code == 200}
    assert texts <= {right}, "no reply is made of what an aborted device left behind"
    assert {reply.status_code for reply in replies} <= {200, 503}
    assert lost == 0 or 503 in {reply.status_code for reply in replies}, "requests that were open are told"
    assert not [
        path
        for path in pathlib.Path("/dev/shm").iterdir()
        if path.name.startswith(f"parallelmodel-{server.process.pid}-")
    ]
