# SPDX-License-Identifier: Apache-2.0
"""Measures the throughput of one server for eight streams of the base model, of one adapter, and of eight adapters at
once, in turn. A round has all three; the result of each is the median of its ratios to the base model in its round.
bench/adapters.sh runs it.
"""

import argparse
import concurrent.futures
import hashlib
import http.client
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from served import Server, worker

CACHE = pathlib.Path(os.environ.get("PM_CACHE", pathlib.Path.home() / ".cache/parallelmodel"))
SHAPE = dict(
    hidden_size=1024,
    intermediate_size=2816,
    num_hidden_layers=8,
    num_attention_heads=16,
    num_key_value_heads=4,
    vocab_size=8192,
    max_position_embeddings=1024,
    tie_word_embeddings=False,
)
MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
STREAMS = 8


def checkpoint(rank):
    """Returns the folder of a random checkpoint in bf16 with eight adapters below it, made once."""
    key = hashlib.sha256(repr((SHAPE, rank, MODULES)).encode()).hexdigest()[:12]
    folder = CACHE / f"bench-adapters-{key}"
    if folder.exists():
        return folder
    import torch
    import transformers
    from safetensors.torch import save_file

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(7)
    config = transformers.LlamaConfig(bos_token_id=0, eos_token_id=0, pad_token_id=0, **SHAPE)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    partial = pathlib.Path(tempfile.mkdtemp(dir=CACHE, prefix=".partial-"))
    model.save_pretrained(partial)
    for number in range(STREAMS):
        tensors = {}
        for name, module in model.named_modules():
            if name.endswith(MODULES):
                out, into = module.weight.shape
                a, b = torch.randn(rank, into) / into**0.5, torch.randn(out, rank) * 0.1
                tensors[f"base_model.model.{name}.lora_A.weight"] = a.to(torch.bfloat16)
                tensors[f"base_model.model.{name}.lora_B.weight"] = b.to(torch.bfloat16)
        own = partial / f"adapter-{number}"
        own.mkdir()
        save_file(tensors, own / "adapter_model.safetensors")
        described = {
            "peft_type": "LORA",
            "r": rank,
            "lora_alpha": rank,
            "target_modules": list(MODULES),
            "bias": "none",
        }
        (own / "adapter_config.json").write_text(json.dumps(described))
    partial.rename(folder)
    return folder


def answer(port, model, stream, arguments):
    """Returns the tokens of one answer. Its prompt is its own, so that no prefix is cached."""
    answer.sent = getattr(answer, "sent", 0) + 1
    prompt = [(answer.sent * 7919 + stream * 104729 + i * 31) % 8000 + 10 for i in range(arguments.prompt)]
    body = {"model": model, "prompt": prompt, "max_tokens": arguments.tokens, "temperature": 0, "ignore_eos": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    if reply.status != 200:
        raise RuntimeError(f"{reply.status}: {text[:300]}")
    return json.loads(text)["usage"]["completion_tokens"]


def rate(port, models, arguments):
    """Returns tokens per second of one answer for each model, all at once."""
    with concurrent.futures.ThreadPoolExecutor(len(models)) as pool:
        begin = time.monotonic()
        tokens = list(pool.map(lambda one: answer(port, one[1], one[0], arguments), enumerate(models)))
        return sum(tokens) / (time.monotonic() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("options", nargs="*", help="of the worker's serve, after --")
    arguments = parser.parse_args()
    folder = checkpoint(arguments.rank)
    adapters = [part for i in range(STREAMS) for part in ("--adapter", f"a{i}={folder}/adapter-{i}")]
    loads = {
        "none": ["base"] * STREAMS,
        "one adapter": ["a0"] * STREAMS,
        "eight adapters": [f"a{i}" for i in range(STREAMS)],
    }
    with tempfile.TemporaryDirectory() as logs:
        command = worker(arguments.worker, folder, "--served-model-name", "base", *adapters, *arguments.options)
        server = Server("worker", command, pathlib.Path(logs) / "server.log")
        try:
            for models in loads.values():
                rate(server.port, models, arguments)  # pages and threads are warm then
            rounds = [
                {name: rate(server.port, models, arguments) for name, models in loads.items()}
                for _ in range(arguments.rounds)
            ]
        finally:
            server.close()
    print(f"{STREAMS} streams, prompts of {arguments.prompt}, answers of {arguments.tokens}, rank {arguments.rank}")
    print(f"{'':16}{'tokens/s':>10}{'of none':>10}{'lowest':>8}{'highest':>9}")
    for name in loads:
        ratios = [one[name] / one["none"] for one in rounds]
        print(
            f"{name:16}{statistics.median(one[name] for one in rounds):10.1f}{statistics.median(ratios):10.2f}"
            f"{min(ratios):8.2f}{max(ratios):9.2f}"
        )


if __name__ == "__main__":
    main()
