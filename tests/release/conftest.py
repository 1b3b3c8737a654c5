# SPDX-License-Identifier: Apache-2.0
"""Makes two releases of the images in PM_IMAGES (default build/images), whose registry is that of the test cluster: the
present version, and one that stands for the version before it."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "cluster"))

from cluster import build, extra  # noqa: E402
from oci import read_image  # noqa: E402

IMAGES = Path(os.environ.get("PM_IMAGES", ROOT / "build" / "images"))
PROGRAM = ROOT / "tools" / "release" / "release.py"
REGISTRY = "10.99.0.1:5000/parallelmodel"
TARGETS = ("worker", "controller", "kubectl-pm")
FORMER = "0.0.9"
CREATED = "1700000000"


def relabelled(archive, out, version):
    """Writes a copy of an image archive whose label names another version; so its digest is another one too."""
    with tarfile.open(archive) as source, tarfile.open(out, "w") as target:
        blobs = {one.name: source.extractfile(one).read() for one in source if one.isreg()}

        def add(name, data):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            target.addfile(info, io.BytesIO(data))

        def blob(document):
            data = json.dumps(document).encode()
            digest = hashlib.sha256(data).hexdigest()
            add(f"blobs/sha256/{digest}", data)
            return {"digest": f"sha256:{digest}", "size": len(data)}

        manifest, config = read_image(archive)
        config["config"]["Labels"]["org.opencontainers.image.version"] = version
        manifest["config"] |= blob(config)
        for layer in manifest["layers"]:
            name = "blobs/" + layer["digest"].replace(":", "/")
            add(name, blobs[name])
        index = json.loads(blobs["index.json"])
        index["manifests"][0] |= blob(manifest)
        add("index.json", json.dumps(index).encode())
        add("oci-layout", blobs["oci-layout"])


@pytest.fixture(scope="session")
def helm():
    """Returns the path of the program."""
    return build() / "bin" / "helm"


@pytest.fixture(scope="session")
def crane():
    """Returns the path of the program: a registry, and a client of registries."""
    return extra("crane")


def make_release(out, helm, *arguments, images=IMAGES, key=None):
    """Runs release.py, which may fail."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": CREATED}
    if key:
        environment["PM_SIGNING_KEY"] = str(key)
    command = [sys.executable, PROGRAM, out, "--images", images, "--registry", REGISTRY, "--helm", helm, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="session")
def key(tmp_path_factory):
    """Returns the file of a private key."""
    path = tmp_path_factory.mktemp("key") / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
    return path


@pytest.fixture(scope="session")
def release(helm, key, tmp_path_factory):
    """Returns the folder of the present release."""
    for target in TARGETS:
        assert (IMAGES / f"{target}.tar").is_file(), f"no {IMAGES}/{target}.tar: run `make image`"
    out = tmp_path_factory.mktemp("release") / "out"
    done = make_release(out, helm, key=key)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def former(helm, tmp_path_factory):
    """Returns the folder of the release before: other labels, so other digests."""
    folder = tmp_path_factory.mktemp("former")
    (folder / "images").mkdir()
    for target in TARGETS:
        relabelled(IMAGES / f"{target}.tar", folder / "images" / f"{target}.tar", FORMER)
    (folder / "changes.md").write_text(f"# Changelog\n\n## {FORMER}\nA first version.\n")
    arguments = ["--version", FORMER, "--changelog", folder / "changes.md"]
    done = make_release(folder / "out", helm, *arguments, images=folder / "images")
    assert done.returncode == 0, done.stderr
    return folder / "out"


@pytest.fixture(scope="session")
def artefacts():
    """Returns a function that reads artefacts.txt: {name: (tag, digest, file)}."""

    def read(folder):
        lines = (folder / "artefacts.txt").read_text().splitlines()
        return {name: tuple(rest) for name, *rest in map(str.split, lines)}

    return read
