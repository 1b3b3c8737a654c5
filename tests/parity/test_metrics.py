# SPDX-License-Identifier: Apache-2.0
"""docs/reference/metrics.md and the dashboard agree with the metrics of a real server."""

import json
import re

import pytest
from test_endpoints import byte_pairs, gpt2, serve  # noqa: F401  (serve is a fixture)

import worker

PAGE = worker.REPOSITORY / "docs/reference/metrics.md"
DASHBOARDS = worker.REPOSITORY / "helm/parallelmodel/dashboards"
ON_DEVICES = {"parallelmodel_rank_device_memory_bytes"}  # shown by test_devices: this server runs on the CPU
WITH_ADAPTERS = "lora_requests_info"  # shown by test_adapter_routes
WITH_IMAGES = ("mm_cache_queries_total", "mm_cache_hits_total")  # likewise by test_prompt_images
OWN_LABELS = {"namespace", "pod"}  # that Prometheus adds


def documented(text=None):
    """name -> (type, labels) of the page's tables about a server, or of all tables of a text."""
    text = text or PAGE.read_text().partition("\n## Download")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\|", text, re.MULTILINE)
    assert len(rows) == len({name for name, *_ in rows}) > 20
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def exposed(text):
    """The same of an exposition."""
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    labels = {name: set() for name in kinds}
    for name, inside in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.MULTILINE):
        family = name if name in kinds else re.sub(r"_(bucket|sum|count)$", "", name)
        labels[family] |= set(re.findall(r'(\w+)="', inside)) - {"le"}
    return {name: (kind, labels[name]) for name, kind in kinds.items() if name.startswith("parallelmodel_")}


def test_the_page_lists_every_metric_that_a_server_shows_and_no_other(serve):  # noqa: F811
    server, _ = serve("GPT2LMHeadModel", gpt2(), byte_pairs(), options=("--kv-precision", "I8"))
    server.ask("/v1/completions", {"prompt": "the cat sat", "max_tokens": 4})
    server.refused("/v1/completions", {"prompt": 5}, 400)
    text = server.get("/metrics").text
    elsewhere = ON_DEVICES | {f"parallelmodel_{name}" for name in (WITH_ADAPTERS, *WITH_IMAGES)}
    assert exposed(text) == {name: metric for name, metric in documented().items() if name not in elsewhere}
    samples = dict(re.findall(r"^(\w+) (\S+)$", text, re.MULTILINE))
    for moved in (
        "time_to_first_token_seconds_count",
        "inter_token_latency_seconds_count",
        "e2e_request_latency_seconds_count",
        "request_queue_time_seconds_count",
        "request_prefill_time_seconds_count",
        "engine_step_seconds_count",
        "engine_prefill_step_seconds_count",
        "engine_step_gap_seconds_count",
        "engine_step_tokens_count",
        "generation_tokens_total",
        "prompt_tokens_total",
        "engine_steps_total",
    ):
        assert float(samples[f"parallelmodel_{moved}"]) > 0, moved
    assert float(re.search(r'parallelmodel_collective_bytes_total\{op="\w+"\} (\S+)', text)[1]) > 0, "two ranks talk"


def test_vllms_names_are_those_of_the_page_and_have_our_values(serve):  # noqa: F811
    server, _ = serve("GPT2LMHeadModel", gpt2(), byte_pairs())
    server.ask("/v1/completions", {"prompt": "the cat sat", "max_tokens": 4})
    text = server.get("/metrics").text
    shown = set(re.findall(r"^# TYPE (vllm:\w+) ", text, re.MULTILINE))
    page = PAGE.read_text().partition("\n## vLLM's names")[2].partition("\n## Download")[0]
    elsewhere = {f"vllm:{name}" for name in (WITH_ADAPTERS, *WITH_IMAGES)}
    assert shown == set(re.findall(r"`(vllm:\w+)`", page)) - elsewhere and len(shown) == 18
    for name in shown - {"vllm:request_success_total", "vllm:cache_config_info"}:
        own = name.replace("vllm:", "parallelmodel_")
        ours = re.findall(rf"^{own}(_sum|_count|) (\S+)$", text, re.MULTILINE)
        theirs = re.findall(rf'^{name}(_sum|_count|){{model_name="[^"]+"}} (\S+)$', text, re.MULTILINE)
        assert ours and ours == theirs, name


METRIC = r"\b(?:parallelmodel|controller_runtime|workqueue|rest_client|reflector|leader_election)_\w+"


@pytest.mark.parametrize("name, least", [("user", 8), ("model", 20), ("platform", 13)])
def test_every_expression_of_a_dashboard_names_metrics_and_labels_that_there_are(name, least):
    board, known = json.loads((DASHBOARDS / f"{name}.json").read_text()), documented(PAGE.read_text())
    assert board["uid"] == f"parallelmodel-{name}" and board["title"] and board["schemaVersion"] >= 36
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    used = set()
    for expression in expressions:
        assert expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}")
        for metric in re.findall(METRIC, expression):
            base = re.sub(r"_(bucket|sum|count)$", "", metric)
            assert base in known, expression
            assert (metric != base) == (known[base][0] == "histogram"), f"{metric} of a {known[base][0]}"
            used.add(base)
            labels = set(re.findall(r'(\w+)=~?"', expression)) | {
                word for group in re.findall(r"by \(([^)]*)\)", expression) for word in re.findall(r"\w+", group)
            }
            assert labels - OWN_LABELS - {"le"} <= known[base][1], expression
    assert len(used) >= least, len(used)
