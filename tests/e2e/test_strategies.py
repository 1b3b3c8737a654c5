# SPDX-License-Identifier: Apache-2.0
"""Without a strategy the planner chooses by the memory of the devices and the objective; user settings are honoured or
rejected with the estimates."""

import pytest
from cluster import ClusterError
from world import MODELS, processes

PROMPT = "Once upon a time"


def served(world, name: str, oracle, layout: str, count: int = 4, **spec) -> dict:
    """Returns status.plan of `count` ranks once only replicas of this layout serve. A `layout` that starts with "not "
    stands for any other layout."""
    world.apply(name, count=count, **{"parallelism": {}, "resources": {"cpu": "500m"}, **spec})

    def there() -> bool:
        status = world.pm(name).get("status", {})
        plan, replicas = status.get("plan", {}), status.get("replicaStatuses", [])
        found = plan.get("layout", "")
        wanted = found and found != layout.removeprefix("not ") if layout.startswith("not ") else found == layout
        return bool(
            wanted
            and len(world.pods(name)) == 1
            and [replica["podHash"] for replica in replicas if replica["ready"]] == [plan["podHash"]]
        )

    world.cluster.wait_for(there, 180, f"{name} serves as {layout}")
    world.wait_ready(name)
    plan = world.pm(name)["status"]["plan"]
    sizes = {axis: plan[axis] for axis in ("tensor", "pipeline", "data")}
    reported = world.wait_plan(
        name, lambda new: new["sizes"] == sizes and new["reason"] == plan["reason"], f"of {plan['layout']}"
    )
    assert world.wait_answer(name, PROMPT, tokens=24) == oracle.greedy(PROMPT, tokens=24)
    return plan | {"bytes": reported["estimate"]["bytes"]}


def test_a_model_without_a_strategy_gets_three_layouts_by_memory_and_objective_and_serves(world, name, oracle):
    """Latency chooses tensor parallelism; Throughput chooses data parallelism if it fits, and another layout if the
    memory is a byte too small."""
    by_latency = served(world, name, oracle, "Tensor x 4", devices={"memory": "1Gi"})
    assert by_latency["reason"] == "LowestLatency", by_latency

    by_throughput = served(world, name, oracle, "Data x 4", devices={"memory": "1Gi"}, objective="Throughput")
    assert (
        by_throughput["reason"] == "HighestThroughput" and "replicas: 4 with 1 device each" in by_throughput["message"]
    ), by_throughput

    by_memory = served(
        world, name, oracle, "not Data x 4", devices={"memory": by_throughput["bytes"] - 1}, objective="Throughput"
    )
    assert by_memory["layout"] != by_latency["layout"], by_memory
    [copies] = [one for one in by_memory["rejected"] if one["strategy"] == "Data x 4"]
    assert copies["reason"] == "DoesNotFit" and "more than" in copies["message"], copies

    line = world.cluster.kubectl("get", "pm", name, "-n", MODELS, "-o", "wide")
    assert by_memory["layout"] in line and by_memory["message"] in line
    described = world.cluster.kubectl("describe", "pm", name, "-n", MODELS)
    assert "DoesNotFit" in described and by_memory["reason"] in described


def test_three_models_without_a_strategy_get_three_by_the_memory_of_their_devices_and_serve(world, name, oracle):
    """Data parallelism if a copy fits a device, tensor parallelism if the device is a byte too small, Offload if it is
    a byte too small for that."""
    names, little = (
        [f"{name[:34]}-{i}" for i in range(3)],
        {"count": 2, "objective": "Throughput", "resources": {"cpu": "200m"}},
    )
    try:
        copies = served(world, names[0], oracle, "Data x 2", devices={"memory": "1Gi"}, **little)
        heads = served(world, names[1], oracle, "Tensor x 2", devices={"memory": copies["bytes"] - 1}, **little)
        streamed = served(world, names[2], oracle, "Offload x 2", devices={"memory": heads["bytes"] - 1}, **little)
        assert (streamed["strategy"], streamed["reason"]) == ("Offload", "NothingElseFits"), streamed
        assert "no layout fits that keeps the weights on the devices" in streamed["message"], streamed
        lines = world.cluster.kubectl("get", "pm", "-n", MODELS, "-o", "wide")
        for one, plan in zip(names, (copies, heads, streamed)):
            assert world.wait_answer(one, PROMPT, tokens=24) == oracle.greedy(PROMPT, tokens=24), "beside the others"
            assert plan["layout"] in lines and plan["message"] in lines
            described = world.cluster.kubectl("describe", "pm", one, "-n", MODELS)
            assert plan["reason"] in described and plan["message"] in " ".join(described.split()), described
    finally:
        for one in names:
            world.delete(one)


def test_pipeline_and_pipeline_with_tensor_and_sharded_give_the_same_answer(world, name, oracle):
    """A change of the plan is an update: the old replica terminates soon after the new one serves."""
    served(world, name, oracle, "Pipeline x 4", devices={"memory": "1Gi"}, parallelism={"strategy": "Pipeline"})
    first = world.pod(name)
    stages = world.get(world.url(name) + "/plan").json()["ranks"]
    assert [rank["stage"] for rank in stages] == [0, 1, 2, 3]
    plan = served(
        world,
        name,
        oracle,
        "Tensor x 2, Pipeline x 2",
        devices={"memory": "1Gi"},
        parallelism={"sizes": {"tensor": 2, "pipeline": 2}},
    )
    assert plan["reason"] == "UserFixed"
    # it rejects new requests 5 s after SIGTERM, finishes running requests and frees its memory
    world.cluster.wait_for(lambda: not processes(first["metadata"]["uid"]), 12, "no process of the former plan is left")
    plan = served(world, name, oracle, "Sharded x 4", devices={"memory": "1Gi"}, parallelism={"strategy": "Sharded"})
    assert plan["strategy"] == "Sharded" and "weights are gathered" in plan["message"], plan
    assert first["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in world.pods(name)}


@pytest.mark.parametrize(
    "parallelism, count, says",
    [
        ({"sizes": {"tensor": 3}}, 4, "must divide devices.count"),
        ({"sizes": {"tensor": 2, "pipeline": 4}}, 4, "must divide devices.count"),
        ({"sizes": {"tensor": 2, "pipeline": 1, "data": 1}}, 4, "sets every axis"),
        ({"strategy": "ZeRO-2"}, 2, "spec.parallelism.strategy"),
        ({"microBatches": 0}, 2, "spec.parallelism.microBatches"),
    ],
    ids=["not a divisor", "too many", "too few", "no strategy", "no micro-batch"],
)
def test_invalid_sizes_are_rejected_by_the_api_server(world, parallelism, count, says):
    with pytest.raises(ClusterError) as refused:
        world.apply("bad", count=count, parallelism=parallelism)
    assert says in str(refused.value), refused.value
    assert not world.cluster.exists("pm", "bad", MODELS)


@pytest.mark.parametrize(
    "parallelism, count, reason, says",
    [
        ({"sizes": {"tensor": 8}}, 8, "InvalidSizes", "tensor=8, but the decoder has 6 attention heads"),
        ({"sizes": {"pipeline": 8}}, 8, "InvalidSizes", "pipeline=8, but the model has 5 layers"),
        (
            {"strategy": "Offload", "offload": {"to": "HostMemory"}},
            2,
            "UnsupportedStrategy",
            "Offload to HostMemory: the memory of a rank on a CPU is the host's own",
        ),
        (
            {"strategy": "Data", "sizes": {"tensor": 2}},
            2,
            "InvalidSizes",
            "strategy Data, but tensor=2 take all 2 devices",
        ),
    ],
    ids=["heads", "layers", "Offload", "nothing left"],
)
def test_unsupported_layouts_are_rejected_by_the_planner_with_the_numbers(
    world, name, parallelism, count, reason, says
):
    world.apply(name, count=count, parallelism=parallelism)
    planned = world.wait_condition(name, "Planned", "False", reason)
    assert says in planned["message"], planned
    assert not world.cluster.list("pods", MODELS, f"parallelmodel.dev/name={name},parallelmodel.dev/replica")
