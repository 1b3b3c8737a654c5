# SPDX-License-Identifier: Apache-2.0
"""Tiny checkpoints in which every parameter matters, cached by everything that determines them.

Hugging Face's own initialisation proves nothing: biases are zero, norms are one, attention is nearly uniform. So all
parameters are random, from a printed seed: embeddings 0.1 N, matrices 2 N / sqrt(fan_in), biases 0.2 N, norm weights
1 + 0.2 N. Where a family does not scale its scores, its queries are smaller by as much, so that no softmax
saturates. What BART and related models add to their states is smaller as well, because their norms come after the
sums: otherwise the last token would drown, and greedy answers would repeat one token.
"""

import functools
import hashlib
import importlib.metadata
import inspect
import json
import math
import os
import pathlib
import shutil
import tempfile

import cases_composites
import cases_decoders_dense
import cases_experts
import cases_gemma4
import cases_latent_attention
import cases_multimodal
import cases_neighbors
import cases_quantized
import cases_recurrent

CACHE = pathlib.Path(os.environ.get("PM_CACHE", pathlib.Path.home() / ".cache/parallelmodel")) / "oracle"

SMALLER = {
    **cases_neighbors.SMALLER,
    **cases_composites.SMALLER,
    **cases_decoders_dense.SMALLER,
    **cases_experts.SMALLER,
    **cases_latent_attention.SMALLER,
    **cases_recurrent.SMALLER,
    **cases_gemma4.SMALLER,
    **cases_multimodal.SMALLER,
}  # by shrink()


@functools.cache
def _versions():
    """What made the answers: the installed libraries, or PM_ORACLE_KEY, which names those of answers that were made
    elsewhere and brought here (tools/gpu/pack.sh)."""
    if key := os.environ.get("PM_ORACLE_KEY"):
        return {"key": key}
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers")}


@functools.cache
def _source_of_code(code):
    return inspect.getsource(code)


def source_of(function):
    """Returns the text of a function, whose end Python would look for at every call."""
    return _source_of_code(inspect.unwrap(function).__code__)


def _made_by(case):
    """What determines a checkpoint: not its name nor what is done with it."""
    return [
        case.folder,
        case.digest,
        case.model_class,
        case.config_class,
        case.config,
        case.seed,
        case.dtype,
        source_of(refill),
        source_of(build),
        *([SMALLER[case.model_type]] if case.model_type in SMALLER else []),
        *([source_of(calibrate)] if cases_quantized.rounds(case) else []),
    ]


def cached(kind, case, extra, make):
    """The folder with what `make(folder)` writes for this case; made once for equal checkpoints, inputs, versions and
    sources of `make`."""
    key = json.dumps([kind, _made_by(case), extra, _versions(), source_of(make)], sort_keys=True)
    folder = CACHE / f"{kind}-{case.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = pathlib.Path(tempfile.mkdtemp(dir=CACHE, prefix=".partial-"))
        try:
            make(partial)
            partial.rename(folder)
        except OSError:
            if not folder.exists():  # else another run made the same
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def refill(model, seed):
    """Draws every parameter again, by what it is; and the buffers that are saved with them (BART's
    final_logits_bias)."""
    import torch
    from transformers.pytorch_utils import Conv1D

    generator = torch.Generator().manual_seed(seed)
    unscaled = {"t5": "q", "mt5": "q", "gpt_neo": "q_proj"}.get(model.config.model_type)
    after = model.config.model_type in (
        "bart",
        "led",
        "marian",
        "blenderbot-small",
        "fsmt",
        "openai-gpt",
        "encoder-decoder",
    ) or not getattr(model.config, "do_layer_norm_before", True)
    both = model.config.model_type == "encoder-decoder"
    outputs, smaller = ("out_proj", "fc2", "c_proj", *(["output.dense"] if both else [])), 12 if both else 4
    saved = set(model.state_dict())
    seen = set()
    for path, module in model.named_modules():
        if "Sinusoidal" in type(module).__name__:  # a formula, saved with the rest
            continue
        for name, parameter in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            if (
                "Sinusoidal" in type(module).__name__
                or id(parameter) in seen
                or f"{path}.{name}".lstrip(".") not in saved
                or not parameter.is_floating_point()
            ):  # tied, or not saved
                continue
            seen.add(id(parameter))
            normal = torch.randn(parameter.shape, generator=generator)
            if isinstance(module, torch.nn.Embedding):
                value = (
                    0.3 if model.config.model_type in ("marian", "fsmt", "pegasus") else 0.1
                ) * normal  # beside sinusoids more
            elif "Norm" in type(module).__name__ and name == "weight":
                adds_one = any(word in type(module).__name__ for word in ("Gemma2", "Gemma3", "LayerNorm1P"))
                value = (0 if adds_one else 1) + 0.2 * normal
            elif name == "running_var":
                value = 0.5 + normal.square()
            elif parameter.dim() < 2 or name == "final_logits_bias":
                value = 0.2 * normal
            else:
                fan_in = parameter.shape[0] if isinstance(module, Conv1D) else math.prod(parameter.shape[1:])
                value = 2 * normal / math.sqrt(fan_in)
            if path.rpartition(".")[2] == unscaled:
                value = value / parameter.shape[0] ** 0.4  # of heads x head_dim: scores of a few units
            if path.endswith("c_attn") and not getattr(
                model.config, "scale_attn_weights", True
            ):  # queries, keys and values in one
                value[..., : model.config.n_embd] /= model.config.n_embd**0.25
            if after and path.endswith(outputs):
                value = value / smaller
            parameter.data.copy_(value)


def library(name):
    """A class of transformers, or one that it had."""
    import removed_classes
    import transformers

    return getattr(removed_classes, name, None) or getattr(transformers, name)


def build(case):
    """The model with all parameters drawn again, and nothing in its generation config but the special ids."""
    import torch
    import transformers

    config = library(case.config_class)(**case.settings)
    torch.manual_seed(case.seed)  # for what refill does not reach: nothing, but then it would be seen
    model = library(case.model_class)(config)
    if not case.text.get("tie_word_embeddings", True) and case.model_type in ("t5", "mt5"):
        model.lm_head.weight = torch.nn.Parameter(
            model.lm_head.weight.detach().clone()
        )  # transformers ties it whatever the config says
    refill(model, case.seed)
    if case.generates:
        ids = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
        model.generation_config = transformers.GenerationConfig(
            **{name: case.settings[name] for name in ids if name in case.settings}
        )
    return model.to(getattr(torch, case.dtype))


def shrink(model, case):
    """Makes the parameters smaller that would let states grow from layer to layer, or sharpen a softmax. It stands
    apart from refill(), whose source is in the keys of all answers."""
    for name, parameter in [*model.named_parameters(), *model.named_buffers()]:
        for ending, factor in SMALLER[case.model_type].items():
            if name.endswith(ending):
                parameter.data.div_(factor)
    return model


def calibrate(model, case):
    """Measures the ranges of activations, which the model does in training mode, and the shifts of its norms."""
    import torch

    modules = [module for module in model.modules() if hasattr(module, "x_min")]
    for module in modules:
        module.x_min, module.x_max = torch.full((1,), -1e-5), torch.full((1,), 1e-5)
    norms = [module for module in model.modules() if hasattr(module, "shift") and module.quant_mode]
    for module in norms:
        module.shift = torch.zeros(1)
    generator = torch.Generator().manual_seed(case.seed)
    with torch.no_grad():
        for length in (33, 17, 5):
            ids = torch.randint(5, case.settings["vocab_size"], (4, length), generator=generator)
            types = torch.randint(0, case.settings["type_vocab_size"], ids.shape, generator=generator)
            model.train().base_model(ids, token_type_ids=types)
    assert all(module.shift >= 1 for module in norms), "no norm needs a shift"
    return model.eval()


def checkpoint(case):
    """Folder of the case's checkpoint in Hugging Face format."""

    def make_smaller(folder):
        import transformers

        transformers.utils.logging.disable_progress_bar()
        shrink(build(case), case).save_pretrained(folder)
        print(f"{case.name}: refilled with seed {case.seed}")

    def make(folder):
        import transformers

        transformers.utils.logging.disable_progress_bar()
        build(case).save_pretrained(folder)
        print(f"{case.name}: refilled with seed {case.seed}")

    def make_calibrated(folder):
        import transformers

        transformers.utils.logging.disable_progress_bar()
        calibrate(build(case), case).save_pretrained(folder)
        print(f"{case.name}: refilled with seed {case.seed}")

    own = make_smaller if case.model_type in SMALLER else make_calibrated if cases_quantized.rounds(case) else make
    return pathlib.Path(case.folder) if case.folder else cached("checkpoint", case, None, own)
