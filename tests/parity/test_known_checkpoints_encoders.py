# SPDX-License-Identifier: Apache-2.0
"""docs/reference/families.md's table of known names: the worker reads such a checkpoint, and the bytes of its ranks are
those of the table. Checkpoints in full size, as sparse files: names and shapes as transformers makes them, values that
take no room."""

import json
import subprocess

import fixtures
import known_checkpoints_encoders
import pytest
import torch
from resolution import TOOLS, write_sparse
from transformers.core_model_loading import revert_weight_conversion

KNOWN = known_checkpoints_encoders.KNOWN


def sparse(folder, model_class, config):
    """The checkpoint that transformers would save, without its values; tied tensors are one."""
    with torch.device("meta"):
        model = fixtures.library(model_class)(config)
    header, end = {}, 0
    tied = set(model.all_tied_weights_keys)
    stored = list(model.named_parameters(remove_duplicate=False))
    if config.model_type == "detr":  # whose batch norms are buffers
        stored += model.named_buffers()
    kept = {id(tensor): (name, tensor) for name, tensor in sorted(stored, key=lambda one: one[0] not in tied)}
    saved = dict(kept.values())
    if config.model_type in ("nomic_bert", "gte"):  # whose files have the names of before transformers had them
        saved = revert_weight_conversion(model, saved)
    for name, tensor in saved.items():
        size = 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [end, end + size]}
        end += size
    write_sparse(folder / "model.safetensors", header)
    config.architectures = [model_class]
    config.save_pretrained(folder)
    return end


@pytest.mark.parametrize(
    "name, model_type, checkpoint, model_class, config_class, settings, tokenizer, ranks",
    KNOWN,
    ids=[row[0] for row in KNOWN],
)
def test_the_bytes_of_ranks_are_those_of_the_table(
    tmp_path, name, model_type, checkpoint, model_class, config_class, settings, tokenizer, ranks
):
    config = fixtures.library(config_class)(**settings)
    assert config.model_type == model_type
    whole = sparse(tmp_path, model_class, config)
    done = subprocess.run([TOOLS / "resolve_dump", tmp_path, "--bytes"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == list(ranks)
    pooler = 4 * 768 * 769 if "encoder" in settings else 0  # of which no output of a composite speaks
    unread = pooler + (
        4 * config.max_position_embeddings * config.hidden_size // config.num_attention_heads
        if model_type == "roformer"
        else 0
    )  # RoFormer's table of sines
    if model_type in ("wav2vec2", "hubert"):
        unread = 4 * config.hidden_size  # what stands for masked frames in training
    if model_type == "reformer":
        unread = 4 * config.vocab_size  # a bias of scores that transformers does not add
    if model_type == "lxmert":  # scores of objects, attributes and features of regions
        outputs = config.num_object_labels + config.num_attr_labels + config.visual_feat_dim
        unread = 4 * ((outputs + config.hidden_size) * (config.hidden_size + 1) + 2 * config.hidden_size)
    assert ranks[0] == whole - unread and ranks[2] < ranks[1] < ranks[0]
