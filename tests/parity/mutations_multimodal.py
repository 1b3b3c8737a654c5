# SPDX-License-Identifier: Apache-2.0
"""Mutations of what stands among tokens for images, in families of cases_multimodal.py; collected by mutations.py."""


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
            "LlavaForConditionalGeneration-last-state",
            ("images.state", "the one before", m.config(vision_feature_layer=1)),
            ("projector.act", "exact gelu", m.config(projector_hidden_act="gelu")),
        ),
    )
