# SPDX-License-Identifier: Apache-2.0
"""Detection of objects: backbones by the names of timm, and boxes over HTTP as transformers' pipeline gives them."""

import base64
import io
import json
import types

import cases
import compare
import fixtures
import numpy
import PIL.Image
import pytest
import torch
import transformers
from resolution import dump, write_sparse
from safetensors.torch import load_file, save_file
from server import forward_body
from test_endpoints import close_to, in_base64, picture, serve

__all__ = ["serve"]  # a fixture
# blocks of the stages; timm and transformers build the same networks of them
DEPTHS = {
    "resnet18": [2, 2, 2, 2],
    "resnet34": [3, 4, 6, 3],
    "resnet50": [3, 4, 6, 3],
    "resnet101": [3, 4, 23, 3],
    "resnet152": [3, 8, 36, 3],
}
SMALL = {
    "d_model": 20,
    "encoder_attention_heads": 5,
    "decoder_attention_heads": 4,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 17,
    "decoder_ffn_dim": 13,
    "num_queries": 6,
    "num_labels": 4,
}


def resnet(name):
    basic = name in ("resnet18", "resnet34")
    return {
        "model_type": "resnet",
        "embedding_size": 64,
        "hidden_sizes": [64, 128, 256, 512] if basic else [256, 512, 1024, 2048],
        "depths": DEPTHS[name],
        "layer_type": "basic" if basic else "bottleneck",
        "out_features": ["stage4"],
    }


def timm_name(name):
    """The name that timm gives a tensor of transformers' ResNet."""
    before, inside, tensor = name.partition("conv_encoder.model.")
    if not inside:
        return name
    parts = tensor.split(".")
    if parts[0] == "embedder":
        return before + inside + {"convolution": "conv1", "normalization": "bn1"}[parts[2]] + "." + parts[-1]
    block = f"layer{int(parts[2]) + 1}.{parts[4]}."
    if parts[5] == "shortcut":
        return before + inside + block + "downsample." + str(int(parts[6] == "normalization")) + "." + parts[-1]
    kind = {"convolution": "conv", "normalization": "bn"}[parts[7]]
    return before + inside + block + kind + str(int(parts[6]) + 1) + "." + parts[-1]


def dilate(model):
    """Takes the stride of the last stage away, and spreads its kernels instead but for the first, as timm does for an
    output stride of 16."""
    first = True
    for block in model.model.backbone.model.encoder.stages[3].layers:
        for module in block.modules():
            if not isinstance(module, torch.nn.Conv2d):
                continue
            module.stride = (1, 1)
            if module.kernel_size != (3, 3):
                continue
            if not first:
                module.dilation = module.padding = (2, 2)
            first = False


def written(folder, model, **settings):
    """A checkpoint with the names of timm; `settings` replace the configuration of the backbone."""
    model.save_pretrained(folder)
    tensors = {timm_name(name): tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    assert any(".layer4.1.bn2.running_var" in name for name in tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    del config["backbone_config"]
    (folder / "config.json").write_text(json.dumps({**config, **settings}))


@pytest.mark.parametrize(
    "name, dilated, settings",
    [
        ("resnet18", False, {"use_timm_backbone": True, "backbone": "resnet18", "backbone_config": None}),
        ("resnet18", True, {"backbone": "resnet18", "dilation": True}),
        ("resnet50", True, {"backbone_config": {"model_type": "timm_backbone", "backbone": "resnet50.a1_in1k"}}),
    ],
)
def test_a_backbone_with_the_names_of_timm_is_read_by_its_name(runner, tmp_path, name, dilated, settings):
    torch.manual_seed(17)
    model = transformers.DetrForObjectDetection(transformers.DetrConfig(**SMALL, backbone_config=resnet(name))).eval()
    fixtures.refill(model, 17)
    with torch.no_grad():
        for path, tensor in model.named_parameters():
            if path.endswith(("convolution.weight", "input_projection.weight")):
                tensor.div_(2)
    if dilated:
        dilate(model)
        if "backbone_config" in settings:
            settings = {"backbone_config": {**settings["backbone_config"], "output_stride": 16}}
    written(tmp_path, model, **settings)
    given = {"pixel_values": numpy.random.default_rng(3).standard_normal((1, 3, 75, 60)).astype(numpy.float32)}
    with torch.no_grad():
        outputs = model(torch.from_numpy(given["pixel_values"]))
    theirs = {name: outputs[name].numpy() for name in ("logits", "pred_boxes", "encoder_last_hidden_state")}
    assert theirs["encoder_last_hidden_state"].shape[1] == (20 if dilated else 6)
    compare.tensors(runner.forward(tmp_path, 2, given), theirs)


@pytest.mark.parametrize("name", list(DEPTHS))
def test_every_backbone_that_is_served_has_the_blocks_of_timm(tmp_path, name):
    with torch.device("meta"):
        model = transformers.DetrModel(transformers.DetrConfig(**SMALL, backbone_config=resnet(name)))
    header, end = {}, 0
    for path, tensor in [*model.named_parameters(), *model.named_buffers()]:
        stored = timm_name(path.replace("backbone.model.", "backbone.conv_encoder.model."))
        header[stored] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [end, end + 4 * tensor.numel()]}
        end += 4 * tensor.numel()
    write_sparse(tmp_path / "model.safetensors", header)
    (tmp_path / "config.json").write_text(
        json.dumps({**SMALL, "model_type": "detr", "architectures": ["DetrModel"], "backbone": name})
    )
    done = dump(tmp_path, "--bytes")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0] == end


def test_objects_have_the_boxes_of_transformers_pipeline(serve):
    processor = transformers.DetrImageProcessorPil(size={"shortest_edge": 60, "longest_edge": 90})
    case = cases.BY_NAME["DetrForObjectDetection-all"]
    names = {i: f"kind {i}" for i in range(5)}
    settings = {**case.settings, "id2label": names, "label2id": {name: i for i, name in names.items()}}
    del settings["num_labels"]
    server, model = serve("DetrForObjectDetection", transformers.DetrConfig(**settings), processor=processor)
    oracle = transformers.pipeline("object-detection", model=model, image_processor=processor)
    images = [picture(140, 70), picture(70, 61, 1)]
    scores = [found["score"] for image in images for found in oracle(image, threshold=0)]
    assert len(scores) == 2 * case.settings["num_queries"]
    threshold = (sorted(scores)[4] + sorted(scores)[5]) / 2
    theirs = [oracle(image, threshold=threshold) for image in images]
    assert sum(map(len, theirs)) == len(scores) - 5
    body = {"inputs": [in_base64(image) for image in images], "threshold": threshold}
    close_to(server.ask("/detect", body), theirs)
    close_to(server.ask("/detect", {"inputs": {"image": in_base64(images[0])}}), oracle(images[0]))
    file = io.BytesIO()
    images[1].save(file, "PNG")
    reply = server.post("/detect", data=file.getvalue(), headers={"Content-Type": "image/png"})
    close_to(reply.json(), oracle(images[1]))
    for wrong, what in (
        ({"inputs": in_base64(images[0]), "threshold": 2}, "a number from 0 to 1"),
        ({"inputs": in_base64(images[0])[:40]}, "inputs"),
        ({"inputs": "aGVsbG8="}, "PNG"),
        ({"inputs": in_base64(images[0]), "treshold": 0.5}, "treshold"),
        ({}, "inputs"),
    ):
        assert what in server.refused("/detect", wrong, 400)["message"]
    assert "POST /detect" in server.refused("/classify", {"inputs": "text"}, 404)["message"]


def centre(linear, states):
    """Lets a linear tell apart states that are nearly alike, as those of random queries are."""
    linear.bias.zero_()
    linear.weight.mul_(3 / linear(states).std(0).mean())
    linear.bias.copy_(-linear(states).mean(0))


def segmenter(serve):
    """A server of a model whose objects each win pixels of a picture, and transformers' pipeline of it."""
    processor = transformers.DetrImageProcessorPil(size={"shortest_edge": 60, "longest_edge": 90})
    case = cases.BY_NAME["DetrForSegmentation-masks"]
    model = transformers.DetrForSegmentation.from_pretrained(fixtures.checkpoint(case)).eval()
    model.config.id2label = {i: f"kind {i}" for i in range(5)}
    model.config.label2id = {name: i for i, name in model.config.id2label.items()}
    with torch.no_grad():
        seen = model(**processor(picture(140, 70), return_tensors="pt"))
        centre(model.detr.class_labels_classifier, seen.last_hidden_state[0])
        centre(model.bbox_attention.q_proj, seen.last_hidden_state[0])
        centre(model.bbox_attention.k_proj, seen.encoder_last_hidden_state[0])
        model.mask_head.conv1.conv.weight[:, case.settings["d_model"] :].mul_(300)  # of the attentions
        model.mask_head.output_conv.weight.mul_(10)
    config = transformers.DetrConfig(**case.settings)
    server, _ = serve("DetrForSegmentation", config, processor=processor, change=model.save_pretrained)
    return server, transformers.pipeline("image-segmentation", model=model, image_processor=processor)


LIMITS = (
    {"threshold": 0.0, "mask_threshold": 0.0, "overlap_mask_area_threshold": 0.0},
    {"threshold": 0.6, "mask_threshold": 0.4, "overlap_mask_area_threshold": 0.3},
    {"threshold": 0.6, "mask_threshold": 0.3, "overlap_mask_area_threshold": 0.05},
    {"threshold": 0.0, "mask_threshold": 0.1, "overlap_mask_area_threshold": 0.3},
)


def mask_of(segment):
    mask = PIL.Image.open(io.BytesIO(base64.b64decode(segment["mask"])))
    assert mask.mode == "L" and set(numpy.unique(mask)) <= {0, 255}
    return numpy.array(mask)


def same_segments(ours, theirs, tolerance=2e-3, pixels=0.01):
    """Labels are equal, scores and masks nearly: what `segmenter` enlarges are the last digits of states."""
    assert [one["label"] for one in ours] == [one["label"] for one in theirs]
    for mine, other in zip(ours, theirs):
        assert mine["score"] == (other["score"] and pytest.approx(other["score"], abs=tolerance))
        assert (mask_of(mine) != numpy.array(other["mask"])).mean() <= pixels


def test_segments_are_those_of_transformers_pipeline(serve):
    server, oracle = segmenter(serve)
    images = [picture(140, 70), picture(70, 61, 1)]
    for options in (*LIMITS, {"subtask": "instance", **LIMITS[0]}, {"subtask": "semantic"}, {}):
        same_segments(server.ask("/segment", {"inputs": in_base64(images[0]), **options}), oracle(images[0], **options))
    several = server.ask("/segment", {"inputs": [in_base64(image) for image in images]})
    for mine, image in zip(several, images, strict=True):
        same_segments(mine, oracle(image))


def test_segments_are_cut_out_of_the_models_outputs_as_the_image_processor_does(serve):
    """Both cut the same logits and masks, so that only nearly tied pixels may differ."""
    server, oracle = segmenter(serve)
    image, processor = picture(140, 70), oracle.image_processor
    pixels = processor(image, return_tensors="pt")["pixel_values"]
    found = server.ask("/forward", {**forward_body({"pixel_values": pixels}), "outputs": ["logits", "pred_masks"]})
    outputs = types.SimpleNamespace(**{name: torch.tensor(one["data"]) for name, one in found["outputs"].items()})
    sizes = {"target_sizes": [(image.height, image.width)]}
    seen = set()
    for limits in LIMITS:
        (whole,) = processor.post_process_panoptic_segmentation(outputs, **limits, **sizes)
        ours = server.ask("/segment", {"inputs": in_base64(image), **limits})
        expected = [
            {
                "label": f"kind {one['label_id']}",
                "score": one["score"],
                "mask": (whole["segmentation"] == one["id"]).numpy() * 255,
            }
            for one in whole["segments_info"]
        ]
        same_segments(ours, expected, 2e-6, 2e-4)
        seen.add(len(ours))
    assert len(seen) > 2 and max(seen) > 3, "several objects have to win pixels, and the limits to count"
    (classes,) = processor.post_process_semantic_segmentation(outputs, **sizes)
    ours = server.ask("/segment", {"inputs": in_base64(image), "subtask": "semantic"})
    expected = [
        {"label": f"kind {number}", "score": None, "mask": (classes == number).numpy() * 255}
        for number in classes.unique().tolist()
    ]
    assert len(expected) > 2
    same_segments(ours, expected, 0, 2e-4)


def test_a_file_is_segmented_too_and_wrong_fields_are_named(serve):
    server, oracle = segmenter(serve)
    image = picture(70, 61, 1)
    file = io.BytesIO()
    image.save(file, "PNG")
    reply = server.post("/segment", data=file.getvalue(), headers={"Content-Type": "image/png"})
    assert reply.status_code == 200
    same_segments(reply.json(), oracle(image))
    for wrong, what in (
        ({"threshold": 2}, "a number from 0 to 1"),
        ({"mask_threshold": "much"}, "mask_threshold"),
        ({"overlap_mask_area_threshold": -1}, "overlap_mask_area_threshold"),
        ({"subtask": "all"}, "panoptic, instance or semantic"),
        ({"treshold": 0.5}, "treshold"),
    ):
        assert what in server.refused("/segment", {"inputs": in_base64(image), **wrong}, 400)["message"]
    assert "PNG" in server.refused("/segment", {"inputs": "aGVsbG8="}, 400)["message"]
    assert "/segment" in server.get("/openapi.json").json()["paths"]
    assert server.post("/detect", {"inputs": in_base64(image)}).status_code == 200
