# SPDX-License-Identifier: Apache-2.0
"""Mutations of what stands among tokens for images, in families of cases_multimodal.py; collected by mutations.py."""

ROPE = {"rope_type": "default", "rope_theta": 1000.0}
NETS_ROPE = {**ROPE, "partial_rotary_factor": 0.5, "mrope_interleaved": True}


def _read_as_conv1d(tensor):
    """Experts [out, in] whose numbers lie as [in, out]."""
    return tensor.transpose(0, 2, 1).reshape(tensor.shape)


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""

    def pictured(name, *rows):
        return of(name, *((*row, "pictured") for row in rows))

    return (
        *pictured(
            "LlavaForConditionalGeneration-all",
            ("images.state", "the one behind", m.config(vision_feature_layer=-1)),
            ("images.projector", "columns shifted", m.rolled(r"multi_modal_projector\.linear_1\.weight", 1)),
            ("projector.first", "rows shifted", m.rolled(r"multi_modal_projector\.linear_1\.weight")),
            ("projector.first", "bias left out", m.dropped(r"multi_modal_projector\.linear_1\.bias")),
            ("projector.act", "relu", m.config(projector_hidden_act="relu")),
            ("projector.last", "rows shifted", m.rolled(r"multi_modal_projector\.linear_2\.weight")),
            ("projector.last", "bias left out", m.dropped(r"multi_modal_projector\.linear_2\.bias")),
            ("images.section", "queries of another head", m.blocks_swapped(r"vision_tower.*\.0\..*q_proj", 2, 0, 1)),
            ("images.section", "the class token counts twice", m.twice(r"vision_tower.*class_embedding")),
            ("images.section", "positions shifted", m.rolled(r"vision_tower.*position_embedding")),
            ("images.section", "channels of pixels change places", m.rolled(r"vision_tower.*patch_embedding", 1)),
        ),
        *pictured(
            "Gemma3ForConditionalGeneration-all",
            ("projector.norm", "weight dropped", m.dropped(r"mm_soft_emb_norm\.weight")),
            ("projector.norm", "of another kind", m.policy("kind: gemma_rms, eps", "kind: rms, eps")),
            ("projector.first", "columns shifted", m.rolled(r"mm_input_projection_weight")),
            ("images.section", "norm behind the tower dropped", m.ones(r"vision_tower.*post_layernorm\.weight")),
            ("images.section", "positions shifted", m.rolled(r"vision_tower.*position_embedding")),
        ),
        *pictured(
            "Qwen2_5_VLForConditionalGeneration-all",
            (
                "axes.sections",
                "of other lengths",
                m.config(text_config__rope_parameters={**ROPE, "mrope_section": [2, 1, 0]}),
            ),
            ("patches.window", "larger windows", m.config(vision_config__window_size=32)),
            ("attn.patch_windows", "in all layers", m.config(vision_config__fullatt_block_indexes=[])),
            ("attn.patch_windows", "in the other layer", m.config(vision_config__fullatt_block_indexes=[0])),
            ("images.section", "queries and keys change places", m.blocks_swapped(r"blocks\.0\.attn\.qkv", 3, 0, 1)),
            ("images.section", "channels of pixels change places", m.rolled(r"patch_embed\.proj\.weight", 1)),
            ("images.section", "rows of pixels change places", m.rolled(r"patch_embed\.proj\.weight", 3)),
            ("images.section", "columns of pixels change places", m.rolled(r"patch_embed\.proj\.weight", 4)),
            ("images.section", "gates dropped", m.dropped(r"blocks\.1\.mlp\.gate_proj\.weight")),
            ("projector.norm", "of another kind", m.policy("'layer' : 'rms'", "'layer' : 'gemma_rms'")),
            ("projector.norm", "weight of ones", m.ones(r"merger\.ln_q\.weight")),
            ("projector.first", "columns shifted", m.rolled(r"merger\.mlp\.0\.weight", 1)),
            ("projector.act", "relu", m.policy("    act: gelu\n", "    act: relu\n")),
            ("projector.last", "bias dropped", m.dropped(r"merger\.mlp\.2\.bias")),
        ),
        *pictured(
            "Qwen2VLForConditionalGeneration-all",
            ("images.section", "another frame", m.rolled(r"patch_embed\.proj\.weight", 2)),
            (
                "images.section",
                "rotary embedding of another base",
                m.config(vision_config__rope_parameters={"rope_theta": 9.0}),
            ),
            ("projector.norm", "bias dropped", m.dropped(r"merger\.ln_q\.bias")),
        ),
        *pictured(
            "Qwen3VLForConditionalGeneration-all",
            (
                "axes.sections",
                "of other lengths",
                m.config(text_config__rope_parameters={**ROPE, "mrope_section": [2, 0, 2]}),
            ),
            ("axes.layout", "one after another", m.policy("layout: interleaved", "layout: sections")),
            ("patches.positions", "rows shifted", m.rolled(r"visual\.pos_embed\.weight")),
            (
                "images.deepstack",
                "layers change places",
                m.swapped("deepstack_merger_list.0.", "deepstack_merger_list.1."),
            ),
            ("deepstack.states", "behind another layer", m.config(vision_config__deepstack_visual_indexes=[0, 2])),
            ("deepstack.norm", "weight of ones", m.ones(r"deepstack_merger_list\.0\.norm\.weight")),
            ("deepstack.first", "columns shifted", m.rolled(r"deepstack_merger_list\.0\.linear_fc1\.weight", 1)),
            ("deepstack.act", "relu", m.policy(*(f'act: {act}\n    last: {{from: "{{l}}' for act in ("gelu", "relu")))),
            ("deepstack.last", "bias dropped", m.dropped(r"deepstack_merger_list\.1\.linear_fc2\.bias")),
        ),
        *of(
            "Qwen3VLMoeForConditionalGeneration-all",
            ("experts.router", "weight dropped", m.dropped(r"layers\.2\.mlp\.gate\.weight")),
            ("experts.router", "of other experts", m.rolled(r"layers\.[02]\.mlp\.gate\.weight")),
            ("experts.per_token", "one more", m.config(text_config__num_experts_per_tok=3)),
            ("experts.normalise", "not", m.policy('normalise: "true"', 'normalise: "false"')),
            ("experts.gate_up", "up for gate", m.blocks_swapped(r"layers\.2\..*gate_up_proj", 2, 0, 1, axis=1)),
            ("experts.down", "of another expert", m.rolled(r"layers\.2\..*experts\.down_proj")),
            ("experts.layout", "of [in, out]", m.tensors(r"layers\.2\..*experts\.down_proj", _read_as_conv1d)),
        ),
        *pictured(
            "Qwen3VLMoeForConditionalGeneration-all",
            (
                "axes.sections",
                "of other lengths",
                m.config(text_config__rope_parameters={**ROPE, "mrope_section": [2, 0, 2]}),
            ),
            (
                "images.deepstack",
                "layers change places",
                m.swapped("deepstack_merger_list.0.", "deepstack_merger_list.1."),
            ),
            ("deepstack.states", "behind another layer", m.config(vision_config__deepstack_visual_indexes=[0, 2])),
        ),
        *pictured(
            "Mistral3ForConditionalGeneration-all",
            ("projector.merging", "columns shifted", m.rolled(r"patch_merger\.merging_layer\.weight", 1)),
            ("projector.by_channel", "patch by patch", m.policy('by_channel: "true"', 'by_channel: "false"')),
            ("projector.norm", "weight of ones", m.ones(r"multi_modal_projector\.norm\.weight")),
            ("projector.first", "rows shifted", m.rolled(r"multi_modal_projector\.linear_1\.weight")),
            ("projector.act", "relu", m.config(projector_hidden_act="relu")),
            (
                "images.section",
                "rotary embedding of another base",
                m.config(vision_config__rope_parameters={"rope_theta": 9.0}),
            ),
            ("images.section", "the first norm left out", m.ones(r"vision_tower\.ln_pre\.weight")),
            ("images.section", "gates shifted", m.rolled(r"vision_tower.*\.0\.feed_forward\.gate_proj\.weight")),
            ("images.section", "queries of another head", m.blocks_swapped(r"vision_tower.*\.0\..*q_proj", 4, 0, 1)),
        ),
        *pictured(
            "Qwen3_5ForConditionalGeneration-all",
            (
                "axes.sections",
                "of other lengths",
                m.config(text_config__rope_parameters={**NETS_ROPE, "mrope_section": [1, 0, 1]}),
            ),
            ("patches.positions", "removed", m.dropped(r"visual\.pos_embed\.weight")),
        ),
        *pictured(
            "LlavaForConditionalGeneration-last-state",
            ("images.state", "the one before", m.config(vision_feature_layer=1)),
            ("projector.act", "exact gelu", m.config(projector_hidden_act="gelu")),
        ),
        *of(
            "Llama4ForConditionalGeneration-all",
            ("mlp.shared", "twice", m.twice(r"layers\.2\..*shared_expert\.down_proj\.weight")),
            ("experts.router", "weight dropped", m.dropped(r"layers\.0\..*router\.weight")),
        ),
    )
