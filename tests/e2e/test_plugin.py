# SPDX-License-Identifier: Apache-2.0
"""Runs every command of the kubectl plugin on a served model: what they print agrees with the objects."""

import json
import subprocess

import pytest
from conftest import ROOT
from world import MODELS

PLUGIN = ROOT / "build" / "bin" / "kubectl-pm"


@pytest.fixture(scope="module")
def served(world):
    name = "plugged"
    world.apply(name, count=2, parallelism={}, resources={"cpu": "500m", "memory": "2Gi"}, networkPolicy={})
    world.wait_ready(name)
    world.cluster.wait_for(lambda: "startup" in world.pm(name)["status"], 30, "the times of the start in status")
    yield name
    world.delete(name)


def run(world, *arguments: object, code: int = 0, text: str | None = None) -> str:
    """Returns the standard output; with another `code` than 0, the standard error too."""
    done = subprocess.run(
        world.cluster.command(str(PLUGIN), "-n", MODELS, *map(str, arguments)),
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout + (done.stderr if code else "")


def test_status_tells_the_whole_story(world, served):
    status = world.pm(served)["status"]
    printed = run(world, "status", served)
    for text in (status["plan"]["message"], status["endpoint"], status["startup"], "1 of 1 replicas ready"):
        assert text in printed, printed
    assert all(condition["type"] in printed for condition in status["conditions"]), printed
    assert printed in run(world, "status"), "without a name it prints all models"
    assert "not found" in run(world, "status", "nobody", code=1)


def test_why_describes_the_plan_with_what_was_rejected(world, served):
    printed = run(world, "why", served)
    plan = world.pm(served)["status"]["plan"]
    assert plan["message"] in printed and "link bandwidth" in printed, printed
    assert all(f"not {one['strategy']} ({one['reason']})" in printed for one in plan["rejected"]), printed


def test_ranks_have_nodes_states_and_bytes(world, served):
    [replica] = world.pm(served)["status"]["replicaStatuses"]
    lines = run(world, "ranks", served).splitlines()
    assert len(lines) == 1 + len(replica["ranks"]) == 3, lines
    for line, rank in zip(lines[1:], replica["ranks"], strict=True):
        assert line.split()[:4] == ["0", str(rank["rank"]), rank["node"], "Ready"] and "steps" in line, lines


def test_plan_answers_for_a_manifest_and_changes_nothing(world, served):
    manifest = world.manifest("wider", count=4, resources={"cpu": 1, "memory": "4Gi"})
    assert world.manifest(served)["spec"]["model"] == manifest["spec"]["model"], "the checkpoint has been read"
    printed = run(world, "plan", "-f", "-", text=json.dumps(manifest))
    assert printed.startswith(f"{MODELS}/wider\n") and "rank 3" in printed, printed
    manifest["spec"]["devices"]["memory"] = "1Mi"
    assert "DoesNotFit" in run(world, "plan", "-f", "-", text=json.dumps(manifest), code=1)
    manifest["spec"]["model"]["source"] += "-other"
    assert "--metadata" in run(world, "plan", "-f", "-", text=json.dumps(manifest), code=1)
    manifest["spec"]["devices"]["count"] = 0
    assert "devices.count" in run(world, "plan", "-f", "-", text=json.dumps(manifest), code=1), "the server's own check"
    assert "wider" not in world.cluster.kubectl("get", "pm", "-n", MODELS)


def test_logs_and_bundle_hold_the_lines_of_the_ranks(world, served, tmp_path):
    printed = run(world, "logs", served, "--replica", 0)
    assert "holds" in printed and "bytes of weights" in printed, printed
    folder = tmp_path / "sent"
    print(run(world, "bundle", served, "--output", folder))
    names = {path.name for path in folder.iterdir()}
    [pod] = world.pods(served)
    for name in (
        "parallelmodel.json",
        "status.txt",
        "ranks.txt",
        "events.txt",
        "nodes.json",
        "configmaps.json",
        "networkpolicies.json",
    ):
        assert name in names, names
    assert f"log-{pod['metadata']['name']}.txt" in names and "errors.txt" not in names, names
    assert json.loads((folder / f"status-{pod['metadata']['name']}.json").read_text())["state"] == "Ready"
    assert "exists" in run(world, "bundle", served, "--output", folder, code=1)


def test_restart_replaces_the_replica(world, served):
    [before] = world.pods(served)
    run(world, "restart", served)
    world.cluster.wait_for(
        lambda: [pod for pod in world.pods(served) if pod["metadata"]["uid"] != before["metadata"]["uid"]],
        60,
        "the next generation",
    )
    world.wait_ready(served)
