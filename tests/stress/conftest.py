# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures of the stress tests: the duration of loads, the servers and the requests. PM_STRESS_SECONDS is the
duration of each load in seconds (default 4; a thorough run takes 120).
"""

import functools
import os
import pathlib
import sys
import time

import pytest

sys.path.append(
    str(pathlib.Path(__file__).resolve().parents[1] / "parity")
)  # the program under test and the drawing of parameters

import audio_models
import serving
import small_models
from clients import ask_alone

SECONDS = float(os.environ.get("PM_STRESS_SECONDS", 4))
SHORT = 36  # KV blocks, fewer than 64 clients want: some wait, some give theirs back and begin again
KINDS = {
    "decoder": (small_models.decoder, small_models.of_decoder, {"kv_blocks": SHORT}),
    "encoder": (small_models.encoder, small_models.of_encoder, {}),
    "classifier": (
        lambda folder: small_models.encoder(
            folder, "ForSequenceClassification", id2label={0: "sad", 1: "merry", 2: "calm"}
        ),
        small_models.of_classifier,
        {},
    ),
    "long": (
        lambda folder: small_models.decoder(folder, positions=4096),
        small_models.of_decoder,
        {},
    ),  # room for streams of seconds
    "encoder-decoder": (small_models.encoder_decoder, small_models.of_encoder_decoder, {"kv_blocks": SHORT}),
    "agent": (small_models.agent, small_models.of_agent, {}),
    "listener": (audio_models.listener, lambda: audio_models.of_audio(writes=False), {}),
    "writer": (audio_models.writer, lambda: audio_models.of_audio(writes=True), {"kv_blocks": 3 * SHORT}),
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """folders(kind): its checkpoint, made once."""
    root = tmp_path_factory.mktemp("models")
    return functools.cache(lambda kind: KINDS[kind][0](root / kind))


@pytest.fixture
def serve(folders):
    """Returns serve(kind, *options), which starts a server; it is stopped and checked at the end of the test."""
    servers = []

    def start(kind, *options, **more):
        if "--max-queue" not in options:
            options += ("--max-queue", 1024)  # 64 clients with three prompts each are not too many
        servers.append(serving.Server(folders(kind), *options, **{**KINDS[kind][2], **more}))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()
    assert not [server.left_behind() for server in servers if server.left_behind()]


@pytest.fixture(scope="session")
def expected_of():
    """Returns expected_of(server, kind) -> (requests, the reply of each to a single client), requested once for each
    kind.
    """
    known = {}

    def ask(server, kind):
        if kind not in known:
            asks = KINDS[kind][1]()
            known[kind] = asks, {one.name: ask_alone(server.port, one) for one in asks}
        return known[kind]

    return ask


def pytest_sessionstart(session):
    session.started = time.monotonic()


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(
        f"stress took {time.monotonic() - terminalreporter._session.started:.0f} s with loads of {SECONDS:g} s"
    )
