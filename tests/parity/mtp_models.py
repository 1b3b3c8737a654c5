# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints with a module for multi-token prediction, laid out as those on the hub: a layer behind the last one
with the tensors that join and norm its input, and copies of the embedding and the head.
"""

import json

import torch
import transformers
from cases_experts import COLUMNS
from cases_latent_attention import GROUPS, INDEX, SIZES
from safetensors.torch import load_file, save_file
from transformers.modeling_layers import MtpModel

_ROPE = {"rope_type": "default", "rope_theta": 1000.0}
_LATENT = {**SIZES, **GROUPS, "rope_parameters": _ROPE, "num_attention_heads": 6, "hidden_size": 36}
# the beginning of class names, what the config sets, and which of its lists name layers
FAMILIES = {
    "deepseek_v3": ("DeepseekV3", _LATENT),
    "deepseek_v32": ("DeepseekV32", {**_LATENT, **INDEX}),
    "glm4_moe_lite": ("Glm4MoeLite", _LATENT),
    "glm_moe_dsa": ("GlmMoeDsa", {**_LATENT, **INDEX}),
    "glm4_moe": (
        "Glm4Moe",
        {
            **GROUPS,
            "hidden_size": 36,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "head_dim": 8,
            "moe_intermediate_size": COLUMNS,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "n_shared_experts": 1,
            "use_qk_norm": True,
            "attention_bias": True,
            "tie_word_embeddings": False,
        },
    ),
}
LAYERS = 2


def build(made, model_type, change=lambda tensors: None, vocab_size=305, seed=0, **more):
    """Saves a model with a module. `change` gets all tensors by name; those of the module begin with its layer."""
    beginning, settings = FAMILIES[model_type]
    torch.manual_seed(seed)
    options = {
        "vocab_size": vocab_size,
        "intermediate_size": 37,
        "max_position_embeddings": 512,
        "num_hidden_layers": LAYERS + 1,
        "first_k_dense_replace": 1,
        "bos_token_id": 1,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "initializer_range": 0.3,
        **settings,
        **more,
    }
    config = transformers.AutoConfig.for_model(model_type, **options)
    big = getattr(transformers, beginning + "ForCausalLM")(config)
    with torch.no_grad():
        for name, parameter in big.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        for name, buffer in big.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.add_(torch.randn_like(buffer) * 0.1)
    big.save_pretrained(made)
    tensors = load_file(made / "model.safetensors")
    hidden, module = config.hidden_size, f"model.layers.{LAYERS}."
    for name in ("enorm", "hnorm", "shared_head.norm"):
        tensors[f"{module}{name}.weight"] = 1 + 0.2 * torch.randn(hidden)
    tensors[module + "eh_proj.weight"] = torch.randn(hidden, 2 * hidden) * hidden**-0.5
    change(tensors)
    for name, origin in (("embed_tokens", "model.embed_tokens"), ("shared_head.head", "lm_head")):
        tensors[f"{module}{name}.weight"] = tensors[origin + ".weight"].clone()
    save_file(tensors, made / "model.safetensors", metadata={"format": "pt"})
    file = made / "config.json"
    saved = json.loads(file.read_text())
    for name in ("mlp_layer_types", "layer_types", "indexer_types"):
        if name in saved:
            saved[name] = saved[name][:LAYERS]
    saved |= {"num_hidden_layers": LAYERS, "num_nextn_predict_layers": 1}
    file.write_text(json.dumps(saved))
    return made


def oracle(folder):
    """Returns transformers' model and its module, in which it has no loader for a checkpoint of this size."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    config = model.config
    config.num_mtp_layers = 1
    if getattr(config, "mlp_layer_types", None):
        config.mtp_mlp_layer_types = ["sparse"]
    layer_types = getattr(config, "layer_types", None)
    if layer_types:
        config.mtp_layer_types = layer_types[-1:]
    module = MtpModel(model, 1).eval()
    if layer_types:
        module.config.layer_types = ["full_attention"]  # what an index selects of short texts, whose mask it lacks
    big_config = transformers.AutoConfig.from_pretrained(folder)
    big_config.num_hidden_layers = LAYERS + 1
    for name, last in (("mlp_layer_types", "sparse"), ("layer_types", None), ("indexer_types", "full")):
        if listed := getattr(big_config, name, None):
            setattr(big_config, name, [*listed, last or listed[-1]])
    big = type(model).from_pretrained(folder, config=big_config, attn_implementation="eager", dtype=torch.float32)
    block = module.layers[0].mtp_block
    block.load_state_dict(big.model.layers[LAYERS].state_dict())
    alone = block.forward

    def states_only(*arguments, **named):  # some layers return what their index selected too
        made = alone(*arguments, **named)
        return made[0] if isinstance(made, tuple) else made

    block.forward = states_only
    stored = load_file(folder / "model.safetensors")
    own = {"enorm": "enorm", "hnorm": "hnorm", "eh_proj": "eh_proj", "post_norm": "shared_head.norm"}
    for name, spelled in own.items():
        weight = stored[f"model.layers.{LAYERS}.{spelled}.weight"]
        getattr(module.layers[0], name).load_state_dict({"weight": weight})
    return model.eval(), module


@torch.no_grad()
def drafts(model, module, tokens, count):
    """Returns what the module drafts behind the tokens, without caches."""
    found, ids = [], torch.tensor([tokens])
    states = model(ids[:, :-1], output_hidden_states=True).hidden_states[-1]
    for _ in range(count):
        following = ids[:, 1:]
        positions = torch.arange(1, ids.shape[1])[None]
        made = module.forward_layer(0, states, positions, None, input_ids=following)
        scores = module._project_to_logits(made[:, -1])
        found.append(int(scores.argmax()))
        ids = torch.cat([ids, scores.argmax(-1)[:, None]], 1)
        states = torch.cat([states, made[:, -1:]], 1)
    return found
