# SPDX-License-Identifier: Apache-2.0
"""Measures tokens per second on a GPU for three shapes with random weights: the worker as served, Hugging Face
eager, and Hugging Face with a static cache and torch.compile, in turn in one run on the same checkpoint.
bench/gpu.sh runs it.

Decoding is compared with the bytes that it has to read: (weights + keys and values of all sequences, half way) / the
bandwidth of a copy on the same device in the same run. Prefill is compared with 2 x parameters x tokens / the rate
of a large matrix product in the same dtype: the LM head counts for one token only, attention does not count. `--json`
prints a line of JSON instead of each row of the table.
`--device cpu --shapes tiny` only tries the script without a GPU; its results mean nothing.
"""

import argparse
import contextlib
import dataclasses
import gc
import hashlib
import http.client
import inspect
import json
import os
import pathlib
import re
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import served

CACHE = pathlib.Path(os.environ.get("PM_CACHE", pathlib.Path.home() / ".cache/parallelmodel"))


@dataclasses.dataclass(frozen=True)
class Shape:
    config: str  # of transformers
    settings: dict
    dtype: str = "bfloat16"
    target: float = 0.0  # of the bandwidth, one stream


def llama(hidden, layers, heads, kv_heads, ffn, vocabulary, tied, target):
    return Shape(
        "LlamaConfig",
        dict(
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            intermediate_size=ffn,
            vocab_size=vocabulary,
            max_position_embeddings=16384,
            tie_word_embeddings=tied,
        ),
        target=target,
    )


SHAPES = {
    "gpt-neo-2.7b": Shape(
        "GPTNeoConfig",
        dict(
            hidden_size=2560,
            num_layers=32,
            num_heads=20,
            attention_types=[[["global", "local"], 16]],
            max_position_embeddings=2048,
        ),
        "float16",
    ),
    "1b": llama(2048, 16, 32, 8, 8192, 128256, True, 0.75),
    "8b": llama(4096, 32, 32, 8, 14336, 128256, False, 0.85),
    "tiny": llama(64, 2, 4, 2, 128, 512, False, 0.0),
}


def tokenizer(vocabulary):
    """Returns a tokenizer in which every token is one word, so that each token has its own event."""
    import tokenizers
    import transformers
    from tokenizers import decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<|end|>", *letters, *(f"\u0120w{i}" for i in range(vocabulary - 1 - len(letters)))]
    whole = tokenizers.Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    whole.pre_tokenizer, whole.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=whole, eos_token="<|end|>", bos_token="<|end|>", unk_token="<|end|>", pad_token="<|end|>"
    )


def release_memory():
    """Returns what this process no longer uses of the GPU's memory, which the worker needs."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def checkpoint(name):
    """Returns the folder of the shape's checkpoint, made once, on the GPU where there is one."""
    source = repr(SHAPES[name]) + inspect.getsource(make_checkpoint) + inspect.getsource(tokenizer)
    folder = CACHE / f"bench-gpu-{name}-{hashlib.sha256(source.encode()).hexdigest()[:12]}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = pathlib.Path(tempfile.mkdtemp(dir=CACHE, prefix=".partial-"))
        make_checkpoint(SHAPES[name], partial)
        partial.rename(folder)
        release_memory()
    return folder


def make_checkpoint(shape, folder):
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    config = getattr(transformers, shape.config)(bos_token_id=0, eos_token_id=0, pad_token_id=0, **shape.settings)
    torch.manual_seed(7)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, shape.dtype))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, 1.5 / parameter.shape[1] ** 0.5)
        with torch.no_grad():  # no answer has bytes or the end token
            model.get_output_embeddings().weight[:257] = 0
    model.save_pretrained(folder)
    tokenizer(config.vocab_size).save_pretrained(folder)


def limits(device, dtype):
    """Returns the bytes per second of a copy (read and written) and the operations per second of a matrix product on
    this device.
    """
    import torch

    size, side = (1 << 30, 8192) if device == "cuda" else (1 << 24, 512)
    a, m = torch.empty(size, dtype=torch.uint8, device=device), torch.randn(side, side, dtype=dtype, device=device)
    b = torch.empty_like(a)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def best(run):
        times = []
        for _ in range(50):  # the clocks of an idle device take a while to rise
            wait()
            begin = time.perf_counter()
            run()
            wait()
            times.append(time.perf_counter() - begin)
        return min(times)

    return 2 * size / best(lambda: b.copy_(a)), 2 * side**3 / best(lambda: m @ m)


def prompts(batch, length, vocabulary):
    return [[1 + (31 * row + 7 * i) % (vocabulary - 1) for i in range(length)] for row in range(batch)]


class Ours(served.Server):
    """The worker as served; each sequence is a request of its own."""

    def __init__(self, worker, folder, device, most, longest, logs):
        super().__init__(
            "ParallelModel",
            served.worker(
                worker, folder, "--device", device, "--max-concurrency", most, "--max-sequence-length", longest
            ),
            logs / "worker.log",
            patience=600,
        )

    def steps(self):
        """Returns {"step": (seconds, number), "gap": ...} of the engine so far: gaps are the time between steps."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        found = dict(re.findall(r"^parallelmodel_engine_(step(?:_gap)?_seconds_(?:sum|count)) (\S+)$", text, re.M))
        return {
            name: tuple(float(found[f"{key}_seconds_{part}"]) for part in ("sum", "count"))
            for name, key in (("step", "step"), ("gap", "step_gap"))
        }

    def run(self, rows, tokens):
        """Returns the seconds until the last sequence has its first token, and the tokens per second while all
        sequences decode.
        """
        times, begin = [None] * len(rows), time.monotonic()

        def ask(i):
            times[i] = [at for at, ids in served.completion(self.port, rows[i], tokens) for _ in ids]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(rows))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if any(own is None or len(own) != tokens for own in times):
            raise RuntimeError(
                f"{self.name}: {[own and len(own) for own in times]} tokens, {tokens} each were asked for"
            )
        first, last = max(own[0] for own in times), min(own[-1] for own in times)
        during = sum(first < at <= last for own in times for at in own)
        return first - begin, during / (last - first) if last > first else len(rows) * tokens / (
            last - begin
        )  # tiny shapes answer at once


class HuggingFace:
    """Runs generate() on all rows at once; `compiled` uses a static cache, whose forward transformers compiles."""

    def __init__(self, folder, device, compiled):
        import torch
        import transformers

        self.name, self.torch, self.device = "HF static + compile" if compiled else "HF eager", torch, device
        self.options = {"cache_implementation": "static"} if compiled else {}
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").to(device).eval()
        if compiled:
            self.model.forward = torch.compile(
                self.model.forward,
                mode="reduce-overhead" if device == "cuda" else "default",
                fullgraph=device == "cuda",
            )

    def steps(self):
        return {}

    def _seconds(self, rows, tokens):
        torch = self.torch
        ids = torch.tensor(rows, device=self.device)
        wait = torch.cuda.synchronize if self.device == "cuda" else lambda: None
        wait()
        begin = time.monotonic()
        with torch.inference_mode():
            self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                pad_token_id=0,
                **self.options,
            )
        wait()
        return time.monotonic() - begin

    def run(self, rows, tokens):
        first, whole = self._seconds(rows, 1), self._seconds(rows, tokens)
        return first, len(rows) * (tokens - 1) / max(whole - first, 1e-9)

    def close(self):
        del self.model
        if self.device == "cuda":
            self.torch._dynamo.reset()
        release_memory()


def mean_milliseconds(before, after):
    """Returns the means of what happened between two results of steps(): {"step_ms": ..., "gap_ms": ...}."""
    return {
        f"{name}_ms": round(1000 * (seconds - before[name][0]) / max(count - before[name][1], 1), 3)
        for name, (seconds, count) in after.items()
    }


def kv_bytes(config, element):
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * (config.hidden_size // config.num_attention_heads) * element


class Report:
    """Prints rows as they are measured: a table, or lines of JSON."""

    def __init__(self, shape, as_json):
        self.shape, self.as_json = shape, as_json

    def heading(self, weights, bandwidth, peak):
        shape = SHAPES[self.shape]
        if self.as_json:
            limits_of = {"bandwidth_GBps": round(bandwidth / 1e9, 1), "peak_Tflops": round(peak / 1e12, 1)}
            print(json.dumps({"figure": f"{self.shape} limits", **limits_of, "weights": weights}), flush=True)
            return
        target = f", target {shape.target} for one stream" if shape.target else ""
        print(
            f"\n{self.shape}, {shape.dtype}: {weights / 1e9:.2f} GB of weights, {bandwidth / 1e9:.0f} GB/s by a copy, "
            f"{peak / 1e12:.1f} Tflop/s by a product{target}\n{'':34}{'tok/s':>10}{'ms':>10}",
            flush=True,
        )

    def row(self, engine, what, rate, milliseconds, limit, share, **more):
        """`milliseconds`: of a step of decoding, or of a prompt. `share` of the limit, "bandwidth" or "peak". JSON has
        `more`, too."""
        if self.as_json:
            values = {"tokens_per_second": round(rate, 1), "ms": round(milliseconds, 3), f"of_{limit}": round(share, 4)}
            values |= more
            print(json.dumps({"figure": f"{self.shape}, {engine}, {what}", **values}), flush=True)
            return
        print(f"{engine:20}{what:14}{rate:>10.1f}{milliseconds:>10.2f}{share:>8.2f} of the {limit}", flush=True)


def measure(name, arguments, logs):
    import torch
    import transformers

    folder, shape = checkpoint(name), SHAPES[name]
    config = transformers.AutoConfig.from_pretrained(folder)
    bandwidth, peak = limits(arguments.device, getattr(torch, shape.dtype))
    release_memory()
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    looked_up = (
        0 if config.tie_word_embeddings else 2 * config.vocab_size * config.hidden_size
    )  # of the token embedding only the rows of a step are read
    lengths = [length for length in arguments.prefill if length + 2 <= config.max_position_embeddings]
    read, longest = weights - looked_up, max([arguments.prompt + arguments.tokens, *(length + 2 for length in lengths)])
    head = config.vocab_size * config.hidden_size
    report = Report(name, arguments.json)
    report.heading(weights, bandwidth, peak)
    makers = {
        "ours": lambda: Ours(arguments.worker, folder, arguments.device, max(arguments.batches), longest, logs),
        "eager": lambda: HuggingFace(folder, arguments.device, False),
        "compiled": lambda: HuggingFace(folder, arguments.device, True),
    }
    for which in arguments.engines:
        with contextlib.closing(makers[which]()) as engine:
            for batch in arguments.batches:
                rows = prompts(batch, arguments.prompt, config.vocab_size)
                engine.run(rows, arguments.tokens)  # warm: libraries, graphs, compiled code
                before = engine.steps()
                rate = max(engine.run(rows, arguments.tokens)[1] for _ in range(arguments.rounds))
                spent = mean_milliseconds(before, engine.steps())
                cached = batch * (arguments.prompt + arguments.tokens / 2) * kv_bytes(config, 2)
                share = rate / batch * (read + cached) / bandwidth
                report.row(engine.name, f"batch {batch}", rate, 1000 * batch / rate, "bandwidth", share, **spent)
            for length in lengths:
                long = prompts(1, length, config.vocab_size)[0]
                engine.run([long], 2)
                # Each prompt begins with another token, so that no cached prefix is used.
                seconds = min(engine.run([[2 + turn, *long[1:]]], 2)[0] for turn in range(arguments.rounds))
                share = 2 * ((read / 2 - head) * length + head) / seconds / peak
                report.row(engine.name, f"prompt {length}", length / seconds, 1000 * seconds, "peak", share)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument(
        "--shapes",
        type=lambda text: text.split(","),
        default=["gpt-neo-2.7b", "1b", "8b"],
        help="of " + ", ".join(SHAPES),
    )
    parser.add_argument("--engines", type=lambda text: text.split(","), default=["ours", "eager", "compiled"])
    parser.add_argument(
        "--batches", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8, 16, 32, 64]
    )
    parser.add_argument("--prompt", type=int, default=128, help="tokens before those that are timed")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument(
        "--prefill",
        type=lambda text: [int(n) for n in text.split(",") if n],
        default=[512, 2048, 8192],
        help="tokens of the prompts that are timed",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print lines of JSON, not a table")
    arguments = parser.parse_args()
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit(
            "bench/gpu: NoDevice: torch sees no GPU here; run it where there is one, or try the script "
            "itself by --device cpu --shapes tiny"
        )
    if not pathlib.Path(arguments.worker).exists():
        sys.exit(
            f"bench/gpu: {arguments.worker} is not built; `cmake --preset cuda && cmake --build --preset "
            f"cuda --target parallelmodel-worker`"
        )
    with tempfile.TemporaryDirectory() as logs:
        for name in arguments.shapes:
            measure(name, arguments, pathlib.Path(logs))


if __name__ == "__main__":
    main()
