# SPDX-License-Identifier: Apache-2.0
"""The test cluster for pytest: a thin, typed hand on cluster.sh. Standard library and PyYAML only.

    with Cluster.up("e2e", nodes=2, fake_gpus=4, images=[worker, controller]) as cluster:
        cluster.apply(manifest)
        cluster.wait_for(lambda: cluster.get("pod", "w-0", "default")["status"]["phase"] == "Running", 60)

With PM_CLUSTER=NAME in the environment a cluster of that name is used instead, started when it is not running and left
running afterwards, so that a test can be repeated within seconds. Its nodes and fake devices are then what they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import yaml

HERE = Path(__file__).resolve().parent
SCRIPT = str(HERE / "cluster.sh")
Result = TypeVar("Result")


class ClusterError(Exception):
    """A command on the cluster failed; the text has the command and what it said."""


class NotFound(ClusterError):
    """The api server has no object of that kind, name and namespace."""


class TimedOut(ClusterError):
    """What was waited for did not happen in time."""


def _run(
    command: Sequence[str], input: str | None = None, env: dict[str, str] | None = None, timeout: float = 900
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            input=input or "",
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
            env={**os.environ, **(env or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise TimedOut(f"{' '.join(map(str, command))} did not end in {timeout:g} s") from error


def _checked(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr.strip() + "\n" + done.stdout.strip()).strip()
    kind = NotFound if "(NotFound)" in done.stderr else ClusterError
    raise kind(f"{' '.join(map(str, done.args))}: exit status {done.returncode}\n{said}")


def build() -> Path:
    """Build the cluster's programs if this machine does not have them; progress goes to the error output."""
    done = subprocess.run([str(HERE / "build.sh")], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


def extra(name: str) -> Path:
    """Build a program of `extras` if this machine does not have it."""
    done = subprocess.run([str(HERE / "extras" / "build.sh"), name], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


def is_built(name: str) -> bool:
    """Say whether this machine has a program of `extras`."""
    return subprocess.run([str(HERE / "extras" / "build.sh"), "--built", name], stdout=subprocess.PIPE).returncode == 0


def extra_source(name: str, module: str = "") -> Path:
    """Return the folder of the source of an extra, or of a module that it depends on; it is fetched if need be."""
    command = [str(HERE / "extras" / "build.sh"), "--source", name, *([module] if module else [])]
    return Path(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())


def gateway_crds() -> list[Path]:
    """Return the CRDs of the Gateway API and of its inference extension that the extras are made for."""
    standard = extra_source("kthena", "sigs.k8s.io/gateway-api") / "config" / "crd" / "standard"
    pool = extra_source("epp") / "config" / "crd" / "bases" / "inference.networking.k8s.io_inferencepools.yaml"
    return [
        standard / f"gateway.networking.k8s.io_{kind}.yaml" for kind in ("gatewayclasses", "gateways", "httproutes")
    ] + [pool]


def image(what: str, source: str | Path, out: str | Path) -> Path:
    """Make the image archive `out`: what is "worker" or "controller", source the build folder."""
    _checked(_run([str(HERE / "image.sh"), what, str(source), str(out)]))
    return Path(out)


def tools_image(out: str | Path, programs: Iterable[str], name: str = "localhost/tools:test") -> Path:
    """Make the image `name` with programs of this machine, for checks inside of pods."""
    _checked(_run([str(HERE / "image.sh"), "programs", name, str(out), *programs]))
    return Path(out)


class Cluster:
    """A running cluster."""

    def __init__(self, name: str, keep: bool = False) -> None:
        """Take over the running cluster `name`; with keep, down() leaves it running."""
        self.name = name
        self.keep = keep
        done = _run([SCRIPT, "status", name])
        if done.returncode != 0:
            raise ClusterError(f"no cluster {name} is running: {SCRIPT} up {name}\n{done.stderr}".rstrip())
        self.folder = Path(done.stdout.split(maxsplit=1)[1].strip())

    @classmethod
    def up(
        cls,
        name: str,
        nodes: int = 1,
        fake_gpus: int | Sequence[int] = 0,
        images: Iterable[str | Path] = (),
        *,
        audit: bool = False,
        fast_failure: bool = False,
        environment: dict[str, str] | None = None,
    ) -> Cluster:
        """Starts a cluster, or takes the one that PM_CLUSTER names and loads the images into it. A cluster that a
        killed test run left behind under this name is removed first; one that another process uses is an error.

        fake_gpus: nvidia.com/gpu devices per node, one count for all or a list, node0 first.
        fast_failure: a dead node counts as dead after 8 s and its pods go after 13 s (Kubernetes: 50 s and 5 min).
        environment: further settings of cluster.sh, such as APISERVER_FLAGS.
        """
        kept = os.environ.get("PM_CLUSTER", "")
        name = kept or name
        archives = [str(Path(image).resolve()) for image in images]
        if kept and _run([SCRIPT, "status", name]).returncode == 0:
            cluster = cls(name, keep=True)
            cluster.load(*archives)
            return cluster
        gpus = str(fake_gpus) if isinstance(fake_gpus, int) else ",".join(map(str, fake_gpus))
        settings = {
            "NODES": str(nodes),
            "FAKE_GPUS": gpus,
            "IMAGES": " ".join(archives),
            "AUDIT": str(int(audit)),
            "FAST_FAILURE": str(int(fast_failure)),
            "OWNER": "" if kept else str(os.getpid()),
            **(environment or {}),
        }
        build()
        _checked(_run([SCRIPT, "up", name], env=settings))
        return cls(name, keep=bool(kept))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def down(self) -> None:
        """End every process of the cluster; logs stay in `folder`. Nothing happens to a cluster of PM_CLUSTER."""
        if not self.keep:
            _checked(_run([SCRIPT, "down", self.name]))

    @property
    def kubeconfig(self) -> Path:
        """The administrator's; its address is only reached from within exec() and command()."""
        return self.folder / "admin.kubeconfig"

    def load(self, *archives: str | Path) -> None:
        """Import image archives into every running node."""
        if archives:
            _checked(_run([SCRIPT, "load", self.name, *map(str, archives)]))

    def command(self, *command: str) -> list[str]:
        """The command line that runs `command` in the cluster's network and DNS, for subprocess.Popen."""
        return [SCRIPT, "exec", self.name, *command]

    def exec(self, *command: str, input: str | None = None, check: bool = True, timeout: float = 300) -> str:
        """Run a command of this machine in the cluster's network, where ClusterIPs and Service names work."""
        done = _run(self.command(*command), input=input, timeout=timeout)
        return _checked(done) if check else done.stdout

    def shell_command(self, place: str, *command: str) -> list[str]:
        """The command line that runs `command` in all namespaces of a place, for subprocess.Popen."""
        return [SCRIPT, "shell", self.name, place, *command]

    def shell(self, place: str, *command: str, input: str | None = None, check: bool = True) -> str:
        """Run a command in all namespaces of a place: control, node0, node1, ..."""
        done = _run(self.shell_command(place, *command), input=input)
        return _checked(done) if check else done.stdout

    def kubectl(self, *args: str, input: str | None = None, check: bool = True, timeout: float = 300) -> str:
        """Run kubectl as administrator and return its output; with check a failure raises ClusterError or NotFound."""
        return self.exec("kubectl", *args, input=input, check=check, timeout=timeout)

    def helm(self, *args: str, check: bool = True) -> str:
        return self.exec("helm", *args, check=check)

    def apply(self, manifest: str | dict[str, Any] | Sequence[dict[str, Any]], *args: str) -> str:
        """Apply YAML text, one object or several."""
        if isinstance(manifest, dict):
            manifest = json.dumps(manifest)
        elif not isinstance(manifest, str):
            manifest = yaml.safe_dump_all(manifest)
        return self.kubectl("apply", "-f", "-", *args, input=manifest)

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """One object; NotFound when there is none."""
        return json.loads(self.kubectl("get", kind, name, "-o", "json", *self._in(namespace)))

    def list(self, kind: str, namespace: str | None = None, selector: str = "") -> list[dict[str, Any]]:
        """The objects of a kind in a namespace, or in all of them."""
        where = self._in(namespace) if namespace else ["--all-namespaces"]
        return json.loads(self.kubectl("get", kind, "-o", "json", "-l", selector, *where))["items"]

    def exists(self, kind: str, name: str, namespace: str | None = None) -> bool:
        try:
            self.get(kind, name, namespace)
        except NotFound:
            return False
        return True

    def wait_for(
        self, predicate: Callable[[], Result], timeout: float, what: str = "", interval: float = 0.2
    ) -> Result:
        """Ask `predicate` until its answer is true and return the answer; TimedOut after `timeout` seconds.

        An api server error counts as "not yet"; the last answer or error is part of the TimedOut message.
        """
        end = time.monotonic() + timeout
        while True:
            try:
                last: Any = predicate()
                if last:
                    return last
            except ClusterError as error:
                last = error
            if time.monotonic() > end:
                raise TimedOut(f"{what or 'what was waited for'} did not happen in {timeout:g} s; last: {last}")
            time.sleep(interval)

    def kill(self, place: str, part: str) -> None:
        """Sends SIGKILL to a component: kill("control", "apiserver"), kill("node0", "kubelet"); kill("node1", "node")
        simulates a power failure."""
        _checked(_run([SCRIPT, "kill", self.name, place, part]))

    def start(self, place: str, part: str) -> None:
        """Start again what kill() ended."""
        _checked(_run([SCRIPT, "start", self.name, place, part]))

    def log(self, place: str, part: str) -> str:
        """What a component has written so far."""
        return (self._place(place) / "log" / f"{part}.log").read_text(errors="replace")

    def audit(self) -> list[dict[str, Any]]:
        """Every request the api server answered (started with audit=True), oldest first."""
        file = self.folder / "log" / "audit.log"
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith(b"\n")]  # the last one may be half written

    def _place(self, place: str) -> Path:
        return self.folder if place == "control" else self.folder / place

    @staticmethod
    def _in(namespace: str | None) -> Sequence[str]:
        return ["-n", namespace] if namespace else []
