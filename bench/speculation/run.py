# SPDX-License-Identifier: Apache-2.0
"""Compares serving with and without speculative decoding in one run: servers of the same weights, without drafts, with
n-grams and with a draft model, answer the same requests in turn. bench/speculation.sh runs it.

The weights are random, but for what makes the text known: the layers write next to nothing, and the LM head gives each
token one successor. So a greedy answer is a given text, as long as in a model of this size, and a hot one is random:

- edit: the prompt has the text that the answer repeats, in which every 12th token is another one, as when a model
  returns a file of code with some changes;
- random: the prompt is random, and so is the answer (temperature 2): nothing is found to draft;
- dice: prompt and answer are random over 30 tokens, so that n-grams are found by chance and drafts are wrong;
- new: the prompt is random, and the answer is a text that stands nowhere in it. The draft model, of a twentieth of the
  parameters, knows four of five of its tokens.

A result is the tokens of all clients by the time of the slowest, the median of the rounds, in which the servers take
turns: a machine whose clock varies gives the best round to one of them by chance. The servers' counters give the
share of accepted drafts and the tokens that a sequence gets in a step with drafts.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import random
import re
import statistics
import sys
import tempfile
import time

import torch
import transformers

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from served import Server, worker

VOCABULARY, EDITED = 16384, 12
UNKNOWN = 5  # the draft model is wrong behind every token whose id divides by this
FIRST, FACES = 10, 30  # ids below FIRST are not used


def successors():
    order = list(range(FIRST, VOCABULARY))
    random.Random(1).shuffle(order)
    return dict(zip(order, order[1:] + order[:1], strict=True))


def checkpoint(folder, layers, hidden, dtype, unknown=0):
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 128,
        max_position_embeddings=2048,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                quiet = "o_proj" in name or "down_proj" in name
                parameter.normal_(0, (0.01 if quiet else 1) / parameter.shape[1] ** 0.5)
        embedding = model.model.embed_tokens.weight.normal_(0, 1)
        next_of = successors()
        before = torch.tensor(list(next_of))
        after = torch.tensor([*next_of.values()])
        if unknown:  # its head gives other successors there
            after = torch.where(before % unknown == 0, after.roll(unknown), after)
        model.lm_head.weight.zero_()
        model.lm_head.weight.index_add_(0, after, embedding[before] * 8 / hidden)
    model.to(getattr(torch, dtype)).save_pretrained(folder)


def requests(text, clients, tokens, turn):
    """Bodies of a round, one for each client."""
    draw, next_of, bodies = random.Random(f"{text} {turn}"), successors(), []
    for client in range(clients):
        chain = [draw.randrange(FIRST, VOCABULARY)]
        for _ in range(tokens + 40):
            chain.append(next_of[chain[-1]])
        prompt = [draw.randrange(FIRST, VOCABULARY) if i % EDITED == 0 else id for i, id in enumerate(chain)]
        if text != "edit":
            prompt = [draw.randrange(FIRST, FIRST + FACES if text == "dice" else VOCABULARY) for _ in chain]
        greedy = text in ("edit", "new")
        body = {"prompt": [*prompt, chain[0]], "max_tokens": tokens, "ignore_eos": True, "return_token_ids": True}
        body |= {"temperature": 0} if greedy else {"temperature": 2, "seed": client}
        if text == "dice":
            body["logit_bias"] = {str(FIRST + face): 100 for face in range(FACES)}
        bodies.append(body)
    return bodies


def post(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1200)
    connection.request("POST", "/v1/completions", json.dumps(body))
    reply = connection.getresponse()
    read = reply.read()
    if reply.status != 200:
        raise RuntimeError(f"POST /v1/completions: {reply.status} {read[:2000]}")
    return json.loads(read)["choices"][0]["token_ids"]


def counters(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", "/metrics")
    found = re.findall(r"^parallelmodel_spec_decode_(\w+)_total (\d+)", connection.getresponse().read().decode(), re.M)
    return {name: int(value) for name, value in found}


def run(server, bodies):
    """Returns tokens per second and the answers."""
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        begin = time.monotonic()
        answers = list(pool.map(lambda body: post(server.port, body), bodies))
        return sum(map(len, answers)) / (time.monotonic() - begin), answers


def compare(servers, text, clients, arguments):
    rates, equal, total = {server.name: [] for server in servers}, 0, 0
    before = counters(servers[1])
    for turn in range(arguments.rounds + 1):
        bodies, answers = requests(text, clients, arguments.tokens, turn), {}
        for server in servers if turn % 2 == 0 else servers[::-1]:
            rate, answers[server.name] = run(server, bodies)
            if turn > 0:  # the first warms
                rates[server.name].append(rate)
        total += clients
        equal += sum(one == other for one, other in zip(*answers.values(), strict=True))
    spent = {name: value - before[name] for name, value in counters(servers[1]).items()}
    without, with_drafts = map(statistics.median, rates.values())
    drafts, drafted, accepted = (spent[f"num_{name}"] for name in ("drafts", "draft_tokens", "accepted_tokens"))
    print(
        f"{servers[1].name:6} {text:8} {clients:7} {without:9.1f} {with_drafts:7.1f} {with_drafts / without:6.2f} "
        f"{accepted / max(1, drafted):10.2f} {1 + accepted / max(1, drafts):12.2f} {spent['pauses']:7} "
        f"{equal:5} of {total}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 4, 16])
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=3, help="of each server in turn")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = pathlib.Path(made) / "model"
        draft = pathlib.Path(made) / "draft"
        checkpoint(folder, arguments.layers, arguments.hidden, arguments.dtype)
        checkpoint(draft, max(1, arguments.layers // 4), arguments.hidden // 4, arguments.dtype, UNKNOWN)
        ranks = ("--ranks", arguments.ranks, "--sizes", f"tensor={arguments.ranks}")
        options = {"off": (), "ngram": ("--speculation", "ngram"), "draft": ("--draft-model", draft)}
        servers = {
            name: stack.enter_context(
                contextlib.closing(Server(name, worker(arguments.worker, folder, *ranks, *more), f"{made}/{name}.log"))
            )
            for name, more in options.items()
        }
        print("drafts text     clients   without    with  ratio acceptance tokens/draft  pauses  equal", flush=True)
        for name, texts in (("ngram", ("edit", "random", "dice")), ("draft", ("new", "edit", "random"))):
            for text in texts:
                for clients in arguments.clients:
                    compare((servers["off"], servers[name]), text, clients, arguments)


if __name__ == "__main__":
    main()
