# SPDX-License-Identifier: Apache-2.0
"""A model that writes what it hears, over two ranks: the official OpenAI client gets the text of transformers' pipeline
through Kubernetes.
"""

import base64
import io
import random
import wave

import numpy
import pytest
from audio_models import RATE, sound
from world import MODELS


@pytest.fixture(scope="module")
def writer(world) -> str:
    world.apply("writer", source="pvc://models/writer")
    world.wait_ready("writer")
    yield "writer"
    world.cluster.kubectl("delete", "pm", "writer", "-n", MODELS, "--wait=false")


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


def test_a_broken_file_is_refused_and_the_next_is_served(world, writer):
    reply = world.inside(post_file, world.url(writer), b"RIFF....WAVE is no wave")
    assert reply == (400, "invalid_audio")
    good = base64.b64decode(sound(random.Random(4)))
    assert world.inside(post_file, world.url(writer), good)[0] == 200


def post_file(url: str, data: bytes) -> tuple[int, str]:
    import requests

    reply = requests.post(url + "/v1/audio/transcriptions", files={"file": ("in.wav", data)}, timeout=60)
    return reply.status_code, reply.json().get("error", {}).get("code", "")
