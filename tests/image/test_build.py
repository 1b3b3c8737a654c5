# SPDX-License-Identifier: Apache-2.0
"""Tests of what surrounds a build of the images: the secrets that it gets, the list of files that enter it, and what is
reported of a machine that is not supported."""

import re
import subprocess

import pytest
from conftest import ROOT


def shell(script, **environment):
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pip_gets_the_index_of_the_environment_or_of_a_file(tmp_path):
    script = ". tools/image/secrets.sh && pip_secret"
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://file.example/simple\ntrusted-host = file.example\n")
    config = shell(script, PIP_CONFIG_FILE=str(file), HOME=str(tmp_path))
    assert "index-url = https://file.example/simple\n" in config and "trusted-host = file.example\n" in config
    config = shell(script, PIP_CONFIG_FILE=str(file), HOME=str(tmp_path), PIP_INDEX_URL="https://env.example/simple")
    assert "index-url = https://env.example/simple\n" in config and "https://file.example" not in config


def test_cargo_gets_the_registry_of_this_machine(tmp_path):
    (tmp_path / "config.toml").write_text("[source.crates]\n")
    (tmp_path / "secrets").mkdir()
    certificates = tmp_path / "ca.crt"
    certificates.write_text("authorities\n")
    script = f". tools/image/secrets.sh && write_secrets {tmp_path}/secrets"
    shell(script, CARGO_HOME=str(tmp_path), HOME=str(tmp_path), SSL_CERT_FILE=str(certificates))
    assert (tmp_path / "secrets" / "cargo").read_text() == "[source.crates]\n"
    assert (tmp_path / "secrets" / "ca").read_text() == "authorities\n"
    assert "trixie" in (tmp_path / "secrets" / "apt").read_text()


def test_the_dockerfile_reads_each_secret_in_a_mount_only():
    text = (ROOT / "Dockerfile").read_text()
    documented = set(re.findall(r"^#   (\w+)   ", text, re.M))
    assert documented == set(re.findall(r"type=secret,id=(\w+)", text))
    assert not re.search(r"^ARG .*(MIRROR|PROXY|INDEX)", text, re.M)


def test_what_enters_the_build_is_listed():
    listed = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.M)
    assert not [name for name in listed if not (ROOT / name).exists()]
    assert not {"build", ".git", "tests", "docs"} & set(listed)
    folders = set(re.findall(r"^add_subdirectory\((\w+)", (ROOT / "CMakeLists.txt").read_text(), re.M))
    assert folders - {"bench"} <= set(listed), "a folder of the programs does not enter the build"


def machine(*facts):
    done = subprocess.run([ROOT / "tools" / "machine.sh", *facts], capture_output=True, text=True)
    return done.returncode, done.stderr


GOOD = {
    "system": "Linux",
    "architecture": "x86_64",
    "flags": "sse avx2 fma f16c",
    "memory": "8388608",
    "free": "8388608",
}


def test_of_a_supported_machine_there_is_no_message():
    assert machine(*GOOD.values()) == (0, "")


@pytest.mark.parametrize(
    "fact, sentence, status",
    [
        ({"system": "Darwin"}, "this system is Darwin, and ParallelModel needs Linux", 1),
        ({"architecture": "aarch64"}, "this machine is aarch64, and ParallelModel is tested on x86-64 only", 0),
        ({"flags": "sse avx2 fma"}, "this CPU lacks f16c (x86-64-v3)", 0),
        ({"flags": "avx2fma f16c"}, "this CPU lacks avx2 (x86-64-v3)", 0),
        ({"memory": "2097152"}, "this machine has 2048 MiB of memory", 0),
        ({"free": "1048576"}, "1024 MiB are free here", 0),
    ],
)
def test_each_other_machine_gets_one_sentence(fact, sentence, status):
    code, message = machine(*{**GOOD, **fact}.values())
    assert code == status
    assert message.count("\n") == 1 and sentence in message
