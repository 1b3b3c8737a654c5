#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the example checkpoint from scratch: a small GPT-2 on stories that stories.py makes. The training uses one
thread, takes about ten minutes and needs no network.

    python examples/tiny-stories/train.py [--out DIR] [--steps 1300]

It writes a Hugging Face checkpoint: config.json, generation_config.json, model.safetensors (fp32), tokenizer.json,
tokenizer_config.json.
"""

import argparse
import math
import pathlib
import random
import time

import stories
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

END = "<|endoftext|>"


def train_tokenizer(seed, count=20000, size=2048):
    """Byte-level BPE, so that any text has ids; merges never cross words."""
    rng = random.Random(seed)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator((stories.story(rng) for _ in range(count)), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=END, eos_token=END, unk_token=END, model_max_length=256
    )


def batches(tokenizer, rng, size, width):
    """Endless (ids, labels) of `size` stories each, of like length so that little is padding; labels are -100 there."""
    end = tokenizer.eos_token_id
    while True:
        many = [tokenizer.encode(stories.story(rng))[: width - 1] + [end] for _ in range(size * 32)]
        many.sort(key=len)
        groups = [many[i : i + size] for i in range(0, len(many), size)]
        rng.shuffle(groups)
        for group in groups:
            longest = max(map(len, group))
            ids = torch.tensor([row + [end] * (longest - len(row)) for row in group])
            labels = torch.tensor([row + [-100] * (longest - len(row)) for row in group])
            yield ids, labels


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    parser.add_argument("--steps", type=int, default=1300)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--rate", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)

    tokenizer = train_tokenizer(options.seed)
    end = tokenizer.eos_token_id
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=256,
        n_embd=192,
        n_layer=5,
        n_head=6,
        bos_token_id=end,
        eos_token_id=end,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
    )
    model = GPT2LMHeadModel(config).train()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, vocabulary {len(tokenizer)}", flush=True)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}],
        lr=options.rate,
        betas=(0.9, 0.98),
    )
    warmup = max(1, min(100, options.steps // 10))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (
            (step + 1) / warmup
            if step < warmup
            else 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, options.steps - warmup)))
        ),
    )

    started, source = (
        time.monotonic(),
        batches(tokenizer, random.Random(options.seed + 1), options.batch, config.n_positions),
    )
    for step in range(1, options.steps + 1):
        ids, labels = next(source)
        loss = model(ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == options.steps:
            print(f"step {step} loss {loss.item():.3f} after {time.monotonic() - started:.0f} s", flush=True)

    model.eval()
    model.generation_config.update(
        do_sample=False, max_new_tokens=160, bos_token_id=end, eos_token_id=end, pad_token_id=end
    )
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    for prompt in ("Once upon a time", "The little fox", "One day, it began to rain", "Anna wanted to learn to swim"):
        ids = torch.tensor([tokenizer.encode(prompt)])
        print("-", tokenizer.decode(model.generate(ids, attention_mask=torch.ones_like(ids))[0]))


if __name__ == "__main__":
    main()
