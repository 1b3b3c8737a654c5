# SPDX-License-Identifier: Apache-2.0
"""Audio over HTTP from a real server with two ranks, through the official client: transcriptions with words and long
audio as transformers' pipeline gives them, classifications, and embeddings.
"""

import base64
import contextlib
import io
import json
import subprocess
import wave

import numpy
import openai
import pytest
import requests
import torch
import transformers
from cases import BY_NAME
from fixtures import refill
from server import Server
from test_audio_files import RATE, speech, write_wav

SEED = 5
LETTERS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"EATONISRHLDCUMFPGWYBVK", "ch", "Ä", "Ö"]


def config_of(name, **more):
    settings = {**BY_NAME[name].settings, **more}
    settings["vocab_size"] = len(LETTERS)
    return settings


def build(folder, model_class, config_class, settings):
    """A checkpoint of 8 samples per 16th of a frame: a second of audio has a thousand frames."""
    torch.manual_seed(SEED)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**settings)).eval()
    refill(model, SEED)
    model.save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    return model


def tokenizer(folder, letters=LETTERS, **options):
    vocabulary = folder / "letters.json"
    vocabulary.write_text(json.dumps({letter: i for i, letter in enumerate(letters)}))
    made = transformers.Wav2Vec2CTCTokenizer(str(vocabulary), **options)
    vocabulary.unlink()
    made.save_pretrained(folder)
    return made


class Served:
    def __init__(self, folder, model_class, config_class, settings, **options):
        folder.mkdir()
        self.model = build(folder, model_class, config_class, settings)
        self.tokenizer = tokenizer(folder, **options)
        self.extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
        self.server = Server(folder)
        self.url = f"http://127.0.0.1:{self.server.port}"
        self.client = openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=120)

    def theirs(self, samples, task="automatic-speech-recognition", **options):
        made = transformers.pipeline(
            task, model=self.model, tokenizer=self.tokenizer, feature_extractor=self.extractor, device="cpu"
        )
        with torch.no_grad():
            return made(samples.copy(), **options)

    def transcribe(self, file, **options):
        return self.client.audio.transcriptions.create(model=self.server.folder.name, file=open(file, "rb"), **options)

    def post(self, path, data, **fields):
        return requests.post(self.url + path, files={"file": ("in.wav", data)}, data=fields, timeout=60)

    def refused(self, path, data, status, **fields):
        reply = self.post(path, data, **fields)
        assert reply.status_code == status, reply.text
        return reply.json()["error"]


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with contextlib.ExitStack() as stack:

        def start(name, *arguments, **options):
            served = Served(tmp_path_factory.mktemp("audio") / name, *arguments, **options)
            stack.callback(served.server.close)
            return served

        yield start


@pytest.fixture(scope="module")
def ctc(serve):
    return serve(
        "ctc", "Wav2Vec2ForCTC", "Wav2Vec2Config", config_of("Wav2Vec2ForCTC-stable"), word_delimiter_token="V"
    )


@pytest.fixture(scope="module")
def lower(serve):
    """With a norm over time, small letters, a word delimiter of its own and another replacement."""
    settings = config_of("HubertForCTC-all")
    return serve(
        "lower",
        "HubertForCTC",
        "HubertConfig",
        settings,
        do_lower_case=True,
        word_delimiter_token="S",
        replace_word_delimiter_char="_",
        pad_token="A",
    )


def spoken(chunks):
    return [(chunk["text"], *chunk["timestamp"]) for chunk in chunks]


def test_a_sentence_of_a_speech_synthesiser_gives_the_pipelines_words(ctc, tmp_path):
    """The file as espeak-ng writes it, and its samples at the rate of the model, which resampling does not change."""
    spoken_file, file = tmp_path / "spoken.wav", tmp_path / "in.wav"
    subprocess.run(["espeak-ng", "-w", spoken_file, "Once upon a time"], check=True)
    with wave.open(str(spoken_file)) as sound:
        rate, frames = sound.getframerate(), sound.getnframes()
        samples = numpy.frombuffer(sound.readframes(frames), numpy.int16) / 32768
    times = numpy.arange(int(frames * RATE / rate)) / RATE
    held = write_wav(file, numpy.interp(times, numpy.arange(frames) / rate, samples).astype(numpy.float32))
    theirs = ctc.theirs(held, return_timestamps="word")
    options = {"response_format": "verbose_json", "timestamp_granularities": ["word"]}
    ours = ctc.transcribe(file, **options)
    assert ours.text == theirs["text"] and len(theirs["chunks"]) > 3
    assert [(word.word, word.start, word.end) for word in ours.words] == spoken(theirs["chunks"])
    original = ctc.transcribe(spoken_file, **options)
    assert rate != RATE and original.duration == pytest.approx(frames / rate, abs=1e-3) and len(original.words) > 3


@pytest.mark.parametrize("seconds", [0.3, 2.0])
@pytest.mark.parametrize("which", ["ctc", "lower"])
def test_text_and_words_equal_the_pipelines(request, tmp_path, which, seconds):
    served = request.getfixturevalue(which)
    held = write_wav(tmp_path / "in.wav", speech(seconds))
    theirs = served.theirs(held, return_timestamps="word")
    assert len(theirs["chunks"]) > 3 and len(set(theirs["text"])) > 3, theirs
    assert served.transcribe(tmp_path / "in.wav").text == theirs["text"]
    ours = served.transcribe(
        tmp_path / "in.wav", response_format="verbose_json", timestamp_granularities=["word", "segment"], language="de"
    )
    assert [(word.word, word.start, word.end) for word in ours.words] == spoken(theirs["chunks"])
    assert (ours.text, ours.duration, ours.language) == (theirs["text"], pytest.approx(seconds), "de")
    ids = []
    with torch.no_grad():
        row = served.extractor(held, sampling_rate=RATE, return_tensors="pt", return_attention_mask=True)
        for token in served.model(**row).logits.argmax(-1)[0].tolist():
            ids.append(token)
    blank, space = served.tokenizer.pad_token_id, served.tokenizer.word_delimiter_token_id
    kept = [t for i, t in enumerate(ids) if t != blank and (i == 0 or ids[i - 1] != t)]
    assert [t for segment in ours.segments for t in segment.tokens if t != space] == [t for t in kept if t != space]


@pytest.mark.parametrize("window", [{"chunk_length_s": 0.5}, {"chunk_length_s": 0.7, "stride_length_s": 0.05}])
def test_long_audio_in_windows_equals_the_pipelines(ctc, tmp_path, window):
    held = write_wav(tmp_path / "in.wav", speech(3.1, 2))
    theirs = ctc.theirs(held, return_timestamps="word", **window)
    ours = ctc.transcribe(
        tmp_path / "in.wav", response_format="verbose_json", timestamp_granularities=["word"], extra_body=window
    )
    assert ours.text == theirs["text"]
    assert [(word.word, word.start, word.end) for word in ours.words] == spoken(theirs["chunks"])
    assert ours.text != ctc.theirs(held)["text"], "the windows must matter for this audio"


def test_formats_hold_the_same_text(ctc, tmp_path):
    write_wav(tmp_path / "in.wav", speech(1.5))
    verbose = ctc.transcribe(tmp_path / "in.wav", response_format="verbose_json")
    assert ctc.transcribe(tmp_path / "in.wav", response_format="text").rstrip("\n") == verbose.text
    srt, vtt = (ctc.transcribe(tmp_path / "in.wav", response_format=form) for form in ("srt", "vtt"))
    assert vtt.startswith("WEBVTT\n\n") and "00:00:00." in vtt
    assert srt.startswith("1\n00:00:00,") and " --> " in srt
    for segment in verbose.segments:
        assert segment.text in srt and segment.text in vtt


def test_a_body_that_is_the_file_and_one_in_json_are_read_too(ctc, tmp_path):
    write_wav(tmp_path / "in.wav", speech(1.0))
    data, url = (tmp_path / "in.wav").read_bytes(), ctc.url + "/v1/audio/transcriptions"
    text = ctc.transcribe(tmp_path / "in.wav").text
    assert requests.post(url, data=data, headers={"content-type": "audio/wav"}, timeout=60).json()["text"] == text
    body = {"inputs": base64.b64encode(data).decode(), "parameters": {"response_format": "text"}}
    assert requests.post(url, json=body, timeout=60).text.rstrip("\n") == text


def test_two_channels_of_another_rate_are_mixed_and_converted(ctc, tmp_path):
    """The lengths are the same; the samples differ as resamplers do, so that only the duration is compared."""
    sound = numpy.stack([speech(1.0, seed) for seed in range(2)])
    write_wav(tmp_path / "in.wav", sound, rate=8000)
    ours = ctc.transcribe(tmp_path / "in.wav", response_format="verbose_json")
    assert ours.duration == pytest.approx(2.0) and ours.text


@pytest.mark.parametrize(
    "data, fields, status, code, words",
    [
        (b"not audio at all", {}, 400, "invalid_audio", "WAV, FLAC, OGG or MP3"),
        (b"", {}, 400, "invalid_audio", "WAV, FLAC, OGG or MP3"),
        ("empty", {}, 400, "invalid_audio", "0 s"),
        ("short", {}, 400, "invalid_value", "input_values has 10 samples"),
        ("channels", {}, 400, "invalid_audio", "48 channels"),
        ("hours", {}, 413, "audio_too_large", "7200 s"),
        ("good", {"response_format": "xml"}, 400, "invalid_value", "verbose_json"),
        ("good", {"prompt": "Once"}, 400, "invalid_value", "prompt"),
        ("good", {"temperature": "0.5"}, 400, "invalid_value", "temperature is 0.5"),
        ("good", {"temperature": "hot"}, 400, "invalid_value", "temperature"),
        ("good", {"model": "another"}, 404, "model_not_found", "another"),
        ("good", {"chunk_length_s": "0"}, 400, "invalid_value", "chunk_length_s"),
        ("good", {"chunk_length_s": "1", "stride_length_s": "0.6"}, 400, "invalid_value", "stride_length_s"),
        ("good", {"timestamp_granularities[]": "word"}, 400, "invalid_value", "verbose_json"),
        ("good", {"no_such_field": "1"}, 400, "unknown_field", "no_such_field"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_cannot_be_transcribed_is_refused(ctc, tmp_path, data, fields, status, code, words):
    sounds = {
        "good": (speech(0.2), RATE),
        "empty": (numpy.zeros(0, numpy.float32), RATE),
        "short": (speech(0.2)[:10], RATE),
        "channels": (numpy.zeros((48, 100), numpy.float32), RATE),
        "hours": (numpy.zeros(2 * 3600 * 1000, numpy.float32), 1000),
    }
    if isinstance(data, str):
        sound, rate = sounds[data]
        write_wav(tmp_path / "in.wav", sound, rate, width=1)
        data = (tmp_path / "in.wav").read_bytes()
    error = ctc.refused("/v1/audio/transcriptions", data, status, **fields)
    assert error["code"] == code and words in error["message"], error


def test_a_form_without_a_file_or_without_an_end_is_refused(ctc):
    url = ctc.url + "/v1/audio/transcriptions"
    reply = requests.post(url, files={"model": (None, "ctc")}, timeout=60)
    assert reply.status_code == 400 and reply.json()["error"]["code"] == "missing_field"
    broken = {"content-type": "multipart/form-data; boundary=b"}
    for body in (b"--b\r\nContent-Disposition: form-data; name=file\r\n\r\nabc", b"--c--", b""):
        reply = requests.post(url, data=body, headers=broken, timeout=60)
        assert reply.status_code == 400 and reply.json()["error"]["code"] == "malformed_request", reply.text


def test_classes_equal_the_pipelines(serve, tmp_path):
    settings = config_of("Wav2Vec2ForSequenceClassification-light", id2label={i: f"word{i}" for i in range(7)})
    served = serve("classes", "Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", settings)
    held = write_wav(tmp_path / "in.wav", speech(0.7))
    path = "/v1/audio/classifications"
    for fields in ({}, {"top_k": 3}, {"function_to_apply": "sigmoid"}):
        theirs = served.theirs(held, "audio-classification", **fields)
        ours = served.post(path, (tmp_path / "in.wav").read_bytes(), **fields).json()
        assert [one["label"] for one in ours] == [one["label"] for one in theirs]
        numpy.testing.assert_allclose(
            [one["score"] for one in ours], [one["score"] for one in theirs], rtol=1e-4, atol=1e-6
        )
    error = served.refused(path, (tmp_path / "in.wav").read_bytes(), 400, top_k="0")
    assert "top_k is 0" in error["message"]
    assert served.refused("/v1/audio/transcriptions", b"", 404)["code"] == "not_served"


@pytest.mark.parametrize(
    "name, model_class, output",
    [
        ("Wav2Vec2ForXVector-speaker", "Wav2Vec2ForXVector", "embeddings"),
        ("Wav2Vec2Model-all", "Wav2Vec2Model", "last_hidden_state"),
    ],
)
def test_embeddings_are_x_vectors_or_means_of_states(serve, tmp_path, name, model_class, output):
    served = serve(output, model_class, "Wav2Vec2Config", config_of(name))
    held = write_wav(tmp_path / "in.wav", speech(0.4))
    with torch.no_grad():
        row = served.extractor(held, sampling_rate=RATE, return_tensors="pt", return_attention_mask=True)
        vector = served.model(**row)[output][0].double()
    vector = (vector.mean(0) if vector.ndim > 1 else vector).numpy()
    for fields, theirs in (({}, vector / numpy.linalg.norm(vector)), ({"normalize": "false"}, vector)):
        ours = served.post("/embed", (tmp_path / "in.wav").read_bytes(), **fields).json()
        numpy.testing.assert_allclose(ours["data"][0]["embedding"], theirs, rtol=1e-3, atol=1e-5)


def test_without_a_feature_extractor_or_letters_the_reason_is_given(serve, tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    build(folder, "Wav2Vec2ForCTC", "Wav2Vec2Config", config_of("Wav2Vec2ForCTC-all"))
    server = Server(folder)
    try:
        url = f"http://127.0.0.1:{server.port}/v1/audio/transcriptions"
        sound = io.BytesIO()
        write_wav(tmp_path / "in.wav", speech(0.2))
        sound.write((tmp_path / "in.wav").read_bytes())
        error = requests.post(url, files={"file": sound.getvalue()}, timeout=60).json()["error"]
        assert error["code"] == "no_tokenizer" and "vocab.json" in error["message"]
    finally:
        server.close()
