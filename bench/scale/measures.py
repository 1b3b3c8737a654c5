# SPDX-License-Identifier: Apache-2.0
"""Reads the measurements: resources of processes on this machine, and the audit log."""

from __future__ import annotations

import collections
import datetime
import json
import os
import re
from pathlib import Path

WRITES = ("create", "update", "patch", "delete", "deletecollection")


def seconds_of(stamp: str) -> float:
    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def processes_of(command: str) -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and command_of(p) == command]


def command_of(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""


def memory_of(pid: int) -> tuple[float, float]:
    """Returns current and maximum RSS in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return tuple(int(re.search(rf"{key}:\s+(\d+)", text)[1]) / 1024 for key in ("VmRSS", "VmHWM"))


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


CLUSTER = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def cpu_of_cluster() -> dict[str, float]:
    """Returns the CPU seconds of the control plane programs that every controller uses."""
    out = dict.fromkeys(CLUSTER, 0.0)
    for folder in Path("/proc").iterdir():
        program = os.path.basename(command_of(folder)) if folder.name.isdigit() else ""
        if program in out:
            out[program] += cpu_of(int(folder.name))
    return out


class Audit:
    """Entries of the audit log since a moment."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def mark(self) -> int:
        return self.file.stat().st_size

    def since(self, mark: int) -> list[dict]:
        with open(self.file, "rb") as log:
            log.seek(mark)
            return [json.loads(line) for line in log if line.endswith(b"\n")]


def delays(entries: list[dict], peer, owners: dict[str, str]) -> dict[str, list[float]]:
    """Returns the milliseconds from an event to the next write for the same object: from its creation to the first
    child, and from a pod's readiness to its status. `owners` maps a pod to its object.
    """
    created, ready, first, told = {}, collections.defaultdict(list), {}, collections.defaultdict(list)
    for entry in entries:
        about, user = entry.get("objectRef", {}), entry["user"]["username"]
        name, resource = about.get("name", ""), about.get("resource", "")
        received, done = seconds_of(entry["requestReceivedTimestamp"]), seconds_of(entry["stageTimestamp"])
        if resource == peer.resource and entry["verb"] == "create":
            created[name] = done
        elif (
            resource == "pods"
            and about.get("subresource") == "status"
            and user == "admin"
            and entry["verb"] == "patch"
            and name in owners
        ):
            ready[owners[name]].append(done)
        elif user == peer.user and entry["verb"] in WRITES:
            if resource == peer.resource and about.get("subresource") == "status":
                told[name].append(received)
            elif entry["verb"] in ("create", "patch") and resource not in ("events", peer.resource):
                for owner in (name.rsplit("-", cut)[0] for cut in range(1, 4)):
                    if owner in created:
                        first.setdefault(owner, received)
                first.setdefault(name, received)
    answers = []
    for owner, moments in ready.items():
        for moment in moments:
            later = [t for t in told[owner] if t >= moment - 0.001]
            if later:
                answers.append(max(0.0, min(later) - moment) * 1000)
    return {
        "creation to first child": [
            max(0.0, first[name] - moment) * 1000 for name, moment in created.items() if name in first
        ],
        "readiness to status": answers,
    }
