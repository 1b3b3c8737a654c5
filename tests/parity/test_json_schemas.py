# SPDX-License-Identifier: Apache-2.0
"""Constraints of JSON Schemas, valid or refused, never invalid: the JSON-Schema-Test-Suite and random schemas, by bytes
without a model and by the answers of a server with a random one.

PM_JSON_SCHEMAS is the number of random schemas, PM_JSON_SCHEMAS_SEED the seed of the first.
"""

import collections
import concurrent.futures
import decimal
import json
import os
import random
import re
import subprocess
from pathlib import Path

import pytest
import transformers
from json_spellings import orders_of, spellings
from random_schemas import INSTANCES, Schemas, changed, numbers_of
from schema_oracle import Oracle, Undefined, load
from server import Server
from test_endpoints import build
from test_serving_routes import pieces

import worker

COUNT = int(os.environ.get("PM_JSON_SCHEMAS", 1000))
SEED = int(os.environ.get("PM_JSON_SCHEMAS_SEED", 0))
SAMPLES, CHANGES, SERVED = 3, 4, 200

# Valid instances of the suite that no answer is, by regular expressions of their names, and why.
UNREACHED = {
    r"/format: .* is only an annotation by default": "formats are held",
    r"draft7/ref: .* ref valid, maxItems ignored": "keywords beside $ref hold in draft 7 too",
    r"/format/date-time: .* a valid date-time with a leap second": "no leap seconds",
    r"/format/time: .* leap second": "no leap seconds",
    r"/format/email: .* a quoted string": "no quoted names",
    r"/format/email: .* an IPv6-address-literal": "no addresses of IPv6 behind the @",
    r"/format/ipv6: .* mixed format": "no addresses of IPv4 inside those of IPv6",
    r"/format/ipv6: .* a long valid ipv6": "no addresses of IPv4 inside those of IPv6",
    r"/ecmascript-regex: .* Line tabulation matches": "no control characters without an escape of their own",
    r"/ecmascript-regex: .* Non-whitespace control matches": "no control characters without an escape of their own",
}
# Invalid instances that are let through: draft 7 leaves it to implementations whether these keywords are annotations,
# which they are in later drafts.
ANNOTATIONS = r"draft7/optional/content: "


def dump(value):
    """JSON in which fractions have the digits with which they were read."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{dump(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return str(value) if isinstance(value, decimal.Decimal) else json.dumps(value)


def constrained(jobs):
    """What constraint_dump says of each job."""
    lines = "".join(json.dumps(job) + "\n" for job in jobs)
    done = subprocess.run(
        [worker.TOOLS / "constraint_dump"], input=lines, capture_output=True, text=True, timeout=1200, check=True
    )
    answers = [json.loads(line) for line in done.stdout.strip().split("\n")]
    assert len(answers) == len(jobs) and all(answer.get("refused", "why") for answer in answers)
    return answers


def held(schemas, tests):
    """Asks which instances follow their schema: `tests` has a list of (name, valid, value) for each. The names of a
    valid one may have any order, an invalid one is written in many ways. Returns (schema's index, name, valid,
    accepted texts) of each instance whose schema is not refused.
    """
    texts = [[(orders_of if valid else spellings)(value) for _, valid, value in named] for named in tests]
    answers = constrained([{"schema": schema, "texts": sum(all_, [])} for schema, all_ in zip(schemas, texts)])
    for index, answer in enumerate(answers):
        accepts = iter(answer.get("accepts", []))
        for (name, valid, _), made in zip(tests[index], texts[index]):
            if "refused" not in answer:
                yield index, name, valid, [text for text, found in zip(made, [next(accepts) for _ in made]) if found]


@pytest.fixture(scope="module")
def suite():
    """Schemas as text, and a list of (name, valid, value) for each."""
    groups = load((Path(__file__).parent / "recorded" / "json_schema_suite.json").read_text())
    tests = [[(f"{one['name']}: {name}", valid, value) for name, valid, value in one["tests"]] for one in groups]
    return [dump(one["schema"]) for one in groups], tests


def test_schemas_of_the_suite_are_held_or_refused(suite):
    schemas, tests = suite
    found = list(held(schemas, tests))
    wrong = [
        f"{name}: {schemas[index]} accepts {accepted[0]}"
        for index, name, valid, accepted in found
        if accepted and not valid and not re.match(ANNOTATIONS, name)
    ]
    assert not wrong, "\n".join(wrong)
    unreached = [name for _, name, valid, accepted in found if valid and not accepted]
    assert not [name for name in unreached if not any(re.search(known, name) for known in UNREACHED)]
    assert not [known for known in UNREACHED if not any(re.search(known, name) for name in unreached)]
    count = len({index for index, *_ in found})
    instances = collections.Counter(valid for _, _, valid, _ in found)
    print(f"{count} of {len(schemas)} schemas held, {instances[True]} valid instances, {len(unreached)} of them not")
    print(f"reached, {instances[False]} invalid ones")
    assert count >= 398, "schemas are refused that were held"


def test_the_oracle_says_what_the_suite_says(suite):
    """The random schemas rely on it. It has no \\p of expressions, and takes some formats for annotations."""
    schemas, tests = suite
    answers = constrained([{"schema": schema} for schema in schemas])
    for schema, named, answer in zip(schemas, tests, answers):
        if "refused" in answer or "\\\\p" in schema or re.search("content|format", named[0][0]):
            continue
        oracle = Oracle(schema)
        assert not [name for name, valid, value in named if (oracle.error(value) is None) != valid]


def near(oracle, schema, values, draw):
    """Values with a change, each with the reason why it is not valid; none where the schema is not defined."""
    others = INSTANCES + numbers_of(schema)
    made = [changed(value, draw, others) for value in values or [None] for _ in range(CHANGES)]
    made += draw.sample(others, CHANGES)
    try:
        return [(oracle.error(value), value) for value in made]
    except Undefined:
        return []


def random_schema(seed):
    return json.dumps(Schemas(seed).draw(), ensure_ascii=False)


@pytest.mark.filterwarnings("ignore:Possible set difference")
def test_random_schemas_are_held_or_refused():
    schemas = [random_schema(SEED + i) for i in range(COUNT)]
    answers = constrained([{"schema": one, "samples": SAMPLES, "seed": i} for i, one in enumerate(schemas)])
    samples, tests, wrong = 0, [], []
    for index, (schema, answer) in enumerate(zip(schemas, answers)):
        tests.append([])
        if "refused" in answer:
            continue
        oracle, values = Oracle(schema), [load(text) for text in answer["samples"] if text is not None]
        tests[-1] = [(error, not error, value) for error, value in near(oracle, schema, values, random.Random(index))]
        if tests[-1]:
            samples += len(values)
            wrong += [f"{schema} generates {dump(one)}: {oracle.error(one)}" for one in values if oracle.error(one)]
    assert not wrong, "\n".join(sorted(wrong, key=len))
    count = collections.Counter()
    for index, error, valid, accepted in held(schemas, tests):
        count[valid, bool(accepted)] += 1
        wrong += [f"{schemas[index]} accepts {accepted[0]}: {error}"] if accepted and not valid else []
    assert not wrong, "\n".join(sorted(wrong, key=len))
    refused = sum("refused" in answer for answer in answers)
    print(f"{COUNT} schemas, {refused} refused, {samples} samples, {count[False, False]} invalid instances,")
    print(f"{count[True, True]} valid ones, {count[True, False]} of them not reached")
    assert refused < COUNT / 2 and count[True, False] < 0.02 * count[True, True]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    config = transformers.GPT2Config(
        vocab_size=305, n_embd=24, n_head=4, n_layer=1, n_positions=512, pad_token_id=0, bos_token_id=1, eos_token_id=1
    )
    folder = tmp_path_factory.mktemp("schemas") / "tiny-gpt2"
    build(folder, "GPT2LMHeadModel", config, pieces())
    made = Server(folder, ranks=1)
    yield made
    made.close()


def test_answers_of_a_server_follow_the_schemas_that_are_held(server, suite):
    """It refuses what the tokenizer refuses."""
    draw = random.Random(SEED)
    schemas = draw.sample([one for one in suite[0] if one.startswith("{")], SERVED)
    schemas += [random_schema(SEED + COUNT + i) for i in range(SERVED)]
    refusals = [answer.get("refused") for answer in constrained([{"schema": one} for one in schemas])]

    def answer(index):
        schema = json.loads(schemas[index])
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        body = {"prompt": "the cat", "max_tokens": 160, "temperature": 1.5, "seed": index, "response_format": form}
        return server.post("/v1/completions", body)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(answer, range(len(schemas))))
    ended, refused = 0, 0
    for schema, refusal, reply in zip(schemas, refusals, replies):
        if refusal:
            refused += 1
            assert reply.status_code == 400 and reply.json()["error"]["code"] == "invalid_constraint", (
                schema,
                reply.text,
            )
            continue
        assert reply.status_code == 200, (schema, reply.text)
        [choice] = reply.json()["choices"]
        if choice["finish_reason"] == "stop":
            ended += 1
            assert not Oracle(schema).error(load(choice["text"])), (schema, choice["text"])
    print(f"{len(schemas)} schemas, {refused} refused, {ended} answers with an end")
    assert refused > 10 and ended > 10
