# SPDX-License-Identifier: Apache-2.0
"""Compares the decoding of one stream of a mixture of experts with a plain read of the bytes that a token needs: all
matrices but those of the experts that it does not choose. transformers decodes the same random checkpoint in the same
run. Engines run in turn; the result of each is its fastest stretch of --window consecutive tokens. bench/experts.sh
runs it.
"""

import argparse
import contextlib
import hashlib
import os
import pathlib
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from engines import Ours, Read, rates

CACHE = pathlib.Path(os.environ.get("PM_CACHE", pathlib.Path.home() / ".cache/parallelmodel"))
SHAPE = dict(
    hidden_size=1024,
    num_hidden_layers=12,
    num_attention_heads=16,
    num_key_value_heads=4,
    head_dim=64,
    num_experts=32,
    num_experts_per_tok=4,
    moe_intermediate_size=512,
    norm_topk_prob=True,
    vocab_size=8192,
    max_position_embeddings=1024,
    tie_word_embeddings=False,
)


def active_matrices(shape):
    """Returns the matrices that one token reads, as OUTxIN."""
    hidden, width = shape["hidden_size"], shape["moe_intermediate_size"]
    heads = shape["num_attention_heads"] * shape["head_dim"]
    keys = shape["num_key_value_heads"] * shape["head_dim"]
    expert = [f"{2 * width}x{hidden}", f"{hidden}x{width}"]
    layer = [f"{heads + 2 * keys}x{hidden}", f"{hidden}x{heads}", f"{shape['num_experts']}x{hidden}"]
    return (layer + expert * shape["num_experts_per_tok"]) * shape["num_hidden_layers"] + [
        f"{shape['vocab_size']}x{hidden}"
    ]


def checkpoint():
    """Returns the folder of a random checkpoint in bf16, made once."""
    folder = CACHE / f"bench-experts-{hashlib.sha256(repr(SHAPE).encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(7)
    config = transformers.Qwen3MoeConfig(bos_token_id=0, eos_token_id=0, pad_token_id=0, **SHAPE)
    with torch.device("meta"):
        model = transformers.Qwen3MoeForCausalLM(config)
    model = model.to(torch.bfloat16).to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, parameter.shape[-1] ** -0.5) if parameter.dim() > 1 else parameter.fill_(1)
    partial = pathlib.Path(tempfile.mkdtemp(dir=CACHE, prefix=".partial-"))
    model.save_pretrained(partial)
    partial.rename(folder)
    return folder


class Transformers:
    """generate() of transformers, with the experts' default implementation."""

    name = "transformers"

    def __init__(self, folder, threads):
        import torch
        import transformers

        torch.set_num_threads(threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()

    def run(self, prompt, tokens):
        import torch

        times = []

        def note(ids, scores):
            times.append(time.monotonic())
            return scores

        with torch.inference_mode():
            self.model.generate(
                torch.tensor([prompt]),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                logits_processor=[note],
            )
        return [], times

    def close(self):
        self.model = None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--read", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folder, matrices = checkpoint(), active_matrices(SHAPE)
    size = 2 * sum(int(out) * int(into) for out, into in (one.split("x") for one in matrices))
    print(
        f"{size / 2**20:.0f} MiB a token of {sum(f.stat().st_size for f in folder.glob('*.safetensors')) / 2**20:.0f}"
    )
    print(f"{'':16}{'ms a token':>12}{'GB/s':>8}{'of the read':>13}")
    with tempfile.TemporaryDirectory() as logs, contextlib.ExitStack() as stack:
        log = pathlib.Path(logs)
        engines = [
            Read("plain read", [arguments.read, arguments.threads, 2, *matrices], arguments.threads, log, False),
            Ours("ParallelModel", arguments.worker, folder, "BF16", 1, arguments.threads, log),
            Transformers(folder, arguments.threads),
        ]
        best = dict.fromkeys((engine.name for engine in engines), 0)  # tokens/s
        for engine in engines:
            stack.enter_context(contextlib.closing(engine))
        prompt = [1 + 37 * i % 8000 for i in range(32)]
        for _ in range(arguments.rounds):
            for engine in engines:
                _, times = engine.run(prompt, arguments.tokens)
                best[engine.name] = max(best[engine.name], *rates(times, arguments.window))
        for name, rate in best.items():
            share = rate / best["plain read"]
            print(f"{name:16}{1000 / rate:>12.2f}{size * rate / 1e9:>8.1f}{share:>13.2f}")


if __name__ == "__main__":
    main()
