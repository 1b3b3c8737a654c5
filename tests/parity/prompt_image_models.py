# SPDX-License-Identifier: Apache-2.0
"""Small models that read images among the tokens of a prompt, each with a tokenizer, a chat template and an image
processor, and the answers of transformers.
"""

import torch
import transformers
from fixtures import refill
from test_endpoints import byte_pairs

SEED, NEW_TOKENS, ROWS = 6, 8, 4  # rows of an image

TEXT = dict(
    hidden_size=36,
    intermediate_size=50,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=3,
    max_position_embeddings=1024,
    bos_token_id=0,
    eos_token_id=0,
    pad_token_id=0,
)
VISION = dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=31, image_size=16)


def llava(vocabulary, image):
    return transformers.LlavaConfig(
        text_config=dict(model_type="llama", vocab_size=vocabulary, **TEXT),
        vision_config=dict(model_type="clip_vision_model", patch_size=8, **VISION),
        image_token_index=image,
    )


def gemma(vocabulary, image, begin, end):
    windows = ["sliding_attention", "full_attention", "sliding_attention"]
    return transformers.Gemma3Config(
        text_config=dict(
            model_type="gemma3_text", vocab_size=vocabulary, head_dim=8, sliding_window=20, layer_types=windows, **TEXT
        ),
        vision_config=dict(model_type="siglip_vision_model", patch_size=4, vision_use_head=False, **VISION),
        image_token_index=image,
        boi_token_index=begin,
        eoi_token_index=end,
        mm_tokens_per_image=ROWS,
    )


TOWER = dict(depth=3, num_heads=4, intermediate_size=31, patch_size=4, spatial_merge_size=2, temporal_patch_size=2)
ROPE = {"rope_type": "default", "rope_theta": 10000.0}


def qwen2(config, sections, tower):
    """Of images of any size: the sections of the rotary frequencies are along time, rows and columns."""

    def make(vocabulary, image, *_):
        return config(
            text_config=dict(vocab_size=vocabulary, rope_parameters={**ROPE, "mrope_section": sections}, **TEXT),
            vision_config=TOWER | tower,
            image_token_id=image,
        )

    return make


def qwen3(config, text, tower):
    def make(vocabulary, image, *_):
        return config(
            text_config=dict(vocab_size=vocabulary, **(TEXT | text)),
            vision_config=TOWER | dict(hidden_size=32, out_hidden_size=36, num_position_embeddings=25) | tower,
            image_token_id=image,
        )

    return make


NETS = dict(
    head_dim=16,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
    linear_num_key_heads=3,
    linear_num_value_heads=6,
    linear_key_head_dim=8,
    linear_value_head_dim=8,
    rope_parameters={**ROPE, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": True},
)
ANY_SIZE = (
    transformers.Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, size={"shortest_edge": 64, "longest_edge": 1600}),
    ["<image>", "<begin>", "<end>"],
    "<begin><image><end>",
    None,
)

PIXTRAL = dict(VISION, model_type="pixtral", patch_size=4, head_dim=8, hidden_size=32)


def mistral3(vocabulary, image, *_):
    return transformers.Mistral3Config(
        text_config=dict(model_type="mistral", vocab_size=vocabulary, head_dim=8, **TEXT),
        vision_config=PIXTRAL,
        image_token_index=image,
        tie_word_embeddings=False,
    )


def pixtral(vocabulary, image, *_):
    return transformers.LlavaConfig(
        text_config=dict(model_type="mistral", vocab_size=vocabulary, head_dim=8, **TEXT),
        vision_config=PIXTRAL,
        image_token_index=image,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )


ROW_BY_ROW = (
    transformers.PixtralImageProcessorPil(size={"longest_edge": 40}, patch_size=4),
    ["<image>", "[IMG_BREAK]", "[IMG_END]"],
    "<image>",
    None,
)

# the configuration, the class, the image processor, the added tokens (those of images first), what templates write for
# an image and what that becomes; none: a token for each square of patches
FAMILIES = {
    "llava": (
        llava,
        transformers.LlavaForConditionalGeneration,
        transformers.CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}),
        ["<image>"],
        "<image>",
        "<image>" * ROWS,
    ),
    "gemma3": (
        gemma,
        transformers.Gemma3ForConditionalGeneration,
        transformers.Gemma3ImageProcessorPil(size={"height": 16, "width": 16}),
        ["<soft>", "<begin>", "<end>"],
        "<begin>",
        "\n\n<begin>" + "<soft>" * ROWS + "<end>\n\n",
    ),
    "qwen2_vl": (
        qwen2(transformers.Qwen2VLConfig, [1, 1, 1], dict(embed_dim=32, hidden_size=36, mlp_ratio=2)),
        transformers.Qwen2VLForConditionalGeneration,
        *ANY_SIZE,
    ),
    "qwen2_5_vl": (
        qwen2(
            transformers.Qwen2_5_VLConfig,
            [1, 1, 1],
            dict(hidden_size=32, out_hidden_size=36, window_size=16, fullatt_block_indexes=[1]),
        ),
        transformers.Qwen2_5_VLForConditionalGeneration,
        *ANY_SIZE,
    ),
    "qwen3_vl": (
        qwen3(
            transformers.Qwen3VLConfig,
            dict(head_dim=8, rope_parameters={**ROPE, "mrope_section": [2, 1, 1]}),
            dict(deepstack_visual_indexes=[0, 2]),
        ),
        transformers.Qwen3VLForConditionalGeneration,
        *ANY_SIZE,
    ),
    "mistral3": (mistral3, transformers.Mistral3ForConditionalGeneration, *ROW_BY_ROW),
    "pixtral": (pixtral, transformers.LlavaForConditionalGeneration, *ROW_BY_ROW),
    "qwen3_vl_moe": (
        qwen3(
            transformers.Qwen3VLMoeConfig,
            dict(
                head_dim=8,
                rope_parameters={**ROPE, "mrope_section": [2, 1, 1]},
                num_experts=6,
                num_experts_per_tok=2,
                moe_intermediate_size=16,
            ),
            dict(deepstack_visual_indexes=[0, 2]),
        ),
        transformers.Qwen3VLMoeForConditionalGeneration,
        *ANY_SIZE,
    ),
    "qwen3_5": (
        qwen3(transformers.Qwen3_5Config, NETS, {}),
        transformers.Qwen3_5ForConditionalGeneration,
        *ANY_SIZE,
    ),
}


class Model:
    """A model with a tokenizer, a template and an image processor, in a folder."""

    def __init__(self, folder, template, family="llava"):
        config, model_class, self.prepares, added, self.placeholder, self.spelled = FAMILIES[family]
        folder.mkdir()
        self.folder = folder
        self.tokenizer = byte_pairs()
        self.tokenizer.add_special_tokens({"additional_special_tokens": added})
        self.tokenizer.chat_template = template.replace("{{ image }}", self.placeholder)
        ids = self.tokenizer.convert_tokens_to_ids(added)
        self.image = ids[0]
        torch.manual_seed(SEED)
        self.model = model_class(config(len(self.tokenizer), *ids)).eval()
        refill(self.model, SEED)
        self.model.generation_config = transformers.GenerationConfig(eos_token_id=0, pad_token_id=0)
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self.prepares.save_pretrained(folder)

    @property
    def any_size(self):
        return self.spelled is None

    @property
    def whole(self):
        return isinstance(self.prepares, transformers.PixtralImageProcessorPil)

    @property
    def merge(self):
        return getattr(self.model.config, "spatial_merge_size", 1)

    def prepared(self, images):
        if not images:
            return {}
        more = {}
        if self.whole:  # as transformers' processor of texts and images does
            more = {"patch_size": 4 * self.merge}
        made = self.prepares(images=images, return_tensors="pt", **more)
        names = ("pixel_values", "image_grid_thw", "image_sizes")
        return {name: torch.as_tensor(made[name]) for name in names if name in made}

    def ids(self, messages, prepared):
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        first, *others = text.split(self.placeholder)
        for number, after in enumerate(others):
            if self.whole:
                down, across = prepared["image_sizes"][number] // (4 * self.merge)
                rows = ["<image>" * int(across)] * int(down)
                first += "[IMG_BREAK]".join(rows) + "[IMG_END]" + after
            elif self.any_size:
                squares = int(prepared["image_grid_thw"][number].prod()) // 4
                first += "<begin>" + "<image>" * squares + "<end>" + after
            else:
                first += self.spelled + after
        return self.tokenizer(first, add_special_tokens=False)["input_ids"]

    def answer(self, messages, images, count=NEW_TOKENS):
        """The prompt's length, the ids of the greedy answer, and the log-probability of each."""
        given = self.prepared(images)
        ids = torch.tensor([self.ids(messages, given)])
        if self.any_size and not self.whole:
            given["mm_token_type_ids"] = (ids == self.image).long()
            self.model.model.rope_deltas = None  # or a text without images would stand where those of before ended
        if self.model.config.model_type == "gemma3":
            given["token_type_ids"] = (ids == self.image).long()
        with torch.no_grad():
            made = self.model.generate(
                ids,
                **given,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        new = made.sequences[0, ids.shape[1] :].tolist()
        scores = [logits[0].log_softmax(-1)[id].item() for id, logits in zip(new, made.logits)]
        return ids.shape[1], new, scores
