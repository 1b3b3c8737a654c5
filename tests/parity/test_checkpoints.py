# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch.save: the worker's reader of a .bin file returns the same bytes for every tensor as
torch.load, for every dtype, view and storage, in one file or in shards. Unsupported content is refused by name, with
advice.
"""

import collections
import json
import os
import subprocess
import zipfile

import pytest
import torch
import transformers
from safetensors.torch import save_file

import worker

transformers.logging.set_verbosity_error()
TOOLS = worker.TOOLS
TYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F64": torch.float64,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
}
GPT2 = dict(n_embd=20, n_head=5, n_layer=3, vocab_size=101, n_positions=40)
MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)),
    "bert": lambda: transformers.BertForMaskedLM(
        transformers.BertConfig(
            hidden_size=20, num_hidden_layers=2, num_attention_heads=5, intermediate_size=37, vocab_size=101
        )
    ),
    "t5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(d_model=20, d_kv=6, d_ff=37, num_layers=2, num_heads=5, vocab_size=101)
    ),
}


def dumped(folder):
    """The table that the worker reads, and each tensor's bytes; or the text of the refusal."""
    out = folder / "out"
    done = subprocess.run([TOOLS / "checkpoint_dump", folder, out], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if rows and "refused" in rows[0]:
        return rows[0]["refused"]
    raw, at, tensors = bytearray(out.read_bytes()), 0, {}
    for row in rows:
        if "unsupported" in row:
            continue
        part = raw[at : at + row["bytes"]]
        at += row["bytes"]
        tensor = (
            torch.frombuffer(part, dtype=torch.uint8).view(TYPES[row["dtype"]])
            if part
            else torch.empty(0, dtype=TYPES[row["dtype"]])
        )
        tensors[row["name"]] = row, tensor.reshape(row["shape"])
    return tensors


def saved(folder, state, **options):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    torch.save(state, folder / "pytorch_model.bin", **options)
    return folder


def assert_equal(folder, state):
    ours = dumped(folder)
    assert not isinstance(ours, str), ours
    assert set(ours) == set(state)
    for name, wanted in state.items():
        row, tensor = ours[name]
        assert tensor.dtype == wanted.dtype and tensor.shape == wanted.shape, name
        assert (
            torch.equal(
                tensor.reshape(-1).view(torch.uint8), wanted.detach().reshape(-1).contiguous().view(torch.uint8)
            )
            if wanted.numel()
            else True
        ), name
    return {name: row for name, (row, _) in ours.items()}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("model", MODELS)
def test_a_bin_file_holds_what_the_safetensors_file_holds(model, dtype, tmp_path):
    made = MODELS[model]().to(getattr(torch, dtype))
    state = made.state_dict()
    rows = assert_equal(saved(tmp_path / "bin", state), state)
    made.save_pretrained(tmp_path / "safe")
    safe = dumped(tmp_path / "safe")
    for name, (_, tensor) in safe.items():
        assert torch.equal(tensor, state[name]), name
    tied = set(state) - set(safe)  # safetensors has no shared tensors, a .bin file has: one place, several names
    places = collections.Counter(row["offset"] for row in rows.values())
    assert sum(count - 1 for count in places.values()) == len(tied)


@pytest.mark.parametrize("model", MODELS)
def test_policies_resolve_a_bin_file_like_the_safetensors_file(model, tmp_path):
    made = MODELS[model]()
    made.save_pretrained(tmp_path / "safe")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/config.json").write_text((tmp_path / "safe/config.json").read_text())
    torch.save(made.state_dict(), tmp_path / "bin/pytorch_model.bin")
    metadata = []
    for kind in ("safe", "bin"):
        done = subprocess.run([TOOLS / "resolve_dump", tmp_path / kind], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        metadata.append(json.loads(done.stdout)["metadata"])
    assert metadata[0] == metadata[1]


def test_every_element_type_and_awkward_shape(tmp_path):
    state = {str(dtype): torch.arange(6).reshape(2, 3).to(dtype) for dtype in TYPES.values()}
    state |= {
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "ones": torch.rand(1, 1, 3, 1),
        "": torch.rand(2),
        "ä.weight": torch.rand(3),
    }
    assert_equal(saved(tmp_path, state), state)


def test_views_are_read_as_the_tensors_that_they_show(tmp_path):
    base, cube = torch.rand(12, 18), torch.rand(3, 4, 5, 6)
    state = {
        "base": base,
        "transposed": base.t(),
        "rows": base[3:7],
        "columns": base[:, 5:9],
        "both": base.t()[2:7, 1:],
        "every": base[::3, ::2],
        "one": base[4, 4],
        "column": base[:, 3],
        "cube": cube.permute(2, 0, 3, 1),
        "flipped": base.t().contiguous().t(),
        "unsqueezed": base[:, None, 2:3],
        "split": cube[1, :, 2],
    }
    rows = assert_equal(saved(tmp_path, state), state)
    assert len({row["offset"] for name, row in rows.items() if name in ("base", "transposed")}) == 1
    assert rows["rows"]["strides"] == [] and rows["columns"]["strides"] == [18, 1]


def test_parameters_and_metadata_of_a_state_dict(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = collections.OrderedDict(module.named_parameters())
    state._metadata = module.state_dict()._metadata
    assert_equal(saved(tmp_path / "parameters", state), state)
    assert_equal(saved(tmp_path / "module", module.state_dict()), module.state_dict())


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_of_pickle(protocol, tmp_path):
    state = MODELS["gpt2"]().state_dict()
    assert_equal(saved(tmp_path, state, pickle_protocol=protocol), state)


def test_shards_are_joined_and_a_missing_one_is_named(tmp_path):
    state = MODELS["bert"]().state_dict()
    names = sorted(state)
    index = {}
    for i in range(3):
        part = {name: state[name] for name in names[i::3]}
        saved(tmp_path, part)
        (tmp_path / "pytorch_model.bin").rename(tmp_path / f"pytorch_model-0000{i + 1}-of-00003.bin")
        index |= {name: f"pytorch_model-0000{i + 1}-of-00003.bin" for name in part}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    assert_equal(tmp_path, state)
    (tmp_path / "pytorch_model-00002-of-00003.bin").unlink()
    assert "pytorch_model-00002-of-00003.bin" in dumped(tmp_path)


def test_safetensors_are_preferred(tmp_path):
    saved(tmp_path, {"from_bin": torch.rand(2)})
    save_file({"from_safetensors": torch.rand(2)}, tmp_path / "model.safetensors")
    assert set(dumped(tmp_path)) == {"from_safetensors"}


class Touch:
    """Runs code when it is unpickled by Python."""

    def __reduce__(self):
        return os.mkdir, ("/tmp/never",)


def test_what_is_not_read_is_refused_by_name(tmp_path):
    state = {"w": torch.rand(3, 4)}
    cases = {
        "legacy": (state, dict(_use_new_zipfile_serialization=False), "before PyTorch 1.6"),
        "nested": ({"state_dict": state}, {}, "training checkpoint"),
        "code": ({"w": state["w"], "x": Touch()}, {}, "mkdir"),
        "expanded": ({"w": torch.rand(1, 4).expand(3, 4)}, {}, "contiguous()"),
        "list": ([state["w"]], {}, "expected a state_dict"),
        "module": (torch.nn.Linear(2, 2), {}, "torch.nn.modules.linear.Linear"),
        "number": ({"epoch": 3}, {}, 'a number under "epoch"'),
        "conjugate": ({"w": torch.rand(3, dtype=torch.complex64).conj()}, {}, "conjugate"),
        "sparse": ({"w": torch.eye(3).to_sparse()}, {}, "_rebuild_sparse_tensor"),
        "quantized": (
            {"w": torch.quantize_per_tensor(torch.rand(3), 0.1, 0, torch.qint8)},
            {},
            "torch._utils._rebuild_qtensor",
        ),
    }
    for name, (value, options, reason) in cases.items():
        refusal = dumped(saved(tmp_path / name, value, **options))
        assert isinstance(refusal, str) and reason in refusal and "pytorch_model.bin" in refusal, (name, refusal)
    script = tmp_path / "script"
    script.mkdir()
    (script / "config.json").write_text("{}")
    torch.jit.script(torch.nn.Linear(2, 2)).save(script / "pytorch_model.bin")
    assert "TorchScript" in dumped(script)


def test_a_compressed_or_foreign_archive_is_refused(tmp_path):
    source = saved(tmp_path / "source", {"w": torch.rand(3, 4)}) / "pytorch_model.bin"
    for name, method, order in [
        ("packed", zipfile.ZIP_DEFLATED, b"little"),
        ("big", zipfile.ZIP_STORED, b"big"),
        ("again", zipfile.ZIP_STORED, b"little"),
    ]:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(folder / "pytorch_model.bin", "w", method) as new:
            for info in old.infolist():
                new.writestr(info.filename, order if info.filename.endswith("byteorder") else old.read(info))
    assert "compressed" in dumped(tmp_path / "packed")
    assert "big-endian" in dumped(tmp_path / "big")
    assert set(dumped(tmp_path / "again")) == {"w"}  # repacked without compression: nothing is lost


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", ["gpt2", "bert"])
def test_a_model_answers_from_transposed_views_as_from_safetensors(runner, model, dtype, tmp_path):
    made = MODELS[model]().to(getattr(torch, dtype))
    made.save_pretrained(tmp_path / "safe")
    # every matrix lies transposed, as conversions from TensorFlow leave it; all of them in one storage
    state, flat, at = (
        {},
        torch.cat([value.t().reshape(-1) for value in made.state_dict().values() if value.dim() == 2]),
        0,
    )
    for name, value in made.state_dict().items():
        state[name] = value
        if value.dim() == 2:
            state[name] = flat[at : at + value.numel()].view(value.shape[1], value.shape[0]).t()
            at += value.numel()
    saved(tmp_path / "bin", state)
    (tmp_path / "bin/config.json").write_text((tmp_path / "safe/config.json").read_text())
    inputs = {"input_ids": torch.arange(3, 15, dtype=torch.int64).reshape(2, 6).numpy()}
    for ranks in (1, 3):
        wanted = runner.forward(tmp_path / "safe", ranks, inputs)
        ours = runner.forward(tmp_path / "bin", ranks, inputs)
        assert set(ours) == set(wanted) and len(ours) > 2
        for name in wanted:
            assert (ours[name] == wanted[name]).all(), name
