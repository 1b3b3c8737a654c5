# SPDX-License-Identifier: Apache-2.0
"""Tests of the chart's part of a release (tools/release/chart.py): what it holds, and that two runs write the same."""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile

import pytest
import yaml
from conftest import CHART, ROOT, SYSTEM

PROGRAM = ROOT / "tools" / "release" / "chart.py"
KINDS = {
    ("v1", "Namespace"),
    ("v1", "ServiceAccount"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("apps/v1", "Deployment"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
}


def write(helm, out, *arguments):
    command = [sys.executable, PROGRAM, out, "--helm", helm, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="module")
def out(helm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("release") / "out"
    done = write(helm, folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def version():
    return yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]


def test_the_folder_has_the_chart_in_three_forms_and_nothing_else(out, version):
    stem = f"parallelmodel-{version}"
    names = {f"{stem}.tgz", f"{stem}-chart.oci", "install.yaml", "crd.yaml", "SHA256SUMS"}
    assert {path.name for path in out.iterdir()} == names
    assert (out / "crd.yaml").read_bytes() == (ROOT / "crds" / "parallelmodel.yaml").read_bytes()


def test_two_runs_write_the_same_bytes(helm, out, tmp_path):
    """The second one from a copy of the chart with other times and other permissions."""
    copy = tmp_path / "copy"
    shutil.copytree(CHART, copy)
    for path in copy.rglob("*"):
        if path.is_file():
            path.chmod(0o600)
        os.utime(path, (1, 1))
    done = write(helm, tmp_path / "again", "--chart", copy)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "again") == contents(out)


def test_the_checksums_cover_every_other_file(out):
    lines = dict(reversed(line.split("  ")) for line in (out / "SHA256SUMS").read_text().splitlines())
    files = contents(out)
    del files["SHA256SUMS"]
    assert lines == {name: sha256(data) for name, data in files.items()}
    assert subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=out).returncode == 0


def test_the_archive_has_no_time_and_no_owner_and_renders_as_the_folder_does(out, version, render):
    path = out / f"parallelmodel-{version}.tgz"
    assert path.read_bytes()[4:8] == bytes(4), "the time in the header of gzip"
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        data = {one.name.partition("/")[2]: tar.extractfile(one).read() for one in members}
    assert members[0].name == "parallelmodel/Chart.yaml"
    assert [one.name for one in members[1:]] == sorted(one.name for one in members[1:])
    assert {(one.mtime, one.uid, one.gid, one.uname, one.gname, one.mode) for one in members} == {
        (0, 0, 0, "", "", 0o644)
    }
    assert data == {p.relative_to(CHART).as_posix(): p.read_bytes() for p in CHART.rglob("*") if p.is_file()}
    assert render({}, path, text=True) == render(text=True)


def test_install_yaml_is_the_namespace_the_crd_and_what_helm_renders(out, render):
    namespace, *objects = [one for one in yaml.safe_load_all((out / "install.yaml").read_text()) if one]
    assert namespace == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    assert objects == render({}, CHART, "--no-hooks")
    assert {(one["apiVersion"], one["kind"]) for one in [namespace, *objects]} == KINDS
    [crd] = [one for one in objects if one["kind"] == "CustomResourceDefinition"]
    assert crd["spec"] == yaml.safe_load((out / "crd.yaml").read_text())["spec"]
    assert {one["metadata"].get("namespace", SYSTEM) for one in objects} == {SYSTEM}
    identities = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects]
    assert len(identities) == len(set(identities))
    assert not [one for one in objects if "helm.sh/hook" in one["metadata"].get("annotations", {})]


def test_install_yaml_takes_values(helm, tmp_path):
    (tmp_path / "values.yaml").write_text("worker: {image: {repository: registry.example/worker}}\n")
    assert write(helm, tmp_path / "out", "--values", tmp_path / "values.yaml").returncode == 0
    assert "--worker-image=registry.example/worker:" in (tmp_path / "out" / "install.yaml").read_text()


def test_the_image_layout_can_be_read_back(out, version):
    """Follows the layout as a client does: index, manifest, config and archive, each by its digest."""
    layout = out / f"parallelmodel-{version}-chart.oci"
    used = set()

    def blob(one, media_type):
        algorithm, _, digest = one["digest"].partition(":")
        data = (layout / "blobs" / algorithm / digest).read_bytes()
        assert one["mediaType"] == media_type and one["size"] == len(data) and digest == sha256(data)
        used.add(digest)
        return data

    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((layout / "index.json").read_text())
    assert index["schemaVersion"] == 2 and index["mediaType"] == "application/vnd.oci.image.index.v1+json"
    [entry] = index["manifests"]
    assert entry["annotations"] == {"org.opencontainers.image.ref.name": version}
    manifest = json.loads(blob(entry, "application/vnd.oci.image.manifest.v1+json"))
    assert manifest["schemaVersion"] == 2 and manifest["mediaType"] == entry["mediaType"]
    config = json.loads(blob(manifest["config"], "application/vnd.cncf.helm.config.v1+json"))
    assert config == yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert manifest["annotations"]["org.opencontainers.image.version"] == config["version"] == version
    [layer] = manifest["layers"]
    packed = blob(layer, "application/vnd.cncf.helm.chart.content.v1.tar+gzip")
    assert packed == (out / f"parallelmodel-{version}.tgz").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as tar:
        assert tar.extractfile("parallelmodel/Chart.yaml").read() == (CHART / "Chart.yaml").read_bytes()
    assert {path.name for path in (layout / "blobs" / "sha256").iterdir()} == used, "blobs that nothing names"


def test_a_folder_that_is_not_empty_is_refused(helm, out):
    done = write(helm, out)
    assert done.returncode == 1 and "is not an empty folder" in done.stderr


def test_a_file_of_an_editor_is_refused(helm, tmp_path):
    shutil.copytree(CHART, tmp_path / "copy")
    (tmp_path / "copy" / "templates" / ".deployment.yaml.swp").write_text("")
    done = write(helm, tmp_path / "out", "--chart", tmp_path / "copy")
    assert done.returncode == 1 and "does not belong into a release" in done.stderr and not (tmp_path / "out").exists()


def test_a_missing_helm_is_named(tmp_path):
    done = write(tmp_path / "nothing", tmp_path / "out")
    assert done.returncode == 1 and "name the program with --helm" in done.stderr
