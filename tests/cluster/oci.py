#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write an OCI image archive that `ctr images import` takes, with no registry and no builder.

oci.py NAME OUT.tar --layer DIR_OR_TAR ... [--entrypoint JSON] [--env K=V ...] [--user U] [--workdir D]
A directory becomes one uncompressed layer with root ownership and fixed times, so the same contents have the same
digest; a tar is taken as is, and its digest is read from TAR.sha256 beside it when that is newer.
oci.py --pack DIR OUT.tar only writes such a layer and its digest.
oci.py --archive LAYOUT NAME OUT.tar makes such an archive of an OCI layout that a builder has written.
oci.py --size ARCHIVE.tar prints the bytes of each layer and their sum.
oci.py --without ARCHIVE.tar copies an archive to the output less the blobs whose digests (sha256:...) are on the input.
"""

import argparse
import hashlib
import io
import json
import os
import platform
import sys
import tarfile
import tempfile

INDEX = "application/vnd.oci.image."
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class Digesting:
    """A file for writing that knows the sha256 of what went through it, so that a layer is read only once."""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.sha = hashlib.sha256()

    def write(self, data):
        self.sha.update(data)
        return self.file.write(data)


def pack(directory, out):
    """Write `directory` as a layer and its digest beside it; the digest is returned."""

    def clean(info):
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = 0
        return info

    sink = Digesting(out)
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1 << 20) as tar:
        tar.copybufsize = 1 << 20
        for name in sorted(os.listdir(directory)):
            tar.add(os.path.join(directory, name), name, filter=clean)
    sink.file.close()
    with open(out + ".sha256", "w") as f:
        f.write(sink.sha.hexdigest())
    return sink.sha.hexdigest()


def digest(path):
    """The sha256 of a layer, remembered beside it."""
    note = path + ".sha256"
    if os.path.exists(note) and os.path.getmtime(note) >= os.path.getmtime(path):
        return open(note).read()
    sha = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


def write_image(a):
    with (
        tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(a.out))) as tmp,
        tarfile.open(a.out, "w", format=tarfile.PAX_FORMAT) as tar,
    ):
        tar.copybufsize = 1 << 20

        def put(name, data):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))

        def blob(value, media):
            data = json.dumps(value, sort_keys=True).encode()
            sha = hashlib.sha256(data).hexdigest()
            put("blobs/sha256/" + sha, data)
            return {"mediaType": INDEX + media, "digest": "sha256:" + sha, "size": len(data)}

        layers = []
        for i, path in enumerate(a.layer):
            sha = None
            if os.path.isdir(path):
                path, source = os.path.join(tmp, f"{i}.tar"), path
                sha = pack(source, path)
            sha = sha or digest(path)
            tar.add(path, "blobs/sha256/" + sha)
            layers.append(
                {"mediaType": INDEX + "layer.v1.tar", "digest": "sha256:" + sha, "size": os.path.getsize(path)}
            )
        config = {
            "Entrypoint": json.loads(a.entrypoint) or None,
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"] + a.env,
            "User": a.user,
            "WorkingDir": a.workdir,
        }
        machine = platform.machine()
        image = blob(
            {
                "architecture": MACHINES.get(machine, machine),
                "os": "linux",
                "config": {k: v for k, v in config.items() if v},
                "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
            },
            "config.v1+json",
        )
        manifest = blob(
            {"schemaVersion": 2, "mediaType": INDEX + "manifest.v1+json", "config": image, "layers": layers},
            "manifest.v1+json",
        )
        manifest["annotations"] = {"io.containerd.image.name": a.name}
        put("index.json", json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode())
        put("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')


def archive_layout(layout, name, out):
    """Write the one image of an OCI layout under `name`: members are sorted and have no time and no owner."""

    def clean(info):
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o644
        return info

    with open(os.path.join(layout, "index.json")) as f:
        index = json.load(f)
    if len(index["manifests"]) != 1:
        sys.exit(f"oci.py: {layout} has {len(index['manifests'])} images, expected one")
    index["manifests"][0]["annotations"] = {"io.containerd.image.name": name}
    data = json.dumps(index, sort_keys=True).encode()
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.copybufsize = 1 << 20
        blobs = os.path.join("blobs", "sha256")
        for blob in sorted(os.listdir(os.path.join(layout, blobs))):
            tar.add(os.path.join(layout, blobs, blob), os.path.join(blobs, blob), filter=clean)
        for member, text in (("index.json", data), ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')):
            info = tarfile.TarInfo(member)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))


def read_image(archive):
    """The manifest and the configuration of an archive's first image."""
    with tarfile.open(archive) as tar:

        def blob(what):
            return json.load(tar.extractfile("blobs/" + what["digest"].replace(":", "/")))

        manifest = blob(json.load(tar.extractfile("index.json"))["manifests"][0])
        return manifest, blob(manifest["config"])


def print_size(archive):
    sizes = [layer["size"] for layer in read_image(archive)[0]["layers"]]
    print(f"{sum(sizes) / 1e6:.1f} MB in layers of {', '.join(f'{size / 1e6:.1f}' for size in sizes)}")


def copy_without(archive, known, out):
    """Copy an image archive less the blobs in `known`: what a store already has need not be sent again."""
    with tarfile.open(archive) as source, tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for member in source:
            if "sha256:" + os.path.basename(member.name) not in known:
                tar.addfile(member, source.extractfile(member))


def main():
    if sys.argv[1:2] == ["--without"]:
        copy_without(sys.argv[2], set(sys.stdin.read().split()), sys.stdout.buffer)
        return
    if sys.argv[1:2] == ["--archive"]:
        archive_layout(*sys.argv[2:5])
        return
    if sys.argv[1:2] == ["--size"]:
        print_size(sys.argv[2])
        return
    if sys.argv[1:2] == ["--pack"]:
        pack(*sys.argv[2:4])
        return
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name")
    p.add_argument("out")
    p.add_argument("--layer", action="append", default=[])
    p.add_argument("--entrypoint", default="[]")
    p.add_argument("--env", action="append", default=[])
    p.add_argument("--user", default="")
    p.add_argument("--workdir", default="")
    write_image(p.parse_args())


if __name__ == "__main__":
    main()
