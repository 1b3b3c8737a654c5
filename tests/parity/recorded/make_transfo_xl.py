# SPDX-License-Identifier: Apache-2.0
"""Makes transfo_xl.safetensors: parameters, inputs and answers of Transformer-XL by transformers 4.35.2, the last
release whose code of it runs (later ones call type_as() without its argument). Run it where that release is installed:

    python make_transfo_xl.py transfo_xl.safetensors
"""

import json
import sys

import torch
import transformers
from safetensors.torch import save_file

SIZES = {"vocab_size": 60, "d_model": 24, "n_head": 3, "d_head": 6, "d_inner": 29, "n_layer": 2, "eos_token_id": 0}
CONFIGS = {
    "window": {"cutoffs": [10, 30], "d_embed": 24, "div_val": 2, "mem_len": 7, "clamp_len": 9, "same_length": True},
    "pre-norm": {
        "cutoffs": [25],
        "d_embed": 16,
        "div_val": 4,
        "mem_len": 5,
        "clamp_len": -1,
        "same_length": False,
        "pre_lnorm": True,
        "untie_r": False,
    },
    "one-cluster": {"cutoffs": [], "d_embed": 24, "div_val": 1, "mem_len": 0, "clamp_len": 4, "same_length": False},
}


def drawn(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for _, parameter in sorted(model.named_parameters()):
        parameter.data = torch.randn(parameter.shape, generator=generator) * (0.3 if parameter.dim() > 1 else 0.5)
    return model.eval()


def main(path):
    tensors, configs = {}, {}
    for number, (name, settings) in enumerate(CONFIGS.items()):
        config = transformers.TransfoXLConfig(**SIZES, **settings)
        configs[name] = {key: getattr(config, key) for key in [*SIZES, *settings, "tie_projs", "layer_norm_epsilon"]}
        model = drawn(transformers.TransfoXLLMHeadModel(config), number)
        ids = torch.randint(0, 60, (2, 11), generator=torch.Generator().manual_seed(100 + number))
        saved = {f"parameter.{key}": value for key, value in model.state_dict().items()} | {"ids": ids}
        given = {"return_dict_in_generate": True, "output_scores": True, "pad_token_id": 0}
        greedy = model.generate(ids, max_new_tokens=14, do_sample=False, **given)
        saved |= {"greedy": greedy.sequences, "greedy.scores": torch.stack(greedy.scores)}
        beams = model.generate(ids[:1], max_new_tokens=9, num_beams=3, num_return_sequences=2, pad_token_id=0)
        saved["beams"] = beams
        mems = None
        for part, segment in enumerate(ids.split([6, 5], 1)):  # the second one remembers the first
            with torch.no_grad():
                found = model(segment, mems=mems, output_hidden_states=True, output_attentions=True)
            mems = found.mems
            saved[f"{part}.prediction_scores"] = found.prediction_scores
            for what in ("hidden_states", "attentions", "mems"):
                saved |= {f"{part}.{what}.{i}": value for i, value in enumerate(getattr(found, what) or ())}
        tensors |= {f"{name}/{key}": value.clone().contiguous() for key, value in saved.items()}
    save_file(tensors, path, {"configs": json.dumps(configs), "transformers": transformers.__version__})


if __name__ == "__main__":
    main(sys.argv[1])
