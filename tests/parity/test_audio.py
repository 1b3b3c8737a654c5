# SPDX-License-Identifier: Apache-2.0
"""Audio as an input: what is refused, stages of a pipeline, and requests of several lengths that run together."""

import concurrent.futures

import compare
import fixtures
import inputs
import numpy
import oracle
import pytest
from cases import BY_NAME
from safetensors.numpy import save_file
from server import Server
from test_forward import places

LISTENER, SPEECH = BY_NAME["Wav2Vec2ForCTC-all"], BY_NAME["Speech2TextForConditionalGeneration-all"]
_SAMPLES = numpy.zeros((2, 100), numpy.float32)
_BANKS = numpy.zeros((2, 9, 11), numpy.float32)
_START = numpy.full((2, 1), 2)


def _mask(*rows):
    return numpy.array([[1] * ones + [0] * (100 - ones) for ones in rows])


@pytest.mark.parametrize(
    "case, given, words",
    [
        (LISTENER, {"attention_mask": _mask(3, 4)}, 'no tensor "input_values"'),
        (LISTENER, {"input_values": _SAMPLES.astype(numpy.int64)}, "input_values has integers, expected fp32"),
        (LISTENER, {"input_values": _SAMPLES[0]}, "input_values has the shape [100], expected [rows, samples]"),
        (LISTENER, {"input_values": _SAMPLES[:, :0]}, "expected [rows, samples]"),
        (LISTENER, {"input_values": _SAMPLES[:, :22]}, "row 0 of input_values has 22 samples"),
        (LISTENER, {"input_values": _SAMPLES[:, :22]}, "Wav2Vec2ForCTC needs at least 23"),
        (
            LISTENER,
            {"input_values": _SAMPLES, "attention_mask": _mask(100, 22)},
            "row 1 of input_values has 22 samples",
        ),
        (LISTENER, {"input_values": _SAMPLES, "attention_mask": _mask(100, 0)}, "row 1 of attention_mask is all zero"),
        (
            LISTENER,
            {"input_values": _SAMPLES, "attention_mask": _mask(50, 60)[:, ::-1].copy()},
            "row 0 of attention_mask has a 1 behind a 0",
        ),
        (LISTENER, {"input_values": _SAMPLES, "attention_mask": _mask(50)}, "attention_mask has the shape [1, 100]"),
        (LISTENER, {"input_values": _SAMPLES, "input_ids": _START}, '"input_ids" is not an input of Wav2Vec2ForCTC'),
        (SPEECH, {"input_features": _BANKS[..., :10].copy()}, "expected [rows, frames, 11]"),
        (SPEECH, {"input_features": _BANKS}, 'no tensor "decoder_input_ids"'),
        (SPEECH, {"input_features": _BANKS, "decoder_input_ids": _START[:1]}, "has 1 rows, the encoder's input has 2"),
    ],
)
def test_audio_that_a_model_cannot_read_is_refused(runner, tmp_path, case, given, words):
    save_file(given, tmp_path / "in.safetensors")
    answer = runner.batch.ask(
        {
            "model": str(fixtures.checkpoint(case)),
            "ranks": 2,
            "sizes": "tensor=2",
            "inputs": str(tmp_path / "in.safetensors"),
            "outputs": str(tmp_path / "out.safetensors"),
        }
    )
    assert not answer["ok"] and words in answer["error"], answer


def test_rows_too_short_for_a_standard_deviation_are_refused(runner, tmp_path):
    save_file({"input_values": numpy.zeros((1, 90), numpy.float32)}, tmp_path / "in.safetensors")
    answer = runner.batch.ask(
        {
            "model": str(fixtures.checkpoint(BY_NAME["Wav2Vec2ForXVector-speaker"])),
            "ranks": 1,
            "inputs": str(tmp_path / "in.safetensors"),
            "outputs": str(tmp_path / "out.safetensors"),
        }
    )
    assert not answer["ok"] and "row 0 has 5 frames of audio, Wav2Vec2ForXVector needs at least 7" in answer["error"]


@pytest.mark.parametrize("sizes", ["pipeline=2", "pipeline=2,tensor=2"])
@pytest.mark.parametrize(
    "name",
    ["Wav2Vec2ForXVector-mixed-speaker", "Wav2Vec2ForPreTraining-codes", "Wav2Vec2Model-stable", SPEECH.name],
)
def test_stages_hand_on_the_states_and_frames_that_heads_read(runner, name, sizes):
    case = BY_NAME[name]
    given = inputs.make(case, "right")
    ranks = 4 if "tensor" in sizes else 2
    compare.tensors(
        runner.forward(fixtures.checkpoint(case), ranks, given, sizes=sizes),
        oracle.forward(case, given),
        places(case, given),
    )


def test_requests_of_several_lengths_do_not_change_each_other(runner, tmp_path):
    """Each is convolved with its own padding, whichever run together."""
    random = numpy.random.default_rng(7)
    batches = []
    for lengths in [(40, 275), (531,), (23, 90, 64), (260,), (100, 400), (77,), (31, 31), (200,)]:
        values = random.standard_normal((len(lengths), max(lengths))).astype(numpy.float32)
        mask = (numpy.arange(max(lengths)) < numpy.array(lengths)[:, None]).astype(numpy.int64)
        batches.append({"input_values": values, "attention_mask": mask})
    folder = fixtures.checkpoint(LISTENER)
    alone = [runner.forward(folder, 2, given)["logits"] for given in batches]
    (tmp_path / "model").symlink_to(folder)
    server = Server(tmp_path / "model")
    try:
        assert server.get("/").json()["task"] == "transcribe"

        def ask(given):
            body = {"inputs": {name: array.tolist() for name, array in given.items()}}
            answer = server.ask("/forward", body)
            return numpy.array(answer["outputs"]["logits"]["data"], numpy.float32)

        with concurrent.futures.ThreadPoolExecutor(len(batches)) as pool:
            for _ in range(3):
                for ours, theirs in zip(pool.map(ask, batches), alone, strict=True):
                    compare.tensors({"logits": ours}, {"logits": theirs})
    finally:
        server.close()
