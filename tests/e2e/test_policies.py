# SPDX-License-Identifier: Apache-2.0
"""Tests a user's own policy in a ConfigMap: the example policy, for a checkpoint of an invented model_type that the
fixture `models` makes from the example checkpoint."""

import pytest
import yaml
from conftest import ROOT
from world import MODELS

PROMPT = "The little dog"
EXAMPLE = ROOT / "examples" / "own-policy.yaml"


def policy_of(example: str) -> str:
    [text] = next(yaml.safe_load_all(example))["data"].values()
    return text


def uid(pod: dict) -> str:
    return pod["metadata"]["uid"]


@pytest.fixture
def write(world, name):
    """write(text) gives the ConfigMap with the test's name these contents."""
    yield lambda text: world.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": MODELS},
            "data": {"mine.yaml": text},
        }
    )
    world.cluster.kubectl("delete", "configmap", name, "-n", MODELS, "--ignore-not-found")


def test_a_users_policy_is_refused_while_it_is_wrong_served_once_it_is_right_and_followed_when_it_changes(
    world, name, write, oracle
):
    right = policy_of(EXAMPLE.read_text())
    line = 1 + next(i for i, text in enumerate(right.splitlines()) if "attn.c_proj" in text)
    write(right.replace("out: attn.c_proj", "out: attn.elsewhere"))
    world.apply(name, source="pvc://models/storyteller", model={"policyRef": {"name": name}})
    refused = world.wait_condition(name, "Stalled", "True")["message"]
    for text in (
        f"ConfigMap {name}",
        f"/policy/mine.yaml:{line}",
        "story.blocks.0.attn.elsewhere.weight",
        "story.blocks.0.attn.c_proj.weight",
    ):
        assert text in refused, refused

    write(right)  # nothing else tells the controller
    world.wait_ready(name)
    assert world.complete(name, PROMPT) == oracle.greedy(PROMPT)
    first, plan = world.pod(name), world.pm(name)["status"]["plan"]
    assert plan["architecture"] == "StorytellerForCausalLM" and plan["policy"].endswith("/mine.yaml")

    write(right + "# with a remark\n")

    def others() -> list[str]:
        return [uid(pod) for pod in world.pods(name)]

    world.cluster.wait_for(
        lambda: len(others()) == 1 and uid(first) not in others(), 60, "the edit replaces the replica"
    )
    world.wait_ready(name)
    assert world.pm(name)["status"]["plan"]["policy"] != plan["policy"]
    assert world.wait_answer(name, PROMPT) == oracle.greedy(PROMPT)

    def copies() -> list[tuple[str, bool]]:
        return [
            (one["data"]["mine.yaml"], one["immutable"])
            for one in world.cluster.list(
                "configmaps", MODELS, f"parallelmodel.dev/name={name},parallelmodel.dev/role=policy"
            )
        ]

    world.cluster.wait_for(
        lambda: copies() == [(right + "# with a remark\n", True)],
        30,
        "the copy of the previous policy is deleted with the last replica that reads it",
    )


def test_a_missing_configmap_is_named(world, name):
    world.apply(name, source="pvc://models/storyteller", model={"policyRef": {"name": "nobody-s-policy"}})
    planned = world.wait_condition(name, "Planned", "False", "PolicyNotFound")
    assert "nobody-s-policy" in planned["message"] and MODELS in planned["message"], planned
    assert world.condition(name, "Stalled")["status"] == "False", "it may still come"


def test_without_a_policy_the_invented_type_is_refused_by_name(world, name):
    world.apply(name, source="pvc://models/storyteller")
    assert "storyteller" in world.wait_condition(name, "Planned", "False", "UnknownArchitecture")["message"]
