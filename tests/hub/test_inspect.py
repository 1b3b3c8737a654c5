# SPDX-License-Identifier: Apache-2.0
"""The worker's `inspect` of hf:// returns the metadata of the local checkpoint, without downloading weights."""

import json
import shutil

import pytest
from conftest import EXAMPLE, TOKEN
from faulty_hub import Fault

MIB = 1 << 20


def metadata_of(worker, model, *more):
    done = worker.run("inspect", "--model", model, "--json", *more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write_gguf(path, llama, **options):
    """The model in Q8_0. Rows of queries and keys are not put in pairs, for only names and sizes matter."""
    import gguf

    config, q8 = llama.config, gguf.GGMLQuantizationType.Q8_0
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, "llama", **options)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_token_list([f"token {i}" * 20 for i in range(config.vocab_size)])  # which nobody reads
    for name, w in llama.state_dict().items():
        there, data = names.get_name(name, try_suffixes=(".weight",)), w.numpy()
        if w.dim() == 1:
            writer.add_tensor(there, data)
        else:
            writer.add_tensor(there, gguf.quants.quantize(data, q8), raw_dtype=q8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Llama with weights in one file, in several, as .bin and as GGUF in one file and in several; GPT-2 with a head
    tied to the embedding, and with an untied one. Each has a few MiB.
    """
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    folder = tmp_path_factory.mktemp("checkpoints")
    torch.manual_seed(0)
    llama = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=2000,
            hidden_size=256,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )
    llama.save_pretrained(folder / "one")
    llama.save_pretrained(folder / "several", max_shard_size="2MB")
    shutil.copytree(folder / "one", folder / "bin")
    (folder / "bin" / "model.safetensors").unlink()
    torch.save(llama.state_dict(), folder / "bin" / "pytorch_model.bin")
    for name, most in (("gguf", 0), ("gguf-parts", 9)):
        (folder / name).mkdir()
        write_gguf(folder / name / "m.gguf", llama, split_max_tensors=most)
    gpt2 = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=4000, n_embd=128, n_layer=2, n_head=2, n_positions=64)
    )
    for name, change in (("repeated", 0.0), ("untied", 1.0)):
        gpt2.save_pretrained(folder / name)
        tensors = load_file(folder / name / "model.safetensors")
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()
        tensors["lm_head.weight"][0, 0] += change
        save_file(tensors, folder / name / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    "name, most",
    [
        ("one", 0.10),
        ("several", 0.35),
        ("bin", 0.35),
        ("gguf", 0.35),
        ("gguf-parts", 0.35),
        ("repeated", 1.2),
        ("untied", 1.2),
    ],
)
def test_metadata_from_the_hub_is_those_of_the_folder(hub, worker, checkpoints, name, most):
    folder = checkpoints / name
    model = hub.add("org/name", folder)
    metadata = metadata_of(worker, "hf://org/name")
    assert metadata.pop("revision") == model.commit
    assert metadata == metadata_of(worker, folder)
    weights = sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".safetensors", ".bin", ".gguf"))
    print(f"{name}: {hub.sent()} of {weights} bytes of weights in {len(hub.requests)} requests")
    assert hub.sent() <= weights * most + MIB
    assert not list(worker.folder.glob("hub-*")), "nothing stays"


def test_a_plan_needs_no_weights_either_and_what_runs_a_model_says_how_to_get_them(hub, worker):
    hub.add("org/name", EXAMPLE)
    asked = ["--devices", 2, "--device-memory", "1Gi", "--json"]
    there, here = (worker.run("plan", "--model", place, *asked) for place in ("hf://org/name", EXAMPLE))
    assert there.returncode == 0 and there.stdout == here.stdout, there.stderr
    assert hub.sent("cdn", "model.safetensors") < MIB
    done = worker.run("generate", "--model", "hf://org/name", "--prompt", "x")
    assert done.returncode == 2 and "parallelmodel-worker fetch --model hf://org/name" in done.stderr


def test_trouble_on_the_way_is_overcome_and_refusals_are_told_apart(hub, worker):
    hub.add("org/name", EXAMPLE, token=TOKEN)
    hub.faults += [
        Fault("/api/", host="hub", status=502),
        Fault("model.safetensors", cut_after=100),
        Fault("model.safetensors", status=503),
    ]
    assert metadata_of(worker, "hf://org/name", "--token-file", worker.token)["model_type"] == "gpt2"
    message = worker.folder / "termination"
    for model, token, reason in (
        ("hf://org/name", (), "AuthFailed"),
        ("hf://org/name@v2", ("--token-file", worker.token), "RevisionNotFound"),
    ):
        done = worker.run("inspect", "--model", model, "--termination-message", message, *token)
        assert done.returncode == 3 and json.loads(message.read_text())["reason"] == reason
    assert TOKEN not in message.read_text() and not [
        request for request in hub.requests if request.host == "cdn" and "authorization" in request.headers
    ]


@pytest.mark.parametrize(
    "files, words",
    [
        ({"config.json": b"{}", "model.gguf": b"x"}, "org/name/model.gguf: the mark of GGUF reaches past the end"),
        ({"q4.gguf": b"x", "q8.gguf": b"x"}, "hf://org/name has 2 models in GGUF, expected one: q4.gguf, q8.gguf"),
        ({"m-00001-of-00002.gguf": b"x"}, "part 2 is absent"),
        ({"config.json": b"{"}, "hf://org/name/config.json is not JSON"),
        (
            {"config.json": b'{"model_type": "gpt2"}', "model.safetensors": b"\xff" * 100},
            "org/name/model.safetensors: says that its header has",
        ),
        ({"README.md": b""}, "config.json does not exist"),
    ],
)
def test_what_is_no_checkpoint_is_refused_as_in_a_folder(hub, worker, files, words):
    hub.add("org/name", files)
    done = worker.run("inspect", "--model", "hf://org/name")
    assert done.returncode == 3 and words in done.stderr and str(worker.folder) not in done.stderr, done.stderr
