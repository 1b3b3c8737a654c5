# SPDX-License-Identifier: Apache-2.0
"""Speech by a decoder whose prompt has the language, the task and whether to write timestamps: over HTTP, texts,
languages and segments equal those of transformers' generate with the same features.
"""

import json

import numpy
import openai
import pytest
import tokenizers
import torch
import transformers
from fixtures import refill
from server import Server
from test_audio_files import RATE, speech, write_wav
from test_tokenizers import written

SECONDS, STEPS = 3, 150
TOKENS = ("startoftranscript", "de", "en", "translate", "transcribe", "startofprev", "nospeech", "notimestamps")
NEW_TOKENS = 40


class Speaker:
    """A random Whisper of windows of three seconds, with a tokenizer of its own, and a server of it."""

    def __init__(self, folder, ranks=2, seed=3, **generation):
        folder.mkdir()
        plain = written("gpt2", folder)
        backend = tokenizers.Tokenizer.from_str(plain.backend_tokenizer.to_str())
        backend.add_special_tokens([f"<|{name}|>" for name in TOKENS])
        times = [f"<|{step * 0.02:.2f}|>" for step in range(STEPS + 1)]
        backend.add_tokens([tokenizers.AddedToken(time, special=False) for time in times])
        backend.save(str(folder / "tokenizer.json"))
        for name in ("vocab.json", "merges.txt"):
            (folder / name).unlink()
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
        self.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        self.ids = {name: backend.token_to_id(f"<|{name}|>") for name in TOKENS}
        end = backend.token_to_id("<|endoftext|>")
        torch.manual_seed(seed)
        self.model = transformers.WhisperForConditionalGeneration(
            transformers.WhisperConfig(
                vocab_size=backend.get_vocab_size(),
                d_model=32,
                encoder_attention_heads=4,
                decoder_attention_heads=4,
                encoder_layers=2,
                decoder_layers=2,
                encoder_ffn_dim=48,
                decoder_ffn_dim=48,
                max_source_positions=STEPS,
                max_target_positions=64,
                num_mel_bins=20,
                bos_token_id=end,
                eos_token_id=end,
                pad_token_id=end,
                decoder_start_token_id=self.ids["startoftranscript"],
            )
        ).eval()
        refill(self.model, seed)
        settings = {
            "is_multilingual": True,
            "lang_to_id": {f"<|{name}|>": self.ids[name] for name in ("de", "en")},
            "task_to_id": {name: self.ids[name] for name in ("translate", "transcribe")},
            "no_timestamps_token_id": self.ids["notimestamps"],
            "prev_sot_token_id": self.ids["startofprev"],
            "max_initial_timestamp_index": 20,
            "suppress_tokens": [5, 9, *(self.ids[name] for name in TOKENS[:-1])],
            "begin_suppress_tokens": [11, end],
            "max_new_tokens": NEW_TOKENS,
            "bos_token_id": end,
            "eos_token_id": end,
            "pad_token_id": end,
            "decoder_start_token_id": self.ids["startoftranscript"],
        }
        settings = {name: value for name, value in (settings | generation).items() if value is not None}
        self.model.generation_config = transformers.GenerationConfig(**settings)
        self.extractor = transformers.WhisperFeatureExtractor(feature_size=20, chunk_length=SECONDS)
        self.model.save_pretrained(folder)
        self.extractor.save_pretrained(folder)
        self.folder, self.server = folder, Server(folder, ranks=ranks)
        self.client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0, timeout=120
        )

    def theirs(self, samples, times=False, **options):
        """transformers' generate on features that are padded for a window without times, and as long as the audio
        with times. Without times there is one window: a random model writes times nevertheless, by which generate would
        begin others."""
        padding = {"padding": "longest", "truncation": False} if times else {}
        options |= {} if times else {"force_unique_generate_call": True}
        features = self.extractor(samples, sampling_rate=RATE, return_tensors="pt", **padding)["input_features"]
        with torch.no_grad():
            if not options.get("language") and hasattr(self.model.generation_config, "lang_to_id"):
                # as generate detects it, of the window with which it begins
                window = torch.nn.functional.pad(features, (0, max(0, 2 * STEPS - features.shape[-1])))
                found = self.model.detect_language(window[..., : 2 * STEPS])[0]
                options["language"] = self.tokenizer.convert_ids_to_tokens(int(found))[2:-2]
            made = self.model.generate(features, return_timestamps=times, return_segments=times, **options)
        if not times:  # with the tokens of the beginning
            made = made[:, made[0].tolist().index(self.ids["startoftranscript"]) :]
        return made, options.get("language")

    def spelled(self, ids):
        kept = [int(i) for i in torch.as_tensor(ids).flatten() if i < self.ids["notimestamps"]]
        return self.tokenizer.decode(kept, skip_special_tokens=True)

    def text(self, ids):
        return self.spelled(ids).strip(" \t\r\n\v\f")

    def segments(self, made):
        return [(float(s["start"]), float(s["end"]), self.spelled(s["tokens"])) for s in made["segments"][0]]

    def ours(self, path, route="transcriptions", **options):
        with open(path, "rb") as file:
            return getattr(self.client.audio, route).create(model=self.folder.name, file=file, **options)

    def refused(self, route, path, **fields):
        reply = self.server.post(f"/v1/audio/{route}", files={"file": ("in.wav", path.read_bytes())}, data=fields)
        return reply.status_code, reply.json()["error"]["message"]


@pytest.fixture(scope="module")
def speaker(tmp_path_factory):
    made = Speaker(tmp_path_factory.mktemp("speech") / "speaker")
    yield made
    made.server.close()


def spoken(ours):
    return [(pytest.approx(s.start), pytest.approx(s.end), s.text) for s in ours.segments]


@pytest.mark.parametrize("seconds", [0.4, 2.2, 3.0])
@pytest.mark.parametrize("language", [None, "de", "German", "en"])
def test_a_window_without_times_equals_transformers(speaker, tmp_path, seconds, language):
    held = write_wav(tmp_path / "in.wav", speech(seconds, int(seconds * 10)))
    code = {"German": "de"}.get(language, language)
    made, found = speaker.theirs(held, language=code, task="transcribe")
    ours = speaker.ours(tmp_path / "in.wav", **({"language": language} if language else {}))
    assert ours.text == speaker.text(made) and ours.text
    verbose = speaker.ours(tmp_path / "in.wav", response_format="verbose_json", language=found)
    assert verbose.language == {"de": "german", "en": "english"}[found]


@pytest.mark.parametrize("seconds", [0.5, 2.9, 7.3])
@pytest.mark.parametrize("seed", range(3))
def test_segments_and_their_times_equal_transformers(speaker, tmp_path, seconds, seed):
    held = write_wav(tmp_path / "in.wav", speech(seconds, seed))
    made, found = speaker.theirs(held, times=True, task="transcribe")
    ours = speaker.ours(tmp_path / "in.wav", response_format="verbose_json")
    theirs = speaker.segments(made)
    assert spoken(ours) == theirs and len(theirs) > (2 if seconds > 3 else 0)
    assert ours.text == speaker.text(torch.cat([s["tokens"] for s in made["segments"][0]]))
    assert ours.language == {"de": "german", "en": "english"}[found] and ours.duration == pytest.approx(seconds)
    assert all(s.avg_logprob < 0 for s in ours.segments)
    if seconds > SECONDS:  # which needs times, whatever the form of the reply
        assert speaker.ours(tmp_path / "in.wav").text == ours.text


def test_a_translation_is_another_task(speaker, tmp_path):
    held = write_wav(tmp_path / "in.wav", speech(2.5, 5))
    made, _ = speaker.theirs(held, language="de", task="translate")
    ours = speaker.ours(tmp_path / "in.wav", "translations", extra_body={"language": "de"})
    assert ours.text == speaker.text(made) != speaker.ours(tmp_path / "in.wav", language="de").text
    verbose = speaker.ours(tmp_path / "in.wav", "translations", response_format="verbose_json")
    assert verbose.task == "translate"


@pytest.mark.parametrize("times", [False, True])
def test_a_prompt_stands_before_every_window(speaker, tmp_path, times):
    held = write_wav(tmp_path / "in.wav", speech(4.5 if times else 2.5, 6))
    prompt = "what was said before " * 20  # of which the last 31 tokens are read
    tokens = speaker.tokenizer.encode(" " + prompt.strip(), add_special_tokens=False)
    assert len(tokens) > 31
    ids = torch.tensor([speaker.ids["startofprev"], *tokens[-31:]])
    with_prompt = {"max_new_tokens": 20}
    made, _ = speaker.theirs(held, times, language="de", task="transcribe", prompt_ids=ids, **with_prompt)
    form = "verbose_json" if times else "json"
    ours = speaker.ours(tmp_path / "in.wav", language="de", prompt=prompt, response_format=form, extra_body=with_prompt)
    if times:
        assert spoken(ours) == speaker.segments(made)
    else:
        assert ours.text == speaker.text(made)
    assert ours.text != speaker.ours(tmp_path / "in.wav", language="de", extra_body=with_prompt).text


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_beams_and_one_language(tmp_path, ranks):
    """A checkpoint of one language has no tokens of language and task; without timestamps it searches with beams."""
    made = Speaker(
        tmp_path / "english",
        ranks,
        seed=8,
        is_multilingual=False,
        lang_to_id=None,
        task_to_id=None,
        prev_sot_token_id=None,
        num_beams=3,
    )
    try:
        held = write_wav(tmp_path / "in.wav", speech(2.4, 9))
        ours = made.ours(tmp_path / "in.wav", language="en")
        assert ours.text == made.text(made.theirs(held)[0])
        theirs = made.segments(made.theirs(held, times=True, num_beams=1)[0])
        verbose = made.ours(tmp_path / "in.wav", response_format="verbose_json")
        assert spoken(verbose) == theirs and verbose.language == "english"
        assert "reads audio only" in made.refused("transcriptions", tmp_path / "in.wav", prompt="Once")[1]
        assert made.refused("transcriptions", tmp_path / "in.wav", language="fr")[0] == 400
        assert made.refused("translations", tmp_path / "in.wav")[0] == 404
    finally:
        made.server.close()


def test_subtitles_have_a_cue_for_each_segment(speaker, tmp_path):
    write_wav(tmp_path / "in.wav", speech(7.3, 1))
    verbose = speaker.ours(tmp_path / "in.wav", response_format="verbose_json")
    srt = speaker.ours(tmp_path / "in.wav", response_format="srt")
    assert srt.count(" --> ") == len(verbose.segments)
    assert speaker.ours(tmp_path / "in.wav", response_format="vtt").startswith("WEBVTT\n\n00:00:00.")


def test_a_temperature_samples(speaker, tmp_path):
    write_wav(tmp_path / "in.wav", speech(2.5, 2))
    texts = {speaker.ours(tmp_path / "in.wav", language="de", temperature=1.5).text for _ in range(4)}
    assert len(texts) > 1


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"language": "klingon"}, "one of de, en"),
        ({"language": "fr"}, "one of de, en"),
        ({"chunk_length_s": "2"}, "chunk_length_s"),
        ({"stride_length_s": "1"}, "stride_length_s"),
        ({"stream": "true"}, "stream"),
        ({"max_new_tokens": "64"}, "max_new_tokens"),
        ({"timestamp_granularities[]": "word", "response_format": "verbose_json"}, "no times of words"),
    ],
    ids=str,
)
def test_what_cannot_be_transcribed_is_refused(speaker, tmp_path, fields, words):
    write_wav(tmp_path / "in.wav", speech(0.5))
    status, message = speaker.refused("transcriptions", tmp_path / "in.wav", **fields)
    assert status == 400 and words in message, message


def test_audio_that_is_too_short_for_times_is_refused(speaker, tmp_path):
    write_wav(tmp_path / "in.wav", numpy.full(150, 0.1, numpy.float32))
    assert speaker.ours(tmp_path / "in.wav", language="de").text  # a window is padded with silence
    status, message = speaker.refused("transcriptions", tmp_path / "in.wav", response_format="srt", language="de")
    assert status == 400 and "more than 200" in message, message


def test_windows_of_another_length_are_refused(speaker):
    features = numpy.zeros((1, 20, 299), numpy.float32)
    body = {"inputs": {"input_features": features.tolist(), "decoder_input_ids": [[speaker.ids["startoftranscript"]]]}}
    reply = speaker.server.post("/forward", body)
    assert reply.status_code == 400 and "reads exactly 300" in reply.json()["error"]["message"], reply.text
