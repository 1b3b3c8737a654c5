# SPDX-License-Identifier: Apache-2.0
"""Ranks on several nodes give the same results as one node, bit for bit where a reply has tokens, in any placement.
Each node has a launcher of its own; they are connected over loopback.
"""

import contextlib
import shutil

import compare
import fixtures
import inputs
import oracle
import pytest
import requests
from cases import BY_NAME
from nodes import Nodes
from safetensors.numpy import load, save
from server import Server
from test_forward import places
from test_generate import rows_of

LAYOUTS = [
    ([1, 1], "tensor=2", ""),
    ([1, 1], "pipeline=2", ""),
    ([1, 1], "data=2", ""),
    ([1, 1], "data=2", "Sharded"),
    ([2, 1], "tensor=3", ""),
    ([2, 1], "data=3", "Sharded"),
    ([2, 2], "tensor=2,pipeline=2", ""),
    ([2, 2], "tensor=4", ""),
    ([2, 2], "pipeline=2,data=2", ""),
    ([1, 1, 1], "pipeline=3", ""),
]
IDS = [f"{'+'.join(map(str, counts))}-{strategy or 'layout'}-{sizes}" for counts, sizes, strategy in LAYOUTS]
BODIES = [{"max_tokens": 12, "temperature": 0}, {"max_tokens": 12, "temperature": 0.9, "seed": 5}]


def replies_of(port, rows):
    """The tokens of every prompt in every manner."""

    def ask(row, body):
        reply = requests.post(
            f"http://127.0.0.1:{port}/v1/completions",
            json={"prompt": row, "return_token_ids": True, "ignore_eos": True, **body},
            timeout=60,
        )
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["token_ids"]

    return [ask(row, body) for row in rows for body in BODIES]


def forward(port, given):
    headers = {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}
    reply = requests.post(
        f"http://127.0.0.1:{port}/forward?hidden_states=true&attentions=1",
        data=save(given),
        headers=headers,
        timeout=60,
    )
    assert reply.status_code == 200, reply.text
    return load(reply.content)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Returns the results of one rank."""
    case = BY_NAME["GPT2LMHeadModel-all"]
    folder = shutil.copytree(fixtures.checkpoint(case), tmp_path_factory.mktemp("alone") / "model")
    with contextlib.closing(Server(folder, 1)) as server:
        return replies_of(server.port, rows_of(case))


@pytest.mark.parametrize("counts, sizes, strategy", LAYOUTS, ids=IDS)
def test_a_group_over_nodes_gives_the_tokens_of_one_node_and_the_hidden_states_of_transformers(
    alone, counts, sizes, strategy
):
    case = BY_NAME["GPT2LMHeadModel-all"]
    nodes = Nodes(fixtures.checkpoint(case), counts, sizes, strategy)
    try:
        assert replies_of(nodes.port, rows_of(case)) == alone
        given = inputs.make(case, inputs.kinds(case)[0])
        compare.tensors(forward(nodes.port, given), oracle.forward(case, given), places(case, given))
        for node in range(len(counts)):
            status = nodes.status(node)
            assert status["ready"] and len(status["ranks"]) == sum(counts)
            for rank in status["ranks"]:
                assert (
                    rank["state"] == "Ready"
                    and 0 < rank["loadBytes"] <= rank["loadTotal"]
                    and (strategy or rank["loadBytes"] == rank["loadTotal"])
                ), rank
                assert 0 <= rank["measured"]["weights"] - rank["predicted"]["weights"] <= 64 * 60, rank
        assert nodes.log().count("holds") == sum(counts)
    finally:
        codes = nodes.close()
    assert codes == [0] * len(counts), nodes.log()[-4000:]
