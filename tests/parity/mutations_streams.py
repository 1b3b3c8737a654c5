# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_streams.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    last = r"x_layers\.2\.visual_attention\."
    return (
        *of(
            "LxmertModel-all",
            ("input.vectors", "features dropped", m.dropped(r"visn_fc\.visn_fc\.weight")),
            ("input.vectors", "features count twice", m.twice(r"visn_fc\.visn_layer_norm\.(weight|bias)")),
            ("vectors.parts", "boxes shifted", m.rolled(r"visn_fc\.box_fc\.weight", 1)),
            ("vectors.parts", "bias of boxes dropped", m.dropped(r"visn_fc\.box_fc\.bias")),
            ("vectors.parts", "norm of boxes: bias dropped", m.dropped(r"visn_fc\.box_layer_norm\.bias")),
            ("co_attention.q", "two heads change places", m.blocks_swapped(last + r"att\.query\.weight", 5, 0, 4)),
            ("co_attention.q", "bias dropped", m.dropped(last + r"att\.query\.bias")),
            ("co_attention.k", "two heads change places", m.blocks_swapped(last + r"att\.key\.weight", 5, 0, 4)),
            ("co_attention.v", "two heads change places", m.blocks_swapped(last + r"att\.value\.weight", 5, 0, 4)),
            ("co_attention.v", "bias dropped", m.dropped(last + r"att\.value\.bias")),
            ("co_attention.out", "bias added twice", m.twice(last + r"output\.dense\.bias")),
            ("co_attention.out", "dropped", m.dropped(last + r"output\.dense\.weight")),
            ("co_attention.norm", "weight dropped", m.ones(last + r"output\.LayerNorm\.weight")),
            ("second.attn", "that of the first", m.swapped("x_layers.2.visn_self_att.", "x_layers.2.lang_self_att.")),
            ("second.mlp", "that of the first", m.swapped("x_layers.2.visn_inter.", "x_layers.2.lang_inter.")),
            ("second.mlp", "bias dropped", m.dropped(r"x_layers\.2\.visn_output\.dense\.bias")),
            ("second.mlp", "norm: bias dropped", m.dropped(r"x_layers\.2\.visn_output\.LayerNorm\.bias")),
            ("eps", "that of others", m.policy('eps: "1e-12"', "eps: 1e-3")),
        ),
        *of(
            "LxmertForPreTraining-all",
            ("head.dense", "of answers: bias dropped", m.dropped(r"answer_head\.logit_fc\.0\.bias")),
            (
                "head.act",
                "of answers: relu",
                m.policy("dense: logit_fc.0, act: gelu, norm", "dense: logit_fc.0, act: relu, norm", 2),
            ),
            ("head.norm", "of answers: weight dropped", m.ones(r"answer_head\.logit_fc\.2\.weight")),
            ("head.classes", "of answers: shifted", m.rolled(r"answer_head\.logit_fc\.3\.weight")),
            ("head.classes", "of matches: shifted", m.rolled(r"cls\.seq_relationship\.weight")),
            ("head.logits", "bias dropped", m.dropped(r"cls\.predictions\.bias")),
            ("pooler.act", "none", m.policy("from: pooler.dense, act: tanh", "from: pooler.dense")),
        ),
    )
