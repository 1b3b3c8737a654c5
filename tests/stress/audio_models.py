# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints that transcribe, by frames and by generation, and requests with audio for them."""

import base64
import io
import json
import random
import wave

import fixtures
import numpy
import torch
import transformers
from clients import Ask
from small_models import SEED, byte_pairs

RATE = 16000
LETTERS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVKXJQZ'"]
ENCODER = {
    "hidden_size": 30,
    "num_attention_heads": 5,
    "num_hidden_layers": 2,
    "intermediate_size": 37,
    "conv_dim": [12, 14, 10],
    "conv_kernel": [10, 8, 4],
    "conv_stride": [8, 5, 4],
    "num_conv_pos_embeddings": 6,
    "num_conv_pos_embedding_groups": 3,
    "do_stable_layer_norm": True,
    "feat_extract_norm": "layer",
}


def _saved(folder, model):
    torch.manual_seed(SEED)
    fixtures.refill(model.eval(), SEED)
    model.save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    return folder


def listener(folder):
    """Frames to letters (CTC)."""
    config = transformers.Wav2Vec2Config(**ENCODER, vocab_size=len(LETTERS))
    _saved(folder, transformers.Wav2Vec2ForCTC(config))
    (folder / "vocab.json").write_text(json.dumps({letter: i for i, letter in enumerate(LETTERS)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Wav2Vec2CTCTokenizer"}))
    return folder


def writer(folder):
    """An encoder of audio and a decoder that generates."""
    decoder = transformers.GPT2Config(
        vocab_size=300,
        n_embd=20,
        n_head=5,
        n_layer=2,
        n_positions=512,
        bos_token_id=1,
        eos_token_id=0,
        is_decoder=True,
        add_cross_attention=True,
    )
    config = transformers.SpeechEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.Wav2Vec2Config(**ENCODER), decoder, decoder_start_token_id=1, pad_token_id=0, eos_token_id=0
    )
    model = transformers.SpeechEncoderDecoderModel(config)
    model.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=1, pad_token_id=0, eos_token_id=0, max_new_tokens=40
    )
    byte_pairs().save_pretrained(_saved(folder, model))
    return folder


def sound(rng):
    """A file with tones that glide, in base64."""
    time = numpy.arange(int(rng.uniform(0.05, 1.2) * RATE)) / RATE
    tones = [numpy.sin(2 * numpy.pi * rng.uniform(100, 3000) * time * (1 + 0.1 * time)) for _ in range(3)]
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((sum(tones) * 9000).astype("<i2").tobytes())
    return base64.b64encode(out.getvalue()).decode()


def of_audio(writes):
    """Requests of every form; those of a writer also for longer answers."""
    rng = random.Random(SEED)
    ways = [{}, {"response_format": "verbose_json"}, {"chunk_length_s": 0.4}]
    ways += [{"max_new_tokens": 90}, {"response_format": "verbose_json", "language": "de"}] if writes else []
    if not writes:
        ways += [{"response_format": "verbose_json", "timestamp_granularities": ["word", "segment"]}]
    return [
        Ask(f"transcription-{i}", "/v1/audio/transcriptions", {"inputs": sound(rng), **ways[i % len(ways)]})
        for i in range(24)
    ]
