#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the part of a release that needs no image: the chart, its manifests and their checksums.

chart.py OUT [--helm PROGRAM] [--values FILE]

OUT, which must be empty or missing, then holds, with V as the chart's version:
  parallelmodel-V.tgz        the chart, as `helm install` takes it
  parallelmodel-V-chart.oci/ the same archive as an OCI image layout, with the media types of Helm
  install.yaml               the namespace, the CRD and the chart rendered with its default values and those of FILE
  crd.yaml                   the CRD alone
  SHA256SUMS                 the sha256 of every other file, as `sha256sum -c` takes it

Two runs write the same bytes: members are sorted, owned by root, and as old as the epoch; nothing names the time or the
machine. The compressed archive also depends on the version of zlib.
"""

import argparse
import gzip
import hashlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "parallelmodel"
NAME = "parallelmodel"
NAMESPACE = "parallelmodel-system"
CONFIG_TYPE = "application/vnd.cncf.helm.config.v1+json"
CHART_TYPE = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"


def run_helm(helm, *arguments):
    """Returns what helm prints. Raises SystemExit with its message if it fails."""
    try:
        done = subprocess.run([helm, *map(str, arguments)], capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"chart.py: cannot run {helm}: {error.strerror}; name the program with --helm")
    if done.returncode != 0:
        sys.exit(f"chart.py: helm {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def files_of(chart):
    """Returns {path in the chart: bytes}, links followed. Hidden files are refused: they are an editor's."""
    found = {}
    for path in sorted(chart.rglob("*")):
        name = path.relative_to(chart).as_posix()
        if any(part.startswith(".") or part.endswith("~") for part in name.split("/")):
            sys.exit(f"chart.py: {path} does not belong into a release: remove it")
        if path.is_file():
            found[name] = path.read_bytes()
    return found


def archive(files):
    """Returns the chart's archive (gzip of a tar), with Chart.yaml first, as Helm reads it fastest."""
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=9, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for name in sorted(files, key=lambda name: (name != "Chart.yaml", name)):
                info = tarfile.TarInfo(f"{NAME}/{name}")
                info.size, info.mode, info.mtime = len(files[name]), 0o644, 0
                tar.addfile(info, io.BytesIO(files[name]))
    return out.getvalue()


def metadata(helm, chart):
    """Returns Chart.yaml as Helm reads it. Helm prints it as JSON only from a template, so that one is rendered."""
    with tempfile.TemporaryDirectory() as folder:
        probe = pathlib.Path(folder) / NAME
        (probe / "templates").mkdir(parents=True)
        (probe / "Chart.yaml").write_bytes((chart / "Chart.yaml").read_bytes())
        (probe / "templates" / "metadata.yaml").write_text("metadata: {{ .Chart | toJson }}\n")
        text = run_helm(helm, "template", NAME, probe)
    read = json.loads(re.search(r"^metadata: (\{.*\})$", text, re.M)[1])
    read.pop("IsRoot", None)  # of the template engine
    return read


def descriptor(media_type, data):
    return {"mediaType": media_type, "digest": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data)}


def encoded(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def oci_layout(packed, chart):
    """Returns {path: bytes} of the image layout (OCI image spec, image-layout.md) of a chart's archive."""
    config = encoded(chart)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": descriptor(CONFIG_TYPE, config),
        "layers": [descriptor(CHART_TYPE, packed)],
        "annotations": {
            "org.opencontainers.image.title": chart["name"],
            "org.opencontainers.image.version": chart["version"],
            "org.opencontainers.image.description": chart["description"],
        },
    }
    manifest = encoded(manifest)
    # A tag may have no plus sign: Helm writes an underscore, and so does this.
    tag = {"org.opencontainers.image.ref.name": chart["version"].replace("+", "_")}
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [descriptor(MANIFEST_TYPE, manifest) | {"annotations": tag}],
    }
    blobs = {f"blobs/sha256/{hashlib.sha256(data).hexdigest()}": data for data in (config, packed, manifest)}
    return {"oci-layout": encoded({"imageLayoutVersion": "1.0.0"}), "index.json": encoded(index), **blobs}


def install_manifest(helm, chart, values):
    """Returns install.yaml. The chart renders the CRD; its tests (helm test) are hooks, which only Helm runs."""
    namespace = f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n"
    more = ["--values", values] if values else []
    return namespace + run_helm(helm, "template", NAME, chart, "--namespace", NAMESPACE, "--no-hooks", *more)


def release(chart, helm, values=None):
    """Returns {path: bytes} of everything that this part of a release consists of."""
    read = metadata(helm, chart)
    packed = archive(files_of(chart))
    stem = f"{read['name']}-{read['version']}"
    files = {
        f"{stem}.tgz": packed,
        "crd.yaml": (chart / "files" / "crd.yaml").read_bytes(),
        "install.yaml": install_manifest(helm, chart, values).encode(),
        **{f"{stem}-chart.oci/{name}": data for name, data in oci_layout(packed, read).items()},
    }
    sums = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return files | {"SHA256SUMS": sums.encode()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--helm", default="helm", help="the program (default: that of PATH)")
    parser.add_argument("--values", type=pathlib.Path, help="values of install.yaml, such as the names of the images")
    parser.add_argument("--chart", type=pathlib.Path, default=CHART, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.out.exists() and (not arguments.out.is_dir() or any(arguments.out.iterdir())):
        sys.exit(f"chart.py: {arguments.out} is not an empty folder: remove it, or name another")
    for name, data in release(arguments.chart, arguments.helm, arguments.values).items():
        path = arguments.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        print(f"{len(data):9d}  {name}")


if __name__ == "__main__":
    main()
