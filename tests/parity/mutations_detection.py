# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_detection.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    named = r"\.model\.encoder\.stages"
    return (
        *of(
            "DetrForObjectDetection-all",
            ("input.backbone", "gains of one", m.ones(named + r"\.3\.layers\.1\..*normalization\.weight")),
            ("backbone.act", "tanh", m.policy("named ? 'relu'", "true ? 'tanh'")),
            ("backbone.stem", "a channel shifted", m.rolled(r"embedder\.embedder\.convolution\.weight", 0)),
            ("stem.kernel", "a pixel shifted", m.rolled(r"embedder\.embedder\.convolution\.weight", 3)),
            ("stem.batch_norm", "mean dropped", m.dropped(r"embedder\.embedder\.normalization\.running_mean")),
            ("stem.stride", "of 3", m.policy("          stride: 2\n", "          stride: 3\n")),
            ("backbone.block", "a kernel shifted", m.rolled(named + r"\.1\.layers\.1\.layer\.2\.conv.*weight", 0)),
            ("block.kernel", "a pixel shifted", m.rolled(named + r"\.2\.layers\.0\.layer\.1\.conv.*weight", 2)),
            ("block.batch_norm", "variances of one", m.ones(named + r"\.2\.layers\.0\.layer\.1\..*running_var")),
            ("block.stride", "in the first convolution", m.policy("basic or early ? 0 : 1", "true ? 0 : 1")),
            ("block.dilation", "of 2", m.policy('? 2 : 1"\n          shortcut', '? 2 : 2"\n          shortcut')),
            ("block.shortcut", "a channel shifted", m.rolled(named + r"\.3\.layers\.0\.shortcut\.conv.*weight", 0)),
            ("shortcut.kernel", "inputs shifted", m.rolled(named + r"\.3\.layers\.0\.shortcut\.conv.*weight", 1)),
            ("shortcut.batch_norm", "bias dropped", m.dropped(named + r"\.3\.layers\.0\.shortcut\..*bias")),
            ("input.projection", "bias dropped", m.dropped(r"input_projection\.bias")),
            ("input.queries", "shifted by one", m.rolled(r"query_position_embeddings\.weight", 1)),
            ("cross.k", "two heads change places", m.blocks_swapped(r"layers\.2\.encoder_attn\.k_proj", 6, 0, 4)),
            ("cross.v", "bias dropped", m.dropped(r"layers\.2\.encoder_attn\.v_proj\.bias")),
            ("output.norm", "bias dropped", m.dropped(r"decoder\.layernorm\.bias")),
            ("head.classes", "bias dropped", m.dropped(r"class_labels_classifier\.bias")),
            ("head.boxes", "bias dropped", m.dropped(r"bbox_predictor\.layers\.2\.bias")),
            ("boxes.linear", "bias dropped", m.dropped(r"bbox_predictor\.layers\.1\.bias")),
        ),
        *of(
            "DetrForObjectDetection-learned-positions",
            ("input.position", "of columns dropped", m.dropped(r"position_embedding\.column_embeddings\.weight")),
            ("position.row", "shifted by one", m.rolled(r"position_embedding\.row_embeddings\.weight")),
            ("position.column", "shifted by one", m.rolled(r"position_embedding\.column_embeddings\.weight")),
        ),
        *of(
            "DetrForSegmentation-masks",
            ("head.masks", "bias dropped", m.dropped(r"mask_head\.out_lay\.bias")),
            ("masks.act", "tanh", m.policy("      act: act", "      act: tanh")),
            ("masks.query", "bias dropped", m.dropped(r"bbox_attention\.q_linear\.bias")),
            ("masks.key", "inputs shifted", m.rolled(r"bbox_attention\.k_linear\.weight", 1)),
            ("masks.convolution", "a pixel shifted", m.rolled(r"mask_head\.lay2\.weight", 3)),
            ("convolution.norm", "weight dropped", m.ones(r"mask_head\.gn1\.weight")),
            ("masks.fusion", "adapter dropped", m.dropped(r"mask_head\.adapter3\.weight")),
            ("fusion.adapter", "bias dropped", m.dropped(r"mask_head\.adapter2\.bias")),
            ("fusion.refine", "a pixel shifted", m.rolled(r"mask_head\.lay4\.weight", 2)),
            ("refine.norm", "bias dropped", m.dropped(r"mask_head\.gn5\.bias")),
            ("masks.final", "a pixel shifted", m.rolled(r"mask_head\.out_lay\.weight", 3)),
        ),
    )
