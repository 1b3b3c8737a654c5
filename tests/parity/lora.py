# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters for cases: a folder as PEFT writes it, and the case with the weights into which it is merged, which is
what an adapter means: W + scale * B A. tests/parity/test_adapters_peft.py compares both with PEFT itself.
"""

import dataclasses
import json
import math
import pathlib
import shutil

import fixtures
import numpy
from safetensors.numpy import load_file, save_file


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What adapter_config.json says, and a seed for the factors."""

    targets: tuple
    seed: int = 1
    rank: int = 4
    alpha: float = 6
    root: bool = False  # rslora
    ranks: tuple = ()  # rank_pattern: (name, number) pairs
    alphas: tuple = ()  # alpha_pattern
    layers: tuple = ()  # layers_to_transform
    prefix: str = ""  # before the checkpoint's names of modules
    dtype: str = "float32"

    def config(self):
        return {
            "peft_type": "LORA",
            "task_type": None,
            "base_model_name_or_path": "base",
            "r": self.rank,
            "lora_alpha": self.alpha,
            "use_rslora": self.root,
            "rank_pattern": dict(self.ranks),
            "alpha_pattern": dict(self.alphas),
            "target_modules": list(self.targets),
            "layers_to_transform": list(self.layers) or None,
            "bias": "none",
            "use_dora": False,
            "modules_to_save": None,
            "fan_in_fan_out": False,
            "inference_mode": True,
            "init_lora_weights": True,
        }


def _number(pairs, module, absent):
    return next((number for name, number in pairs if module == name or module.endswith("." + name)), absent)


def _in_layers(module, layers):
    return not layers or any(part.isdigit() and int(part) in layers for part in module.split("."))


def weights_of(case):
    folder = fixtures.checkpoint(case)
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    return found


def stored_across(case):
    """Returns whether matrices are stored as [in, out]."""
    return "GPT2" in case.model_class


def factors(case, recipe):
    """The A and B of each module, as the file has them, and their scales."""
    random, made, scales = numpy.random.default_rng(recipe.seed), {}, {}
    for name, weight in sorted(weights_of(case).items()):
        module = name.removesuffix(".weight")
        if name == module or weight.ndim != 2 or not _in_layers(module, recipe.layers):
            continue
        if not any(module == target or module.endswith("." + target) for target in recipe.targets):
            continue
        out, into = weight.shape[::-1] if stored_across(case) else weight.shape
        rank = _number(recipe.ranks, module, recipe.rank)
        a = random.normal(size=(rank, into)) / math.sqrt(into)
        b = random.normal(size=(out, rank)) * 0.25
        made[module] = tuple(_rounded(factor, recipe.dtype) for factor in (a, b))
        alpha = _number(recipe.alphas, module, recipe.alpha)
        scales[module] = alpha / (math.sqrt(rank) if recipe.root else rank)
    assert made, f"{case.name} has no module of {recipe.targets}"
    return made, scales


def _rounded(values, dtype):
    import torch

    return torch.from_numpy(values.astype(numpy.float32)).to(getattr(torch, dtype))


def adapter(case, recipe):
    """The folder of an adapter."""

    def make(folder):
        from safetensors.torch import save_file as save_torch

        made, _ = factors(case, recipe)
        tensors = {}
        for module, (a, b) in made.items():
            tensors[f"base_model.model.{recipe.prefix}{module}.lora_A.weight"] = a.contiguous()
            tensors[f"base_model.model.{recipe.prefix}{module}.lora_B.weight"] = b.contiguous()
        (folder / "adapter_config.json").write_text(json.dumps(recipe.config()))
        save_torch(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})

    extra = [dataclasses.asdict(recipe), fixtures.source_of(factors), fixtures.source_of(Recipe.config)]
    return fixtures.cached("adapter", case, extra, make)


def merged(case, recipe, base=None):
    """The case whose weights have the adapter in them. `base`: those of this case instead."""
    base = base or case

    def make(folder):
        for path in fixtures.checkpoint(base).iterdir():
            if path.suffix != ".safetensors":
                shutil.copy(path, folder)
        tensors = weights_of(base)
        made, scales = factors(case, recipe)
        for module, (a, b) in made.items():
            added = scales[module] * (b.double().numpy() @ a.double().numpy())
            before = tensors[f"{module}.weight"]
            after = before + (added.T if stored_across(case) else added)
            tensors[f"{module}.weight"] = numpy.ascontiguousarray(after.astype(before.dtype))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    extra = [dataclasses.asdict(recipe), fixtures.source_of(factors), base.name]
    folder = fixtures.cached("merged", case, extra, make)
    name = f"{base.name}-lora{recipe.seed}"
    return dataclasses.replace(base, name=name, folder=str(folder), digest=pathlib.Path(folder).name)
