# SPDX-License-Identifier: Apache-2.0
"""Tests a ParallelModel behind API keys and TLS: the Secrets are mounted, rotated at run time, and never read by the
controller."""

import base64
import datetime
import subprocess

import pytest
import requests
from world import MODELS, fetch

OLD, NEW = "old-key-4711", "new-key-0815"
SECRETS = ("locked-keys", "locked-tls")


def secret(name: str, kind: str = "Opaque", **values: bytes) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"name": name, "namespace": MODELS},
        "data": {key.replace("_", "."): base64.b64encode(value).decode() for key, value in values.items()},
    }


def keys(*values: str) -> dict:
    return secret("locked-keys", **{f"key{number}": (value + "\n").encode() for number, value in enumerate(values)})


def certificate(folder, address: str, name: str) -> dict:
    """A certificate of its own for an address, as a Secret of type kubernetes.io/tls."""
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
            "-addext",
            f"subjectAltName=IP:{address}",
            "-keyout",
            folder / f"{name}.key",
            "-out",
            folder / f"{name}.crt",
        ],
        check=True,
        capture_output=True,
    )
    return secret(
        "locked-tls",
        "kubernetes.io/tls",
        tls_crt=(folder / f"{name}.crt").read_bytes(),
        tls_key=(folder / f"{name}.key").read_bytes(),
    )


def answer(url: str, key: str | None = None, **more) -> requests.Response:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return fetch(
        "POST", url + "/v1/completions", json={"prompt": "Once upon a time", "max_tokens": 2}, headers=headers, **more
    )


@pytest.fixture(scope="module")
def locked(world, tmp_path_factory):
    """The model "locked", its https URL, and where its certificates are."""
    folder = tmp_path_factory.mktemp("certificates")
    world.cluster.apply(keys(OLD))
    world.apply("locked", service={"apiKeySecretRef": {"name": "locked-keys"}, "tlsSecretRef": {"name": "locked-tls"}})
    # The certificate needs the address of the Service that the operator creates; until then the pod waits for its
    # Secret.
    world.wait_condition("locked", "Scheduled", "False", "VolumeNotMounted", timeout=120)
    assert "locked-tls" in world.condition("locked", "Scheduled")["message"]
    address = world.cluster.get("service", "locked", MODELS)["spec"]["clusterIP"]
    world.cluster.apply(certificate(folder, address, "first"))
    world.wait_ready("locked", timeout=240)
    yield world.url("locked").replace("http://", "https://"), folder, address
    world.delete("locked")
    for name in SECRETS:
        world.cluster.kubectl("delete", "secret", name, "-n", MODELS, "--ignore-not-found")


def test_only_a_key_over_a_verified_connection_is_answered(world, locked):
    url, folder, _ = locked
    trusted = {"verify": str(folder / "first.crt")}
    assert world.inside(answer, url, OLD, **trusted).status_code == 200
    for key in (None, "wrong", NEW):
        refused = world.inside(answer, url, key, **trusted)
        assert refused.status_code == 401 and refused.json()["error"]["type"] == "authentication_error"
    assert world.get(url + "/health", **trusted).status_code == 200
    with pytest.raises(requests.ConnectionError):
        world.get(url.replace("https", "http") + "/health")
    assert world.pm("locked")["status"]["endpoint"].startswith("https://locked.")


def test_probes_and_metrics_of_the_admin_port_stay_plain(world, locked):
    pod = world.pod("locked")
    for path in ("/live", "/ready", "/status"):
        assert world.get(world.admin(pod, path)).status_code == 200, path
    assert "parallelmodel_generation_tokens_total" in world.get(world.admin(pod, "/metrics")).text, (
        "the API's own figures, asked for over TLS"
    )


def test_changed_keys_and_certificates_take_effect_without_a_restart(world, locked):
    url, folder, address = locked
    pod = world.pod("locked")
    begun = datetime.datetime.now()
    world.cluster.apply([keys(NEW, "third-key"), certificate(folder, address, "second")])
    trusted = {"verify": str(folder / "second.crt")}

    def changed() -> bool:
        try:
            return world.inside(answer, url, NEW, **trusted).status_code == 200
        except requests.exceptions.SSLError:
            return False

    world.cluster.wait_for(changed, 180, "the kubelet has updated the files")  # it checks about once a minute
    print("after", datetime.datetime.now() - begun)
    world.cluster.wait_for(
        lambda: world.inside(answer, url, OLD, **trusted).status_code == 401, 30, "the old key is refused"
    )
    now = world.pod("locked")
    assert (
        now["metadata"]["uid"] == pod["metadata"]["uid"] and not now["status"]["containerStatuses"][0]["restartCount"]
    )


def test_the_controller_read_no_secret_and_no_log_holds_a_key(world, locked):
    asked = [entry for entry in world.controller_requests() if entry.get("objectRef", {}).get("resource") == "secrets"]
    assert not asked
    pod = world.pod("locked")["metadata"]["name"]
    for log in (
        world.cluster.kubectl("logs", "-n", MODELS, pod),
        world.cluster.kubectl("get", "pod", pod, "-n", MODELS, "-o", "yaml"),
        world.cluster.kubectl("get", "pm", "locked", "-n", MODELS, "-o", "yaml"),
    ):
        assert OLD not in log and NEW not in log
