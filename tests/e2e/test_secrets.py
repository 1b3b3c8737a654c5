# SPDX-License-Identifier: Apache-2.0
"""Secrets of others: cert-manager issues and renews the certificate of a model, by the example. External Secrets'
program cannot be built from Go modules alone; its CRDs accept the example, and what changed keys do is in test_keys.py.
"""

import base64
import os
from pathlib import Path

import pytest
import yaml
from cluster import extra, extra_source, is_built, tools_image
from workloads import account, workload
from world import MODELS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMESPACE, IMAGE = "cert-manager", "localhost/cert-manager:test"
NAME = "stories-locked"


def crds(world, files: list[Path]) -> list[str]:
    """Installs CRDs, and returns the arguments of kubectl that name them."""
    arguments = [argument for file in files for argument in ("-f", str(file))]
    world.cluster.kubectl("apply", "--server-side", *arguments)
    world.cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *arguments)
    return arguments


@pytest.fixture(scope="module")
def cert_manager(world, tmp_path_factory):
    if not is_built("certmanager") and "PM_INTEGRATIONS" not in os.environ:
        pytest.skip("certmanager is not built on this machine yet: make integrations")
    program, source = extra("certmanager"), extra_source("certmanager", "github.com/cert-manager/cert-manager")
    archive = tools_image(tmp_path_factory.mktemp("certificates") / "image.tar", [str(program)], IMAGE)
    world.cluster.load(archive)
    files = crds(world, sorted((source / "deploy" / "crds").glob("cert-manager.io_*.yaml")))
    world.cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    deployment, _ = workload("cert-manager", namespace=NAMESPACE, image=IMAGE, program=program, arguments=[], ports=[1])
    del deployment["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]  # it serves nothing
    world.cluster.apply([*account(NAMESPACE), deployment])
    yield
    world.cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true")
    world.cluster.kubectl("delete", "--wait=true", *files)


def certificate_of(world) -> bytes:
    secret = world.cluster.get("secret", "stories-tls", MODELS)
    return base64.b64decode(secret["data"]["tls.crt"])


def served(world, folder: Path) -> str:
    """The certificate that the Service serves, verified by the CA and the name of the Service."""
    authority = folder / "ca.crt"
    authority.write_bytes(base64.b64decode(world.cluster.get("secret", "stories-ca", MODELS)["data"]["ca.crt"]))
    host = f"{NAME}.{MODELS}.svc"
    curl = (
        "curl",
        "-s",
        "--cacert",
        str(authority),
        "-w",
        "%{certs}",
        "-o",
        "/dev/null",
        f"https://{host}:8000/health",
    )
    text = world.cluster.exec(*curl, check=False)
    begin, end = text.find("-----BEGIN"), text.find("-----END")
    return text[begin:end]


def test_cert_manager_issues_a_certificate_and_a_renewed_one_is_served_without_a_restart(world, cert_manager, tmp_path):
    text = (EXAMPLES / "cert-manager" / "certificate.yaml").read_text().replace(".default.", f".{MODELS}.")
    world.cluster.kubectl("apply", "-n", MODELS, "-f", "-", input=text)
    world.apply(NAME, count=1, service={"tlsSecretRef": {"name": "stories-tls"}})
    try:
        world.wait_ready(NAME)
        pod, first = world.pod(NAME), certificate_of(world)
        assert served(world, tmp_path) in first.decode() and served(world, tmp_path)
        renew = yaml.safe_load("""
          status:
            conditions:
            - {type: Issuing, status: "True", reason: ManuallyTriggered, message: by a test,
               lastTransitionTime: "2026-01-01T00:00:00Z"}
        """)
        world.cluster.kubectl(
            "patch", "certificate", "stories-tls", "-n", MODELS, "--subresource=status", "--type=merge",
            "-p", yaml.safe_dump(renew),
        )  # fmt: skip
        second = world.cluster.wait_for(
            lambda: (now := certificate_of(world)) != first and now, 60, "cert-manager has renewed the certificate"
        )
        # kubelets look at Secrets within a minute, or when the pod changes
        world.cluster.kubectl("annotate", "pod", pod["metadata"]["name"], "-n", MODELS, "tests/certificate=second")
        world.cluster.wait_for(
            lambda: (now := served(world, tmp_path)) and now in second.decode(),
            120,
            "the renewed certificate is served",
        )
        now = world.pod(NAME)
        assert now["metadata"]["uid"] == pod["metadata"]["uid"]
        assert not now["status"]["containerStatuses"][0]["restartCount"]
    finally:
        world.delete(NAME)
        for kind in ("certificates", "issuers"):
            world.cluster.kubectl("delete", kind, "--all", "-n", MODELS)
        world.cluster.kubectl("delete", "secret", "stories-ca", "stories-tls", "-n", MODELS, "--ignore-not-found")


def test_the_example_of_external_secrets_is_what_its_crds_accept(world):
    source = extra_source("externalsecrets", "github.com/external-secrets/external-secrets")
    bases = source / "config" / "crds" / "bases"
    files = crds(world, [bases / f"external-secrets.io_{kind}.yaml" for kind in ("externalsecrets", "secretstores")])
    example = EXAMPLES / "external-secrets" / "api-keys.yaml"
    try:
        world.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-n", MODELS, "-f", str(example))
    finally:
        world.cluster.kubectl("delete", "--wait=true", *files)
