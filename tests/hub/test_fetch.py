# SPDX-License-Identifier: Apache-2.0
"""The worker's `fetch`: downloads, resumed downloads, refusals, and the hosts that get the token."""

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from conftest import EXAMPLE, TOKEN
from faulty_hub import Fault, Hub

MIB = 1 << 20
RANDOM = random.Random(7)


def block(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def small_model(weights: int = 3 * MIB) -> dict[str, bytes]:
    """Files as they lie about in repositories; of the weights only size and checksum matter here."""
    return {
        "config.json": b'{"model_type": "gpt2"}',
        "generation_config.json": b"{}",
        "tokenizer.json": b'{"a": "\xc3\xa9"}',
        "tokenizer_config.json": b"{ }",
        "merges.txt": b"a b\n",
        "empty.json": b"",
        "spiece.model": block(1000),
        "README.md": b"# read me",
        "model.safetensors": block(weights),
        "pytorch_model.bin": block(900, 2),
        "model.gguf": block(800, 3),
        "flax_model.msgpack": block(700, 4),
        "tf_model.h5": block(600, 5),
        "onnx/model.onnx": block(500, 6),
        "onnx/config.json": b"{}",
        "pytorch_model.bin.index.json": b"{}",
        ".gitattributes": b"*",
    }


WANTED = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "merges.txt",
    "empty.json",
    "spiece.model",
    "model.safetensors",
}


def tree(folder: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def leftovers(cache: Path) -> list[str]:
    return [
        path.name
        for path in cache.rglob("*")
        if path.name.endswith((".part", ".new")) or path.name.startswith(".parallelmodel-fetch")
    ]


@pytest.mark.parametrize(
    "names", [["m-q4.gguf"], ["m-q4-00001-of-00002.gguf", "m-q4-00002-of-00002.gguf"]], ids=["one file", "parts"]
)
def test_the_only_model_in_gguf_is_fetched_with_what_lies_beside_it(hub, worker, names):
    files = {name: block(3000 + i, i) for i, name in enumerate(names)}
    more = {"tokenizer.json": b"{}", "mmproj-m.gguf": block(50), "README.md": b"#"}
    hub.add("org/name", files | more)
    answer = worker.fetch("hf://org/name")
    assert tree(answer["folder"]) == files | {"tokenizer.json": b"{}"}


def test_a_repository_with_many_quantisations_is_refused_with_their_names(hub, worker):
    hub.add("org/name", {"m-q4.gguf": block(30), "m-q8.gguf": block(50)})
    answer = worker.fetch("hf://org/name")
    assert answer["reason"] == "ModelUnreadable"
    assert "has 2 models in GGUF, expected one: m-q4.gguf, m-q8.gguf" in answer["message"]


def test_only_what_a_worker_needs_is_fetched_and_is_the_same_bytes(hub, worker):
    model = hub.add("org/name", small_model())
    answer = worker.fetch("hf://org/name")
    assert answer["revision"] == model.commit and answer["folder"].endswith(
        f"models--org--name/snapshots/{model.commit}"
    )
    assert tree(answer["folder"]) == {path: model.files[path] for path in WANTED}
    assert answer["bytes"] == answer["receivedBytes"] == sum(len(model.files[path]) for path in WANTED)
    assert not leftovers(worker.cache)
    hub.requests.clear()
    again = worker.fetch("hf://org/name")
    assert again["folder"] == answer["folder"] and again["receivedBytes"] == 0 and len(hub.requests) == 1, (
        "what is there is not fetched again"
    )


def test_huggingface_hubs_client_finds_what_was_fetched(hub, worker):
    hub.add("org/name", small_model())
    folder = worker.fetch("hf://org/name", "--revision", "main")["folder"]
    script = (
        "import sys; from huggingface_hub import snapshot_download; "
        "print(snapshot_download('org/name', cache_dir=sys.argv[1], local_files_only=True))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, str(worker.cache)],
        capture_output=True,
        text=True,
        env=worker.env() | {"HF_HOME": str(worker.folder)},
        check=True,
    )
    assert found.stdout.strip() == folder


def test_what_huggingface_hubs_client_left_there_is_not_fetched(hub, worker):
    hub.add("org/name", small_model())
    script = (
        "import sys; from huggingface_hub import snapshot_download; "
        "snapshot_download('org/name', cache_dir=sys.argv[1])"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(worker.cache)],
        capture_output=True,
        text=True,
        env=worker.env() | {"HF_HOME": str(worker.folder), "HF_HUB_DISABLE_XET": "1"},
        check=True,
    )
    assert worker.fetch("hf://org/name")["receivedBytes"] == 0


@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_several_files_of_weights_are_those_of_the_index(hub, worker, form):
    stem, ending = ("model", "safetensors") if form == "safetensors" else ("pytorch_model", "bin")
    shards = [f"{stem}-0000{i}-of-00002.{ending}" for i in (1, 2)]
    files = {
        "config.json": b"{}",
        f"{stem}.{ending}.index.json": json.dumps(
            {"weight_map": {"a": shards[0], "b": shards[1], "c": shards[0]}}
        ).encode(),
        shards[0]: block(70_000),
        shards[1]: block(50_000, 2),
        "other.safetensors": block(100, 3),
    }
    hub.add("org/name", files)
    assert set(tree(worker.fetch("hf://org/name")["folder"])) == {"config.json", f"{stem}.{ending}.index.json", *shards}


def test_a_sentence_transformer_comes_with_its_modules(hub, worker):
    hub.add(
        "org/name",
        {
            "config.json": b"{}",
            "modules.json": b"[]",
            "1_Pooling/config.json": b"{}",
            "2_Dense/config.json": b"{}",
            "2_Dense/model.safetensors": block(50),
            "2_Dense/pytorch_model.bin": block(60),
            "3_Dense/pytorch_model.bin": block(70),
            "onnx/model.safetensors": block(80),
            "sentence_bert_config.json": b"{}",
            "openvino/config.json": b"{}",
            "a/b/config.json": b"{}",
            "additional_chat_templates/tools.jinja": b"x",
            "model.safetensors": block(100),
        },
    )
    names = set(tree(worker.fetch("hf://org/name")["folder"]))
    assert {
        "modules.json",
        "1_Pooling/config.json",
        "2_Dense/model.safetensors",
        "3_Dense/pytorch_model.bin",
        "additional_chat_templates/tools.jinja",
    } <= names
    assert not names & {"a/b/config.json", "2_Dense/pytorch_model.bin", "onnx/model.safetensors"}


@pytest.mark.parametrize("revision, quoted", [("main", "main"), ("refs/pr/1", "refs%2Fpr%2F1"), ("commit", "")])
def test_branches_pull_requests_and_commits_are_resolved_once(hub, worker, revision, quoted):
    model = hub.add("org/name", small_model(), refs=("main", "refs/pr/1"))
    asked = model.commit if revision == "commit" else revision
    assert worker.fetch(f"hf://org/name@{asked}")["revision"] == model.commit
    first, *others = [request.path for request in hub.requests if request.host == "hub"]
    assert first == f"/api/models/org/name/revision/{quoted or model.commit}?blobs=true"
    assert others and all(f"/resolve/{model.commit}/" in path for path in others), (
        "the revision may move while files come"
    )


# --- refusals ------------------------------------------------------------
@pytest.mark.parametrize(
    "how, model, reason, words",
    [
        ({}, "hf://org/name@v9", "RevisionNotFound", "v9"),
        ({}, "hf://org/other", "AuthFailed", "does not exist, or is private or gated"),
        ({"token": TOKEN}, "hf://org/name", "AuthFailed", "tokenSecretRef"),
        ({"gated": True}, "hf://org/name", "AuthFailed", "GatedRepo"),
    ],
)
def test_refusals_of_the_hub_are_told_apart(hub, worker, how, model, reason, words):
    hub.add("org/name", small_model(), **how)
    answer = worker.fetch(model)
    assert answer["reason"] == reason and words in answer["message"] and answer["code"] == 3
    assert len(hub.requests) == 1, "no use in asking again"


def test_a_model_that_a_token_does_not_show_is_not_found(hub, worker):
    assert worker.fetch("hf://org/other", "--token-file", worker.token)["reason"] == "RevisionNotFound"


def test_a_hub_that_is_not_there_is_unreachable(hub, worker):
    worker.environment["HF_ENDPOINT"] = "http://127.0.0.1:1"
    started = time.monotonic()
    answer = worker.fetch("hf://org/name")
    assert (
        answer["reason"] == "SourceUnreachable"
        and "127.0.0.1:1" in answer["message"]
        and time.monotonic() - started >= 5
    ), "after its stall timeout"
    worker.environment["HF_ENDPOINT"] = "http://no-such-host.invalid"
    assert worker.fetch("hf://org/name")["reason"] == "SourceUnreachable"


@pytest.mark.parametrize(
    "model", ["hf://", "hf://a/b/c", "hf://../x", "hf://org/na me", "hf://org/name@", "hf://org/name@../x"]
)
def test_names_that_are_none_are_a_usage_error(worker, model):
    assert worker.fetch(model)["code"] == 2


def test_hostile_paths_lead_nowhere(hub, worker):
    hub.add(
        "org/name",
        small_model()
        | {"../../outside.json": b"x", "/etc/outside.json": b"x", "a/../outside.json": b"x", "back\\slash.json": b"x"},
    )
    assert set(tree(worker.fetch("hf://org/name")["folder"])) == WANTED


def test_a_full_volume_says_what_is_needed_and_what_is_free(hub, worker):
    worker.cache.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(worker.cache)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("no right to mount a small volume")
    try:
        hub.add("org/name", small_model())
        answer = worker.fetch("hf://org/name")
        assert answer["reason"] == "InsufficientStorage" and re.search(
            r"need 3\.0 MiB more .* [0-9.]+ KiB are free", answer["message"]
        )
        assert hub.sent("cdn", "model.safetensors") == 0, "before the first byte of the weights"
    finally:
        subprocess.run(["umount", str(worker.cache)], check=True)


def test_a_volume_that_may_not_be_written_to_is_named(hub, worker):
    hub.add("org/name", small_model())
    worker.cache.write_text("a file")
    assert worker.fetch("hf://org/name")["reason"] == "VolumeNotWritable"


# --- faults during a download ------------------------------------------------------------
def test_failures_that_pass_are_tried_again(hub, worker):
    hub.add("org/name", small_model())
    hub.faults += [
        Fault("/api/", host="hub", status=503),
        Fault("config.json", host="hub", status=429, headers={"Retry-After": "1"}),
        Fault("model.safetensors", host="hub", status=500),
        Fault("model.safetensors", cut_after=MIB + 5),
        Fault("model.safetensors", status=403),
    ]
    answer = worker.fetch("hf://org/name")
    assert answer["retries"] >= 5 and "model.safetensors" in tree(answer["folder"])
    assert answer["receivedBytes"] == answer["bytes"], "nothing twice"


@pytest.mark.parametrize("cut", [0, 1, 16384, 3 * MIB - 1])
def test_a_transfer_that_breaks_off_goes_on_where_it_was(hub, worker, cut):
    model = hub.add("org/name", small_model())
    hub.faults.append(Fault("model.safetensors", cut_after=cut))
    answer = worker.fetch("hf://org/name")
    ranges = [
        request.headers.get("range")
        for request in hub.requests
        if "safetensors" in request.path and request.host == "cdn"
    ]
    assert ranges == [None, f"bytes={cut}-{3 * MIB - 1}" if cut else None]
    assert tree(answer["folder"])["model.safetensors"] == model.files["model.safetensors"]


def test_a_server_without_ranges_sends_it_all_again(hub, worker):
    model = hub.add("org/name", small_model())
    hub.faults += [Fault("model.safetensors", cut_after=MIB), Fault("model.safetensors", ranges=False)]
    assert tree(worker.fetch("hf://org/name")["folder"])["model.safetensors"] == model.files["model.safetensors"]


@pytest.mark.parametrize("path, host", [("/model.safetensors", "cdn"), ("/config.json", "hub")])
def test_wrong_bytes_are_fetched_anew_once_and_then_refused(hub, worker, path, host):
    hub.add("org/name", small_model())
    hub.faults.append(Fault(path, host=host, wrong=True))
    answer = worker.fetch("hf://org/name")
    assert answer["refetched"] == 1
    subprocess.run(["rm", "-rf", str(worker.cache)], check=True)
    hub.faults.append(Fault(path, host=host, wrong=True, times=2))
    hub.requests.clear()
    refused = worker.fetch("hf://org/name")
    assert refused["reason"] == "ChecksumMismatch" and path[1:] in refused["message"]
    assert (
        len(
            [
                request
                for request in hub.requests
                if request.host == host and request.path.partition("?")[0].endswith(path)
            ]
        )
        == 2
    )
    assert not [
        blob
        for blob in worker.cache.rglob("blobs/*")
        if hashlib.sha256(blob.read_bytes()).hexdigest() not in blob.name and len(blob.name) == 64
    ], "no wrong bytes under a right name"


def test_what_a_former_process_left_is_not_sent_again(hub, worker):
    model = hub.add("org/name", small_model())
    blobs = worker.cache / "models--org--name" / "blobs"
    blobs.mkdir(parents=True)
    weights = model.files["model.safetensors"]
    (blobs / f"{hashlib.sha256(weights).hexdigest()}.part").write_bytes(weights[: MIB + 7])
    answer = worker.fetch("hf://org/name")
    assert (
        tree(answer["folder"])["model.safetensors"] == weights and hub.sent("cdn", "model.safetensors") == 2 * MIB - 7
    )


def test_a_rotten_part_is_noticed(hub, worker):
    model = hub.add("org/name", small_model())
    blobs = worker.cache / "models--org--name" / "blobs"
    blobs.mkdir(parents=True)
    sha = hashlib.sha256(model.files["model.safetensors"]).hexdigest()
    (blobs / f"{sha}.part").write_bytes(b"\0" * MIB)
    answer = worker.fetch("hf://org/name")
    assert answer["refetched"] == 1 and tree(answer["folder"])["model.safetensors"] == model.files["model.safetensors"]
    (blobs / sha).unlink()
    (blobs / f"{sha}.part").write_bytes(block(4 * MIB))
    assert worker.fetch("hf://org/name")["refetched"] == 0, "a part longer than the file is none"


def test_killed_at_random_points_it_ends_with_the_right_bytes_and_fetches_little_twice(hub, worker):
    size = 24 * MIB
    model = hub.add("org/name", small_model(size))
    hub.bytes_per_second = 8e6
    kills = 0
    for _ in range(8):
        process = worker.start("fetch", *worker.fetch_arguments("hf://org/name", "--lease", 1))
        try:
            process.wait(RANDOM.uniform(0.3, 2.5))
        except subprocess.TimeoutExpired:
            kills += 1
            process.send_signal(signal.SIGKILL)
        process.communicate()
    hub.bytes_per_second = 0
    answer = worker.fetch("hf://org/name", "--lease", 1)
    assert kills >= 3 and tree(answer["folder"])["model.safetensors"] == model.files["model.safetensors"]
    assert not leftovers(worker.cache)
    assert hub.sent("cdn") <= size + 4 * MIB * kills, "only what was on the way is sent again"


def test_sigterm_ends_it_at_once_and_says_so(hub, worker):
    hub.add("org/name", small_model(24 * MIB))
    hub.bytes_per_second = 2e6
    process = worker.start("fetch", *worker.fetch_arguments("hf://org/name"))
    while hub.sent("cdn", "model.safetensors") < MIB:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    started = time.monotonic()
    assert process.wait(30) == 6 and time.monotonic() - started < 5
    assert "Interrupted" in process.stderr.read()
    assert [name for name in leftovers(worker.cache) if name.endswith(".part")] and not [
        name for name in leftovers(worker.cache) if name.startswith(".parallel")
    ], "what has come stays, the lock goes"


def test_two_at_once_download_once(hub, worker):
    model = hub.add("org/name", small_model(12 * MIB))
    hub.bytes_per_second = 6e6
    both = [worker.start("fetch", *worker.fetch_arguments("hf://org/name")) for _ in range(2)]
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in both]
    needed = sum(len(model.files[path]) for path in WANTED)
    assert answers[0]["folder"] == answers[1]["folder"]
    assert sum(answer["receivedBytes"] for answer in answers) == needed
    assert hub.sent("cdn", "model.safetensors") == 12 * MIB and not leftovers(worker.cache)


def test_the_lock_of_a_dead_holder_is_taken_over_after_its_lease(hub, worker):
    hub.add("org/name", small_model())
    worker.cache.mkdir()
    (worker.cache / ".parallelmodel-fetch").write_text("abc gone-pod:1 000000000007 org/name@x\n")
    started = time.monotonic()
    assert worker.fetch("hf://org/name", "--lease", 2)["receivedBytes"] > 0
    assert time.monotonic() - started >= 2 and not leftovers(worker.cache)


# --- hosts that get the token ------------------------------------------------------------
def test_the_token_opens_private_models_and_reaches_nobody_else(hub, worker):
    hub.add("org/name", small_model(), token=TOKEN)
    hub.bytes_per_second = 3e6
    process = worker.start("fetch", *worker.fetch_arguments("hf://org/name", "--token-file", worker.token))
    while hub.sent("cdn", "model.safetensors") == 0 and process.poll() is None:
        time.sleep(0.02)
    command, environment = (Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    asked, elsewhere = ([request for request in hub.requests if request.host == host] for host in ("hub", "cdn"))
    assert asked and all(request.headers["authorization"] == f"Bearer {TOKEN}" for request in asked)
    assert elsewhere and not [
        request for request in elsewhere if "authorization" in request.headers or TOKEN in str(request)
    ]
    assert TOKEN.encode() not in command + environment and TOKEN not in out + err


def test_a_host_that_was_redirected_to_gets_no_token_even_when_it_leads_back(hub, worker):
    hub.add("org/name", small_model(), token=TOKEN)
    with Hub() as stranger:
        hub.faults.append(
            Fault("/resolve/", host="hub", status=302, headers={"Location": stranger.url + "/x"}, times=99)
        )
        stranger.faults.append(
            Fault(
                "/x",
                host="hub",
                status=302,
                headers={"Location": hub.url + "/api/models/org/name/revision/main?led-back"},
                times=99,
            )
        )
        assert worker.fetch("hf://org/name", "--token-file", worker.token)["reason"] in (
            "SourceUnreachable",
            "ChecksumMismatch",
        )
        assert stranger.requests and not [
            request for request in stranger.requests if "authorization" in request.headers
        ]
        assert not [
            request for request in hub.requests if "led-back" in request.path and "authorization" in request.headers
        ]


def test_token_files_of_no_use_are_refused_without_their_contents(hub, worker):
    for text in ("", "two words", "\x01bad"):
        worker.token.write_text(text)
        answer = worker.fetch("hf://org/name", "--token-file", worker.token)
        assert answer["reason"] == "AuthFailed" and "two" not in answer["message"]
    assert not hub.requests


# --- progress and metrics ------------------------------------------------------------
def test_status_and_metrics_say_how_far_it_is(hub, worker):
    hub.add("org/name", small_model(12 * MIB))
    hub.bytes_per_second = 4e6
    hub.faults.append(Fault("model.safetensors", cut_after=MIB))
    port = 20000 + os.getpid() % 20000
    process = worker.start(
        "fetch", *worker.fetch_arguments("hf://org/name", "--admin-port", port, "--host", "127.0.0.1")
    )
    seen = []
    while process.poll() is None:
        try:
            status = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=2).read())
            metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2).read().decode()
            assert "parallelmodel_fetch_present_bytes" in metrics
            seen.append(status)
        except OSError:
            pass
        time.sleep(0.1)
    assert process.returncode == 0, process.stderr.read()
    amounts = [status["fetchedBytes"] for status in seen if status["totalBytes"]]
    assert len(amounts) > 5 and amounts == sorted(amounts) and amounts[0] < amounts[-1] <= seen[-1]["totalBytes"]
    assert any(1e6 < status["bytesPerSecond"] < 8e6 for status in seen), "of 4 MB/s, with a pause in between"
    assert any(status.get("lastError", {}).get("reason") == "SourceUnreachable" for status in seen), (
        "what holds it up is said while it does"
    )


@pytest.fixture
def certificates(tmp_path):
    def make(name: str) -> tuple[Path, Path]:
        certificate, key = tmp_path / f"{name}.crt", tmp_path / f"{name}.key"
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=127.0.0.1",
                "-addext",
                f"subjectAltName={name}",
                "-keyout",
                key,
                "-out",
                certificate,
            ],
            check=True,
            capture_output=True,
        )
        return certificate, key

    return make


def test_certificates_are_verified_by_authority_and_name(worker, certificates):
    good, other = certificates("IP:127.0.0.1"), certificates("DNS:hub.example.com")
    for tls, trusted, says in (
        (good, good[0], ""),
        (good, other[0], "certificate is refused"),
        (other, other[0], "certificate is refused"),
    ):
        with Hub(tls=tls) as hub:
            hub.add("org/name", small_model(), token=TOKEN)
            worker.environment |= {"HF_ENDPOINT": hub.url, "SSL_CERT_FILE": str(trusted)}
            answer = worker.fetch("hf://org/name", "--token-file", worker.token, "--stall-timeout", 1)
            assert (
                (answer["receivedBytes"] > 0)
                if not says
                else (answer["reason"] == "SourceUnreachable" and says in answer["message"])
            ), answer
            assert bool(hub.requests) == (not says), "a stranger learns nothing"
        subprocess.run(["rm", "-rf", str(worker.cache)], check=True)


def test_https_goes_through_the_proxy_in_a_tunnel(hub, worker, certificates):
    tls = certificates("IP:127.0.0.1")
    with Hub(tls=tls) as secure:
        secure.add("org/name", small_model(), token=TOKEN)
        worker.environment |= {"HF_ENDPOINT": secure.url, "SSL_CERT_FILE": str(tls[0]), "https_proxy": hub.url}
        assert worker.fetch("hf://org/name", "--token-file", worker.token)["receivedBytes"] > 0
        assert (
            set(hub.tunnels) == {url.removeprefix("https://") for url in (secure.url, secure.cdn_url)}
            and not hub.requests
        )


def test_a_redirect_from_https_to_http_is_refused(hub, worker, certificates):
    tls = certificates("IP:127.0.0.1")
    with Hub(tls=tls) as secure:
        secure.add("org/name", small_model())
        hub.add("org/name", small_model())
        secure.cdn_url = hub.cdn_url
        worker.environment |= {"HF_ENDPOINT": secure.url, "SSL_CERT_FILE": str(tls[0])}
        answer = worker.fetch("hf://org/name", "--stall-timeout", 1)
        assert answer["reason"] == "SourceUnreachable" and "https to http" in answer["message"] and not hub.requests


def test_a_proxy_is_asked_unless_it_is_excepted(hub, worker):
    hub.add("org/name", small_model())
    with Hub() as proxy:
        proxy.add("org/name", small_model())
        port = proxy.url.rpartition(":")[2]
        worker.environment["http_proxy"] = f"http://user:secret@127.0.0.1:{port}"
        worker.fetch("hf://org/name")
        assert (
            proxy.requests
            and proxy.requests[0].path.startswith(hub.url)
            and "proxy-authorization" in proxy.requests[0].headers
        )
        assert not hub.requests
        proxy.requests.clear()
        worker.environment["no_proxy"] = "example.com, 127.0.0.0/8"
        assert worker.fetch("hf://org/name")["receivedBytes"] > 0 and not proxy.requests


def test_the_example_serves_from_the_cache(hub, worker):
    hub.add("org/name", EXAMPLE)
    folder = worker.fetch("hf://org/name")["folder"]
    local, cached = (
        worker.run("generate", "--model", place, "--prompt", "Once upon a time", "--max-new-tokens", 8, "--json")
        for place in (EXAMPLE, folder)
    )
    assert local.returncode == 0 and local.stdout == cached.stdout, cached.stderr
