# SPDX-License-Identifier: Apache-2.0
"""Latent attention beyond one step: prompts in chunks, prompts that share blocks, preempted sequences, lengths that an
index bounds."""

import concurrent.futures
import dataclasses
import json
import re
import shutil

import fixtures
import inputs
import pytest
import requests
from cases import BY_NAME
from server import Server
from test_generate import COUNT, check_answer

import worker


def with_settings(name, **settings):
    case = BY_NAME[name]
    config = json.dumps({**json.loads(case.config), **settings})
    return dataclasses.replace(case, name=f"{case.name}-{'-'.join(settings)}", config=config)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["DeepseekV3ForCausalLM-all", "Mistral4ForCausalLM-all"])
def test_prompts_of_several_chunks_and_of_shared_blocks_are_answered_as_transformers_answers(runner, name, ranks):
    """Steps take 512 tokens: the second chunk of the long prompt attends to latents of the first. Two of the others
    have the same first blocks."""
    case = with_settings(name, max_position_embeddings=1024)
    folder, (long, row) = fixtures.checkpoint(case), inputs.prompts(case, [700, 40], seed=5)
    rows = [long, row, row[:36] + long[:3]]
    together = runner.generate(folder, ranks, rows, max_new_tokens=COUNT, do_sample=False)
    again = [runner.generate(folder, ranks, [one], max_new_tokens=COUNT, do_sample=False)[0] for one in rows]
    for one, answer, alone in zip(rows, together, again, strict=True):
        check_answer(runner, case, folder, ranks, one, answer)
        check_answer(runner, case, folder, ranks, one, alone)


@pytest.mark.parametrize("name", ["DeepseekV32ForCausalLM-all", "GlmMoeDsaForCausalLM-all"])
def test_a_sequence_is_refused_of_which_an_index_would_leave_tokens_out(runner, tmp_path, name):
    case = BY_NAME[name]
    shutil.copytree(fixtures.checkpoint(case), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "index_topk": 24}))
    row = inputs.prompts(case, [20], seed=6)[0]
    job = {"model": str(tmp_path), "generate": {"do_sample": False}}
    for count, served in ((4, True), (5, False)):
        job["generate"] |= {"input_ids": [row], "max_new_tokens": count, "min_new_tokens": count}
        answer = runner.batch.ask(job)
        assert answer["ok"] == served, answer
        assert served or "24" in answer["error"], answer


def test_preempted_sequences_read_their_latents_again(tmp_path):
    """Four answers need 20 blocks of latents, and there are 9."""
    case = BY_NAME["DeepseekV3ForCausalLM-all"]
    shutil.copytree(fixtures.checkpoint(case), folder := tmp_path / "model")
    plan = json.loads(
        worker.run("plan", "--model", folder, "--devices", 2, "--max-sequence-length", 96, "--json").stdout
    )
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "kvBlocks": 9}))
    rows, count = inputs.prompts(case, [40, 40, 40, 40], seed=7), 40
    server = Server(folder, ranks=2, options=["--plan", tmp_path / "plan.json", "--max-sequence-length", 96])

    def answer(row):
        body = {"prompt": row, "max_tokens": count, "temperature": 0, "return_token_ids": True, "ignore_eos": True}
        return server.ask("/v1/completions", body)["choices"][0]["token_ids"]

    def preemptions():
        page = requests.get(f"http://127.0.0.1:{server.admin_port}/metrics", timeout=20).text
        return float(re.search(r"^parallelmodel_num_preemptions_total\S* (\S+)", page, re.MULTILINE)[1])

    try:
        alone = [answer(row) for row in rows]
        assert preemptions() == 0
        with concurrent.futures.ThreadPoolExecutor(len(rows)) as pool:
            for _ in range(50):  # until they run beside each other, which a loaded machine may not let them at first
                assert list(pool.map(answer, rows)) == alone
                if preemptions() > 0:
                    return
        pytest.fail("no sequence was preempted")
    finally:
        server.close()
