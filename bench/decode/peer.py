# SPDX-License-Identifier: Apache-2.0
"""Decodes one stream with another engine: `peer.py hf|ct2|llama FOLDER THREADS [COMPUTE_TYPE]` (the type is for
ct2). For each line of input, {"prompt": ids, "tokens": n}, it prints the ids of a greedy answer and the time of
each, in seconds of the monotonic clock.
"""

import json
import sys
import time

import torch


def hf(folder, threads):
    import transformers

    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()

    class Times(transformers.generation.streamers.BaseStreamer):
        def __init__(self):
            self.times = []

        def put(self, value):
            self.times.append(time.monotonic())

        def end(self):
            pass

    def run(prompt, tokens):
        times = Times()
        with torch.inference_mode():
            ids = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                do_sample=False,
                streamer=times,
            )
        return ids[0, len(prompt) :].tolist(), times.times[1:]  # the first is the prompt

    return run


def ct2(folder, threads, compute_type="float32"):
    import ctranslate2

    generator = ctranslate2.Generator(folder, device="cpu", compute_type=compute_type, intra_threads=threads)
    with open(f"{folder}/vocabulary.json") as file:
        vocabulary = json.load(file)

    def run(prompt, tokens):
        ids, times = [], []

        def step(result):
            ids.append(result.token_id)
            times.append(time.monotonic())

        generator.generate_batch(
            [[vocabulary[id] for id in prompt]],
            max_length=tokens,
            sampling_topk=1,
            end_token=[],
            include_prompt_in_result=False,
            callback=step,
        )
        return ids, times

    return run


def llama(path, threads):
    import llama_cpp
    import numpy

    model = llama_cpp.Llama(path, n_ctx=4096, n_threads=threads, n_threads_batch=threads, verbose=False)

    def run(prompt, tokens):
        model.reset()
        model.eval(prompt)
        ids, times = [], []
        while len(ids) < tokens:
            logits = numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, -1), (model.n_vocab(),))
            ids.append(int(logits.argmax()))
            times.append(time.monotonic())
            model.eval([ids[-1]])
        return ids, times

    return run


def main(kind, folder, threads, *rest):
    run = {"hf": hf, "ct2": ct2, "llama": llama}[kind](folder, int(threads), *rest)
    print("ready", flush=True)
    for line in sys.stdin:
        ids, times = run(**json.loads(line))
        print(json.dumps({"ids": ids, "times": times}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
