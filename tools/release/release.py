#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a release: everything that an installation needs, in one folder.

release.py OUT --images DIR --registry REGISTRY [--helm PROGRAM] [--created TIME]

DIR has the archives that `make image` writes: controller.tar, worker.tar, kubectl-pm.tar and, for GPUs,
worker-cuda.tar. REGISTRY is where users will pull from, such as registry.example/parallelmodel. OUT, which must be
empty or missing, then holds, with V as the version:
  parallelmodel-controller-V.oci.tar ...     the images as OCI archives
  parallelmodel-controller-V.spdx.json ...   what each image contains, SPDX 2.3
  kubectl-pm-V-linux-amd64, ...spdx.json     the plugin of kubectl, and what it contains
  artefacts.txt                              name, tag, digest and file of what push.sh sends to a registry
  parallelmodel-V.tgz                        the chart; its values name the images by digest
  parallelmodel-V-chart.oci/                 the chart as an OCI image layout
  install.yaml, crd.yaml                     the same for kubectl, kustomize and Argo CD
  push.sh, README.md, CHANGELOG.md, LICENSE, THIRD_PARTY_NOTICES.md
  SHA256SUMS                                 of every other file
  SHA256SUMS.sig                             its signature, in base64, when PM_SIGNING_KEY names a private key (PEM,
                                             Ed25519 or ECDSA)

Two runs on the same images write the same bytes, signatures by ECDSA excepted. Times are that of --created (seconds
since the epoch; default: SOURCE_DATE_EPOCH, or the commit's).
"""

import argparse
import base64
import datetime
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import chart
import sbom
from images import Archive
from pins import pinned

ROOT = chart.ROOT
REQUIRED, OPTIONAL = ("controller", "worker"), ("worker-cuda",)
CONTROLLER, PLUGIN = "parallelmodel-controller", "kubectl-pm"
COPIED = ("LICENSE", "THIRD_PARTY_NOTICES.md")


def fail(message):
    sys.exit(f"release.py: {message}")


def project_version():
    return re.search(r"^project\(parallelmodel VERSION ([\d.]+)", read_text("CMakeLists.txt"), re.M)[1]


def changes(changelog, version):
    """Returns the changelog down to the end of the version's section: what is above it is in the release too."""
    section = rf"^## (?:.*?^## )?\[?{re.escape(version)}\b.*?(?=^## |\Z)"
    found = re.search(section, changelog.read_text(), re.M | re.S)
    if not found:
        fail(f"{changelog} has no section {version}")
    return found[0].rstrip() + "\n"


def read_text(name):
    return (ROOT / name).read_text()


def commit_time():
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        fail("this is no git repository: name the time of the sources with --created")
    return int(done.stdout)


def open_image(folder, target, version):
    """Returns the archive of an image, whose label must name the version."""
    path = folder / f"{target}.tar"
    if not path.exists():
        fail(f"no {path}: run make image")
    image = Archive(path)
    label = image.config["config"].get("Labels", {}).get("org.opencontainers.image.version")
    if label != version:
        fail(f"{path} has version {label}, expected {version}: build it again")
    return image


def open_images(folder, version):
    """Returns {name: Archive} of the images that a registry gets."""
    targets = [target for target in REQUIRED + OPTIONAL if target in REQUIRED or (folder / f"{target}.tar").exists()]
    return {f"parallelmodel-{target}": open_image(folder, target, version) for target in targets}


def write_images(out, images, version, created):
    """Writes archives and bills of materials; returns the lines of artefacts.txt."""
    lines = []
    for name, image in images.items():
        file = f"{name}-{version}.oci.tar"
        image.write(out / file, version)
        parts = [] if name == CONTROLLER else [*sbom.crates(), *sbom.wheels(cuda=name.endswith("-cuda"))]
        write_bill(out, name, version, created, image, parts)
        lines.append(f"{name} {version} {image.digest} {file}")
    return lines


def write_bill(out, name, version, created, image, parts):
    """Writes the bill of materials of an image: its Debian packages and `parts`."""
    made = sbom.document(name, version, image.digest, created, [*sbom.debian(image.records()), *parts])
    (out / f"{name}-{version}.spdx.json").write_bytes(chart.encoded(made) + b"\n")


def write_plugin(out, image, version, created):
    """Writes the plugin, which is the program of an image that nobody pulls, and its bill of materials."""
    program = out / f"{PLUGIN}-{version}-{image.config['os']}-{image.config['architecture']}"
    program.write_bytes(image.file(f"usr/bin/{PLUGIN}"))
    program.chmod(0o755)
    write_bill(out, PLUGIN, version, created, image, [])


def write_chart(out, helm, version, registry, images):
    """Writes the chart in its forms; returns the line of artefacts.txt."""
    names = [f"parallelmodel-{target}" for target in REQUIRED + OPTIONAL]
    pins = {name: (f"{registry}/{name}", images[name].digest if name in images else "") for name in names}
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / chart.NAME
        for name, data in pinned(chart.files_of(chart.CHART), version, pins).items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(data)
        files = chart.release(source, helm)
    del files["SHA256SUMS"]  # that of the whole release covers them
    for name, data in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(data)
    layout = f"{chart.NAME}-{version}-chart.oci"
    index = files[f"{layout}/index.json"].decode()
    digest = re.search(r'"digest":"(sha256:[0-9a-f]+)"', index)[1]
    return f"charts/{chart.NAME} {version} {digest} {layout}"


def write_texts(out, version, registry, changed, cuda):
    guide = read_text("tools/release/guide.md")
    guide = guide.replace("REGISTRY", registry).replace("VERSION", version)
    if not cuda:
        guide += "\nThis release has no image for GPUs (parallelmodel-worker-cuda).\n"
    (out / "README.md").write_text(guide)
    (out / "CHANGELOG.md").write_text(changed)
    for name in COPIED:
        shutil.copyfile(ROOT / name, out / name)
    shutil.copyfile(ROOT / "tools" / "release" / "push.sh", out / "push.sh")
    (out / "push.sh").chmod(0o755)


def write_sums(out):
    def sha256(path):
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    files = sorted(path for path in out.rglob("*") if path.is_file())
    sums = "".join(f"{sha256(path)}  {path.relative_to(out).as_posix()}\n" for path in files)
    (out / "SHA256SUMS").write_text(sums)


def digest_option(key):
    """Returns the options of openssl that name the digest for a private key: Ed25519 has its own."""
    done = subprocess.run(["openssl", "pkey", "-in", key, "-noout", "-text"], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"PM_SIGNING_KEY names {key}, which is no private key in PEM: {done.stderr.strip().splitlines()[0]}")
    return [] if done.stdout.startswith("ED25519") else ["-digest", "sha256"]


def sign(out, key):
    """Writes SHA256SUMS.sig, as README.md verifies it."""
    with tempfile.NamedTemporaryFile() as signature:
        command = ["openssl", "pkeyutl", "-sign", "-rawin", *digest_option(key), "-inkey", key]
        subprocess.run([*command, "-in", out / "SHA256SUMS", "-out", signature.name], check=True)
        data = pathlib.Path(signature.name).read_bytes()
    (out / "SHA256SUMS.sig").write_bytes(base64.b64encode(data) + b"\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--images", type=pathlib.Path, required=True)
    parser.add_argument("--registry", required=True)
    parser.add_argument("--helm", default="helm", help="the program (default: that of PATH)")
    parser.add_argument("--created", type=int, default=os.environ.get("SOURCE_DATE_EPOCH"))
    parser.add_argument("--version", default=project_version(), help=argparse.SUPPRESS)
    parser.add_argument("--changelog", type=pathlib.Path, default=ROOT / "CHANGELOG.md", help=argparse.SUPPRESS)
    given = parser.parse_args()
    out, version, registry = given.out, given.version, given.registry.strip("/")
    if not re.fullmatch(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)*", registry):
        fail(f"--registry is {given.registry}, expected a host and a path such as registry.example/parallelmodel")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        fail(f"{out} is not an empty folder: remove it, or name another")
    key = os.environ.get("PM_SIGNING_KEY")
    if key:
        digest_option(key)
    seconds = commit_time() if given.created is None else given.created
    created = datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    images = open_images(given.images, version)
    plugin = open_image(given.images, PLUGIN, version)
    changed = changes(given.changelog, version)
    out.mkdir(parents=True, exist_ok=True)
    lines = write_images(out, images, version, created)
    write_plugin(out, plugin, version, created)
    lines.append(write_chart(out, given.helm, version, registry, images))
    (out / "artefacts.txt").write_text("".join(line + "\n" for line in lines))
    write_texts(out, version, registry, changed, "parallelmodel-worker-cuda" in images)
    write_sums(out)
    if key:
        sign(out, key)
    for path in sorted(out.iterdir()):
        size = sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
        print(f"{size:11d}  {path.name}")


if __name__ == "__main__":
    main()
