# SPDX-License-Identifier: Apache-2.0
"""Models of audio and of images over two ranks: through Kubernetes, the official OpenAI client gets the text of
transformers' pipeline, and POST /detect and /segment give the boxes and masks of others.
"""

import base64
import io
import random
import wave

import numpy
import pytest
from audio_models import RATE, sound
from image_models import picture
from world import MODELS


@pytest.fixture(scope="module")
def writer(world) -> str:
    yield from served(world, "writer")


def written(folder, sounds) -> list[str]:
    """Returns what transformers' pipeline makes of these files with one beam."""
    import torch
    import transformers

    torch.set_num_threads(1)
    recognise = transformers.pipeline("automatic-speech-recognition", model=str(folder), device="cpu")
    texts = []
    for file in sounds:
        with wave.open(io.BytesIO(file)) as content:
            samples = numpy.frombuffer(content.readframes(content.getnframes()), "<i2") / 32768
        texts.append(recognise(samples.astype(numpy.float32), generate_kwargs={"num_beams": 1})["text"])
    return texts


def served(world, name: str):
    """Yields the name of a ParallelModel that serves the model of this name, and deletes it in the end."""
    world.apply(name, source=f"pvc://models/{name}")
    world.wait_ready(name)
    yield name
    world.cluster.kubectl("delete", "pm", name, "-n", MODELS, "--wait=false")


def transcribed(url: str, name: str, sounds) -> list[str]:
    import openai

    with openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client:
        return [client.audio.transcriptions.create(model=name, file=("in.wav", file)).text for file in sounds]


def test_what_is_heard_is_written_as_by_transformers(world, writer, models):
    rng = random.Random(3)
    sounds = [base64.b64decode(sound(rng)) for _ in range(4)]
    expected = written(models / "writer", sounds)
    assert len(set(expected)) > 2 and RATE == 16000
    assert world.inside(transcribed, world.url(writer), writer, sounds) == expected


@pytest.fixture(scope="module")
def detector(world) -> str:
    yield from served(world, "detector")


def test_objects_have_the_boxes_of_transformers(world, detector, models):
    import torch
    import transformers

    torch.set_num_threads(1)
    detect = transformers.pipeline("object-detection", model=str(models / "detector"), device="cpu")
    image, file = picture(1), io.BytesIO()
    image.save(file, "PNG")
    expected = detect(image, threshold=0)
    body = {"inputs": base64.b64encode(file.getvalue()).decode(), "threshold": 0}
    found = world.post(world.url(detector) + "/detect", body).json()
    assert [one["label"] for one in found] == [one["label"] for one in expected] and len(found) == 7
    for ours, theirs in zip(found, expected):
        assert ours["score"] == pytest.approx(theirs["score"], abs=1e-4)
        assert all(abs(ours["box"][side] - theirs["box"][side]) <= 1 for side in theirs["box"])


@pytest.fixture(scope="module")
def segmenter(world) -> str:
    yield from served(world, "segmenter")


def test_segments_have_the_masks_of_transformers(world, segmenter, models):
    import torch
    import transformers
    from PIL import Image

    torch.set_num_threads(1)
    cut = transformers.pipeline("image-segmentation", model=str(models / "segmenter"), device="cpu")
    limits = {"threshold": 0, "mask_threshold": 0, "overlap_mask_area_threshold": 0}
    image, file = picture(1), io.BytesIO()
    image.save(file, "PNG")
    expected = cut(image, **limits)
    body = {"inputs": base64.b64encode(file.getvalue()).decode(), **limits}
    found = world.post(world.url(segmenter) + "/segment", body).json()
    assert [one["label"] for one in found] == [one["label"] for one in expected] and found
    for ours, theirs in zip(found, expected):
        assert ours["score"] == pytest.approx(theirs["score"], abs=1e-4)
        mask = numpy.array(Image.open(io.BytesIO(base64.b64decode(ours["mask"]))))
        assert (mask != numpy.array(theirs["mask"])).mean() < 0.002


def test_a_broken_file_is_refused_and_the_next_is_served(world, writer):
    reply = world.inside(post_file, world.url(writer), b"RIFF....WAVE is no wave")
    assert reply == (400, "invalid_audio")
    good = base64.b64decode(sound(random.Random(4)))
    assert world.inside(post_file, world.url(writer), good)[0] == 200


def post_file(url: str, data: bytes) -> tuple[int, str]:
    import requests

    reply = requests.post(url + "/v1/audio/transcriptions", files={"file": ("in.wav", data)}, timeout=60)
    return reply.status_code, reply.json().get("error", {}).get("code", "")
