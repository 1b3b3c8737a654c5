# SPDX-License-Identifier: Apache-2.0
"""A ParallelModel serves the answers of Hugging Face over HTTP and reports its plan and memory."""

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from world import MIB, MODELS, parse_metrics, processes

PROMPTS = ["Once upon a time", "The little dog", "One day, a girl named"]
RANKS = 2


def test_kubectl_get_shows_the_plan_and_why(world, stories):
    line = world.cluster.kubectl("get", "pm", stories, "-n", MODELS, "-o", "wide")
    plan = world.pm(stories)["status"]["plan"]
    assert plan["strategy"] == "Tensor" and plan["tensor"] == RANKS
    assert plan["reason"] and plan["message"]
    for text in ("Tensor", plan["message"], f"{stories}.{MODELS}"):
        assert text in line


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_answer_through_the_service_is_hugging_faces_greedy_answer(world, stories, oracle, prompt):
    assert world.complete(stories, prompt, tokens=24) == oracle.greedy(prompt, tokens=24)


def test_the_service_has_a_name_in_the_clusters_dns(world, stories, oracle):
    answer = world.cluster.exec(
        "curl", "-sS", "--max-time", "30", f"http://{stories}.{MODELS}:8000/generate_text/Once%20upon%20a%20time"
    )
    assert (
        '"inputs"' in answer and '"outputs"' in answer and oracle.greedy("Once upon a time", 8).strip()[:12] in answer
    )


def test_several_requests_at_once_get_their_own_answers(world, stories, oracle):
    waiting = {
        prompt: [world.inside.start(world.complete_at, world.url(stories), stories, prompt, 12) for _ in range(4)]
        for prompt in PROMPTS
    }
    for prompt, futures in waiting.items():
        assert {future.result(60) for future in futures} == {oracle.greedy(prompt, 12)}


def test_every_rank_holds_what_the_plan_says_within_one_mib(world, stories):
    pod = world.pod(stories)
    plan = world.get(world.url(stories) + "/plan").json()
    memory = world.get(world.url(stories) + "/memory", headers={"Accept": "application/json"}).json()
    assert len(plan["ranks"]) == len(memory["ranks"]) == RANKS
    for planned, held in zip(plan["ranks"], memory["ranks"]):
        assert planned["predicted"]["weights"] > 0
        assert held["measured"]["weights"] == planned["predicted"]["weights"], "weights are exact"
        assert abs(held["measured"]["kv"] - planned["predicted"]["kv"]) <= MIB, (
            "the cache is as large as planned, not only as small"
        )
        for kind in ("kv", "activations", "communicator"):
            assert held["measured"][kind] <= planned["predicted"][kind] + MIB, kind
    [replica] = world.pm(stories)["status"]["replicaStatuses"]
    for planned, seen in zip(plan["ranks"], replica["ranks"]):
        assert seen["node"] == pod["spec"]["nodeName"]
        assert seen["predicted"] == {kind: value for kind, value in planned["predicted"].items() if kind != "total"}
        assert seen["measuredAtLoad"]["weights"] == planned["predicted"]["weights"]
    metrics = parse_metrics(world.get(world.admin(pod, "/metrics")).text)
    measured = {
        (labels["rank"], labels["kind"]): value
        for labels, value in metrics["parallelmodel_rank_memory_bytes"]
        if labels["source"] == "measured"
    }
    for rank, planned in enumerate(plan["ranks"]):
        assert measured[str(rank), "weights"] == planned["predicted"]["weights"]


def test_the_routes_beside_the_api_answer(world, stories):
    url = world.url(stories)
    assert [model["id"] for model in world.get(url + "/v1/models").json()["data"]] == [stories]
    assert world.get(url + "/health").status_code == 200
    assert world.get(url + "/plan").json()["strategy"] == "Tensor"
    table = world.get(url + "/memory?format=text").text
    assert "weights" in table and "rank" in table.lower()
    answer = world.get(url + "/generate_text/The%20little%20dog").json()
    assert answer["inputs"] == "The little dog" and answer["outputs"]
    pod = world.pod(stories)
    for path in ("/live", "/ready", "/status", "/metrics"):
        assert world.get(world.admin(pod, path)).status_code == 200, path


def test_bad_requests_get_an_explanation_and_others_are_not_affected(world, stories, oracle):
    url = world.url(stories) + "/v1/completions"
    for body, word in (
        ({"model": stories, "prompt": "x", "max_tokens": -1}, "max_tokens"),
        ({"model": stories}, "prompt"),
        ({"model": stories, "prompt": "x", "temperature": "hot"}, "temperature"),
    ):
        answer = world.post(url, body)
        assert answer.status_code == 400 and word in answer.json()["error"]["message"], answer.text
    assert world.complete(stories, PROMPTS[0], 8) == oracle.greedy(PROMPTS[0], 8)


def test_the_openai_client_talks_to_it(world, stories, oracle):
    def talk(url: str) -> tuple[str, list[str]]:
        import openai

        client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        answer = client.completions.create(model=stories, prompt=PROMPTS[1], max_tokens=16, temperature=0)
        assert answer.usage.completion_tokens <= 16 and answer.choices[0].finish_reason in ("length", "stop")
        return answer.choices[0].text, [model.id for model in client.models.list()]

    text, models = world.inside(talk, world.url(stories))
    assert text == oracle.greedy(PROMPTS[1], 16) and models == [stories]


def test_an_openai_client_gets_an_error_for_an_unknown_model(world, stories):
    def talk(url: str) -> None:
        import openai

        client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        with pytest.raises(openai.NotFoundError, match="nobody"):
            client.completions.create(model="nobody", prompt="x")

    world.inside(talk, world.url(stories))


def test_the_pod_is_restricted_and_runs_one_process_per_rank(world, stories):
    pod = world.pod(stories)
    assert world.process(pod, "--rank", "0") != world.process(pod, "--rank", "1")
    launcher = min(processes(pod["metadata"]["uid"], "/usr/bin/parallelmodel-worker"))
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{launcher}/status").read_text().splitlines() if ":\t" in line
    )
    assert (
        int(status["CapEff"], 16) == 0
        and status["NoNewPrivs"] == "1"
        and status["Seccomp"] == "2"
        and status["Uid"].split()[0] == "65532"
    )
    assert not pod["spec"].get("automountServiceAccountToken", True)


def test_type_cpu_takes_fake_gpus_when_the_resource_says_so(world, name):
    world.apply(name, devices={"resource": "nvidia.com/gpu"})
    world.wait_ready(name)
    pod = world.pod(name)
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    environment = Path(f"/proc/{world.process(pod, '--rank', '1')}/environ").read_text().split("\0")
    [devices] = [
        value.removeprefix("FAKE_VISIBLE_DEVICES=")
        for value in environment
        if value.startswith("FAKE_VISIBLE_DEVICES=")
    ]
    assert devices.count("fake-") == 2


@pytest.fixture
def prometheus(world, stories, tmp_path):
    """Runs Debian's Prometheus on the cluster's loopback; it scrapes the ranks' admin port, the API port and the
    controller."""
    pod = world.pod(stories)
    targets = {
        "worker": f"{pod['status']['podIP']}:8001",
        "api": f"{pod['status']['podIP']}:8000",
        "controller": f"{world.controller_address()}:8080",
    }
    jobs = "".join(
        f"- {{job_name: {job}, static_configs: [{{targets: ['{address}']}}]}}\n" for job, address in targets.items()
    )
    (tmp_path / "prometheus.yml").write_text(
        f"global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n{jobs}"
    )
    log = open(tmp_path / "log", "w")
    process = subprocess.Popen(
        world.cluster.command(
            "prometheus",
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            "--web.listen-address=127.0.0.1:9099",
        ),
        stdout=log,
        stderr=log,
    )

    def query(expression: str) -> list[dict]:
        return world.get("http://127.0.0.1:9099/api/v1/query", params={"query": expression}).json()["data"]["result"]

    def answers() -> bool:
        try:
            return len(query("up == 1")) == len(targets)
        except Exception as error:
            if process.poll() is not None:
                raise AssertionError((tmp_path / "log").read_text()) from error
            return False

    world.cluster.wait_for(answers, 60, "Prometheus has scraped worker, api and controller")
    yield query
    process.terminate()
    process.wait(30)
    log.close()


ROOT = Path(__file__).resolve().parents[2]
SERIES = [
    'parallelmodel_rank_memory_bytes{job="worker"}',
    'parallelmodel_plan_info{job="worker"}',
    'parallelmodel_num_requests_running{job="api"}',
    'parallelmodel_generation_tokens_total{job="api"}',
    'parallelmodel_time_to_first_token_seconds_count{job="api"}',
    'controller_runtime_reconcile_total{job="controller",result="success"}',
    'controller_runtime_reconcile_time_seconds_count{job="controller"}',
    'workqueue_adds_total{job="controller"}',
    'workqueue_depth{job="controller"}',
    'rest_client_requests_total{job="controller"}',
]


def test_a_real_prometheus_scrapes_worker_and_controller(world, stories, prometheus):
    world.complete(stories, PROMPTS[0])
    for expression in SERIES:
        world.cluster.wait_for(lambda: prometheus(expression), 15, f"series {expression}")
    moved = 'sum(parallelmodel_generation_tokens_total{job="api"})'
    before = float(prometheus(moved)[0]["value"][1])
    world.complete(stories, PROMPTS[0], 16)
    world.cluster.wait_for(lambda: float(prometheus(moved)[0]["value"][1]) > before, 15, "the token counter moves")


# Panels whose metrics a small model on CPUs has no values of: a download, GPUs, errors, and what did not happen yet.
EMPTY = re.compile(
    "fetch_|device_memory|rejected|errors|panics|retries|preemptions|prefix_cache|rate_limiter|operator_events"
)


def test_every_panel_of_the_dashboards_is_a_query_with_a_result(world, stories, prometheus):
    world.complete(stories, PROMPTS[0])
    expressions = {
        target["expr"]
        for board in (ROOT / "helm/parallelmodel/dashboards").glob("*.json")
        for panel in json.loads(board.read_text())["panels"]
        for target in panel["targets"]
    }
    assert len(expressions) > 40
    for expression in expressions:
        # The targets of this Prometheus have no labels of Kubernetes, so any pod matches.
        query = re.sub(r'=~"\$(namespace|pod)"', '=~".*"', expression).replace("$__rate_interval", "10s")
        if EMPTY.search(query):
            prometheus(query)
        else:
            world.cluster.wait_for(lambda: prometheus(query), 20, query)


@pytest.mark.skipif("PM_DASHBOARDS" not in os.environ, reason="PM_DASHBOARDS names the folder of the pictures")
def test_pictures_of_the_dashboards_under_load(world, stories, prometheus):
    def client(number: int) -> None:
        time.sleep(12 * number)
        while time.monotonic() < end:
            world.complete(stories, PROMPTS[number % len(PROMPTS)], 8 * (1 + number))

    end = time.monotonic() + 80
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(client, range(5)))
    drawing = (sys.executable, str(ROOT / "tools/dashboards.py"), "http://127.0.0.1:9099", "80")
    subprocess.run(world.cluster.command(*drawing, os.environ["PM_DASHBOARDS"]), check=True)
    for name in ("user", "model", "platform"):
        picture = (Path(os.environ["PM_DASHBOARDS"]) / f"dashboard-{name}.svg").read_text()
        assert picture.count("<polyline") >= 10, name
