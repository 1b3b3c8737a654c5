"""What policies say of a checkpoint against transformers: every tensor is read, bytes are exact, fused matrices come apart as its modules
split them, and options of layers are those of its modules. Also: which safetensors headers are accepted, against the safetensors package."""
import functools
import json
import os
import pathlib
import random
import struct
import subprocess

import pytest
import safetensors
import torch
import transformers
from safetensors.torch import load_file, save_file

import worker

transformers.logging.set_verbosity_error()
TOOLS = pathlib.Path(os.environ.get("PM_TEST_TOOLS", worker.BINARY.parent.resolve().parent / "tests"))

ENCODER = dict(hidden_size=20, num_hidden_layers=3, num_attention_heads=5, intermediate_size=37, vocab_size=101, max_position_embeddings=40)
GPT2 = dict(n_embd=20, n_head=5, n_layer=3, vocab_size=101, n_positions=40)
T5 = dict(d_model=20, d_kv=6, d_ff=37, num_layers=2, num_decoder_layers=3, num_heads=5, vocab_size=101, relative_attention_num_buckets=8)
ALBERT = dict(ENCODER, num_hidden_layers=5, embedding_size=12, num_hidden_groups=2, inner_group_num=2)
LLAMA = dict(ENCODER, num_key_value_heads=1, head_dim=6)
NEO = dict(hidden_size=20, num_layers=4, num_heads=5, vocab_size=101, max_position_embeddings=40, attention_types=[[["global", "local"], 2]], window_size=7)
FALCON = dict(hidden_size=20, num_hidden_layers=3, num_attention_heads=5, vocab_size=101, max_position_embeddings=40)
FALCON_NEW = dict(FALCON, num_attention_heads=10, new_decoder_architecture=True)
CLIP_TEXT = dict(hidden_size=20, num_hidden_layers=2, num_attention_heads=5, intermediate_size=37, vocab_size=101, max_position_embeddings=12, projection_dim=9)
CLIP_VISION = dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=31, image_size=16, patch_size=8, projection_dim=9)


def clip(text=CLIP_TEXT, vision=CLIP_VISION):
    return transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=9)


def cases():
    """name -> (class, config)"""
    def add(family, config, *classes, label=""):
        for name in classes:
            found[name + label] = (getattr(transformers, name), lambda: getattr(transformers, family)(**config))

    found = {}
    add("GPT2Config", GPT2, "GPT2LMHeadModel", "GPT2Model", "GPT2ForSequenceClassification")
    add("GPT2Config", dict(GPT2, tie_word_embeddings=False, n_inner=33), "GPT2LMHeadModel", label="-untied")
    add("T5Config", T5, "T5ForConditionalGeneration", "T5Model", "T5EncoderModel", "T5ForSequenceClassification", "T5ForTokenClassification",
        "T5ForQuestionAnswering")
    add("T5Config", dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False), "T5ForConditionalGeneration", label="-gated-untied")
    add("BertConfig", ENCODER, "BertModel", "BertForMaskedLM", "BertForPreTraining", "BertLMHeadModel", "BertForNextSentencePrediction",
        "BertForSequenceClassification", "BertForMultipleChoice", "BertForTokenClassification", "BertForQuestionAnswering")
    add("BertConfig", dict(ENCODER, tie_word_embeddings=False), "BertForMaskedLM", label="-untied")
    add("AlbertConfig", ALBERT, "AlbertModel", "AlbertForMaskedLM", "AlbertForPreTraining", "AlbertForSequenceClassification",
        "AlbertForMultipleChoice", "AlbertForTokenClassification", "AlbertForQuestionAnswering")
    add("LlamaConfig", dict(LLAMA, tie_word_embeddings=True), "LlamaForCausalLM", label="-tied")
    add("LlamaConfig", dict(LLAMA, attention_bias=True, mlp_bias=True), "LlamaForCausalLM", "LlamaModel", "LlamaForSequenceClassification",
        "LlamaForTokenClassification", "LlamaForQuestionAnswering")
    add("FalconConfig", dict(FALCON, multi_query=True), "FalconForCausalLM", "FalconModel", "FalconForSequenceClassification",
        "FalconForTokenClassification", "FalconForQuestionAnswering")
    add("FalconConfig", dict(FALCON, multi_query=False, alibi=True, parallel_attn=False, bias=True), "FalconForCausalLM", label="-rw")
    add("FalconConfig", dict(FALCON_NEW, num_kv_heads=2), "FalconForCausalLM", label="-40b")
    add("FalconConfig", dict(FALCON_NEW, num_kv_heads=5, num_ln_in_parallel_attn=1, tie_word_embeddings=False), "FalconForCausalLM", label="-11b-untied")
    add("GPTNeoConfig", NEO, "GPTNeoForCausalLM", "GPTNeoModel", "GPTNeoForSequenceClassification", "GPTNeoForTokenClassification",
        "GPTNeoForQuestionAnswering")
    for name, config in [("CLIPModel", clip), ("CLIPForImageClassification", clip), ("CLIPTextModel", lambda: clip().text_config),
                         ("CLIPTextModelWithProjection", lambda: clip().text_config), ("CLIPVisionModel", lambda: clip().vision_config),
                         ("CLIPVisionModelWithProjection", lambda: clip().vision_config)]:
        found[name] = (getattr(transformers, name), config)
    return found


CASES = cases()
# transformers makes this parameter and never computes with it when the head is not tied: the decoder has a bias of its own
UNUSED = {"BertForMaskedLM-untied": {"cls.predictions.bias"}}
# one case of each family for what needs a process of the real program
OF_FAMILIES = ["GPT2LMHeadModel", "T5ForConditionalGeneration", "BertForMaskedLM", "AlbertModel", "LlamaForCausalLM", "FalconForCausalLM", "GPTNeoForCausalLM", "CLIPModel"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """case -> (transformers' model, its saved folder), each made once."""
    kept = {}

    def make(case):
        if case not in kept:
            torch.manual_seed(sum(map(ord, case)))
            kind, config = CASES[case]
            model = kind(config())
            folder = tmp_path_factory.mktemp("model") / case
            model.save_pretrained(folder)
            kept[case] = model, folder
        return kept[case]

    return make


@functools.cache
def resolved(folder):
    done = subprocess.run([TOOLS / "resolve_dump", folder], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def elements(shape):
    return torch.Size(shape).numel()


def part_bytes(facts):
    """Bytes of the rows of facts, whose keys are short and absent where they hold the usual value."""
    size = {"F32": 4, "F16": 2, "BF16": 2, "F64": 8}
    return sum(p.get("u", 1) * p["e"] * p.get("n", 1) * size[p.get("t", facts["dtype"])] for p in facts["parts"])


@pytest.mark.parametrize("case", CASES)
def test_every_tensor_is_read_and_bytes_are_exact(made, case):
    model, folder = made(case)
    said = resolved(folder)
    stored = load_file(folder / "model.safetensors")
    own = [p for p in said["params"] if not p["shares"]]
    taken = {}
    for param in own:
        taken[param["tensor"]] = taken.get(param["tensor"], 0) + elements(param["shape"])
    assert set(taken) | set(said["not_loaded"]) == set(stored)
    unused = UNUSED.get(case, set())
    assert set(said["not_loaded"]) == unused
    assert taken == {name: tensor.numel() for name, tensor in stored.items() if name not in unused}
    unique = {parameter.data_ptr(): parameter for name, parameter in model.named_parameters() if name not in unused}.values()
    assert said["facts"]["parameters"] == sum(p.numel() for p in unique)
    assert said["facts"]["bytes"] == part_bytes(said["facts"]) == sum(p.nbytes for p in unique)
    assert said["facts"]["architecture"] == type(model).__name__
    assert len(json.dumps(said["facts"])) <= 4096


@pytest.mark.parametrize("case", OF_FAMILIES)
def test_inspect_prints_the_same_facts(made, case):
    if not worker.BINARY.exists():
        pytest.skip("the worker is not built")
    _, folder = made(case)
    done = worker.run("inspect", "--model", folder, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == resolved(folder)["facts"]


def brought(param, stored):
    """The parameter put together from its pieces, [out, in] or [out]."""
    tensor = stored[param["tensor"]]
    matrix = tensor.reshape(1, -1) if tensor.dim() < 2 else tensor
    parts = [matrix[row:row + rows, col:col + cols] for row, rows, col, cols in param["pieces"]]
    if tensor.dim() < 2:
        return torch.cat(parts, 1)[0]
    return torch.cat(parts, 1).T if param["in_out"] else torch.cat(parts, 0)


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("FalconForCausalLM")])
def test_falcon_projections_come_apart_as_its_attention_splits_them(made, case):
    model, folder = made(case)
    stored, said = load_file(folder / "model.safetensors"), resolved(folder)
    attention = model.transformer.h[1].self_attention
    x = torch.randn(1, 3, model.config.hidden_size)
    with torch.no_grad():
        wanted = attention._split_heads(attention.query_key_value(x))
    for name, theirs in zip(("query", "key", "value"), wanted):
        ours = {p["path"].rsplit(".", 1)[1]: brought(p, stored) for p in said["params"] if p["path"].startswith(f"decoder.layers.1.attn.{name}.")}
        y = torch.nn.functional.linear(x, ours["weight"], ours.get("bias")).reshape(1, 3, -1, attention.head_dim)
        repeat = theirs.shape[2] // y.shape[2]   # transformers repeats the keys of the new decoder for its heads
        assert torch.allclose(y.repeat_interleave(repeat, 2), theirs, atol=1e-6), name


def test_gpt2_projections_come_apart_as_its_attention_splits_them(made):
    model, folder = made("GPT2LMHeadModel")
    stored, said = load_file(folder / "model.safetensors"), resolved(folder)
    x = torch.randn(1, 3, 20)
    with torch.no_grad():
        wanted = model.transformer.h[2].attn.c_attn(x).split(20, 2)
    for name, theirs in zip(("query", "key", "value"), wanted):
        weight, bias = (brought(p, stored) for p in said["params"] if p["path"].startswith(f"decoder.layers.2.attn.{name}."))
        assert torch.allclose(torch.nn.functional.linear(x, weight, bias), theirs, atol=1e-6)


def first(said, stack="decoder"):
    return said["stacks"][stack][0]


def test_options_of_layers_are_those_of_transformers_modules(made):
    model, folder = made("GPTNeoForCausalLM")
    windows = [layer["attention"]["window"] for layer in resolved(folder)["stacks"]["decoder"]]
    assert windows == [7 if block.attn.attention_type == "local" else 0 for block in model.transformer.h]

    model, folder = made("T5ForConditionalGeneration")
    said = resolved(folder)
    assert first(said, "encoder")["attention"]["buckets"] == [8, 128, True]
    assert first(said)["attention"]["buckets"] == [8, 128, False]
    assert first(said)["cross"]["source"] == "encoder" and first(said)["attention"]["scale"] == 1
    shared = [p["shares"] for p in said["params"] if p["role"] == "bucket bias"]
    assert shared == ["", "encoder.layers.0.attn.bucket_bias", "", *["decoder.layers.0.attn.bucket_bias"] * 2]

    model, folder = made("T5ForConditionalGeneration-gated-untied")
    assert first(resolved(folder))["gated"] and first(resolved(folder))["activation"] == "gelu_new"

    model, folder = made("LlamaForCausalLM-tied")
    attention, module = first(resolved(folder))["attention"], model.model.layers[0].self_attn
    assert attention["scale"] == pytest.approx(module.scaling) and attention["head_dim"] == module.head_dim == 6
    assert attention["theta"] == model.config.rope_parameters["rope_theta"] and attention["kv_heads"] == 1

    for case, order, alibi, two in [("FalconForCausalLM", "parallel", False, False), ("FalconForCausalLM-rw", "pre", True, True),
                                    ("FalconForCausalLM-40b", "parallel", False, True), ("FalconForCausalLM-11b-untied", "parallel", False, False)]:
        layer = first(resolved(made(case)[1]))
        assert (layer["order"], layer["attention"]["alibi"], layer["mlp_norm"]) == (order, alibi, two), case


def test_albert_runs_its_groups_as_transformers_does(made):
    model, folder = made("AlbertModel")
    said, encoder = resolved(folder), model.encoder
    order = []
    for l in range(model.config.num_hidden_layers):
        group = int(l / (model.config.num_hidden_layers / model.config.num_hidden_groups))
        order += [f"encoder.albert_layer_groups.{group}.albert_layers.{i}.ffn.weight" for i in range(model.config.inner_group_num)]
    assert [p["tensor"] for p in said["params"] if p["role"] == "up weight"] == order
    assert len(encoder.albert_layer_groups) == 2


def test_half_precision_t5_keeps_its_down_projections_in_fp32(tmp_path):
    transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)).half().save_pretrained(tmp_path)
    said = resolved(tmp_path)
    model = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float16)
    kept = {p["tensor"] for p in said["params"] if p["keep"]}
    assert kept == {name for name, p in model.named_parameters() if p.dtype == torch.float32}
    assert {p["dtype"] for p in said["params"] if p["tensor"] in kept} == {"F32"}


@pytest.mark.parametrize("equal", [True, False])
def test_a_head_that_is_saved_too_is_shared_by_its_bytes(made, tmp_path, equal):
    _, folder = made("GPT2LMHeadModel")
    tensors = load_file(folder / "model.safetensors")
    table = tensors["transformer.wte.weight"]
    tensors["lm_head.weight"] = table.clone() if equal else table + 1
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    said = resolved(tmp_path)
    head = next(p for p in said["params"] if p["path"] == "heads.lm.logits.weight")
    assert head["shares"] == ("decoder.token" if equal else "")
    model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    assert torch.equal(model.lm_head.weight, model.transformer.wte.weight) == equal
    assert said["facts"]["parameters"] == sum({p.data_ptr(): p.numel() for p in model.parameters()}.values())


def test_a_sharded_checkpoint_resolves_like_a_single_file(made, tmp_path):
    model, folder = made("LlamaForCausalLM")
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    assert resolved(tmp_path)["facts"] == resolved(folder)["facts"]


def mutated(header, rng):
    """A header with one thing changed, as bytes."""
    tensors = json.loads(json.dumps(header))
    name = rng.choice([n for n in tensors if n != "__metadata__"])
    entry, kind = tensors[name], rng.randrange(12)
    if kind == 0:
        entry["data_offsets"][rng.randrange(2)] += rng.choice([-1, 1, 4, 1 << 62])
    elif kind == 1:
        entry["shape"] = entry["shape"] + [rng.choice([0, 1, 2, 1 << 40])]
    elif kind == 2:
        entry["dtype"] = rng.choice(["F32", "F16", "I64", "U8", "F8_E4M3", "F4", "bogus", "f32"])
    elif kind == 3:
        del entry[rng.choice(list(entry))]
    elif kind == 4:
        entry["shape"] = rng.choice([[-1], [1.5], ["2"], [[2]], None, 3, [1 << 63, 2], [1 << 64]])
    elif kind == 5:
        entry["data_offsets"] = rng.choice([[0], [0, 1, 2], None, ["0", "8"], [8, 0], [-8, 0]])
    elif kind == 6:
        tensors["__metadata__"] = rng.choice([{}, {"a": "b"}, {"a": 1}, {"a": None}, [], "x", {"a": {"b": "c"}}])
    elif kind == 7:
        tensors[rng.choice(["other", "", "é"])] = {"dtype": "U8", "shape": [0], "data_offsets": rng.choice([[0, 0], [40, 40], [1, 1]])}
    elif kind == 8:
        tensors = rng.choice([[], None, 3, "x", [tensors]])
    text = json.dumps(tensors).encode()
    if kind == 9:
        at = rng.randrange(len(text))
        text = text[:at] + bytes([rng.randrange(256)]) + text[at + 1:]
    elif kind == 10:
        text = text[:rng.randrange(len(text))]
    elif kind == 11:
        text = text + rng.choice([b"   ", b"{}", b"\n", b"\0"])
    return text


STRICTER = ("control character", "twice", "zero byte", "expected dtype, shape and data_offsets only", "does not begin with", "more than 64 dimensions", "is null, expected an object")


def test_headers_are_accepted_and_refused_as_by_safetensors(tmp_path):
    rng = random.Random(11)
    base = {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "b": {"dtype": "F16", "shape": [8], "data_offsets": [24, 40]},
            "__metadata__": {"format": "pt"}}
    files, verdicts = [], []
    for i in range(1500):
        text = mutated(base, rng)
        whole = struct.pack("<Q", len(text)) + text + bytes(rng.choice([40] * 8 + [39, 41]))
        files.append(tmp_path / f"{i}.safetensors")
        files[-1].write_bytes(whole)
        try:
            safetensors.deserialize(whole)
            verdicts.append("accepted")
        except safetensors.SafetensorError as error:
            verdicts.append(f"refused {error}")
    done = subprocess.run([TOOLS / "header_verdicts", *files], capture_output=True, timeout=60, check=True)
    ours = done.stdout.decode(errors="replace").splitlines()
    assert len(ours) == len(files)
    for file, theirs, own in zip(files, verdicts, ours):
        if theirs.startswith("refused"):
            assert own.startswith("refused"), f"{theirs}: {file.read_bytes()!r}"
        elif own.startswith("refused"):
            assert any(reason in own for reason in STRICTER), f"{own}: {file.read_bytes()!r}"
    assert 100 < sum(verdict == "accepted" for verdict in verdicts) < 1400
