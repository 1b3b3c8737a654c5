# SPDX-License-Identifier: Apache-2.0
"""Runs a real etcd and kube-apiserver on loopback, without controllers or nodes, and provides a thin client. The
operator has the permissions that the chart grants."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import requests
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / "cluster"), str(ROOT / "tests" / "parity")]
from ports import free_port  # noqa: E402

os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"
TOKEN, OPERATOR_TOKEN = "reliability", "operator"
SYSTEM = "parallelmodel-system"
OPERATOR = f"system:serviceaccount:{SYSTEM}:parallelmodel"
MERGE = "application/merge-patch+json"
GROUPS = {
    "pods": "/api/v1",
    "services": "/api/v1",
    "configmaps": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "resourceclaimtemplates": "/apis/resource.k8s.io/v1",
    "parallelmodels": "/apis/parallelmodel.dev/v1alpha1",
}


class ApiError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text[:500]}")
        self.code = code


class ControlPlane:
    """Runs etcd and kube-apiserver with their data in `folder` and their binaries in `bin`; `apiserver` overrides the
    kube-apiserver binary. `bare` installs neither roles nor the CRD."""

    def __init__(self, folder: Path, bin: Path, apiserver: Path | None = None, bare: bool = False) -> None:
        self.folder, self.port = folder, free_port()
        etcd, peer = free_port(), free_port()
        self._programs: list[subprocess.Popen] = []
        subprocess.run(["openssl", "genrsa", "-out", "sa.key", "2048"], cwd=folder, check=True, capture_output=True)
        (folder / "tokens.csv").write_text(
            f"{TOKEN},admin,admin,system:masters\n{OPERATOR_TOKEN},{OPERATOR},operator,system:serviceaccounts\n"
        )
        self._start(
            "etcd",
            str(bin / "etcd"),
            "--data-dir",
            "etcd",
            "--unsafe-no-fsync",
            "--log-level",
            "warn",
            "--listen-client-urls",
            f"http://127.0.0.1:{etcd}",
            "--advertise-client-urls",
            f"http://127.0.0.1:{etcd}",
            "--listen-peer-urls",
            f"http://127.0.0.1:{peer}",
            "--initial-advertise-peer-urls",
            f"http://127.0.0.1:{peer}",
            "--initial-cluster",
            f"default=http://127.0.0.1:{peer}",
        )
        self._start(
            "apiserver",
            str(apiserver or bin / "kube-apiserver"),
            "--etcd-servers",
            f"http://127.0.0.1:{etcd}",
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            str(self.port),
            "--cert-dir",
            "certificates",
            "--endpoint-reconciler-type",
            "none",
            "--authorization-mode",
            "RBAC",
            "--token-auth-file",
            "tokens.csv",
            "--disable-admission-plugins",
            "ServiceAccount",
            "--service-account-issuer",
            "https://kubernetes.default.svc",
            "--service-account-key-file",
            "sa.key",
            "--service-account-signing-key-file",
            "sa.key",
            "--service-cluster-ip-range",
            "10.96.0.0/16",
            "--profiling=false",
            "--enable-admission-plugins",
            "OwnerReferencesPermissionEnforcement",
            "--audit-policy-file",
            str(ROOT / "tests" / "cluster" / "parts" / "audit.yaml"),
            "--audit-log-path",
            "audit.log",
        )
        try:
            self._wait_ready()
        except BaseException:
            self.close()
            raise
        self.api = Api(self)
        self.api.wait_until(lambda: self.api.exists("/api/v1/namespaces/default"), 30, "namespace default")
        if bare:
            return
        self.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
        self.roles = self._grant_permissions(bin / "helm")
        definition = yaml.safe_load((ROOT / "crds" / "parallelmodel.yaml").read_text())
        self.api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        self.api.wait_until(lambda: self.api.exists(GROUPS["parallelmodels"] + "/parallelmodels"), 30, "the definition")

    def _grant_permissions(self, helm: Path) -> list[dict]:
        """Applies the roles and bindings of the chart and returns the roles."""
        chart = subprocess.run(
            [
                helm,
                "template",
                "parallelmodel",
                ROOT / "helm" / "parallelmodel",
                "-n",
                SYSTEM,
                "--set",
                "podMonitors.enabled=true,gatewayApi.enabled=true,networkPolicies.enabled=true,dra.enabled=true",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        objects = [
            one
            for one in yaml.safe_load_all(chart)
            if one and one["kind"] in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
        ]
        account = OPERATOR.rsplit(":", 1)[1]
        bound = {
            one["roleRef"]["name"]
            for one in objects
            if any(subject["name"] == account for subject in one.get("subjects", []))
        }
        for one in objects:
            where = (
                f"namespaces/{one['metadata'].get('namespace', SYSTEM)}/"
                if not one["kind"].startswith("Cluster")
                else ""
            )
            self.api.request("POST", f"/apis/rbac.authorization.k8s.io/v1/{where}{one['kind'].lower()}s", one)
        self._allow_leases()
        return [one for one in objects if "rules" in one and one["metadata"]["name"] in bound]

    def _allow_leases(self) -> None:
        """Allows every scenario its own Lease; the chart allows only one Lease, by name, in one namespace."""
        rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "patch"]}]
        name = {"metadata": {"name": "stories-elect"}}
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        self.api.request("POST", f"{rbac}/clusterroles", {**name, "rules": rules})
        self.api.request(
            "POST",
            f"{rbac}/clusterrolebindings",
            {
                **name,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "stories-elect"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": OPERATOR}],
            },
        )

    def runs(self) -> bool:
        return bool(self._programs) and all(program.poll() is None for program in self._programs)

    def audit(self) -> list[dict]:
        """Returns the requests of the operator so far, oldest first."""
        # Lines of bytes end at line feeds; those of strings also end at U+0085, which JSON may hold.
        lines = (self.folder / "audit.log").read_bytes().splitlines(keepends=True)
        return [
            entry
            for entry in (json.loads(line) for line in lines if line.endswith(b"\n"))
            if entry["user"]["username"] == OPERATOR
        ]

    @property
    def certificate(self) -> str:
        return str(self.folder / "certificates" / "apiserver.crt")

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.certificate)
        context.check_hostname = False
        return context

    def _start(self, name: str, *command: str) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            self._programs.append(
                subprocess.Popen(
                    command, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
                )
            )

    def _wait_ready(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if any(program.poll() is not None for program in self._programs):
                break
            try:
                if requests.get(
                    f"https://127.0.0.1:{self.port}/readyz",
                    verify=self.certificate,
                    headers={"Authorization": f"Bearer {TOKEN}"},
                    timeout=2,
                ).ok:
                    return
            except (requests.RequestException, OSError):
                pass
            time.sleep(0.1)
        raise RuntimeError(
            "the api server did not start: "
            + (self.folder / "apiserver.log").read_text()[-2000:]
            + (self.folder / "etcd.log").read_text()[-500:]
        )

    def close(self) -> None:
        for program in reversed(self._programs):
            program.kill()
            program.wait()


class Api:
    """Sends requests as administrator, without injected faults; one instance per thread."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = plane.certificate
        self._session.headers["Authorization"] = f"Bearer {TOKEN}"

    def request(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        reply = self._session.request(
            method,
            f"https://127.0.0.1:{self.plane.port}{path}",
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": content},
            timeout=30,
        )
        if not reply.ok:
            raise ApiError(reply.status_code, reply.text)
        return reply.json()

    @staticmethod
    def path(plural: str, ns: str, name: str = "", sub: str = "") -> str:
        return f"{GROUPS[plural]}/namespaces/{ns}/{plural}" + (f"/{name}" if name else "") + (f"/{sub}" if sub else "")

    def get(self, plural: str, ns: str, name: str) -> dict | None:
        try:
            return self.request("GET", self.path(plural, ns, name))
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def list(self, plural: str, ns: str) -> list[dict]:
        return self.request("GET", self.path(plural, ns))["items"]

    def create(self, plural: str, ns: str, body: dict) -> dict:
        return self.request("POST", self.path(plural, ns), body)

    def patch(self, plural: str, ns: str, name: str, body: dict, sub: str = "") -> dict:
        return self.request("PATCH", self.path(plural, ns, name, sub), body, MERGE)

    def delete(self, plural: str, ns: str, name: str, grace: int | None = None, uid: str | None = None) -> None:
        """Deletes the object; with `uid`, only the object with this uid and never a later one of the same name."""
        options = ({} if grace is None else {"gracePeriodSeconds": grace}) | (
            {} if uid is None else {"preconditions": {"uid": uid}}
        )
        try:
            self.request("DELETE", self.path(plural, ns, name), options or None)
        except ApiError as error:
            if error.code != 404 and not (uid and error.code == 409):
                raise

    def exists(self, path: str) -> bool:
        try:
            self.request("GET", path)
            return True
        except ApiError:
            return False

    def watch(self, path: str) -> Iterator[dict]:
        """Yields the existing objects and then events, until the connection ends."""
        try:
            reply = self._session.get(
                f"https://127.0.0.1:{self.plane.port}{path}?watch=1", stream=True, timeout=(5, 3600)
            )
            for line in reply.iter_lines(chunk_size=None):
                if line:
                    yield json.loads(line)
        except requests.RequestException:
            return  # the server was stopped

    def wait_until(self, predicate, timeout: float, what: str, interval: float = 0.03) -> Any:
        end = time.monotonic() + timeout
        while True:
            found = predicate()
            if found:
                return found
            if time.monotonic() > end:
                raise TimeoutError(f"{what} did not happen in {timeout:g} s")
            time.sleep(interval)
