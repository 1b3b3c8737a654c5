# SPDX-License-Identifier: Apache-2.0
"""The tables of known names in docs/reference/families.md: the worker reads such a checkpoint, and the bytes of its
ranks are those of the table. Checkpoints in full size, as sparse files: names and shapes as transformers makes them,
values that take no room."""

import json
import subprocess

import cases_multimodal
import fixtures
import pytest
import torch
from resolution import TOOLS, WITH_EXPERTS, families, write_sparse
from safetensors.torch import save_file
from transformers.core_model_loading import revert_weight_conversion

KNOWN = [row for rows in families.known_checkpoints().values() for row in rows]
BYTES = {"F32": 4, "F16": 2, "BF16": 2}
SINES = ("marian", "pegasus", "fsmt")  # whose positions are formulas that the file does not have
# stored as three tensors that are equal, for both languages have one vocabulary
EQUAL = {
    "fsmt": [
        f"model.{name}.weight" for name in ("encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection")
    ]
}


def saved_tensors(model, row):
    """The tensors that transformers would save, by name; tied ones only once."""
    model_type = row["model_type"]
    tied = set(model.all_tied_weights_keys)
    named = list(model.state_dict(keep_vars=True).items())
    if model_type in ("t5", "mt5") and not row["settings"].get("tie_word_embeddings", True):
        # transformers ties the head whatever the configuration says, and sees in the file that it is another
        named = [(name, tensor.detach() if name == "lm_head.weight" else tensor) for name, tensor in named]
        tied = set()
    once = {id(tensor): (name, tensor) for name, tensor in sorted(named, key=lambda one: one[0] not in tied)}
    saved = dict(once.values())
    # whose files have other names or arrays
    if model_type in ("nomic_bert", "gte", "jina_embeddings_v3", *WITH_EXPERTS):
        saved = revert_weight_conversion(model, saved)
    if model_type in SINES:
        saved = {name: tensor for name, tensor in saved.items() if not name.endswith("embed_positions.weight")}
    return saved


def write_headers(folder, row):
    """Writes config.json and a sparse file of the size of the weights; returns the configuration and that size, without
    towers that read images."""
    model_class = fixtures.library(row["class"])
    config = model_class.config_class(**row["settings"])
    assert config.model_type == row["model_type"]
    with torch.device("meta"):
        model = model_class(config)
    header, end, towers = {}, 0, 0
    is_unread = cases_multimodal.is_unread(config.to_dict())
    for name, tensor in saved_tensors(model, row).items():
        begin, end = end, end + BYTES[row["stored"]] * tensor.numel()
        towers += (end - begin) * is_unread(name)
        header[name] = {"dtype": row["stored"], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    write_sparse(folder / "model.safetensors", header, EQUAL.get(config.model_type, ()))
    if row["model_type"] == "rag":  # as many passages as a question asks for
        (folder / "index").mkdir()
        embeddings = torch.zeros(config.n_docs, config.question_encoder.hidden_size)
        save_file({"embeddings": embeddings}, folder / "index/embeddings.safetensors")
        (folder / "index/passages.jsonl").write_text('{"title": "a", "text": "b"}\n' * config.n_docs)
    config.architectures = [row["class"]]
    config.save_pretrained(folder)
    return config, end - towers


def unread_bytes(config, model_type):
    """Bytes that the file has and no answer needs."""
    hidden = getattr(config, "hidden_size", 0)
    values = {
        "encoder-decoder": 768 * 769,  # the pooler of the encoder
        "vision-encoder-decoder": 768 * 769,
        "wav2vec2": hidden,  # what stands for masked frames in training
        "hubert": hidden,
    }.get(model_type, 0)
    if model_type == "roformer":  # a table of sines
        values = config.max_position_embeddings * hidden // config.num_attention_heads
    if model_type == "reformer":  # a bias of scores that transformers does not add
        values = config.vocab_size
    if model_type == "lxmert":  # scores of objects, attributes and features of regions
        outputs = config.num_object_labels + config.num_attr_labels + config.visual_feat_dim
        values = (outputs + hidden) * (hidden + 1) + 2 * hidden
    if model_type == "fsmt":  # two more copies of the table
        values = 2 * config.tgt_vocab_size * config.d_model
    return 4 * values


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row["name"])
def test_the_bytes_of_ranks_are_those_of_the_table(tmp_path, row):
    config, whole = write_headers(tmp_path, row)
    done = subprocess.run([TOOLS / "resolve_dump", tmp_path, "--bytes"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    one, two, four = json.loads(done.stdout)
    assert [one, two, four] == row["bytes"]
    assert four < two < one
    if row["model_type"] == "rag":  # the index is no part of the file
        one -= 4 * config.n_docs * config.question_encoder.hidden_size
    if row["model_type"] != "ibert":  # whose file has integers for each matrix beside it
        assert one == whole - unread_bytes(config, row["model_type"])


def test_parallelformers_names_are_all_there():
    assert len({row["name"] for row in families.known_checkpoints()["parallelformers"]}) == 72


def test_each_is_of_a_class_that_is_tested():
    tested = {(case.model_type, case.model_class) for case in families.CASES}
    assert {(row["model_type"], row["class"]) for row in KNOWN} <= tested
