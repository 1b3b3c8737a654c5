# SPDX-License-Identifier: Apache-2.0
"""Further rows of cases.py: the text of checkpoints that read images too, whose config.json has it as a section."""

import re

import cases_gemma4
import numpy
from cases_decoders import SMALL_DECODER
from cases_experts import COLUMNS, LLAMA4

TWO = (2,)  # ranks
_IDS = {name: SMALL_DECODER[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
_ROPE = {"rope_type": "default", "rope_theta": 1000.0}
_TOWER = {
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 8,
    "patch_size": 4,
}
_READ_TOWER = {**_TOWER, "num_attention_heads": 4, "layer_norm_eps": 1e-3}  # one that is served: on four ranks, too
_PIXTRAL = {**_TOWER, "model_type": "pixtral", "hidden_size": 32, "num_attention_heads": 4, "image_size": 16}
PLACES = {"image_token_id": 5, "video_token_id": 6, "vision_start_token_id": 7, "vision_end_token_id": 8}
# served on four ranks, too
QWEN_TOWER = {"depth": 2, "hidden_size": 32, "intermediate_size": 9, "num_heads": 4, "patch_size": 4}
QWEN_TOWER |= {"spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 36}
TABLED_TOWER = {**QWEN_TOWER, "num_position_embeddings": 9}
_WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
_GEMMA_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1000.0},
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 9,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 0.5,
    "llama_4_scaling_beta": 0.4,
}

# as in cases.py; or answers would be nearly tied
SEEDS = {
    "Gemma4ForConditionalGeneration-all": 1571,
    "Gemma4Model-all": 2572,
    "LlavaForConditionalGeneration-all": 529,
    "Mistral3ForConditionalGeneration-all": 5001,
    "Qwen2VLTextModel-all": 1365,
}

# model_type: its classes that generate and give states, the name of its configuration, its text, and what stands beside
_FAMILIES = {
    "gemma3": (
        "Gemma3ForConditionalGeneration",
        "Gemma3Model Gemma3ForSequenceClassification",
        "Gemma3Config",
        {
            "model_type": "gemma3_text",
            "head_dim": 8,
            "sliding_window": 5,
            "query_pre_attn_scalar": 11,
            "layer_types": _WINDOWS,
            "rope_parameters": _GEMMA_ROPE,
        },
        {
            "vision_config": {
                "model_type": "siglip_vision_model",
                **_READ_TOWER,
                "image_size": 16,
                "vision_use_head": False,
            },
            "image_token_index": 5,
            "boi_token_index": 6,
            "eoi_token_index": 7,
            "mm_tokens_per_image": 4,
        },
    ),
    "gemma4": (
        "Gemma4ForConditionalGeneration",
        "Gemma4Model",
        "Gemma4Config",
        {"model_type": "gemma4_text"} | cases_gemma4.TEXT | cases_gemma4.INPUTS,
        {
            "vision_config": {
                "model_type": "gemma4_vision",
                "hidden_size": 8,
                "intermediate_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "head_dim": 4,
                "patch_size": 4,
                "position_embedding_size": 16,
            }
        },
    ),
    "mistral3": (
        "Mistral3ForConditionalGeneration",
        "Mistral3Model",
        "Mistral3Config",
        {"model_type": "ministral3", "head_dim": 8, "rope_parameters": YARN},
        {
            "vision_config": _PIXTRAL,
            "image_token_index": 5,
            "tie_word_embeddings": False,
        },
    ),
    "qwen2_5_vl": (
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen2_5_VLModel",
        "Qwen2_5_VLConfig",
        {"rope_parameters": {**_ROPE, "mrope_section": [1, 1, 1]}},
        {"vision_config": {**QWEN_TOWER, "window_size": 16, "fullatt_block_indexes": [1]}, **PLACES},
    ),
    "qwen2_vl": (
        "Qwen2VLForConditionalGeneration",
        "Qwen2VLModel",
        "Qwen2VLConfig",
        {"rope_parameters": {**_ROPE, "mrope_section": [1, 1, 1]}},
        {
            "vision_config": {**QWEN_TOWER, "embed_dim": 32, "hidden_size": 36, "mlp_ratio": 1},
            **PLACES,
        },
    ),
    "qwen3_vl": (
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLModel",
        "Qwen3VLConfig",
        {"head_dim": 8, "rope_parameters": {**_ROPE, "mrope_section": [2, 1, 1]}},
        {
            "vision_config": {**TABLED_TOWER, "depth": 3, "deepstack_visual_indexes": [0, 1]},
            **PLACES,
        },
    ),
    "qwen3_vl_moe": (
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3VLMoeModel",
        "Qwen3VLMoeConfig",
        {
            "head_dim": 8,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": COLUMNS,
            "mlp_only_layers": [1],
            "rope_parameters": {**_ROPE, "mrope_section": [2, 1, 1]},
        },
        {
            "vision_config": {**TABLED_TOWER, "depth": 3, "deepstack_visual_indexes": [0, 1]},
            **PLACES,
        },
    ),
    "llava": (
        "LlavaForConditionalGeneration",
        "LlavaModel",
        "LlavaConfig",
        {"model_type": "llama", "rope_parameters": _ROPE},
        {"vision_config": {"model_type": "clip_vision_model", **_READ_TOWER}, "image_token_index": 5},
    ),
    "llava_next": (
        "LlavaNextForConditionalGeneration",
        "LlavaNextModel",
        "LlavaNextConfig",
        {"model_type": "mistral", "sliding_window": 7, "head_dim": 8, "rope_parameters": _ROPE},
        {
            "vision_config": {"model_type": "clip_vision_model", **_TOWER},
            "image_token_index": 5,
            "image_grid_pinpoints": [[8, 8]],
        },
    ),
    "llama4": (
        "Llama4ForConditionalGeneration",
        "",
        "Llama4Config",
        {"model_type": "llama4_text"} | LLAMA4,
        {
            "vision_config": {
                "hidden_size": 8,
                "intermediate_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 8,
                "patch_size": 4,
                "projector_input_dim": 8,
                "projector_output_dim": 8,
                "vision_output_dim": 8,
            },
            "image_token_index": 5,
        },
    ),
}
# their text alone, which transformers saves under a model_type of its own
_TEXTS = {
    "qwen2_5_vl_text": ("Qwen2_5_VLTextModel", "Qwen2_5_VLTextConfig", "qwen2_5_vl"),
    "qwen2_vl_text": ("Qwen2VLTextModel", "Qwen2VLTextConfig", "qwen2_vl"),
    "qwen3_vl_text": ("Qwen3VLTextModel", "Qwen3VLTextConfig", "qwen3_vl"),
    "qwen3_vl_moe_text": ("Qwen3VLMoeTextModel", "Qwen3VLMoeTextConfig", "qwen3_vl_moe"),
}

MODEL_TYPES = (*_FAMILIES, *_TEXTS)
WITH_EXPERTS = ("qwen3_vl_moe", "qwen3_vl_moe_text", "llama4")

# names of what is no part of the text
_TOWERS = tuple(
    before + name
    for before in ("", "model.")
    for name in (
        "vision_tower.",
        "audio_tower.",
        "embed_vision.",
        "embed_audio.",
        "visual.",
        "multi_modal_projector.",
        "image_newline",
    )
)


def tower_prefixes(model_type):
    """How names of tensors begin that are no part of the text."""
    return (*_TOWERS, "vision_model.") if model_type == "llama4" else _TOWERS  # CLIP's own tower is a vision_model too


# families whose images may have any size
ANY_SIZE = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
READ_IMAGES = ("gemma3", "llava", "mistral3", *ANY_SIZE)  # families whose images are served too
_SIZES = ((8, 16), (8, 8), (16, 16))  # height and width in pixels of three images that are padded to one size
_GRIDS = ((2, 6), (2, 2), (6, 4))  # rows and columns of patches of three images of any size


def is_unread(settings):
    """Returns a function that says of a tensor whether no answer needs it: towers, or what they have behind the state
    that stands among the tokens."""
    if settings["model_type"] not in READ_IMAGES or "vision_config" not in settings:
        return lambda name: name.startswith(tower_prefixes(settings["model_type"]))
    if settings["model_type"] != "llava":  # which reads the last state
        return lambda name: False
    layers, state = settings["vision_config"]["num_hidden_layers"], settings.get("vision_feature_layer", -2)
    read = state if state >= 0 else layers + 1 + state

    def is_behind(name):
        layer = re.search(r"\.layers\.(\d+)\.", name)
        return "vision_tower." in name and ("post_layernorm" in name or bool(layer and int(layer[1]) >= read))

    return is_behind


def tower(case, base):
    """transformers' layers of the tower whose states stand among the tokens, under the name of our stack."""
    if case.model_type not in READ_IMAGES:
        return {}
    if case.model_type in ANY_SIZE:
        return {"vision": list(base.visual.blocks)}
    state = case.settings.get("vision_feature_layer", -2) if case.model_type == "llava" else -1
    layers = list((base.vision_tower.transformer if is_whole(case) else base.vision_tower.encoder).layers)
    return {"vision": layers[: state if state >= 0 else len(layers) + 1 + state]}


def is_whole(case):
    """Whether images have any size and are padded to one."""
    return case.settings.get("vision_config", {}).get("model_type") == "pixtral"


def rows_of_image(settings):
    """The tokens of an image."""
    vision = settings["vision_config"]
    patches = (vision["image_size"] // vision["patch_size"]) ** 2
    if settings["model_type"] == "gemma3":
        return settings["mm_tokens_per_image"]
    whole = settings.get("vision_feature_select_strategy") == "full"
    return patches + (whole and vision["model_type"] == "clip_vision_model")


def patches(case):
    """Patches of three images of any size, and how many rows and columns of them each has."""
    vision = case.settings["vision_config"]
    width = 3 * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    count = sum(down * across for down, across in _GRIDS)
    values = numpy.random.default_rng(case.seed + 5).standard_normal((count, width)).astype(numpy.float32)
    return {"pixel_values": values, "image_grid_thw": numpy.array([(1, *grid) for grid in _GRIDS])}


def pictured(case, batch, images):
    """Returns the batch with an image among the tokens of the first row, two of the third, and none of the others;
    `images` are the inputs of the three."""
    settings = case.settings | {"model_type": case.model_type}
    any_size = case.model_type in ANY_SIZE
    token = settings["image_token_id" if any_size else "image_token_index"]
    if is_whole(case):
        side = settings["vision_config"]["patch_size"] * settings.get(
            "spatial_merge_size", 2 if case.model_type == "mistral3" else 1
        )
        tokens = [height // side * (width // side) for height, width in _SIZES]
        images["image_sizes"] = numpy.array(_SIZES)
    elif any_size:
        tokens = [down * across // settings["vision_config"]["spatial_merge_size"] ** 2 for down, across in _GRIDS]
    else:
        tokens = [rows_of_image(settings)] * 3
    ids = batch["input_ids"].copy()
    ids[ids == token] = token + 1
    apart = int(any_size)  # as tokens of positions of their own, images have a text between them
    for row, numbers in ((0, [0]), (2, [1, 2])):
        begin = int(batch["attention_mask"][row].argmax()) + row
        for number in numbers:
            ids[row, begin : begin + tokens[number]] = token
            begin += tokens[number] + apart
    found = batch | {"input_ids": ids} | images
    if any_size:
        found["mm_token_type_ids"] = (ids == token).astype(numpy.int64)
    if case.model_type == "gemma3":  # which says so where tokens of an image see each other
        found["token_type_ids"] = (ids == token).astype(numpy.int64)
    return found


# growing queries, or rows of images, would make softmaxes too sharp
SMALLER = {name: {"q_proj.weight": 3} for name in ("ministral3", "mistral3", "qwen2_5_vl", "qwen2_vl")} | {
    name: {"experts.gate_up_proj": (2 * COLUMNS) ** -0.5, "experts.down_proj": SMALL_DECODER["hidden_size"] ** -0.5}
    for name in WITH_EXPERTS  # as in cases_experts.py
}

# what is rarer, in the class with the LM head: settings of the text, and of the whole
_VARIANTS = (
    ("gemma4", "experts", cases_gemma4.TEXT | cases_gemma4.EXPERTS),
    ("mistral3", "plain", {"model_type": "mistral", "sliding_window": 7, "rope_parameters": _ROPE}),
    ("qwen2_5_vl", "windows", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    ("qwen3_vl_moe", "steps-tied", {"mlp_only_layers": [], "decoder_sparse_step": 2}, {"tie_word_embeddings": True}),
    ("qwen3_vl_moe", "square", {"moe_intermediate_size": SMALL_DECODER["hidden_size"]}),  # projections down
    ("llava", "biases", {"attention_bias": True, "mlp_bias": True}),
    ("llava", "qwen2", {"model_type": "qwen2"}),
    (
        "llava",
        "last-state",
        {},
        {
            "vision_feature_layer": 2,
            "vision_feature_select_strategy": "full",
            "multimodal_projector_bias": False,
            "projector_hidden_act": "silu",
        },
    ),
    (
        "llava",
        "siglip",
        {},
        {
            "vision_config": {"model_type": "siglip_vision_model", "vision_use_head": False, **_READ_TOWER},
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
        },
    ),
    (
        "llava",
        "pixtral",
        {},
        {
            "vision_config": {**_PIXTRAL, "patch_size": 8},
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
        },
    ),
)


def cases(family):
    """All rows; `family` is that of cases.py."""
    found = []
    for model_type, (generates, others, config, text, beside) in _FAMILIES.items():
        text = SMALL_DECODER | text
        takes = ("position_ids",) if model_type != "llama4" else ()  # whose queries grow by places of the batch
        make = family(model_type, "decoder", config, takes, **_IDS, **beside)
        found += make("all", generates, text_config=text)
        found += make("all", others, ranks=TWO, text_config=text)
        for _, label, settings, *beside in (row for row in _VARIANTS if row[0] == model_type):
            found += make(label, generates, ranks=TWO, text_config=text | settings, **dict(*beside))
    for model_type, (name, config, whole) in _TEXTS.items():
        make = family(model_type, "decoder", config, ("position_ids",), **(SMALL_DECODER | _FAMILIES[whole][3]))
        found += make("all", name, ranks=TWO)
    return found
