# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of real servers: schemathesis sends valid and invalid requests from it and checks every reply
against it.
"""

import re
import subprocess
import sys

import jsonschema_rs
import pytest
import requests
from test_endpoints import bert, byte_pairs, gpt2, serve, word_pieces  # noqa: F401  (serve is a fixture)

import worker

SEED = 20
EXAMPLES = 12  # of each operation and phase
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance,negative_data_rejection"
)
REFUSALS = [400, 401, 404, 413, 414, 415]
MODELS = {
    "decoder": lambda: ("GPT2LMHeadModel", gpt2(), byte_pairs()),
    "classifier": lambda: ("BertForSequenceClassification", bert(num_labels=3), word_pieces()),
    "embeddings": lambda: ("BertModel", bert(), word_pieces()),
    "cross-encoder": lambda: ("BertForSequenceClassification", bert(num_labels=1), word_pieces()),
}


@pytest.mark.parametrize("kind", MODELS)
def test_every_reply_is_as_the_document_says(serve, kind, tmp_path):  # noqa: F811
    server, _ = serve(*MODELS[kind]())
    (tmp_path / "schemathesis.toml").write_text(f"[checks]\nnegative_data_rejection.expected-statuses = {REFUSALS}\n")
    address = f"http://127.0.0.1:{server.port}"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "run",
            address + "/openapi.json",
            "--seed",
            str(SEED),
            "--max-examples",
            str(EXAMPLES),
            "--generation-deterministic",
            "--phases",
            "examples,coverage,fuzzing",
            "--checks",
            CHECKS,
            "--max-failures",
            "8",
            "--no-color",
            "--warnings",
            "off",
            "--request-timeout",
            "20",
        ],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout[:20000] + done.stderr[-3000:]
    assert requests.get(address + "/health", timeout=10).json() == {"status": "serving"}
    server.log.seek(0)
    assert " failed: " not in server.log.read()


def test_the_document_is_valid_and_names_what_the_model_serves(serve):  # noqa: F811
    server, _ = serve("BertModel", bert(), word_pieces())
    document = server.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for content in [
                operation.get("requestBody", {}).get("content", {}),
                *(reply.get("content", {}) for reply in operation["responses"].values()),
            ]:
                for part in content.values():
                    jsonschema_rs.meta.validate(
                        {"$schema": "https://json-schema.org/draft/2020-12/schema", **part["schema"]}
                    )
                    if "example" in part:
                        assert jsonschema_rs.is_valid(part["schema"], part["example"]), (path, method)
    served = {route.split(" ", 1)[1].split("*")[0] for route in server.get("/").json()["routes"]}
    assert served <= {path.split("{")[0] for path in document["paths"]}


# of a request to /generate: which model, how the reply looks, and what is always so
OF_A_REPLY = {"inputs", "parameters", "model", "user", "stream", "details", "return_full_text", "return_token_ids"}
OF_A_REPLY |= {"use_cache"}
OF_A_REPLY |= {"response_format", "structured_outputs", "grammar"}  # constraints, which servers alone hold


def has_effect(schema):
    """Returns whether a field may have several values. Others only say what has no effect."""
    parts = schema.get("anyOf", [schema])
    return any("const" not in part and part.get("type") != "null" for part in parts)


def test_every_option_of_generation_is_a_flag_of_the_command_line(serve):  # noqa: F811
    server, _ = serve(*MODELS["decoder"]())
    content = server.get("/openapi.json").json()["paths"]["/generate"]["post"]["requestBody"]["content"]
    fields = content["application/json"]["schema"]["properties"]
    fields |= fields["parameters"]["properties"]
    options = {name for name, schema in fields.items() if has_effect(schema)} - OF_A_REPLY
    page = subprocess.run([worker.BINARY, "generate", "--help"], capture_output=True, text=True, env=worker.ENVIRONMENT)
    flags = {flag.replace("-", "_") for flag in re.findall(r"--([a-z][a-z-]*)", page.stdout)}
    assert len(options) > 25 and "top_k" in options
    assert sorted(options - flags) == []
