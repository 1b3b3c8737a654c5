# SPDX-License-Identifier: Apache-2.0
"""Makes relative_keys.safetensors: parameters, inputs and answers of BERT and its relatives with relative position keys
by transformers 4.57.3, the last release that has them. Run it where that release is installed:

    python make_relative_keys.py relative_keys.safetensors
"""

import json
import sys

import torch
import transformers
from safetensors.torch import save_file

SIZES = {
    "vocab_size": 40,
    "hidden_size": 12,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 13,
    "max_position_embeddings": 14,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 39,
}
DECODER = {"is_decoder": True}
MODELS = {  # class, configuration
    "bert-key": ("BertForMaskedLM", {"position_embedding_type": "relative_key"}),
    "bert-both": ("BertForMaskedLM", {"position_embedding_type": "relative_key_query"}),
    "bert-causal": ("BertLMHeadModel", {"position_embedding_type": "relative_key_query", **DECODER}),
    "albert": ("AlbertForMaskedLM", {"position_embedding_type": "relative_key_query", "embedding_size": 7}),
    "bert-generation": ("BertGenerationDecoder", {"position_embedding_type": "relative_key", **DECODER}),
    "camembert": ("CamembertModel", {"position_embedding_type": "relative_key_query"}),
    "electra": ("ElectraForMaskedLM", {"position_embedding_type": "relative_key_query", "embedding_size": 7}),
    "megatron-bert": ("MegatronBertForMaskedLM", {"position_embedding_type": "relative_key"}),
    "roberta": ("RobertaForMaskedLM", {"position_embedding_type": "relative_key_query"}),
    "xlm-roberta": ("XLMRobertaForCausalLM", {"position_embedding_type": "relative_key", **DECODER}),
    "dpr": ("DPRQuestionEncoder", {"position_embedding_type": "relative_key_query", "projection_dim": 5}),
}


def drawn(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for _, parameter in sorted(model.named_parameters()):
        parameter.data = torch.randn(parameter.shape, generator=generator) * (0.4 if parameter.dim() > 1 else 0.5)
    return model.eval()


def main(path):
    tensors, configs = {}, {}
    for number, (name, (model_class, settings)) in enumerate(MODELS.items()):
        cls = getattr(transformers, model_class)
        settings = SIZES | settings
        configs[name] = [model_class, cls.config_class.__name__, settings]
        model = drawn(cls(cls.config_class(**settings, attn_implementation="eager")), number)
        ids = torch.randint(3, 38, (2, 11), generator=torch.Generator().manual_seed(100 + number))
        mask = torch.ones_like(ids)
        mask[1, 8:] = 0
        cached = {"use_cache": False} if settings.get("is_decoder") else {}
        with torch.no_grad():
            found = model(ids, attention_mask=mask, output_hidden_states=True, output_attentions=True, **cached)
        saved = {f"parameter.{key}": value for key, value in model.state_dict().items() if value.is_floating_point()}
        saved |= {"ids": ids, "mask": mask, "last": found.hidden_states[-1], "attention": found.attentions[-1]}
        if settings.get("is_decoder"):
            # with a cache, all tokens of a prompt read the distances of its last one
            saved["greedy"] = model.generate(ids[:1, :4], max_new_tokens=7, do_sample=False, use_cache=False)
        tensors |= {f"{name}/{key}": value.clone().contiguous() for key, value in saved.items()}
    save_file(tensors, path, {"configs": json.dumps(configs), "transformers": transformers.__version__})


if __name__ == "__main__":
    main(sys.argv[1])
