#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what PyTorch's libraries take for the work of our kernels, in the shapes of bench_gpu_kernels: products of
few rows by cuBLAS, and attention of prompts by FlashAttention and cuDNN. Times are those of replays of a CUDA graph.
Prints a line of JSON for each. FlashInfer is not measured: PyTorch does not have it."""

import json
import sys

# as add_gemv and add_attention of bench/gpu_kernels
MATRICES = [
    (4096, 6144),
    (4096, 4096),
    (4096, 28672),
    (14336, 4096),
    (4096, 128256),
    (2048, 3072),
    (2048, 16384),
    (8192, 2048),
]
ROWS = [1, 2, 4, 8, 16, 32, 64, 512, 2048]
PROMPTS = [(512, 0), (2048, 0), (8192, 0), (32768, 0), (512, 8192), (2048, 8192)]
HEADS, KV_HEADS, D = 32, 8, 128
REPLAYS, REPLAY_US = 10, 2000


def show(figure, **values):
    print(json.dumps({"figure": figure, **values}), flush=True)


def microseconds(torch, launch):
    """Returns the median microseconds of `launch(turn)`, as bench/gpu_kernels/device_cuda.cpp measures them."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(work):
        begin.record()
        work()
        end.record()
        end.synchronize()
        return 1000 * begin.elapsed_time(end)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # libraries make their workspaces before the capture
        launch(0)
        warm = timed(lambda: [launch(turn) for turn in range(5)]) / 5
        count = max(1, min(50, int(REPLAY_US / max(warm, 0.1))))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for turn in range(count):
                launch(turn)
        graph.replay()
        times = sorted(timed(graph.replay) / count for _ in range(REPLAYS))
    return times[len(times) // 2]


def products(torch, inputs, outputs, cache_bytes):
    sets = max(1, min(64, -(-4 * cache_bytes // (2 * inputs * outputs))))
    w = torch.randn(sets, outputs, inputs, device="cuda", dtype=torch.bfloat16)
    for rows in ROWS:
        x = torch.randn(rows, inputs, device="cuda", dtype=torch.bfloat16)
        us = microseconds(torch, lambda turn: torch.mm(x, w[turn % sets].t(), out_dtype=torch.float32))
        size, flops = 2 * inputs * outputs + rows * (2 * inputs + 4 * outputs), 2 * rows * inputs * outputs
        show(
            f"cublas bf16 {inputs}->{outputs}, {rows} row{'s' * (rows > 1)}",
            us=round(us, 3),
            GBps=round(size / us / 1e3, 1),
            Tflops=round(flops / us / 1e6, 2),
        )


def attention(torch):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right

    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        for tokens, context in PROMPTS:
            q = torch.randn(1, HEADS, tokens, D, device="cuda", dtype=torch.bfloat16)
            k, v = (
                torch.randn(1, KV_HEADS, context + tokens, D, device="cuda", dtype=torch.bfloat16) for _ in range(2)
            )
            mask = {"attn_mask": causal_lower_right(tokens, context + tokens)} if context else {"is_causal": True}
            label = f"sdpa {name} {HEADS}/{KV_HEADS} heads of {D}, {tokens} tokens" + f" after {context}" * (
                context > 0
            )
            try:
                with sdpa_kernel(backend):
                    us = microseconds(
                        torch,
                        lambda _: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **mask),
                    )
            except RuntimeError as error:
                torch.cuda.synchronize()
                show(label, failed=str(error)[:200])
                continue
            flops = 4 * HEADS * D * tokens * (context + (tokens + 1) / 2)
            show(label, us=round(us, 3), Tflops=round(flops / us / 1e6, 2))


def main():
    import torch

    if not torch.cuda.is_available():
        print("no GPU here: torch sees none")
        sys.exit(77)
    cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    with torch.inference_mode():
        attention(torch)  # first, because it decides more
        for inputs, outputs in MATRICES:
            products(torch, inputs, outputs, cache_bytes)


if __name__ == "__main__":
    main()
