# SPDX-License-Identifier: Apache-2.0
"""The local hub behaves like the real one: huggingface_hub's own client downloads from it."""

import os
import subprocess
import sys

import pytest
from conftest import EXAMPLE, TOKEN

SCRIPT = """
import sys
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError
what, cache, token = sys.argv[1:4]
try:
    info = HfApi().model_info("org/name", revision=what, files_metadata=True, token=token or False)
    for file in info.siblings:
        assert file.size >= 0 and (file.lfs is None or file.lfs.sha256), file
    print(snapshot_download("org/name", revision=what, cache_dir=cache, token=token or False))
except (GatedRepoError, RevisionNotFoundError, RepositoryNotFoundError) as error:
    print(type(error).__name__)
"""


def download(hub, cache, revision="main", token=""):
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    environment |= {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HOME": str(cache / "home"),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, revision, str(cache), token],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def test_huggingface_hubs_client_downloads_a_snapshot(hub, tmp_path):
    model = hub.add("org/name", EXAMPLE)
    folder = download(hub, tmp_path)
    assert folder.endswith(f"models--org--name/snapshots/{model.commit}")
    for path, data in model.files.items():
        assert open(f"{folder}/{path}", "rb").read() == data
    large = [request for request in hub.requests if request.host == "cdn"]
    assert large and all("authorization" not in request.headers for request in large)


@pytest.mark.parametrize(
    "how, revision, token, error",
    [
        ({}, "v9", "", "RevisionNotFoundError"),
        ({"token": TOKEN}, "main", "", "RepositoryNotFoundError"),
        ({"gated": True}, "main", TOKEN, "GatedRepoError"),
    ],
)
def test_huggingface_hubs_client_understands_the_refusals(hub, tmp_path, how, revision, token, error):
    hub.add("org/name", {"config.json": b"{}"}, **how)
    assert download(hub, tmp_path, revision, token) == error
