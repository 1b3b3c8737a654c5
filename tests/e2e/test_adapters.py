# SPDX-License-Identifier: Apache-2.0
"""Tests model.adapters of a ParallelModel with LoRA adapters that PEFT wrote."""

import pytest
from cluster import ClusterError
from conftest import CHECKPOINT
from world import Oracle

PROMPT = "The little dog"


def listed(*names: str) -> dict:
    return {"adapters": [{"name": name, "source": f"pvc://models/adapters/{name}"} for name in names]}


def test_adapters_are_checked_before_pods_start_planned_for_and_served_by_name(world, name, oracle, models):
    world.apply(name, model=listed("tale", "dora"))
    refused = world.wait_condition(name, "Stalled", "True")["message"]
    assert "adapter dora of spec.model.adapters" in refused and "DoRA" in refused, refused
    assert not world.pods(name)

    world.apply(name, model=listed("tale"), serving={"speculation": "NGram"})
    world.wait_ready(name)
    tuned = Oracle(CHECKPOINT, models / "adapters" / "tale")
    assert tuned.greedy(PROMPT) != oracle.greedy(PROMPT)
    assert world.inside(world.complete_at, world.url(name), "tale", PROMPT, 16) == tuned.greedy(PROMPT)
    assert world.complete(name, PROMPT) == oracle.greedy(PROMPT)
    [base, adapter] = world.get(world.url(name) + "/v1/models").json()["data"]
    assert (base["id"], adapter["id"], adapter["parent"]) == (name, "tale", name)
    assert world.stored_plan(name)["adapterBytes"] > 0
    assert world.get(world.admin(world.pod(name), "/status")).json()["speculation"] == "ngram"

    world.apply(name)
    world.cluster.wait_for(
        lambda: "adapterBytes" not in world.stored_plan(name) or None, 120, "the plan without adapters"
    )
    world.wait_ready(name)


def test_an_adapter_has_another_name_than_its_model(world, name):
    manifest = world.manifest(name, model={"adapters": [{"name": name, "source": "pvc://models/adapters/tale"}]})
    with pytest.raises(ClusterError, match="other names than the model"):
        world.cluster.apply(manifest)
