#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what PyTorch's libraries take for the work of our kernels, in the shapes of bench_gpu_kernels: products of
few rows by cuBLAS, and attention of prompts by FlashAttention and cuDNN; "flash varlen" is the call that the worker
makes. FlashInfer's attention is measured beside them, and compared with the former, where tools/gpu/flashinfer.sh has
compiled it. Times are those of replays of a CUDA graph. Prints a line of JSON for each.

    libraries.py [LIBFLASHINFER_PREFILL]"""

import ctypes
import json
import pathlib
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
ROWS = [1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64, 512, 2048]
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
        us = microseconds(torch, lambda turn: torch.mm(x, w[turn % sets].t()))
        size, flops = 2 * inputs * outputs + 2 * rows * (inputs + outputs), 2 * rows * inputs * outputs
        show(
            f"cublas bf16 {inputs}->{outputs}, {rows} row{'s' * (rows > 1)}",
            us=round(us, 3),
            GBps=round(size / us / 1e3, 1),
            Tflops=round(flops / us / 1e6, 2),
        )


def try_attention(torch, name, tokens, context, launch):
    """Shows the time of a prompt's attention, or why it failed."""
    label = f"{name} {HEADS}/{KV_HEADS} heads of {D}, {tokens} tokens" + f" after {context}" * (context > 0)
    try:
        us = microseconds(torch, launch)
    except RuntimeError as error:
        torch.cuda.synchronize()
        show(label, failed=str(error)[:200])
        return
    flops = 4 * HEADS * D * tokens * (context + (tokens + 1) / 2)
    show(label, us=round(us, 3), Tflops=round(flops / us / 1e6, 2))


def flashinfer_prefill(torch, path):
    """Returns a function that attends causally with FlashInfer: q, k, v, out of [rows, heads, D] in bf16."""
    ctypes.CDLL("libcudart.so.13", mode=ctypes.RTLD_GLOBAL)  # torch has loaded it
    function = ctypes.CDLL(path).flashinfer_prefill
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    function.argtypes = [pointer] * 4 + [integer] * 4 + [ctypes.c_float, pointer]

    def attend(q, k, v, out):
        sizes = (q.shape[1], k.shape[1], q.shape[0], k.shape[0])
        tensors = (tensor.data_ptr() for tensor in (q, k, v, out))
        if error := function(*tensors, *sizes, D**-0.5, torch.cuda.current_stream().cuda_stream):
            raise RuntimeError(f"the launch of FlashInfer failed with CUDA error {error}")

    return attend


def attention(torch, flashinfer):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right

    for tokens, context in PROMPTS:
        keys = context + tokens
        q = torch.randn(tokens, HEADS, D, device="cuda", dtype=torch.bfloat16)
        k, v = (torch.randn(keys, KV_HEADS, D, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        starts = [torch.tensor([0, count], device="cuda", dtype=torch.int32) for count in (tokens, keys)]

        def varlen(_, q=q, k=k, v=v, starts=starts):
            return torch.ops.aten._flash_attention_forward(
                q,
                k,
                v,
                *starts,
                len(q),
                len(k),
                0.0,
                True,
                False,
                scale=D**-0.5,
                window_size_left=-1,
                window_size_right=0,
            )[0]

        try_attention(torch, "flash varlen", tokens, context, varlen)
        if flashinfer:
            out = torch.empty_like(q)
            try_attention(torch, "flashinfer", tokens, context, lambda _, t=(q, k, v, out): flashinfer(*t))
            error = float((out.float() - varlen(0).float()).abs().max())
            show(f"flashinfer differs from flash after {tokens} + {context} tokens", error=round(error, 5))
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        for tokens, context in PROMPTS:
            q = torch.randn(1, HEADS, tokens, D, device="cuda", dtype=torch.bfloat16)
            k, v = (
                torch.randn(1, KV_HEADS, context + tokens, D, device="cuda", dtype=torch.bfloat16) for _ in range(2)
            )
            mask = {"attn_mask": causal_lower_right(tokens, context + tokens)} if context else {"is_causal": True}
            with sdpa_kernel(backend):
                try_attention(
                    torch,
                    f"sdpa {name}",
                    tokens,
                    context,
                    lambda _: torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **mask),
                )


def main():
    import torch

    if not torch.cuda.is_available():
        print("no GPU here: torch sees none")
        sys.exit(77)
    cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    with torch.inference_mode():
        library = sys.argv[1] if len(sys.argv) > 1 else ""
        flashinfer = flashinfer_prefill(torch, library) if pathlib.Path(library).is_file() else None
        attention(torch, flashinfer)  # first, because it decides more
        for inputs, outputs in MATRICES:
            products(torch, inputs, outputs, cache_bytes)


if __name__ == "__main__":
    main()
