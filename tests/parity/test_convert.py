# SPDX-License-Identifier: Apache-2.0
"""`convert`: the checkpoint that it writes has the codes that a load with --precision I4 makes of the original, for
this program and for transformers; what it does not quantise is copied; nothing is left of what fails.
"""

import json

import numpy
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_checkpoints import dumped
from test_endpoints import build, gpt2
from test_stored_formats import LAYOUTS, TOKENS, fresh, pair, sources

import worker

__all__ = ["pair", "sources"]  # fixtures


def converted(source, target, *options):
    made = worker.run("convert", "--model", source, "--out", target, *options)
    assert made.returncode == 0, made.stderr
    assert not target.with_name(target.name + ".part").exists()
    return made


@pytest.fixture(scope="module", params=["llama", "qwen3_moe"])
def both(request, sources, tmp_path_factory):
    target = tmp_path_factory.mktemp("converted") / request.param
    converted(sources(request.param), target)
    return request.param, sources(request.param), target


@pytest.mark.parametrize("layout", [*LAYOUTS])
def test_answers_are_those_of_the_original_in_four_bits(both, runner, layout):
    if layout == "int8":
        pytest.skip("a precision of its own")
    _, source, target = both
    found, wanted = (
        runner.forward(folder, inputs=TOKENS, precision="I4", **LAYOUTS[layout]) for folder in (target, source)
    )
    for name, values in wanted.items():
        assert numpy.array_equal(found[name], values), name


def test_transformers_reads_the_same_weights(both, tmp_path):
    kind, source, target = both
    config = transformers.CompressedTensorsConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(target, quantization_config=config)
    dense = fresh(kind)
    dense.load_state_dict(model.state_dict())
    dense.save_pretrained(tmp_path / "dense")
    ours, theirs, before = (
        dumped(target),
        load_file(tmp_path / "dense" / "model.safetensors"),
        load_file(source / "model.safetensors"),
    )
    assert set(ours) == set(theirs)
    changed = 0
    for name, wanted in theirs.items():
        assert torch.equal(ours[name][1].view(torch.int16), wanted.view(torch.int16)), name
        changed += name in before and not torch.equal(wanted, before[name])
    assert changed > 10


def test_shards_have_the_same_tensors(both, tmp_path):
    _, source, target = both
    said = converted(source, tmp_path / "shards", "--shard-size", "60Ki").stdout
    assert "serve it with --precision I4" in said
    index = json.loads((tmp_path / "shards" / "model.safetensors.index.json").read_text())
    whole, parts = load_file(target / "model.safetensors"), {}
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 3
    for file in files:
        tensors = load_file(tmp_path / "shards" / file)
        assert all(index["weight_map"][name] == file for name in tensors)
        assert sum(one.nbytes for one in tensors.values()) <= 60 * 1024 or len(tensors) == 1
        parts |= tensors
    assert set(parts) == set(whole)
    assert all(torch.equal(parts[name], one) for name, one in whole.items())
    assert index["metadata"]["total_size"] == sum(one.nbytes for one in whole.values())


def test_a_quantised_checkpoint_is_converted_too(pair, runner, tmp_path):
    stored, dense = pair("fp8-block")
    converted(stored, tmp_path / "four")
    found, wanted = (
        runner.forward(one, ranks=1, inputs=TOKENS, precision="I4")["logits"] for one in (tmp_path / "four", dense)
    )
    assert numpy.array_equal(found, wanted)


def refusal(source, target, *options):
    made = worker.run("convert", "--model", source, "--out", target, *options)
    assert made.returncode != 0
    assert not target.exists() or target.name == "taken"
    assert not target.with_name(target.name + ".part").exists()
    return made.stderr


def test_what_cannot_be_converted_is_refused_and_leaves_nothing(sources, tmp_path):
    build(tmp_path / "gpt2", "GPT2LMHeadModel", gpt2())
    assert "has no matrix [out, in] of whole groups" in refusal(tmp_path / "gpt2", tmp_path / "made")
    (tmp_path / "taken").mkdir()
    assert "exists; name a folder that does not" in refusal(sources("llama"), tmp_path / "taken")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text((sources("llama") / "config.json").read_text())
    weights = load_file(sources("llama") / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 5] = float("nan")
    save_file(weights, broken / "model.safetensors")
    assert 'tensor "model.layers.1.mlp.up_proj.weight" has infinities or NaNs' in refusal(broken, tmp_path / "made")
    file = tmp_path / "file"
    file.write_text("")
    assert "cannot write" in refusal(sources("llama"), file / "made")


def test_other_files_are_copied(sources, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for path in sources("llama").iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    (source / "tokenizer.json").write_text("{}")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text("{}")
    converted(source, tmp_path / "made")
    names = {str(path.relative_to(tmp_path / "made")) for path in (tmp_path / "made").rglob("*") if path.is_file()}
    assert {"tokenizer.json", "1_Pooling/config.json", "config.json", "model.safetensors"} <= names
    before, after = ((folder / "model.safetensors").stat().st_size for folder in (source, tmp_path / "made"))
    assert after < 0.5 * before, "the embedding and the head of this small model stay as they are"
