# SPDX-License-Identifier: Apache-2.0
"""Audio preprocessing equals that of transformers' feature extractors, in numpy as they run without torchaudio; files
of every sample width decode to what was written.
"""

import json
import subprocess
import wave

import numpy
import pytest
import transformers

import worker

RATE = 16000


class Dump:
    """The long-lived audio_dump."""

    def __init__(self, folder):
        self.folder = folder
        self.process = subprocess.Popen(
            [worker.TOOLS / "audio_dump"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, file, **job):
        out = self.folder / "out"
        self.process.stdin.write(json.dumps({"file": str(file), "out": str(out), **job}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer
        return numpy.fromfile(out, numpy.float32).reshape(answer["shape"])

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture
def dump(tmp_path):
    worker.require_binary()
    made = Dump(tmp_path)
    yield made
    made.close()


def write_wav(path, samples, rate=RATE, width=2):
    """Whole numbers of `width` bytes; [channels, samples] or [samples]. Returns what the file holds, from -1 to 1."""
    scale = 2 ** (8 * width - 1)
    whole = numpy.clip(numpy.round(samples * scale), -scale, scale - 1).astype(numpy.int64)
    interleaved = whole.T.reshape(-1) if whole.ndim > 1 else whole
    stored = interleaved + (128 if width == 1 else 0)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(whole.shape[0] if whole.ndim > 1 else 1)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(b"".join(int(v).to_bytes(width, "little", signed=width > 1) for v in stored))
    return (whole / scale).astype(numpy.float32)


def speech(seconds, seed=0):
    """A voice of sorts: tones that glide and fade, and a little noise."""
    random = numpy.random.default_rng(seed)
    time = numpy.arange(int(seconds * RATE)) / RATE
    sound = sum(
        numpy.sin(2 * numpy.pi * hertz * time * (1 + 0.1 * numpy.sin(3 * time))) / (i + 1)
        for i, hertz in enumerate(random.uniform(100, 3000, 5))
    )
    fade = 0.5 + 0.4 * numpy.sin(2 * numpy.pi * 2.3 * time)
    return (0.2 * sound * fade + 0.01 * random.standard_normal(time.size)).astype(numpy.float32)


@pytest.mark.parametrize(
    "options",
    [{}, {"feature_size": 128}, {"chunk_length": 3, "feature_size": 20, "hop_length": 100, "n_fft": 210}],
    ids=str,
)
@pytest.mark.parametrize("seconds", [0.01, 2.5, 31])
def test_spectrograms_equal_whispers_extractor(dump, tmp_path, options, seconds):
    extractor = transformers.WhisperFeatureExtractor(**options)
    extractor.save_pretrained(tmp_path)
    held = write_wav(tmp_path / "in.wav", speech(seconds))
    theirs = extractor(held, sampling_rate=RATE, return_tensors="np")["input_features"]
    ours = dump.ask(tmp_path / "in.wav", folder=str(tmp_path))
    assert ours.shape == theirs.shape
    numpy.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_files_decode_to_what_was_written(dump, tmp_path, width, channels):
    sound = numpy.stack([speech(0.3, seed) for seed in range(channels)])
    held = write_wav(tmp_path / "in.wav", sound if channels > 1 else sound[0], width=width)
    theirs = held.mean(axis=0) if channels > 1 else held
    numpy.testing.assert_array_equal(dump.ask(tmp_path / "in.wav", rate=RATE), theirs)


@pytest.mark.parametrize("seconds", [0.03, 1.0, 7.3])
@pytest.mark.parametrize("normalize", [True, False])
def test_samples_equal_wav2vec2s_extractor(dump, tmp_path, seconds, normalize):
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=normalize, return_attention_mask=True)
    extractor.save_pretrained(tmp_path)
    held = write_wav(tmp_path / "in.wav", speech(seconds) + 0.05)
    theirs = extractor(held, sampling_rate=RATE, return_tensors="np")["input_values"]
    ours = dump.ask(tmp_path / "in.wav", folder=str(tmp_path))
    numpy.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_mel_bins": 11, "feature_size": 11},
        {"do_ceptral_normalize": False},
        {"normalize_means": False},
        {"normalize_vars": False},
        {"sampling_rate": 8000, "num_mel_bins": 23, "feature_size": 23},
    ],
    ids=str,
)
@pytest.mark.parametrize("seconds", [0.06, 2.5])
def test_filter_banks_equal_speech2texts_extractor(dump, tmp_path, options, seconds):
    extractor = transformers.Speech2TextFeatureExtractor(**options)
    assert not transformers.utils.is_speech_available(), "with torchaudio another implementation would be compared"
    extractor.save_pretrained(tmp_path)
    rate = extractor.sampling_rate
    held = write_wav(tmp_path / "in.wav", speech(seconds), rate)
    theirs = extractor(held, sampling_rate=rate, return_tensors="np")["input_features"]
    ours = dump.ask(tmp_path / "in.wav", folder=str(tmp_path))
    assert ours.shape == theirs.shape
    numpy.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
