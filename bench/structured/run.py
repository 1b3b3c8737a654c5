# SPDX-License-Identifier: Apache-2.0
"""Compares answers that a JSON Schema constrains with free ones, in one run: tokens per second of a random Llama with a
vocabulary of 128,000 tokens, greedy and sampled, of this server and of llama.cpp's. bench/structured.sh runs it.

- strings: an array of strings. Nearly every token is allowed at most places.
- objects: an array of objects with integers, numbers, booleans and a choice. Few tokens are allowed, many are forced.

No answer can end before its last token: the arrays are longer, and free answers ignore the end token. A result is the
median of the rounds, in which all kinds of answers take turns; a ratio is the median of the ratios to the free answer
of the same round. llama.cpp's server answers one request at a time, so it has one client. The first lines are of a
unit test, which computes the masks alone.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import checkpoints
from llama_cpp.llama_grammar import json_schema_to_gbnf
from served import Server, worker

ITEM = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "kind": {"enum": ["river", "town", "bridge"]},
        "size": {"type": "number"},
        "open": {"type": "boolean"},
    },
    "required": ["id", "kind", "size", "open"],
    "additionalProperties": False,
}
SCHEMAS = {
    "free": None,
    "strings": {"type": "array", "items": {"type": "string"}, "minItems": 100},
    "objects": {"type": "array", "items": ITEM, "minItems": 100},
}
DRAWS = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 1, "top_p": 1, "min_p": 0},
}


def ours(schema, draw, seed):
    body = {"ignore_eos": schema is None, "seed": seed, **DRAWS[draw]}
    if schema:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return body


def llama(schema, draw, seed):
    body = {"top_k": 0, "repeat_penalty": 1.0, "seed": seed, "logit_bias": {"0": -100}, **DRAWS[draw]}
    if schema:
        body["grammar"] = json_schema_to_gbnf(json.dumps(schema))
    return body


class Engine:
    def __init__(self, server, body_of, most_clients):
        self.server, self.body_of, self.most_clients = server, body_of, most_clients
        self.sent = 0

    def body(self, schema, draw, tokens):
        self.sent += 1
        prompt = "".join(random.Random(self.sent).choices("abcdefghijklmnopqrstuvwxyz", k=24))
        return {"prompt": prompt, "max_tokens": tokens, **self.body_of(schema, draw, self.sent)}

    def answer(self, body):
        """Returns the number of tokens of an answer, which has as many as the request wants."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=1200)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        reply = connection.getresponse()
        text = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{self.server.name}: POST /v1/completions: {reply.status} {text[:2000]}")
        tokens = json.loads(text)["usage"]["completion_tokens"]
        if tokens != body["max_tokens"]:
            raise RuntimeError(f"{self.server.name}: {tokens} tokens instead of {body['max_tokens']}")
        return tokens

    def rate(self, schema, draw, clients, tokens):
        """Returns tokens per second of an answer for each client, all at once."""
        bodies = [self.body(schema, draw, tokens) for _ in range(clients)]
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            begin = time.monotonic()
            return sum(pool.map(self.answer, bodies)) / (time.monotonic() - begin)


def compare(engine, clients, arguments):
    for schema in SCHEMAS.values():
        for draw in DRAWS:
            engine.rate(schema, draw, clients, 8)  # pages are warm then, and schemas compiled
    rounds = []
    for turn in range(arguments.rounds):
        kinds = [(draw, name) for draw in DRAWS for name in SCHEMAS]
        order = kinds if turn % 2 == 0 else kinds[::-1]
        rounds.append({kind: engine.rate(SCHEMAS[kind[1]], kind[0], clients, arguments.tokens) for kind in order})
    for draw in DRAWS:
        cells = []
        for name in SCHEMAS:
            cells.append(f"{statistics.median(one[draw, name] for one in rounds):9.1f}")
            if name != "free":
                cells.append(f"{statistics.median(one[draw, name] / one[draw, 'free'] for one in rounds):6.2f}")
        print(f"{engine.server.name:14} {clients:7} {draw:8} {' '.join(cells)}", flush=True)


def masks(program):
    """Prints how long the masks of a vocabulary of 128,000 tokens take."""
    one = "TokenMatcher.AMaskOfALargeVocabularyTakesLittleTime"
    done = subprocess.run([program, f"--gtest_filter={one}"], capture_output=True, text=True, check=True)
    print("\n".join(line for line in done.stdout.splitlines() if " ms" in line and line[0] != "["), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--masks", required=True, help="the program unit_tokenizer")
    parser.add_argument("--vocabulary", type=int, default=128000)
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 8])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("options", nargs="*", help="of the worker's serve, after --")
    arguments = parser.parse_args()
    masks(arguments.masks)
    shape = checkpoints.Shape(vocabulary=arguments.vocabulary, dtype="bfloat16", mixed=True)
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = pathlib.Path(made)
        model = checkpoints.hugging_face(shape, folder / "model")
        checkpoints.gguf_file(shape, model, folder / "model", folder / "gguf")
        commands = {
            "ParallelModel": (worker(arguments.worker, folder / "model", *arguments.options), "/health"),
            "llama.cpp": (
                [sys.executable, "-m", "llama_cpp.server", "--model", folder / "gguf", "--host", "127.0.0.1", "--port"]
                + ["PORT", "--n_ctx", 512, "--n_threads", arguments.threads, "--n_threads_batch", arguments.threads]
                + ["--interrupt_requests", "false", "--verbose", "false"],
                "/v1/models",
            ),
        }
        print(f"{'':31} {'free':>9} {'strings':>9} {'ratio':>6} {'objects':>9} {'ratio':>6}")
        print(
            f"{'server':14} {'clients':>7} {'draw':8} {'tokens/s':>9} {'tokens/s':>9} {'':6} {'tokens/s':>9}",
            flush=True,
        )
        for name, (command, path) in commands.items():
            server = Server(name, command, folder / f"{name}.log", path, OMP_NUM_THREADS=str(arguments.threads))
            stack.enter_context(contextlib.closing(server))
            engine = Engine(server, *((ours, None) if name == "ParallelModel" else (llama, 1)))
            for clients in arguments.clients:
                if clients <= (engine.most_clients or clients):
                    compare(engine, clients, arguments)


if __name__ == "__main__":
    main()
