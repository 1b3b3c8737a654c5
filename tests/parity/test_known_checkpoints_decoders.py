# SPDX-License-Identifier: Apache-2.0
"""Bytes of well-known checkpoints in docs/reference/families.md: their headers, made from the configuration alone, are
read as any checkpoint's."""

import json

import cases
import fixtures
import pytest
import torch
from known_checkpoints_decoders import KNOWN
from resolution import dump, write_sparse

BYTES = {"F32": 4, "F16": 2, "BF16": 2}
UNTIED = {
    "mt5",
    "t5",
}  # of those here: their heads are tensors of their own, which transformers 5 only sees in the file

SHARED = {
    "fsmt": [
        f"model.{name}.weight" for name in ("encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection")
    ]
}  # stored as three tensors that are equal, for both languages have one vocabulary


def headers(folder, row):
    """config.json and a file of the size of the weights, which is sparse."""
    _, _, model_type, model_class, config_class, settings, stored, *_ = row
    config = fixtures.library(config_class)(**settings)
    with torch.device("meta"):
        model = fixtures.library(model_class)(config)
    seen, header, end = set(), {}, 0
    for name, tensor in model.state_dict(keep_vars=True).items():
        if (
            (id(tensor) in seen and not (model_type in UNTIED and name == "lm_head.weight"))
            or name.endswith("embed_positions.weight")
            and model_type in ("marian", "pegasus", "fsmt")
        ):
            continue
        seen.add(id(tensor))
        begin, end = end, end + tensor.numel() * BYTES[stored]
        header[name] = {"dtype": stored, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    write_sparse(folder / "model.safetensors", header, SHARED.get(model_type, ()))
    (folder / "config.json").write_text(json.dumps(config.to_dict() | {"architectures": [model_class]}))


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row[0])
def test_bytes_of_well_known_checkpoints_are_those_of_their_configurations(tmp_path, row):
    headers(tmp_path, row)
    done = dump(tmp_path)
    assert done.returncode == 0, done.stderr
    assert [max(json.loads(done.stdout)["rank_bytes"][str(n)]) for n in (1, 2, 4)] == list(row[-1])


def test_each_is_of_a_class_that_is_tested():
    assert {(row[2], row[3]) for row in KNOWN} <= {(case.model_type, case.model_class) for case in cases.CASES}
