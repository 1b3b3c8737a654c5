# SPDX-License-Identifier: Apache-2.0
"""Tests of the images that the Dockerfile makes: what they hold and lack, how big they are, that they run without a
shell and on a read-only root; and that the images of tests/cluster/image.sh hold the same."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD, ROOT

WORKER = "/usr/bin/parallelmodel-worker"
PROGRAMS = {"worker": WORKER, "worker-cuda": WORKER, "controller": "/usr/bin/parallelmodel-controller"}
LARGEST = {"worker": 160e6, "worker-cuda": 2.5e9, "controller": 12e6}  # bytes of all layers, compressed
LIBRARY = re.compile(r"/[^/]+\.so(\.[0-9.]+)?$")
# Libraries that images of Debian 13 have and those of Debian 12 may lack, by the name before ".so": cpp-httplib and
# what it and OpenSSL load for compressed transfers.
OF_ONE_RELEASE = {"libcpp-httplib", "libbrotlicommon", "libbrotlidec", "libbrotlienc", "libz", "libzstd"}


def libraries(image):
    """Returns {name before ".so": paths}, without the versions, which differ between releases of Debian."""
    found = {}
    for path in image.regular():
        if LIBRARY.search(path):
            found.setdefault(Path(path).name.partition(".so")[0], []).append(path)
    return found


def other_files(image):
    """Returns the paths of all files but libraries and what comes with their packages."""
    own = "/usr/share/doc/parallelmodel/"
    package = ("/usr/share/doc/", "/var/lib/dpkg/")
    return {p for p in image.regular() if not LIBRARY.search(p) and (p.startswith(own) or not p.startswith(package))}


def test_the_size_is_bounded(built, target):
    size = sum(built.layers)
    print(f"\n{target}: {size / 1e6:.1f} MB in layers of {[round(layer / 1e6, 1) for layer in built.layers]}")
    assert LARGEST[target] * 0.5 < size < LARGEST[target], "it has grown: find out why, or raise the bound"


def test_only_the_program_can_be_run(built, target):
    runnable = {p for p in built.regular() if built.files[p].mode & 0o111 and not LIBRARY.search(p)}
    assert runnable == {PROGRAMS[target]}
    assert not [p for p, member in built.files.items() if member.mode & 0o6000], "setuid or setgid"
    assert not [p for p, member in built.files.items() if not (member.isreg() or member.isdir())]


def test_it_runs_as_a_user_with_a_number(built, target):
    assert built.config["User"] == "65532"
    assert built.config["Entrypoint"] == [PROGRAMS[target]]
    assert built.config["WorkingDir"] == "/"
    assert b"nonroot:x:65532:65532:" in built.read("/etc/passwd")
    assert not [line for line in built.config["Env"] if line.startswith("LD_")]


def test_nobody_but_root_can_write_its_files(built):
    wrong = [p for p, m in built.files.items() if (m.mode & 0o022 and p != "/tmp") or m.uid or m.gid]
    assert not wrong
    assert built.files["/tmp"].mode & 0o7777 == 0o1777


def test_its_labels_name_version_and_licence(built, target):
    version = re.search(r"project\(parallelmodel VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    labels = built.config["Labels"]
    prefix = "org.opencontainers.image."
    assert labels[prefix + "title"] == f"parallelmodel-{target}"
    assert labels[prefix + "version"] == version
    assert labels[prefix + "licenses"] == "Apache-2.0"
    assert labels[prefix + "revision"] and labels[prefix + "description"]
    assert f"ARG VERSION={version}\n" in (ROOT / "Dockerfile").read_text()


def test_every_library_of_debian_has_a_record_and_a_licence(built):
    records = {p.rpartition("/")[2] for p in built.regular() if p.startswith("/var/lib/dpkg/status.d/")}
    licences = {p.split("/")[4] for p in built.regular() if p.endswith("/copyright")}
    assert records == licences and "libc6" in records
    for record in records:
        text = built.read(f"/var/lib/dpkg/status.d/{record}").decode()
        assert f"Package: {record}\n" in text and re.search(r"^Version: \S+$", text, re.M)
    root = "/usr/share/doc/parallelmodel/"
    assert built.read(root + "LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert built.read(root + "THIRD_PARTY_NOTICES.md") == (ROOT / "THIRD_PARTY_NOTICES.md").read_bytes()


def secrets(folder):
    """Returns what this machine gives to a build, as files in the folder."""
    script = f". {ROOT}/tools/image/secrets.sh && write_secrets {folder}"
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=True)
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_no_secret_of_the_build_is_in_it(built, tmp_path):
    """Neither the mirrors nor the authorities of the machine that built it."""
    texts = secrets(tmp_path)
    addresses = set(re.findall(r"[a-z]+://[^\s\"']+", texts["apt"] + texts["pip"] + texts.get("cargo", "")))
    assert addresses
    config = json.dumps(built.image)
    for path in built.regular():
        if built.files[path].size < 1 << 20 and not path.endswith("/copyright"):
            config += built.read(path).decode(errors="ignore")
    assert not [address for address in addresses if address in config]
    added = [p.read_text().strip() for p in Path("/usr/local/share/ca-certificates").glob("*.crt")]
    bundle = built.read("/etc/ssl/certs/ca-certificates.crt").decode()
    assert bundle.count("BEGIN CERTIFICATE") > 100
    assert not [one[:60] for one in added if one in bundle]


def test_the_assembled_image_holds_the_same(built, assembled, target):
    """The fast path of the developer's loop: names without versions, because the releases of Debian may differ."""
    of_both = libraries(built), libraries(assembled)
    assert set(of_both[0]) ^ set(of_both[1]) <= OF_ONE_RELEASE
    assert {"libc", "libstdc++", "libssl"} <= set(of_both[0])
    assert ("libtorch_cpu" in of_both[0]) == (target == "worker")
    assert other_files(built) == other_files(assembled)
    for key in ("User", "Entrypoint", "WorkingDir"):
        assert built.config[key] == assembled.config[key], key
    for path in ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf"):
        assert built.read(path) == assembled.read(path), path


@pytest.fixture(scope="session")
def run(built, target, tmp_path_factory):
    """Provides a function that runs the entry point in the image as its user; nothing can be written but /tmp and
    /dev/shm."""
    root = tmp_path_factory.mktemp("root")
    root.chmod(0o755)
    built.extract(root)
    for folder in ("proc", "dev", "model"):
        (root / folder).mkdir(exist_ok=True)
    script = """
        mount --bind "$0" "$0" && cd "$0"
        mount --bind "$1" model && mount -t proc proc proc && mount --rbind /dev dev
        mount -t tmpfs -o mode=1777 tmpfs tmp && mount -t tmpfs -o mode=1777 tmpfs dev/shm
        mount -o remount,bind,ro "$0"
        root=$0; shift
        exec chroot --userspec=65532:65532 "$root" "$@"
    """
    unshare = ["unshare", "--mount", "--propagation", "private", "bash", "-euc", script]

    def run(*arguments, entry=PROGRAMS[target]):
        command = [*unshare, str(root), str(ROOT / "examples" / "tiny-stories"), entry, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env={"HOME": "/tmp"})

    yield run
    shutil.rmtree(root)


def test_it_starts_on_a_read_only_root(run):
    done = run("--version")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d+\.\d+\.\d+", done.stdout)


def test_there_is_no_shell_to_start(run):
    for shell in ("/bin/sh", "/usr/bin/bash", "/bin/busybox"):
        done = run("-c", "true", entry=shell)
        assert done.returncode == 127 and "No such file" in done.stderr, done.stderr


def test_the_worker_writes_what_the_build_of_this_machine_writes(run, target):
    if target == "controller":
        done = run("--help")
        assert "--worker-image" in done.stdout, done.stderr
        return
    arguments = ["--prompt", "Once upon a time", "--max-new-tokens", "24", "--ranks", "2"]
    done = run("generate", "--model", "/model", *arguments)
    expected = subprocess.run(
        [BUILD / "bin" / "parallelmodel-worker", "generate", "--model", ROOT / "examples" / "tiny-stories", *arguments],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected.stdout and len(done.stdout) > 60
