# SPDX-License-Identifier: Apache-2.0
"""Latent attention beyond one step: prompts in chunks, prompts that share blocks, lengths that an index bounds."""

import dataclasses
import json
import shutil

import fixtures
import inputs
import pytest
from cases import BY_NAME
from test_generate import COUNT, check_answer


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
