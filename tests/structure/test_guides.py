# SPDX-License-Identifier: Apache-2.0
"""Holds the guides of CONTRIBUTING.md ("How to add ...") to the tree.

Each guide has examples: things of its kind that exist. Every tracked file that mentions an example must be named by the
guide, so that a change which adds a place where such a thing is written fails here until the guide names that place.
Every path that CONTRIBUTING.md names must exist.
"""

import functools
import itertools
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
GUIDES = {title: body for title, body in re.findall(r"^## How to add an? (.*)\n((?:(?!## ).*\n?)*)", PAGE, re.M)}

# guide -> {regular expression (of git grep -E): what it finds}; the expressions are narrow enough to find nothing else
EXAMPLES = {
    "model family": {
        "codegen|CodeGen": "a decoder",
        "retribert|RetriBert": "an encoder with a tokenizer of older files",
    },
    "operation with kernels": {
        "silu_and_mul": "with vector code for CPUs",
        "rotary_angles": "with a CUDA kernel",
        "prefill_mma": "a CUDA source",
    },
    "generation parameter": {"typical_?p|typical-p": "a number that changes sampling"},
    "HTTP route": {"rerank": "a route of a task that others serve too", "question.answering": "a task of its own"},
    "CRD field": {
        "runtime_?[cC]lass": "rendered into pods",
        "scheduleTimeoutSeconds|schedule_timeout": "read by the replica planner",
    },
    "metric": {
        "request_queue_time": "of requests",
        "num_preemptions|preempted": "of the engine",
        "rank_steps": "of ranks",
        "reconcile_errors_total": "of the controller",
        "rate_limiter_duration": "of the controller's client",
    },
    "tokenizer class": {"MPNetTokenizer": "of a vocabulary file", "M2M100Tokenizer": "written in Python only"},
    "reason": {"UnsupportedDevice": "of the worker"},
    "child object": {"[dD]isruption_?[bB]udget": "watched, and removed when it is superfluous"},
    "strategy": {
        r"\bSharded\b": "its name",
        "fully_sharded": "its source files",
        r"plan\.gathering": "what distinguishes the plans of strategies that gather weights",
    },
    "architecture of GGUF": {"COMMAND_R": "an architecture", "smaug-bpe": "a pre-tokenizer"},
    "checkpoint format": {r"torch_?[fF]ile|TorchFile|pytorch_model|[^a-z]\.bin\b": "PyTorch's archives"},
}

# Pages, manifests and benchmarks that explain or use things of every kind. Only some new things need a word there.
PROSE = ("README.md", "CHANGELOG.md", "docs/design/", "docs/tasks/", "docs/tutorials/", "examples/", "bench/")
OWN = ("CONTRIBUTING.md", "tests/structure/test_guides.py")

# guide -> {files: why a new thing of this kind does not change them}
EXCEPTIONS = {
    "model family": {
        "tests/unit/worker/policy/tensor_slices_test.cpp": "names the families whose fused tensors it slices",
        "worker/tokenizer/ffi/Cargo.toml": "codegen-units is an option of the compiler",
        "tests/cluster/extras/*/go.*": "modules of programs in Go",
    },
    "operation with kernels": {
        "tests/gpu/fake_device/activations_test.cpp": "counts the bytes of the operations of a layer",
        "tests/gpu/fake_device/step_test.cpp": "counts the calls of operations that a step makes once",
    },
    "generation parameter": {
        "tests/stress/small_models.py": "a load that happens to use it",
        "tests/unit/worker/engine/constraint_test.cpp": "requests that happen to use it",
        "tests/unit/worker/engine/scheduler_test.cpp": "a request that happens to use it",
        "tests/unit/worker/engine/speculation_test.cpp": "requests that happen to use it",
        "tests/unit/worker/server/generation/*_test.cpp": "requests that happen to use it",
        "worker/engine/sampling/sampler.h": "a comment lists the parameters that one function applies",
    },
    "HTTP route": {
        "tests/parity/test_sentence_transformers.py": "folders whose prompts and similarities the route uses",
        "tests/parity/test_logit_score.py": "folders whose scores the route answers with",
        "policies/*": "policies whose classes have the task",
        "docs/reference/families.md": "made from the policies",
    },
    "metric": {
        "tests/stress/test_load.py": "reads this metric to know that KV blocks were short",
        "tests/parity/test_latent_attention.py": "reads this metric to see that sequences were preempted",
        "tests/unit/worker/engine/constraint_test.cpp": "counts preemptions to see that there were some",
        "tests/unit/worker/engine/draft_model_test.cpp": "counts preemptions to see that there were some",
        "tests/unit/worker/engine/mtp_module_test.cpp": "counts preemptions to see that there were some",
        "tests/unit/worker/engine/prompt_scores_test.cpp": "counts preemptions to see that there were some",
        "tests/unit/worker/engine/speculation*_test.cpp": "counts preemptions to see that there were some, or none",
        "tests/unit/worker/engine/weighted_sources_test.cpp": "counts preemptions to see that there were some",
    },
    "tokenizer class": {"tests/parity/test_family_endpoints.py": "a model that happens to have this tokenizer"},
    "reason": {
        "worker/comm/membership/device_communicator.*": "what throws it",
        "tests/unit/worker/comm/nccl/failure_test.cpp": "the test of what throws it",
    },
    "checkpoint format": {
        "tests/fuzz/adapter_*": "adapters in the forms that PEFT writes",
        "tests/parity/test_tokenizers.py": "pytorch_model.bin as a file that is no tokenizer's",
        "worker/server/serving/module_weights.*": "opens the tensors of small modules in the forms that there are",
        "worker/server/serving/sparse_embedding.cpp": "reads a file of one name",
    },
    "child object": {
        "controller/plugin/bundle.cpp": "collects every kind of child that kubectl lists by label",
        "helm/parallelmodel/templates/budget.yaml": "the budget of the controller's own pods",
        "tests/chart/test_*.py": "tests of that budget",
        "tests/e2e/test_failures.py": "lists the children of a replica on one node",
        "tests/unit/controller/operator/disruption_test.cpp": "expects what the budget allows while replicas move",
        "tests/unit/controller/operator/simulator/scenarios.cpp": "expects no budget where a move has no room",
        "tests/unit/controller/operator/lifecycle_test.cpp": "counts children after a reconcile",
    },
    "strategy": {
        "contract/reasons.h": "a reason names the strategies that keep no weights on devices",
        "tests/gpu/fake_device/staging_test.cpp": "tests transfers to devices, which this strategy has",
        "tests/unit/controller/operator/released.json": "a plan of an older release",
        "tests/unit/worker/parallel/sharded_rank.h": "a fixture of the tests of this strategy",
    },
}


def expand(name):
    """Returns the names that braces stand for: a.{h,cpp} is a.h and a.cpp."""
    parts = [part[1:-1].split(",") if part.startswith("{") else [part] for part in re.split(r"(\{[^}]*\})", name)]
    return ["".join(choice) for choice in itertools.product(*parts)]


@functools.cache
def tracked(*arguments):
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


TRACKED = tracked("ls-files")
SUFFIXES = {pathlib.PurePath(name).suffix for name in TRACKED} - {""}
TOPS = {name.partition("/")[0] for name in TRACKED if "/" in name}


def names_of(text):
    """Returns the names of files and folders in backticks and links, with NAME and * for any name."""
    found = [word for code in re.findall(r"`([^`]+)`", text) for word in code.split()]
    found += [target for target in re.findall(r"\]\(([^)#\s]+)", text) if ":" not in target]
    found = [name for word in found for name in expand(word)]
    return {
        name
        for name in found
        if re.fullmatch(r"[\w./*-]+", name)
        and (name.partition("/")[0] in TOPS if "/" in name else pathlib.PurePath(name).suffix in SUFFIXES)
    }


def pattern(name):
    """Returns the regular expression of the files that a name stands for. A name without a folder may lie in any; a
    folder stands for the files in it only when it ends in a slash."""
    if name in TRACKED:
        return re.compile(re.escape(name) + "$")
    body = re.sub(r"NAME|FAMILY|\\\*", "[^/]*", re.escape(name))
    return re.compile(("" if "/" in name else "(?:.*/)?") + body + ("" if name.endswith("/") else "$"))


@pytest.mark.parametrize("name", sorted(names_of(PAGE)))
def test_a_name_in_the_page_exists(name):
    found = [path for path in TRACKED if pattern(name).match(path)]
    assert found or any(path.startswith(name + "/") for path in TRACKED), f"no tracked file or folder is {name}"
    assert "/" in name or len(found) == 1, f"{name} may be any of {found}: write its folder too"


def test_every_guide_has_an_example():
    assert set(GUIDES) == set(EXAMPLES)


@pytest.mark.parametrize("guide, example", [(guide, found) for guide, all in EXAMPLES.items() for found in all])
def test_a_guide_names_every_file_that_mentions_its_example(guide, example):
    mentions = tracked("grep", "-l", "-I", "-E", example)
    assert mentions, "the example is gone; take another one"
    named = [pattern(name) for name in names_of(GUIDES[guide])]
    excepted = [pattern(name) for name in EXCEPTIONS.get(guide, {})]
    missing = [
        path
        for path in mentions
        if not path.startswith(PROSE) and path not in OWN and not any(one.match(path) for one in named + excepted)
    ]
    assert not missing, (
        f"these files mention {example}, which the guide {guide!r} of CONTRIBUTING.md does not name: name them there, "
        "or say in EXCEPTIONS why the next one does not change them"
    )


@pytest.mark.parametrize("guide, name", [(guide, name) for guide, all in EXCEPTIONS.items() for name in all])
def test_an_exception_is_needed(guide, name):
    mentions = {path for example in EXAMPLES[guide] for path in tracked("grep", "-l", "-I", "-E", example)}
    assert any(pattern(name).match(path) for path in mentions), "no example is mentioned there: remove the exception"
    assert not any(pattern(one).match(name) for one in names_of(GUIDES[guide])), "the guide names it"


def test_a_name_stands_for_what_its_author_means():
    text = "`worker/NAME.{h,cpp}`, `worker/ops/`, `worker/layers`, `make lint` and [a page](docs/a.md#part)"
    named = names_of(text)
    assert named == {"worker/NAME.h", "worker/NAME.cpp", "worker/ops/", "worker/layers", "docs/a.md"}
    covers = {path: any(pattern(name).match(path) for name in named) for path in ("worker/a.h", "worker/ops/cpu/a.h")}
    assert all(covers.values())
    assert not any(pattern(name).match(path) for name in named for path in ("worker/ops.h.in", "worker/layers/a.h"))
