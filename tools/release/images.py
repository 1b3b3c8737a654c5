# SPDX-License-Identifier: Apache-2.0
"""Archives of images: reads what `make image` has written, and writes it as a release has it."""

import io
import json
import tarfile

from chart import encoded


class Archive:
    """An OCI image archive with one image. `manifest`, `config` and `digest` are those of the image."""

    def __init__(self, path):
        self._tar = tarfile.open(path)
        index = json.loads(self._tar.extractfile("index.json").read())
        if len(index["manifests"]) != 1:
            raise ValueError(f"{path} has {len(index['manifests'])} images, expected one")
        self.digest = index["manifests"][0]["digest"]
        self.manifest = json.loads(self.blob(self.digest))
        self.config = json.loads(self.blob(self.manifest["config"]["digest"]))

    def blob(self, digest):
        """Returns the bytes of a blob by its digest, "sha256:..."."""
        return self._tar.extractfile("blobs/" + digest.replace(":", "/")).read()

    def files(self, below):
        """Yields the bytes of each file whose path, without a slash in front, begins with `below`."""
        for layer in self.manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(self.blob(layer["digest"]))) as files:
                for member in files:
                    if member.isreg() and member.name.lstrip("./").startswith(below):
                        yield files.extractfile(member).read()

    def file(self, path):
        """Returns the bytes of one file of the image."""
        [found] = self.files(path)
        return found

    def records(self):
        """Yields the text of each record of a Debian package in the image (/var/lib/dpkg/status.d)."""
        for record in self.files("var/lib/dpkg/status.d/"):
            yield record.decode()

    def write(self, out, tag):
        """Writes the archive under a tag instead of the name that the build has for it. The digest stays."""
        entry = {
            "mediaType": self.manifest["mediaType"],
            "digest": self.digest,
            "size": len(self.blob(self.digest)),
            "platform": {key: self.config[key] for key in ("architecture", "os")},
            "annotations": {"org.opencontainers.image.ref.name": tag},
        }
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
        documents = {"index.json": encoded(index), "oci-layout": encoded({"imageLayoutVersion": "1.0.0"})}
        parts = [self.digest, self.manifest["config"]["digest"], *(one["digest"] for one in self.manifest["layers"])]
        with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as tar:
            for name, data in documents.items():
                add(tar, name, data)
            for digest in sorted(set(parts)):
                add(tar, "blobs/" + digest.replace(":", "/"), self.blob(digest))


def add(tar, name, data):
    """Adds a member that root owns and that is as old as the epoch."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), 0o644, 0
    tar.addfile(info, io.BytesIO(data))
