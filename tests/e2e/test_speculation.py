# SPDX-License-Identifier: Apache-2.0
"""Tests what drafts for a ParallelModel: a draft model on the PVC of the model, or a module of its own checkpoint."""

import itertools

from world import Oracle

PROMPT = "The little dog"
FLAG = "--draft-model"


def drafted(folder: str) -> dict:
    return {"draft": {"source": f"pvc://models/{folder}"}}


def drafts(pod: dict) -> list[str]:
    """Returns the draft models of a pod's arguments."""
    args = pod["spec"]["containers"][0]["args"]
    return [value for flag, value in itertools.pairwise(args) if flag == FLAG]


def test_a_draft_model_is_checked_before_pods_start_and_planned_for(world, name, oracle):
    world.apply(name, model=drafted("minilm"))  # an encoder, of another vocabulary
    refused = world.wait_condition(name, "Stalled", "True")["message"]
    assert f"draft model of spec.model.draft: {FLAG} /model/minilm" in refused, refused
    assert not world.pods(name)

    world.apply(name, model=drafted("draft"))
    world.wait_ready(name)
    assert world.complete(name, PROMPT, 32) == oracle.greedy(PROMPT, 32)
    pod = world.pod(name)
    assert drafts(pod) == ["/model/draft"]
    plan = world.stored_plan(name)["draft"]
    assert plan["bytes"] > 0 and plan["kvBlocks"] > 0, plan
    speculation = world.get(world.admin(pod, "/status")).json()["speculation"]
    assert speculation != "ngram" and not speculation.startswith("off"), speculation

    world.apply(name, model=drafted("draft"), serving={"speculation": "DraftModel"})
    world.wait_condition(name, "Reconciling", "False")
    assert world.pod(name)["metadata"]["uid"] == pod["metadata"]["uid"], "the switch replaces no replica"

    world.apply(name)
    world.cluster.wait_for(lambda: "draft" not in world.stored_plan(name) or None, 120, "the plan without a draft")
    world.wait_ready(name)


def test_every_node_of_a_replica_has_the_draft_model(world, name, oracle):
    world.apply(name, model=drafted("draft"), devices={"perNode": 1})
    world.wait_ready(name)
    pods = world.pods(name)
    assert [drafts(pod) for pod in pods] == 2 * [["/model/draft"]]
    assert world.complete(name, PROMPT) == oracle.greedy(PROMPT)


def test_a_module_of_the_checkpoint_is_checked_before_pods_start_and_planned_for(world, name, models):
    world.apply(name, serving={"speculation": "MTP"})  # which the example does not have
    refused = world.wait_condition(name, "Stalled", "True")["message"]
    assert "drafts of spec.serving.speculation: --speculation mtp: " in refused, refused
    assert not world.pods(name)

    world.apply(name, source="pvc://models/module", serving={"speculation": "MTP"})
    world.wait_ready(name)
    assert world.complete(name, PROMPT, 24) == Oracle(models / "module").greedy(PROMPT, 24)
    plan = world.stored_plan(name)["draft"]
    assert plan["bytes"] > 0 and plan["kvBlocks"] > 0, plan
    assert world.get(world.admin(world.pod(name), "/status")).json()["speculation"] == "mtp"
