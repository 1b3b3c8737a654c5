# SPDX-License-Identifier: Apache-2.0
"""Models whose latents read bytes or pixels, over HTTP with two ranks in processes: texts, files of images, pairs of
frames, and what is refused by name. test_forward.py has their states."""

import json
import math

import cases
import cases_latents
import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file
from server import Server
from test_endpoints import in_base64, picture, serve  # noqa: F401 (serve is a fixture)

import worker

LATENTS = {
    "d_latents": 30,
    "num_latents": 7,
    "num_blocks": 1,
    "num_self_attends_per_block": 2,
    "num_self_attention_heads": 5,
    "num_cross_attention_heads": 3,
}


def test_bytes_fill_masks(serve):  # noqa: F811
    """The scores are those of a place among all positions, however short the text is."""
    tokenizer = transformers.PerceiverTokenizer(model_max_length=40)
    config = transformers.PerceiverConfig(d_model=24, max_position_embeddings=40, **LATENTS)
    server, model = serve("PerceiverForMaskedLM", config, tokenizer)
    for text in ("the cat[MASK] on the mat", "Zoë saw [MASK]aris"):
        ids = tokenizer(text, return_tensors="pt")
        place = ids["input_ids"][0].tolist().index(tokenizer.mask_token_id)
        with torch.no_grad():
            scores = model(**ids).logits[0, place].softmax(-1).sort(descending=True)
        ours = server.ask("/fill-mask", {"inputs": text, "top_k": 9})
        assert [one["token"] for one in ours] == scores.indices[:9].tolist()
        assert [one["score"] for one in ours] == pytest.approx(scores.values[:9].tolist(), abs=2e-5)
    many = [f"{number} cats[MASK]" for number in range(12)]  # each takes the room of all positions in a step
    assert len(server.ask("/fill-mask", {"inputs": many})) == 12


def test_files_of_images_are_cropped_before_they_are_resized(serve):  # noqa: F811
    processor = transformers.PerceiverImageProcessorPil(
        size={"height": 12, "width": 12}, crop_size={"height": 15, "width": 15}
    )
    kinds = {i: f"kind {i}" for i in range(7)}
    config = transformers.PerceiverConfig(
        image_size=12,
        id2label=kinds,
        label2id={name: i for i, name in kinds.items()},
        **{**LATENTS, "num_cross_attention_heads": 2},
    )
    server, model = serve("PerceiverForImageClassificationLearned", config, processor=processor)
    images = [picture(40, 30), picture(23, 61, 1)]
    with torch.no_grad():
        scores = model(**processor(images=images, return_tensors="pt")).logits.softmax(-1)
    answer = server.ask("/classify", {"inputs": [in_base64(image) for image in images], "top_k": 7})
    for ours, theirs in zip(answer, scores):
        assert [one["label"] for one in ours] == [kinds[i] for i in theirs.argsort(descending=True).tolist()]
        assert [one["score"] for one in ours] == pytest.approx(theirs.sort(descending=True).values.tolist(), abs=2e-5)
    refused = server.refused("/forward", {"inputs": {"pixel_values": numpy.zeros((1, 3, 5, 12)).tolist()}}, 400)
    assert "[1, 3, 5, 12], expected [images, 3 channels, 12, 12]" in refused["message"]


def test_flow_is_told_for_each_pixel():
    case = cases.BY_NAME["PerceiverForOpticalFlow-pixels"]
    given = inputs.make(case, "images")
    server = Server(fixtures.checkpoint(case))
    try:
        answer = server.ask("/forward", {"inputs": {name: values.tolist() for name, values in given.items()}})
        ours = answer["outputs"]["logits"]
        theirs = oracle.forward(case, given)["logits"]
        assert ours["shape"] == [3, *case.settings["train_size"], 2] == list(theirs.shape)
        numpy.testing.assert_allclose(ours["data"], theirs, atol=1e-5)
        refused = server.refused("/forward", {"inputs": {"inputs": given["inputs"][:, :1].tolist()}}, 400)
        assert "expected [images, 2 frames, 27 channels, 6, 5]" in refused["message"]
    finally:
        server.close()


@pytest.mark.parametrize(
    "name, reason",
    [("PerceiverModel", "has no preprocessor"), ("PerceiverForMultimodalAutoencoding", "no request has a form")],
)
def test_classes_without_a_request_are_refused_by_name(runner, tmp_path, name, reason):
    case = cases.BY_NAME["PerceiverForMaskedLM-all"]
    folder = fixtures.checkpoint(case)
    for file in folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((folder / "config.json").read_text()) | {"architectures": [name]}
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config))
    answer = runner.batch.ask({"model": str(tmp_path), "ranks": 1, "forward": {"input_ids": [[1, 2]]}})
    assert not answer["ok"] and name in answer["error"] and reason in answer["error"]


PIPELINED = [
    "PerceiverForMaskedLM-all",
    "PerceiverForSequenceClassification-all",
    "PerceiverForImageClassificationLearned-pixels",
    "PerceiverForImageClassificationFourier-pixels",
    "PerceiverForImageClassificationConvProcessing-pixels",
    "PerceiverForOpticalFlow-pixels",
]
ROWS = 5


def batches(case):
    """Yields each form of five rows that the class reads: the mask of texts may be left out."""
    if case.model_class == "PerceiverForOpticalFlow":
        yield {"inputs": cases_latents.frames(case, ROWS)}
    elif case.reads == ("images",):
        yield {"pixel_values": inputs.pixels(case, ROWS)}
    else:
        with_mask = inputs.padded(inputs.prompts(case, [9, 21, 4, 33, 17]), "right", case.text["pad_token_id"])
        yield with_mask
        yield {"input_ids": with_mask["input_ids"]}


@pytest.mark.parametrize("name", PIPELINED)
@pytest.mark.parametrize("micro_batches", [2, 3])
def test_two_stages_answer_micro_batches_on_their_own_or_joined(tmp_path, name, micro_batches):
    """Inputs and outputs that a caller may leave out: masks of texts, hidden states, attentions. Five rows are no
    multiple of either number, so that the last micro-batch is smaller."""
    case = cases.BY_NAME[name]
    size = math.ceil(ROWS / micro_batches)
    for given in batches(case):
        save_file(given, tmp_path / "in.safetensors")
        theirs = oracle.forward(case, given)
        for flags in ([], ["--hidden-states"], ["--hidden-states", "--attentions"]):
            shown = {
                output: tensor
                for output, tensor in theirs.items()
                if ("hidden_states." not in output or "--hidden-states" in flags)
                and ("attentions." not in output or "--attentions" in flags)
            }
            for by_micro_batch in (False, True):
                run = worker.run(
                    *("forward", "--model", fixtures.checkpoint(case), "--ranks", 2, "--strategy", "Pipeline"),
                    *("--sizes", "pipeline=2", "--micro-batches", micro_batches),
                    *("--inputs", tmp_path / "in.safetensors", "--outputs", tmp_path / "out.safetensors"),
                    *(flags + ["--by-micro-batch"] * by_micro_batch),
                )
                assert run.returncode == 0, run.stderr
                ours = load_file(tmp_path / "out.safetensors")
                if by_micro_batch:
                    wanted = {
                        f"micro_batches.{i}.{output}": tensor[i * size : (i + 1) * size]
                        for output, tensor in shown.items()
                        for i in range(micro_batches)
                    }
                else:
                    wanted = shown
                assert set(ours) == set(wanted)
                compare.tensors(ours, wanted)
