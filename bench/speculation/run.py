# SPDX-License-Identifier: Apache-2.0
"""Compares serving with and without speculative decoding in one run: servers of the same weights, without drafts, with
n-grams, with a draft model and with a module for multi-token prediction, answer the same requests in turn.
bench/speculation.sh runs it.

The weights are random, but for what makes the text known: the layers write next to nothing, and the LM head gives each
token one successor. So a greedy answer is a given text, as long as in a model of this size, and a hot one is random:

- edit: the prompt has the text that the answer repeats, in which every 12th token is another one, as when a model
  returns a file of code with some changes;
- random: the prompt is random, and so is the answer (temperature 2): nothing is found to draft;
- dice: prompt and answer are random over 30 tokens, so that n-grams are found by chance and drafts are wrong;
- new: the prompt is random, and the answer is a text that stands nowhere in it. The draft model, of a twentieth of the
  parameters, knows four of five of its tokens; the module, of one layer, 85 of 100 behind the next one.

A result is the tokens of all clients by the time of the slowest. The servers take turns in the rounds, and the ratio is
the median of those of the rounds: a machine whose clock varies gives the best round to one of them by chance. A second
server without drafts ("none") says what a ratio of equal servers is here. The servers' counters give the share of
accepted drafts and the tokens that a sequence gets in a step with drafts.
"""

import argparse
import collections
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
from safetensors.torch import load_file, save_file

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from served import Server, worker

VOCABULARY, EDITED = 16384, 12
KNOWN = 0.85  # of the tokens behind the next one, which the module drafts right
UNKNOWN = 5  # the draft model is wrong behind every token whose id divides by this
FIRST, FACES = 10, 30  # ids below FIRST are not used


def successors():
    order = list(range(FIRST, VOCABULARY))
    random.Random(1).shuffle(order)
    return dict(zip(order, order[1:] + order[:1], strict=True))


def checkpoint(folder, layers, hidden, dtype, unknown=0):
    """Saves a model whose layers are dense, and behind them a module with two experts, of which a token takes one."""
    torch.manual_seed(7)
    width = hidden * 11 // 4
    config = transformers.Glm4MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=width,
        num_hidden_layers=layers + 1,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 128,
        head_dim=64,
        max_position_embeddings=2048,
        first_k_dense_replace=layers,
        moe_intermediate_size=width // 2,
        n_routed_experts=2,
        num_experts_per_tok=1,
        n_shared_experts=1,
    )
    model = transformers.Glm4MoeForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                quiet = "o_proj" in name or "down_proj" in name
                parameter.normal_(0, (0.01 if quiet else 1) / parameter.shape[-1] ** 0.5)
        embedding = model.model.embed_tokens.weight.normal_(0, 1)
        next_of = successors()
        before = torch.tensor(list(next_of))
        after = torch.tensor([*next_of.values()])
        if unknown:  # its head gives other successors there
            after = torch.where(before % unknown == 0, after.roll(unknown), after)
        head = model.lm_head.weight
        head.zero_()
        head.index_add_(0, after, embedding[before] * 8 / hidden)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    file = folder / "model.safetensors"
    norms = {f"{name}.weight": torch.ones(hidden) for name in ("enorm", "hnorm", "shared_head.norm")}
    module = norms | {"eh_proj.weight": projection(embedding, head, before, after)}
    named = {f"model.layers.{layers}.{name}": tensor.to(getattr(torch, dtype)) for name, tensor in module.items()}
    save_file(load_file(file) | named, file, metadata={"format": "pt"})
    saved = json.loads((folder / "config.json").read_text())
    saved |= {"num_hidden_layers": layers, "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(saved))


@torch.no_grad()
def projection(embedding, head, before, after):
    """What joins token and state in the module: it takes the token, with as much noise as leaves KNOWN of its drafts
    right."""
    hidden = embedding.shape[1]
    noise = torch.randn(hidden, hidden, generator=torch.Generator().manual_seed(3)) / hidden**0.5
    some = torch.arange(0, len(before), max(1, len(before) // 1000))
    states = embedding[before[some]].float()
    least, most = 0.0, 64.0
    for _ in range(12):
        scale = (least + most) / 2
        scores = (states + states @ noise.T * scale) @ head.float().T
        known = (scores.argmax(1) == after[some]).float().mean()
        least, most = (scale, most) if known > KNOWN else (least, scale)
    return torch.cat([torch.eye(hidden) + noise * least, torch.zeros(hidden, hidden)], 1)


def requests(text, clients, tokens, turn, drafter=""):
    """Bodies of a round, one for each client. No two rounds have common ones: the server without drafts, to which all
    others are compared, would find prompts in its prefix cache.
    """
    draw, next_of, bodies = random.Random(f"{drafter} {text} {clients} {turn}"), successors(), []
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
    return collections.Counter({name: int(value) for name, value in found})


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
        bodies, answers = requests(text, clients, arguments.tokens, turn, servers[1].name), {}
        for server in servers if turn % 2 == 0 else servers[::-1]:
            rate, answers[server.name] = run(server, bodies)
            if turn > 0:  # the first warms
                rates[server.name].append(rate)
        total += clients
        equal += sum(one == other for one, other in zip(*answers.values(), strict=True))
    spent = counters(servers[1]) - before
    without, with_drafts = map(statistics.median, rates.values())
    ratio = statistics.median(two / one for one, two in zip(*rates.values(), strict=True))
    drafts, drafted, accepted = (spent[f"num_{name}"] for name in ("drafts", "draft_tokens", "accepted_tokens"))
    print(
        f"{servers[1].name:6} {text:8} {clients:7} {without:9.1f} {with_drafts:7.1f} {ratio:6.2f} "
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
    parser.add_argument("--rounds", type=int, default=5, help="of each server in turn")
    drafters = ("none", "ngram", "draft", "mtp")
    parser.add_argument("--drafters", type=lambda text: text.split(","), default=drafters, metavar="A,B")
    texts = ("edit", "random", "dice", "new")
    parser.add_argument("--texts", type=lambda text: text.split(","), default=texts, metavar="A,B")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = pathlib.Path(made) / "model"
        draft = pathlib.Path(made) / "draft"
        checkpoint(folder, arguments.layers, arguments.hidden, arguments.dtype)
        checkpoint(draft, max(1, arguments.layers // 4), arguments.hidden // 4, arguments.dtype, UNKNOWN)
        ranks = ("--ranks", arguments.ranks, "--sizes", f"tensor={arguments.ranks}")
        options = {
            "off": (),
            "none": (),
            "ngram": ("--speculation", "ngram"),
            "draft": ("--draft-model", draft),
            "mtp": ("--speculation", "mtp"),
        }
        servers = {
            name: stack.enter_context(
                contextlib.closing(Server(name, worker(arguments.worker, folder, *ranks, *more), f"{made}/{name}.log"))
            )
            for name, more in options.items()
            if name == "off" or name in arguments.drafters
        }
        print("drafts text     clients   without    with  ratio acceptance tokens/draft  pauses  equal", flush=True)
        for name in arguments.drafters:
            for text in ("edit", "random", "dice" if name == "ngram" else "new"):
                for clients in arguments.clients if text in arguments.texts else ():
                    compare((servers["off"], servers[name]), text, clients, arguments)


if __name__ == "__main__":
    main()
