# SPDX-License-Identifier: Apache-2.0
"""Tests the GPU memory of models, as the worker measures it: it is at most the predicted memory and at most the limit.
A request for more is refused with the numbers."""

import contextlib
import json
import math
import re
import shutil

import machine
import pytest
from device_fixtures import answering
from shapes import GPT_J, MIB, NEO, Noise
from test_devices import wide

PROMPT, NEW = (112, 32) if machine.REHEARSAL else (16, 128)  # tokens, as many together
BLOCK = 16


def ids(rows, length=PROMPT):
    return [[3 + (31 * row + 7 * i) % 9000 for i in range(length)] for row in range(rows)]


@pytest.fixture(scope="module")
def neo(tmp_path_factory):
    folder = NEO.shape.write(tmp_path_factory.mktemp("neo") / "model", Noise())
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def gpt_j(tmp_path_factory):
    folder = GPT_J.shape.write(tmp_path_factory.mktemp("gpt-j") / "model", Noise())
    yield folder
    shutil.rmtree(folder)


def test_a_rank_of_two_of_gpt_neo_holds_its_share_and_little_beside_it_while_it_loads(hardware):
    """Loads each rank as `serve` would, alone on the first GPU."""
    import load

    rows = list(
        load.rows(
            str(hardware.binary), [2], 1 << 40, True, device=hardware.name, models={NEO.shape.name: NEO.shape.entry}
        )
    )
    assert [row["rank"] for row in rows] == [0, 1]
    for row in rows:
        print(
            "\nMiB:",
            {name: round(value / MIB, 1) for name, value in row.items() if isinstance(value, int) and value > MIB},
        )
        assert row["planned"] <= row["weights"] <= row["planned"] + MIB, "but for the alignment of each tensor"
        assert row["weights"] <= NEO.share
        assert row["peak"] <= row["weights"] + 64 * MIB


@pytest.mark.gpus(2)
def test_gpt_neo_on_two_gpus_tells_its_share(hardware, neo):
    with contextlib.closing(
        hardware.server(neo, "tensor=2", "--max-sequence-length", "256", "--max-concurrency", "4", patience=300)
    ) as server:
        answer = server.ask(
            "/generate", {"input_ids": ids(1)[0], "max_new_tokens": 4, "ignore_eos": True, "return_token_ids": True}
        )
        ranks = server.get("/memory").json()["ranks"]
    assert len(answer["sequence"]) == PROMPT + 4 and len(ranks) == 2
    for rank in ranks:
        print(
            "\nMiB:",
            {
                name: {kind: round(value / MIB, 1) for kind, value in figures.items()}
                for name, figures in rank.items()
                if isinstance(figures, dict)
            },
        )
        measured = rank["measured"]
        assert rank["predicted"]["weights"] <= measured["weights"] <= NEO.share
        assert (
            measured["weights"] + measured["kv"]
            <= rank["device"]["allocated"]
            <= measured["weights"] + measured["kv"] + measured["activations"] + 64 * MIB
        )


def asked_for(runner, folder, rows):
    """Returns the reply to a job for so many sequences of PROMPT + NEW tokens on two ranks."""
    job = {
        "model": str(folder),
        "ranks": 2,
        "sizes": "tensor=2",
        "generate": {"input_ids": ids(rows), "max_new_tokens": NEW, "do_sample": False, "ignore_eos": True},
    }
    return runner.batch.ask(job, timeout=900)


def test_gpt_j_generates_on_two_ranks_of_8_gib_with_room_to_spare_and_survives_a_request_for_too_much(
    hardware, gpt_j, tmp_path
):
    """With one GPU both ranks share it, and the allocator limits them to twice the cap together."""
    plan = json.loads(
        hardware.run(
            "plan",
            "--model",
            gpt_j,
            "--ranks",
            2,
            "--sizes",
            "tensor=2",
            "--device-memory",
            GPT_J.cap,
            "--json",
            *GPT_J.options,
        ).stdout
    )
    kept = [rank["predicted"]["kv"] for rank in plan["ranks"]]
    print(
        "\nMiB:", [{kind: round(value / MIB, 1) for kind, value in rank["predicted"].items()} for rank in plan["ranks"]]
    )
    assert len(kept) == 2 and min(kept) >= GPT_J.kv
    one = min(kept) / plan["kvBlocks"] * math.ceil((PROMPT + NEW) / BLOCK)  # bytes of a sequence
    rows = math.ceil(GPT_J.kv / one)
    with answering(hardware, tmp_path, "--device-memory", GPT_J.cap, *GPT_J.options) as runner:
        answer = asked_for(runner, gpt_j, rows)
        assert answer["ok"], answer
        said = answer["sequences"]
        assert [row[:PROMPT] for row in said] == ids(rows) and {len(row) for row in said} == {PROMPT + NEW}
        assert len({token for row in said for token in row[PROMPT:]}) > rows / 2, (
            "the weights are random, so that one token for all would be nonsense"
        )
        process = runner.batch.process.pid
        refused = asked_for(runner, gpt_j, 4 * rows)
        assert not refused["ok"] and refused["reason"] == "OOMKilled", refused
        assert re.search(
            rf"{hardware.name}:\d has no memory for [\d.]+ [MG]iB while rank \d was loaded: "
            r"of its [\d.]+ GiB, .* are in this process's tensors, .* Give more --device-memory",
            refused["error"],
        ), refused
        again = asked_for(runner, gpt_j, 1)
        assert again["ok"] and len(again["sequences"][0]) == PROMPT + NEW and runner.batch.process.pid == process, (
            "the process is alive"
        )


def test_gpt_j_on_two_ranks_that_are_too_small_is_refused_before_anything_is_loaded(hardware, gpt_j):
    refused = hardware.run(
        "generate",
        "--model",
        gpt_j,
        "--ranks",
        2,
        "--sizes",
        "tensor=2",
        "--device-memory",
        GPT_J.less,
        "--input-ids",
        "5,6",
        *GPT_J.options,
    )
    assert refused.returncode == 4 and "DoesNotFit" in refused.stderr and "--device-memory" in refused.stderr, (
        refused.stderr
    )


@pytest.mark.gpus(2)
def test_gpt_j_is_served_on_two_gpus_of_8_gib(hardware, gpt_j):
    """KV blocks take the memory that is left after the largest step has been run."""
    with contextlib.closing(
        hardware.server(gpt_j, "tensor=2", "--device-memory", GPT_J.cap, *GPT_J.options, patience=600)
    ) as server:
        answer = server.ask(
            "/generate", {"input_ids": ids(1)[0], "max_new_tokens": NEW, "ignore_eos": True, "return_token_ids": True}
        )
        ranks, plan = server.get("/memory").json()["ranks"], server.get("/plan").json()
    assert len(answer["sequence"]) == PROMPT + NEW
    for rank in ranks:
        measured, predicted = rank["measured"], rank["predicted"]
        print("\nMiB:", {kind: round(value / MIB, 1) for kind, value in measured.items()})
        assert measured["kv"] >= GPT_J.kv
        assert (
            measured["weights"] + measured["kv"] + measured["activations"]
            <= plan["deviceMemory"] - predicted["runtime"] - predicted["communicator"]
        )


def test_weights_in_the_hosts_memory_serve_a_model_that_is_larger_than_its_cap(hardware, neo):
    """Two layers at a time are on the device (all-gather double buffering)."""
    options = (
        "--model",
        neo,
        "--input-ids",
        ",".join(map(str, ids(1, 16)[0])),
        "--max-new-tokens",
        4,
        "--ignore-eos",
        "--max-concurrency",
        1,
        "--max-sequence-length",
        64,
        "--json",
    )
    refused = hardware.run("generate", *options, "--strategy", "Tensor", "--device-memory", NEO.cap)
    assert refused.returncode == 4 and "DoesNotFit" in refused.stderr, refused.stderr
    whole = hardware.run("generate", *options, "--strategy", "Tensor")
    assert whole.returncode == 0, whole.stderr
    for to in ("HostMemory", "File"):
        offloaded = hardware.run(
            "generate", *options, "--strategy", "Offload", "--offload-to", to, "--device-memory", NEO.cap
        )
        assert offloaded.returncode == 0, offloaded.stderr
        assert json.loads(offloaded.stdout)["sequences"] == json.loads(whole.stdout)["sequences"]


def test_a_pass_that_is_too_large_for_the_gpu_ends_alone(hardware, tmp_path):
    """Of 256 MiB besides runtime and communicator, weights take 26 MiB and KV blocks all that the largest step
    leaves."""
    with contextlib.closing(
        hardware.server(
            wide(tmp_path / "model"), "tensor=1", "--device-memory", "1284Mi", "--max-concurrency", "2048", patience=120
        )
    ) as server:
        rank, plan = server.get("/memory").json()["ranks"][0], server.get("/plan").json()
        measured, predicted = rank["measured"], rank["predicted"]
        allowed = plan["deviceMemory"] - predicted["runtime"] - predicted["communicator"]
        print(
            "\nMiB:",
            {
                name: {kind: round(value / MIB, 1) for kind, value in figures.items()}
                for name, figures in rank.items()
                if isinstance(figures, dict)
            },
        )
        assert 0 < measured["kv"] and measured["weights"] + measured["kv"] + measured["activations"] <= allowed
        error = server.refused(
            "/forward",
            {"inputs": {"input_ids": [[3] * 250 for _ in range(24)]}, "hidden_states": True, "attentions": True},
            413,
        )
        assert error["code"] == "out_of_memory" and re.search(
            r"of its [\d.]+ GiB, .*KV blocks [\d.]+ [MG]iB", error["message"]
        ), error
        assert (
            len(
                server.ask("/generate", {"input_ids": [5, 6, 7], "max_new_tokens": 4, "return_token_ids": True})[
                    "sequence"
                ]
            )
            == 7
        )
        assert server.process.poll() is None
