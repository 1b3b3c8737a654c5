# SPDX-License-Identifier: Apache-2.0
"""Makes checkpoints of known size: the models of the project's targets, and for the rehearsal the same model classes
with about a fiftieth of the bytes."""

import dataclasses
import math
import sys
import zlib

import machine

sys.path.append(str(machine.REPOSITORY / "bench"))

MIB, GIB = 1 << 20, 1 << 30


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    model_class: str
    config_class: str
    settings: dict

    @property
    def entry(self):
        """Returns the model in the form that bench/load.py takes."""
        import transformers

        return self.model_class, getattr(transformers, self.config_class)(**self.settings)

    def write(self, folder, values=None):
        import load

        folder.mkdir()
        load.write(folder, *self.entry, values)
        return folder


@dataclasses.dataclass(frozen=True)
class Neo:
    """GPT-Neo-2.7B in fp16 on two ranks. `share` is the number of bytes that a rank may hold. `cap` is a device memory
    that two layers of the model fit in, and the whole model does not."""

    shape: Shape
    share: int
    cap: str


@dataclasses.dataclass(frozen=True)
class Headline:
    """GPT-J-6B in fp16 on two ranks of `cap` each, with `kv` bytes left. `less`: a cap for which it is too large."""

    shape: Shape
    cap: str
    less: str
    kv: int
    options: tuple = ()


NEO = Neo(
    Shape(
        "GPT-Neo-2.7B",
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        dict(hidden_size=2560, num_layers=32, num_heads=20, attention_types=[[["global", "local"], 16]]),
    ),
    2540 * MIB,
    "4Gi",
)
GPT_J = Headline(Shape("GPT-J-6B", "GPTJForCausalLM", "GPTJConfig", {}), "8Gi", "6Gi", int(1.2 * GIB))
if machine.REHEARSAL:
    NEO = Neo(
        Shape(
            "GPT-Neo, a fiftieth",
            "GPTNeoForCausalLM",
            "GPTNeoConfig",
            dict(
                hidden_size=512,
                num_layers=8,
                num_heads=8,
                attention_types=[[["global", "local"], 4]],
                max_position_embeddings=256,
            ),
        ),
        2540 * MIB // 52,
        "1120Mi",
    )
    GPT_J = Headline(
        Shape(
            "GPT-J, a fiftieth",
            "GPTJForCausalLM",
            "GPTJConfig",
            dict(n_embd=1024, n_head=8, n_layer=6, vocab_size=20000, bos_token_id=0, eos_token_id=0),
        ),
        "1240Mi",
        "1120Mi",
        int(1.2 * GIB / 50),
        ("--max-sequence-length", "256", "--max-concurrency", "16"),
    )


class Noise:
    """Writes fp16 weights from one random array, at another offset for each tensor, so that twelve gigabytes are
    generated as quickly as they are written. Norm weights are ones, biases zeros."""

    def __init__(self, seed=5, size=1 << 22, scale=0.02):
        import numpy

        self.drawn = (scale * numpy.random.default_rng(seed).standard_normal(size, dtype=numpy.float32)).astype(
            numpy.float16
        )

    def __call__(self, name, shape):
        import numpy

        if len(shape) == 1:
            return numpy.full(shape, name.endswith("weight"), numpy.float16)
        start = zlib.crc32(name.encode()) % len(self.drawn)
        return numpy.resize(numpy.roll(self.drawn, -start), math.prod(shape))
