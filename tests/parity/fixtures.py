"""Tiny checkpoints whose every parameter matters, and what transformers makes of them, cached by everything that determines it.

Hugging Face's own initialisation proves nothing: biases are zero, norms are one, attention is nearly uniform. So all parameters are drawn
again, from a printed seed: embeddings 0.1 N, matrices 2 N / sqrt(fan_in), biases 0.2 N, norm gains 1 + 0.2 N.
"""
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import shutil
import tempfile

import numpy
from safetensors.numpy import load_file, save_file

CACHE = pathlib.Path(os.environ.get("PM_CACHE", pathlib.Path.home() / ".cache/parallelmodel")) / "oracle"
SOURCE = b"".join(pathlib.Path(__file__).with_name(name).read_bytes() for name in ("fixtures.py",))


@dataclasses.dataclass(frozen=True)
class Case:
    """A model class, its configuration, a seed. `dtype`: what the checkpoint stores."""
    name: str
    model_class: str
    config_class: str
    config: tuple            # of (key, value)
    seed: int
    dtype: str = "float32"
    folder: str = ""         # of a checkpoint that exists already; `digest` tells its contents
    digest: str = ""

    @property
    def settings(self):
        return dict(self.config)


@functools.cache
def _versions():
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers")}


def cached(kind, case, extra, make):
    """The folder with what `make(folder)` writes for this case; made once for equal inputs, versions and sources."""
    key = json.dumps([kind, dataclasses.asdict(case), extra, _versions(), hashlib.sha256(SOURCE).hexdigest()], sort_keys=True)
    folder = CACHE / f"{kind}-{case.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = pathlib.Path(tempfile.mkdtemp(dir=CACHE, prefix=".partial-"))
        try:
            make(partial)
            partial.rename(folder)
        except OSError:
            if not folder.exists():    # else another run made the same
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def refill(model, seed):
    """Draws every parameter again, by what it is."""
    import torch
    from transformers.pytorch_utils import Conv1D
    generator = torch.Generator().manual_seed(seed)
    seen = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen:    # tied
                continue
            seen.add(id(parameter))
            normal = torch.randn(parameter.shape, generator=generator)
            if isinstance(module, torch.nn.Embedding):
                value = 0.1 * normal
            elif "Norm" in type(module).__name__ and name == "weight":
                value = 1 + 0.2 * normal
            elif parameter.dim() < 2:
                value = 0.2 * normal
            else:
                fan_in = parameter.shape[0] if isinstance(module, Conv1D) else math.prod(parameter.shape[1:])
                value = 2 * normal / math.sqrt(fan_in)
            parameter.data.copy_(value)


def checkpoint(case):
    """Folder of the case's checkpoint in Hugging Face format."""
    if case.folder:
        return pathlib.Path(case.folder)

    def make(folder):
        import torch
        import transformers
        transformers.utils.logging.disable_progress_bar()
        config = getattr(transformers, case.config_class)(**case.settings)
        model = getattr(transformers, case.model_class)(config)
        refill(model, case.seed)
        model.to(getattr(torch, case.dtype)).save_pretrained(folder)
        print(f"{case.name}: refilled with seed {case.seed}")
    return cached("checkpoint", case, None, make)


@functools.cache
def _model(case, dtype="float32"):
    import torch
    import transformers
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)    # models this small only lose by more, above all beside other work
    model = getattr(transformers, case.model_class).from_pretrained(checkpoint(case), dtype=getattr(torch, dtype), attn_implementation="eager")
    return model.eval()


def forward(case, inputs, dtype="float32"):
    """What transformers answers to named int64 arrays: every tensor under Hugging Face's name, fp32. `dtype`: of the oracle's arithmetic."""
    digest = hashlib.sha256(b"".join(name.encode() + array.tobytes() + str(array.shape).encode() for name, array in sorted(inputs.items()))).hexdigest()

    def make(folder):
        import torch
        with torch.no_grad():
            outputs = _model(case, dtype)(**{name: torch.from_numpy(array) for name, array in inputs.items()}, output_hidden_states=True,
                                          output_attentions=True, use_cache=False)
        tensors = {name: outputs[name] for name in ("logits", "last_hidden_state") if name in outputs}
        for group in ("hidden_states", "attentions"):
            tensors |= {f"{group}.{i}": tensor for i, tensor in enumerate(outputs[group])}
        save_file({name: tensor.float().contiguous().numpy() for name, tensor in tensors.items()}, folder / "outputs.safetensors")
    return load_file(cached("forward", case, [digest, dtype], make) / "outputs.safetensors")


def greedy(case, prompt, max_new_tokens):
    """transformers.generate for one unpadded prompt: the whole sequence, and per new token the gap between the two best logits in units of the
    logits' standard deviation."""
    def make(folder):
        import torch
        ids = torch.tensor([prompt])
        result = _model(case).generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_new_tokens, do_sample=False, output_logits=True,
                                       return_dict_in_generate=True, pad_token_id=0)
        best = [step[0].topk(2).values for step in result.logits]
        gaps = [((two[0] - two[1]) / step[0].std()).item() for two, step in zip(best, result.logits)]
        (folder / "greedy.json").write_text(json.dumps({"sequence": result.sequences[0].tolist(), "gaps": gaps}))
    return json.loads((cached("greedy", case, [prompt, max_new_tokens], make) / "greedy.json").read_text())


def prompts(case, lengths, seed=0):
    """Rows of random ids of the given lengths."""
    random = numpy.random.default_rng(case.seed * 1000 + seed)
    return [random.integers(0, case.settings["vocab_size"], length).tolist() for length in lengths]


def padded(rows, side):
    """The rows as one batch with its mask; the padding id is one that could do harm."""
    width = max(map(len, rows))
    ids, mask = numpy.full((len(rows), width), 3, numpy.int64), numpy.zeros((len(rows), width), numpy.int64)
    for i, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(width - len(row), width)
        ids[i, place], mask[i, place] = row, 1
    return {"input_ids": ids, "attention_mask": mask}
