# SPDX-License-Identifier: Apache-2.0
"""Reads the images of the Dockerfile, from the archives that `make image` writes, and those of tests/cluster/image.sh.

PM_IMAGES names the folder of the archives (default build/images), PM_BUILD that of the binaries (default
build/release), and PM_IMAGE_TARGETS the targets of the Dockerfile (default "worker controller").
"""

import io
import os
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "cluster"))

from cluster import image  # noqa: E402
from oci import read_image  # noqa: E402

IMAGES = Path(os.environ.get("PM_IMAGES", ROOT / "build" / "images"))
BUILD = Path(os.environ.get("PM_BUILD", ROOT / "build" / "release"))
TARGETS = os.environ.get("PM_IMAGE_TARGETS", "worker controller").split()


class Image:
    """What an archive holds: `config`, `layers` in bytes, and `files`, {absolute path: TarInfo} over all layers."""

    def __init__(self, archive):
        self.archive = Path(archive)
        manifest, self.image = read_image(archive)
        self.config = self.image["config"]
        self.layers = [layer["size"] for layer in manifest["layers"]]
        self.files, self._members = {}, {}
        self._tar = tarfile.open(archive)
        for layer in manifest["layers"]:
            blob = self._tar.extractfile("blobs/" + layer["digest"].replace(":", "/"))
            inner = tarfile.open(fileobj=blob)
            for member in inner:
                path = "/" + member.name.removeprefix("./").strip("/")
                self.files[path], self._members[path] = member, inner

    def read(self, path):
        """Returns the bytes of a regular file."""
        return self._members[path].extractfile(self.files[path]).read()

    def extract(self, folder):
        """Writes all layers into a folder."""
        manifest, _ = read_image(self.archive)
        for layer in manifest["layers"]:
            blob = self._tar.extractfile("blobs/" + layer["digest"].replace(":", "/")).read()
            with tarfile.open(fileobj=io.BytesIO(blob)) as inner:
                inner.extractall(folder)

    def regular(self):
        return {path for path, member in self.files.items() if member.isreg()}


@pytest.fixture(scope="session", params=TARGETS)
def target(request):
    return request.param


@pytest.fixture(scope="session")
def built(target):
    """Returns the image of the Dockerfile."""
    archive = IMAGES / f"{target}.tar"
    assert archive.is_file(), f"no {archive}: run `make image`"
    return Image(archive)


@pytest.fixture(scope="session")
def assembled(target, tmp_path_factory):
    """Provides the image that tests/cluster/image.sh makes of this machine's build."""
    if target == "worker-cuda":
        pytest.skip("this machine's build has no CUDA")
    archive = image(target, BUILD, tmp_path_factory.mktemp("assembled") / f"{target}.tar")
    yield Image(archive)
    archive.unlink()
