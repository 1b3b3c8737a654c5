# SPDX-License-Identifier: Apache-2.0
"""Full-size models are loaded one rank at a time from sparse files: a rank holds the bytes of its plan and little
more during loading.
"""

import pathlib
import sys

import pytest

import worker

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
import load

MIB = 1 << 20
# MiB that a rank of GPT-Neo-2.7B in fp16 may hold
GPT_NEO = {2: 2540, 3: 1725, 4: 1280, 8: 690}


def shares(name, ranks, every_rank, most=3 * 1024 * MIB):
    return list(load.rows(str(worker.BINARY), ranks, most, every_rank, [name]))


def held(row):
    """A loaded rank holds the bytes of its plan, but for the 64-byte alignment of each tensor, and stays within 64
    MiB of it during loading.
    """
    assert row["planned"] <= row["weights"] <= row["planned"] + MIB, row
    assert row["peak"] <= row["weights"] + 64 * MIB, row


def test_gpt_neo_fits_where_its_predecessor_did_not():
    for row in shares("GPT-Neo-2.7B", GPT_NEO, every_rank=False):
        assert row["weights"] <= GPT_NEO[row["ranks"]] * MIB
        held(row)


@pytest.mark.parametrize("name", load.MODELS)
def test_ranks_of_full_size_models_hold_their_share(name):
    rows = shares(name, [1, 2, 3, 4, 8], every_rank=True, most=0)
    for row in rows:
        ratio = row["planned"] * row["ranks"] / row["whole"]
        assert ratio <= 1.01, (name, row["ranks"], row["rank"], ratio)
    print(
        "\n".join(
            f"{name} n={row['ranks']} rank {row['rank']}: {row['planned'] / MIB:,.1f} MiB"
            for row in rows
            if row["rank"] == 0
        )
    )
    held(shares(name, [8], every_rank=False)[0])
