# SPDX-License-Identifier: Apache-2.0
"""Tests of what `make release` writes: names, digests, bills of materials, sums and signatures; that two runs write the
same, and that what does not fit together is refused."""

import base64
import re
import shutil
import subprocess
import tarfile
from contextlib import contextmanager
from datetime import UTC

import pytest
import yaml
from conftest import CREATED, FORMER, REGISTRY, ROOT, make_release
from oci import read_image
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

VERSION = re.search(r"^version: (\S+)$", (ROOT / "helm/parallelmodel/Chart.yaml").read_text(), re.M)[1]
NAMES = ("parallelmodel-controller", "parallelmodel-worker")


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_folder_has_what_its_guide_names(release):
    stem = f"parallelmodel-{VERSION}"
    images = {f"{name}-{VERSION}.{kind}" for name in NAMES for kind in ("oci.tar", "spdx.json")}
    plugin = {f"kubectl-pm-{VERSION}-linux-amd64", f"kubectl-pm-{VERSION}.spdx.json"}
    texts = {"README.md", "CHANGELOG.md", "LICENSE", "THIRD_PARTY_NOTICES.md", "artefacts.txt", "push.sh"}
    chart = {f"{stem}.tgz", f"{stem}-chart.oci", "install.yaml", "crd.yaml"}
    sums = {"SHA256SUMS", "SHA256SUMS.sig"}
    assert {path.name for path in release.iterdir()} == images | plugin | texts | chart | sums
    guide = (release / "README.md").read_text()
    assert f"oci://{REGISTRY}/charts/parallelmodel --version {VERSION}" in guide
    assert "no image for GPUs" in guide
    assert f"\n## {VERSION}\n" in "\n" + (release / "CHANGELOG.md").read_text()


def test_two_runs_write_the_same_bytes(release, helm, key, tmp_path):
    done = make_release(tmp_path / "again", helm, key=key)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "again") == contents(release)


def test_every_name_of_an_image_is_its_digest(release, artefacts):
    lines = artefacts(release)
    for name in NAMES:
        tag, digest, file = lines[name]
        manifest, config = read_image(release / file)
        assert tag == VERSION == config["config"]["Labels"]["org.opencontainers.image.version"]
        assert {layer["mediaType"] for layer in manifest["layers"]} == {"application/vnd.oci.image.layer.v1.tar+gzip"}
        assert f"{REGISTRY}/{name}@{digest}" in (release / "install.yaml").read_text()
    with tarfile.open(release / f"parallelmodel-{VERSION}.tgz") as tar:
        values = yaml.safe_load(tar.extractfile("parallelmodel/values.yaml"))
        chart = yaml.safe_load(tar.extractfile("parallelmodel/Chart.yaml"))
    assert values["image"]["digest"] == lines[NAMES[0]][1]
    assert values["worker"]["image"] == {
        "repository": f"{REGISTRY}/{NAMES[1]}",
        "tag": "",
        "digest": lines[NAMES[1]][1],
    }
    assert values["worker"]["cudaImage"]["digest"] == "", "this release has none"
    assert chart["version"] == chart["appVersion"] == VERSION


def test_a_former_version_has_other_digests(release, former, artefacts):
    new, old = artefacts(release), artefacts(former)
    assert new.keys() == old.keys()
    assert not [name for name in new if new[name][1] == old[name][1]]
    assert {tag for tag, _, _ in old.values()} == {FORMER}


@pytest.mark.parametrize("name", NAMES)
def test_the_bill_of_materials_is_valid_and_whole(release, name):
    document = parse_file(str(release / f"{name}-{VERSION}.spdx.json"))
    assert not [message.validation_message for message in validate_full_spdx_document(document, "SPDX-2.3")]
    assert document.creation_info.created.replace(tzinfo=UTC).timestamp() == int(CREATED)
    kinds = {}
    for package in document.packages:
        place = package.external_references[0].locator
        kinds.setdefault(place.partition("/")[0], set()).add(package.name)
    with tarfile.open(release / f"{name}-{VERSION}.oci.tar") as archive:
        manifest, _ = read_image(release / f"{name}-{VERSION}.oci.tar")
        records = set()
        for layer in manifest["layers"]:
            blob = archive.extractfile("blobs/" + layer["digest"].replace(":", "/"))
            with tarfile.open(fileobj=blob) as files:
                records |= {n.rpartition("/")[2] for n in files.getnames() if "var/lib/dpkg/status.d/" in n}
    assert kinds["pkg:deb"] == records and {"libc6", "libssl3t64", "nlohmann-json3-dev"} <= records
    locked = re.findall(
        r'^name = "(.*)"\nversion = .*\nsource', (ROOT / "worker/tokenizer/ffi/Cargo.lock").read_text(), re.M
    )
    assert kinds.get("pkg:cargo", set()) == (set(locked) if name == "parallelmodel-worker" else set())
    assert kinds.get("pkg:pypi", set()) >= ({"torch"} if name == "parallelmodel-worker" else set())
    described = [package.name for package in document.packages if package.name.startswith("parallelmodel")]
    assert described == [name]


def test_the_plugin_is_one_static_program(release):
    program = release / f"kubectl-pm-{VERSION}-linux-amd64"
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == VERSION, done
    linked = subprocess.run(["ldd", program], capture_output=True, text=True)
    assert "not a dynamic executable" in linked.stderr, linked
    document = parse_file(str(release / f"kubectl-pm-{VERSION}.spdx.json"))
    assert not [message.validation_message for message in validate_full_spdx_document(document, "SPDX-2.3")]
    assert {"libc6-dev", "libssl-dev", "nlohmann-json3-dev"} <= {package.name for package in document.packages}


def test_sums_and_signature_notice_a_changed_byte(release, key, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(release, copy)
    assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=copy).returncode == 0
    names = {line.split("  ")[1] for line in (copy / "SHA256SUMS").read_text().splitlines()}
    assert names == contents(copy).keys() - {"SHA256SUMS", "SHA256SUMS.sig"}
    assert verified(copy, key, tmp_path)
    (copy / "install.yaml").write_text(
        (copy / "install.yaml").read_text().replace("restricted", "privileged", 1) + "\n"
    )
    assert (
        subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=copy, capture_output=True).returncode == 1
    )
    with (copy / "SHA256SUMS").open("a") as sums:
        sums.write("0" * 64 + "  other\n")
    assert not verified(copy, key, tmp_path)


def verified(folder, key, scratch, *digest):
    """Returns whether the signature fits, by the command of README.md."""
    public, signature = scratch / "public.pem", scratch / "signature"
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    signature.write_bytes(base64.b64decode((folder / "SHA256SUMS.sig").read_text()))
    command = ["openssl", "pkeyutl", "-verify", "-rawin", *digest, "-pubin", "-inkey", public]
    command += ["-in", folder / "SHA256SUMS", "-sigfile", signature]
    return subprocess.run(command, capture_output=True).returncode == 0


def test_a_key_of_ecdsa_signs_too(helm, tmp_path):
    key = tmp_path / "ec.pem"
    command = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key]
    subprocess.run(command, check=True)
    assert make_release(tmp_path / "out", helm, key=key).returncode == 0
    assert verified(tmp_path / "out", key, tmp_path, "-digest", "sha256")


def test_what_does_not_fit_together_is_refused(helm, release, tmp_path):
    def refused(message, *arguments, **others):
        done = make_release(tmp_path / "out", helm, *arguments, **others)
        assert done.returncode == 1 and message in done.stderr, done.stderr
        assert not (tmp_path / "out").exists(), "nothing is written before all is known"

    refused("run make image", images=tmp_path)
    refused(f"has version {VERSION}, expected 0.0.9: build it again", "--version", "0.0.9")
    refused("expected a host and a path", "--registry", "https://registry.example")
    (tmp_path / "no.pem").write_text("nothing\n")
    refused("which is no private key in PEM", key=tmp_path / "no.pem")
    done = make_release(release, helm)
    assert done.returncode == 1 and "is not an empty folder" in done.stderr


@contextmanager
def registry(crane, folder):
    """Serves a registry on the loopback."""
    command = [crane, "registry", "serve", "--address", "127.0.0.1:0", "--disk", folder]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        port = next(filter(None, (re.search(r"serving on port (\d+)", line) for line in process.stderr)))[1]
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("client", ["skopeo", "crane"])
def test_push_sends_everything_under_its_digest(release, artefacts, crane, client, tmp_path):
    (tmp_path / "store").mkdir()
    with registry(crane, tmp_path / "store") as address:
        program = crane if client == "crane" else shutil.which("skopeo")
        done = subprocess.run(
            [release / "push.sh", "--plain-http", f"{address}/pm"],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PUSH_WITH": str(program)},
        )
        assert done.returncode == 0, done.stderr
        expected = {f"{address}/pm/{name}:{tag}@{digest}" for name, (tag, digest, _) in artefacts(release).items()}
        assert set(done.stdout.splitlines()) == expected
        for name, (tag, digest, _) in artefacts(release).items():
            found = subprocess.run([crane, "digest", f"{address}/pm/{name}:{tag}"], capture_output=True, text=True)
            assert found.stdout.strip() == digest


def test_push_refuses_a_folder_that_was_changed(release, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(release, copy)
    (copy / "artefacts.txt").write_text((copy / "artefacts.txt").read_text() + "\n")
    done = subprocess.run([copy / "push.sh", "registry.example/pm"], capture_output=True, text=True)
    assert done.returncode == 1 and "artefacts.txt: FAILED" in done.stdout + done.stderr
