# SPDX-License-Identifier: Apache-2.0
"""Secrets of others, by the examples: cert-manager issues and renews the certificate of a model, and External Secrets
writes its API keys, again when their source changes."""

import base64
import os
import time
from pathlib import Path

import pytest
import yaml
from cluster import extra, extra_source, is_built, tools_image
from test_keys import NEW, OLD, answer
from workloads import account, account_binding, workload
from world import MODELS, namespace

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
API_KEYS = EXAMPLES / "external-secrets" / "api-keys.yaml"
NAME = "stories-locked"
VAULT = "vault"  # a namespace that stands for one


def crds(world, files: list[Path]) -> list[str]:
    """Installs CRDs, and returns the arguments of kubectl that name them."""
    arguments = [argument for file in files for argument in ("-f", str(file))]
    world.cluster.kubectl("apply", "--server-side", *arguments)
    world.cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *arguments)
    return arguments


def controllers(world, folder: Path, name: str, program: Path, files: list[Path], *arguments: str, port: int = 0):
    """Runs controllers and their CRDs until the fixture ends. The port is the one of their probes, if they have any."""
    image = f"localhost/{name}:test"
    world.cluster.load(tools_image(folder / "image.tar", [str(program)], image))
    installed = crds(world, files)
    world.cluster.apply(namespace(name))
    deployment, _ = workload(name, namespace=name, image=image, program=program, arguments=arguments, ports=[port or 1])
    if not port:
        del deployment["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
    world.cluster.apply([*account(name), deployment])
    yield
    world.cluster.kubectl("delete", "namespace", name, "--wait=true")
    world.cluster.kubectl("delete", "clusterrolebinding", account_binding(name))
    world.cluster.kubectl("delete", "--wait=true", *installed)


def skip_unless_built(name: str) -> None:
    if not is_built(name) and "PM_INTEGRATIONS" not in os.environ:
        pytest.skip(f"{name} is not built on this machine yet: make integrations")


@pytest.fixture(scope="module")
def cert_manager(world, tmp_path_factory):
    skip_unless_built("certmanager")
    source = extra_source("certmanager", "github.com/cert-manager/cert-manager")
    files = sorted((source / "deploy" / "crds").glob("cert-manager.io_*.yaml"))
    yield from controllers(world, tmp_path_factory.mktemp("cert"), "cert-manager", extra("certmanager"), files)


@pytest.fixture(scope="module")
def external_secrets(world, tmp_path_factory):
    """Its program with the values of its chart that leave out what a namespace does not need."""
    skip_unless_built("externalsecrets")
    bases = extra_source("externalsecrets") / "config" / "crds" / "bases"
    kinds = ("external-secrets.io_externalsecrets", "external-secrets.io_secretstores",
             "generators.external-secrets.io_generatorstates")  # fmt: skip
    kinds_left_out = ("cluster-store", "cluster-external-secret", "cluster-push-secret", "push-secret")
    yield from controllers(
        world,
        tmp_path_factory.mktemp("external"),
        "external-secrets",
        extra("externalsecrets"),
        [bases / f"{kind}.yaml" for kind in kinds],
        *(f"--enable-{kind}-reconciler=false" for kind in kinds_left_out),
        port=8082,
    )


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


def in_vault(*keys: str) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "api-keys", "namespace": VAULT},
        "stringData": {f"user{number}": key for number, key in enumerate(keys)},
    }


def readable_vault() -> list[dict]:
    """The namespace of the keys, which the ServiceAccount of the example may read."""
    return yaml.safe_load(f"""
      - apiVersion: v1
        kind: Namespace
        metadata: {{name: {VAULT}}}
      - apiVersion: v1
        kind: ServiceAccount
        metadata: {{name: stories, namespace: {MODELS}}}
      - apiVersion: rbac.authorization.k8s.io/v1
        kind: Role
        metadata: {{name: reader, namespace: {VAULT}}}
        rules:
        - {{apiGroups: [""], resources: [secrets], resourceNames: [api-keys], verbs: [get]}}
      - apiVersion: rbac.authorization.k8s.io/v1
        kind: RoleBinding
        metadata: {{name: reader, namespace: {VAULT}}}
        roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}}
        subjects:
        - {{kind: ServiceAccount, name: stories, namespace: {MODELS}}}
    """)


def example_for_vault() -> list[dict]:
    """The example, with a vault that needs no server of its own, and without ten minutes between two looks at it."""
    text = API_KEYS.read_text()
    text = text.replace("refreshInterval: 10m", "refreshInterval: 5s").replace("stories/api-keys", "api-keys")
    store, external_secret = yaml.safe_load_all(text)
    reader = store["spec"]["provider"].pop("vault")["auth"]["kubernetes"]["serviceAccountRef"]
    store["spec"]["provider"]["kubernetes"] = {
        "remoteNamespace": VAULT,
        "server": {"caProvider": {"type": "ConfigMap", "name": "kube-root-ca.crt", "key": "ca.crt"}},
        "auth": {"serviceAccount": reader},
    }
    return [store, external_secret]


def test_external_secrets_writes_the_keys_and_changed_ones_count_without_a_restart(world, external_secrets):
    # what the example says of its own vault has no server here
    world.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-n", MODELS, "-f", str(API_KEYS))
    try:
        world.cluster.apply([*readable_vault(), in_vault(OLD)])
        world.cluster.apply(example_for_vault(), "-n", MODELS)
        world.apply(NAME, count=1, service={"apiKeySecretRef": {"name": "stories-keys"}})
        world.wait_ready(NAME)
        pod, url = world.pod(NAME), world.url(NAME)
        assert [world.inside(answer, url, key).status_code for key in (OLD, NEW, None)] == [200, 401, 401]
        begin = time.monotonic()
        world.cluster.apply(in_vault(NEW, "third-key"))
        world.cluster.wait_for(
            lambda: len(world.cluster.get("secret", "stories-keys", MODELS)["data"]) == 2,
            60,
            "External Secrets has written the new keys",
        )
        # kubelets look at Secrets within a minute, or when the pod changes
        world.cluster.kubectl("annotate", "pod", pod["metadata"]["name"], "-n", MODELS, "tests/keys=second")
        world.cluster.wait_for(
            lambda: [world.inside(answer, url, key).status_code for key in (NEW, "third-key", OLD)] == [200, 200, 401],
            120,
            "the new keys count, the old one no more",
        )
        print(f"new keys count after {time.monotonic() - begin:.0f} s")
        now = world.pod(NAME)
        assert now["metadata"]["uid"] == pod["metadata"]["uid"]
        assert not now["status"]["containerStatuses"][0]["restartCount"]
    finally:
        world.delete(NAME)
        for kind in ("externalsecrets", "secretstores"):
            world.cluster.kubectl("delete", kind, "--all", "-n", MODELS)
        world.cluster.kubectl("delete", "secret", "stories-keys", "-n", MODELS, "--ignore-not-found")
        world.cluster.kubectl("delete", "serviceaccount", "stories", "-n", MODELS, "--ignore-not-found")
        world.cluster.kubectl("delete", "namespace", VAULT, "--ignore-not-found")
