# SPDX-License-Identifier: Apache-2.0
"""Text from images and from audio, by an encoder and a decoder, over HTTP from a real server with two ranks and on the
command line: captions and transcriptions equal those of transformers with the same tokenizer.
"""

import base64
import contextlib
import io
import json
import subprocess

import numpy
import openai
import PIL.Image
import pytest
import torch
import transformers
from cases import BY_NAME
from fixtures import refill
from server import Server
from test_audio_files import speech, write_wav
from test_tokenizers import CASES as TOKENIZERS
from test_tokenizers import written

import worker

NEW_TOKENS = 12


class Served:
    """A composite or Speech2Text with a tokenizer and a preprocessor of its own, and a server of it."""

    def __init__(self, folder, case, tokenizer, prepares, **generation):
        folder.mkdir()
        self.tokenizer, self.prepares = written(tokenizer, folder), prepares
        settings = BY_NAME[case].settings
        (settings["decoder"] if "decoder" in settings else settings)["vocab_size"] = len(self.tokenizer)
        if case.startswith("Speech2Text"):
            settings |= {"input_feat_per_channel": 80, "max_source_positions": 400}
        torch.manual_seed(3)
        config = getattr(transformers, BY_NAME[case].config_class)(**settings)
        self.model = getattr(transformers, BY_NAME[case].model_class)(config).eval()
        refill(self.model, 3)
        ids = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
        self.model.generation_config = transformers.GenerationConfig(
            max_new_tokens=NEW_TOKENS, **{name: settings[name] for name in ids}, **generation
        )
        self.model.save_pretrained(folder)
        prepares.save_pretrained(folder)
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": TOKENIZERS[tokenizer][0]}))
        self.server = Server(folder)
        self.client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0, timeout=120
        )

    def theirs(self, samples, **options):
        # the pipeline searches with five beams where the checkpoint does not say how many
        made = transformers.pipeline(
            "automatic-speech-recognition",
            model=self.model,
            tokenizer=self.tokenizer,
            feature_extractor=self.prepares,
            device="cpu",
        )
        with torch.no_grad():
            return made(samples.copy(), **options)["text"]

    def captions(self, images, **options):
        pixels = self.prepares(images=images, return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            rows = [self.model.generate(pixels[i : i + 1], **options) for i in range(len(images))]
        return [self.tokenizer.decode(row[0], skip_special_tokens=True) for row in rows]

    def refused(self, path, body, status):
        reply = self.server.post(path, body)
        assert reply.status_code == status, reply.text
        return reply.json()["error"]

    def command(self, *options):
        done = subprocess.run(
            [worker.BINARY, "generate", "--model", self.server.folder, *options, "--json"],
            capture_output=True,
            text=True,
            timeout=120,
            env=worker.ENVIRONMENT,
        )
        return json.loads(done.stdout)["text"] if done.returncode == 0 else done.stderr


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with contextlib.ExitStack() as stack:

        def start(name, *arguments, **generation):
            served = Served(tmp_path_factory.mktemp("media") / name, *arguments, **generation)
            stack.callback(served.server.close)
            return served

        yield start


@pytest.fixture(scope="module")
def captioner(serve):
    size = {"height": 12, "width": 20}
    prepares = transformers.ViTImageProcessorPil(size=size)
    return serve("captions", "VisionEncoderDecoderModel-vit2gpt2", "gpt2", prepares)


@pytest.fixture(scope="module")
def writer(serve):
    return serve(
        "speech",
        "Speech2TextForConditionalGeneration-all",
        "speech-to-text",
        transformers.Speech2TextFeatureExtractor(),
        num_beams=3,
    )


@pytest.fixture(scope="module")
def composite(serve):
    return serve(
        "composite",
        "SpeechEncoderDecoderModel-wav2vec2-stable2bart",
        "roberta",
        transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True),
        num_beams=2,
    )


def picture(seed):
    pixels = numpy.random.default_rng(seed).integers(0, 256, (31, 44, 3), dtype=numpy.uint8)
    return PIL.Image.fromarray(pixels)


def in_base64(image):
    out = io.BytesIO()
    image.save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def test_captions_equal_those_of_transformers(captioner):
    images = [picture(seed) for seed in range(3)]
    theirs = captioner.captions(images)
    assert len(set(theirs)) == 3 and all(theirs)
    one = captioner.server.post("/generate", {"inputs": in_base64(images[0])}).json()
    assert one == {"generated_text": theirs[0]}
    sent = [{"image": in_base64(images[0])}, *map(in_base64, images[1:])]
    several = captioner.server.post("/generate", {"inputs": sent}).json()
    assert [answer["generated_text"] for answer in several] == theirs
    beams = captioner.server.post("/generate", {"inputs": in_base64(images[1]), "parameters": {"num_beams": 4}}).json()
    assert beams["generated_text"] == captioner.captions(images[1:2], num_beams=4)[0]


def test_a_caption_is_streamed_as_any_answer(captioner):
    theirs = captioner.captions([picture(4)])[0]
    reply = captioner.server.post("/generate", {"inputs": in_base64(picture(4)), "stream": True})
    events = [json.loads(line[5:]) for line in reply.content.splitlines() if line.startswith(b"data:")]
    assert len(events) == NEW_TOKENS and events[-1]["generated_text"] == theirs


@pytest.mark.parametrize(
    "body, status, code, words",
    [
        ({}, 400, "missing_field", "inputs is missing"),
        ({"inputs": "a cat!"}, 400, "invalid_value", "base64"),
        ({"inputs": base64.b64encode(b"hello").decode()}, 400, "invalid_image", "PNG"),
        ({"inputs": []}, 400, "too_many_inputs", "0 images"),
        ({"inputs": "https://example.com/cat.png"}, 400, "invalid_value", "fetches nothing"),
        ({"input_ids": [1, 2]}, 400, "missing_field", "inputs is missing"),
    ],
    ids=str,
)
def test_what_is_no_image_is_refused(captioner, body, status, code, words):
    error = captioner.refused("/generate", body, status)
    assert error["code"] == code and words in error["message"], error


def test_routes_of_texts_are_not_served(captioner, writer):
    for path, body in (
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": []}),
        ("/v1/embeddings", {"input": "a"}),
    ):
        assert captioner.refused(path, body, 404)["code"] == "not_served"
        assert writer.refused(path, body, 404)["code"] == "not_served"
    assert writer.refused("/generate", {"inputs": "a"}, 404)["code"] == "not_served"


@pytest.mark.parametrize("which", ["writer", "composite"])
def test_transcriptions_equal_the_pipelines(request, tmp_path, which):
    served = request.getfixturevalue(which)
    texts = set()
    for seed in range(3):
        held = write_wav(tmp_path / "in.wav", speech(0.7 if which == "writer" else 0.05, seed))
        theirs = served.theirs(held)
        with open(tmp_path / "in.wav", "rb") as file:
            ours = served.client.audio.transcriptions.create(
                model=served.server.folder.name, file=file, response_format="verbose_json", language="de"
            )
        assert ours.text == theirs and ours.language == "de"
        assert [segment.text for segment in ours.segments] == [theirs]
        texts.add(theirs)
    assert len(texts) > 1


def test_long_audio_is_written_window_by_window_as_by_the_pipeline(writer, tmp_path):
    held = write_wav(tmp_path / "in.wav", speech(2.6, 7))
    window = {"chunk_length_s": 1, "stride_length_s": 0}
    theirs = writer.theirs(held, **window)
    with open(tmp_path / "in.wav", "rb") as file:
        ours = writer.client.audio.transcriptions.create(
            model=writer.server.folder.name, file=file, response_format="verbose_json", extra_body=window
        )
    assert ours.text == theirs != writer.theirs(held)
    assert [(s.start, s.end) for s in ours.segments] == [(0, 1), (1, 2), (2, pytest.approx(2.6))]


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_number_of_ranks_does_not_change_a_transcription(writer, tmp_path, ranks):
    held = write_wav(tmp_path / "in.wav", speech(0.7, 2))
    server = Server(writer.server.folder, ranks=ranks)
    try:
        reply = server.post("/v1/audio/transcriptions", files={"file": ("in.wav", (tmp_path / "in.wav").read_bytes())})
        assert reply.status_code == 200 and reply.json()["text"] == writer.theirs(held)
    finally:
        server.close()


def test_subtitles_have_a_cue_for_each_window(writer, tmp_path):
    write_wav(tmp_path / "in.wav", speech(1.5, 5))

    def written(form):
        with open(tmp_path / "in.wav", "rb") as file:
            return writer.client.audio.transcriptions.create(
                model=writer.server.folder.name,
                file=file,
                response_format=form,
                extra_body={"chunk_length_s": 1, "stride_length_s": 0},
            )

    verbose = written("verbose_json")
    first, second = (segment.text for segment in verbose.segments)
    assert written("text").rstrip("\n") == written("json").text == verbose.text
    assert written("srt").startswith(f"1\n00:00:00,000 --> 00:00:01,000\n{first}\n\n2\n00:00:01,000 --> ")
    assert written("vtt").startswith(f"WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n{first}\n\n00:00:01.000 --> ")
    assert written("vtt").endswith(f"{second}\n\n")


@pytest.mark.parametrize(
    "samples, rate, status, code, words",
    [
        (b"not audio at all", 0, 400, "invalid_audio", "WAV, FLAC, OGG or MP3"),
        (numpy.zeros(0, numpy.float32), 16000, 400, "invalid_audio", "0 s"),
        (speech(0.2)[:10], 16000, 400, "invalid_audio", "at least 400"),
        (numpy.zeros(16000, numpy.float32), 16000, 400, "invalid_audio", "does not change"),
        (numpy.zeros((48, 100), numpy.float32), 16000, 400, "invalid_audio", "48 channels"),
        (numpy.zeros(2 * 3600 * 1000, numpy.float32), 1000, 413, "audio_too_large", "7200 s"),
    ],
    ids=["text", "empty", "short", "silent", "channels", "hours"],
)
def test_what_is_no_audio_is_refused_and_the_next_file_is_written(writer, tmp_path, samples, rate, status, code, words):
    if not isinstance(samples, bytes):
        write_wav(tmp_path / "in.wav", samples, rate, width=1)
        samples = (tmp_path / "in.wav").read_bytes()
    reply = writer.server.post("/v1/audio/transcriptions", files={"file": ("in.wav", samples)})
    error = reply.json()["error"]
    assert reply.status_code == status and error["code"] == code and words in error["message"], reply.text
    held = write_wav(tmp_path / "good.wav", speech(0.5, 6))
    good = writer.server.post(
        "/v1/audio/transcriptions", files={"file": ("in.wav", (tmp_path / "good.wav").read_bytes())}
    )
    assert good.json()["text"] == writer.theirs(held)


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"prompt": "Once"}, "reads audio only"),
        ({"temperature": "3"}, "from 0 to 2"),
        ({"stride_length_s": "0.2"}, "stride_length_s"),
        ({"max_new_tokens": "0"}, "max_new_tokens"),
        ({"max_new_tokens": "5000"}, "max_new_tokens"),
        ({"timestamp_granularities[]": "word", "response_format": "verbose_json"}, "no times of words"),
    ],
    ids=str,
)
def test_what_cannot_be_written_is_refused(writer, tmp_path, fields, words):
    write_wav(tmp_path / "in.wav", speech(0.5))
    reply = writer.server.post(
        "/v1/audio/transcriptions", files={"file": ("in.wav", (tmp_path / "in.wav").read_bytes())}, data=fields
    )
    assert reply.status_code == 400 and words in reply.json()["error"]["message"], reply.text


def test_the_command_line_reads_the_same_files(captioner, writer, tmp_path):
    picture(2).save(tmp_path / "in.png")
    held = write_wav(tmp_path / "in.wav", speech(0.7, 1))
    assert captioner.command("--image", tmp_path / "in.png") == captioner.captions([picture(2)])
    assert writer.command("--audio", tmp_path / "in.wav") == [writer.theirs(held)]
    assert "generates from images or audio" in captioner.command("--prompt", "a cat")
    assert "in.wav" in captioner.command("--image", tmp_path / "in.wav")
