# SPDX-License-Identifier: Apache-2.0
"""Mutations of the encoders of cases_encoders.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "RobertaForMaskedLM-all",
            ("position.offset", "one less", m.policy("offset: offset,", "offset: offset - 1,")),
            (
                "position.skip_padding",
                "columns of the batch",
                m.policy("skip_padding: true", "skip_padding: false"),
                "left",
            ),
            ("head.act", "tanh", m.policy("act: gelu\n", "act: tanh\n")),
        ),
        *of(
            "RobertaForSequenceClassification-light",
            ("head.pool", "the last token", m.policy("pool: first", "pool: last")),
        ),
        *of("XLMRobertaForMaskedLM-all", ("input.tables", "types shifted", m.rolled(r"token_type_embeddings"))),
        *of("CamembertForMaskedLM-all", ("input.tables", "types shifted", m.rolled(r"token_type_embeddings"))),
        *of(
            "ElectraForMaskedLM-all",
            ("input.projection", "bias dropped", m.dropped(r"embeddings_project\.bias")),
            ("head.norm", "weight dropped", m.ones(r"generator_predictions\.LayerNorm\.weight")),
            (
                "attn.out",
                "two heads change places",
                m.blocks_swapped(r"layer\.2\.attention\.output\.dense\.weight", 5, 0, 4, -1),
            ),
        ),
        *of(
            "ElectraForPreTraining-light",
            ("classes.vector", "bias dropped", m.dropped(r"dense_prediction\.bias")),
            ("classes.vector", "shifted", m.rolled(r"dense_prediction\.weight", 1)),
        ),
        *of(
            "DistilBertForMaskedLM-all",
            ("mlp.act", "relu", m.config(activation="relu")),
            ("attn.norm", "that of the MLP", m.swapped("sa_layer_norm", "output_layer_norm")),
            ("head.dense", "bias dropped", m.dropped(r"vocab_transform\.bias")),
        ),
        *of("DistilBertForSequenceClassification-light", ("head.act", "gelu", m.policy("act: relu", "act: gelu"))),
        *of(
            "MegatronBertForPreTraining-all",
            ("layer.order", "norms after the sums", m.policy("order: pre", "order: post")),
            ("output.norm", "bias dropped", m.dropped(r"encoder\.ln\.bias")),
            ("attn.norm", "weight dropped", m.ones(r"layer\.2\.attention\.ln\.weight")),
        ),
        *of(
            "DPRQuestionEncoder-all",
            ("output.pooler", "bias dropped", m.dropped(r"encode_proj\.bias")),
            ("pooler.pool", "the last token", m.policy("pool: first, from", "pool: last, from")),
        ),
        *of(
            "DPRReader-reader",
            (
                "head.output",
                "start and end change places",
                m.policy("[start_logits, end_logits]", "[end_logits, start_logits]"),
            ),
            ("head.pool", "the last token", m.policy("pool: first\n", "pool: last\n")),
            ("classes.vector", "bias dropped", m.dropped(r"qa_classifier\.bias")),
        ),
        *of(
            "RetriBertModel-all",
            ("head.output", "question and passage change places", m.swapped("project_query", "project_doc")),
        ),
        *of(
            "DeiTForImageClassificationWithTeacher-all",
            ("input.distillation_token", "dropped", m.dropped(r"distillation_token")),
            ("head.pool", "the class token", m.policy("pool: second", "pool: first")),
            ("head.mean", "of one head", m.policy("mean: [class, distillation]", "mean: [class, class]")),
        ),
        *of(
            "RoFormerForMaskedLM-all",
            ("rotary.style", "halves", m.policy("style: interleaved", "style: neox")),
            ("rotary.values", "turned too", m.config(rotary_value=True)),
            ("attn.rotary", "off", m.policy("rotary: {", "rotary: {when: false, ")),
        ),
        *of("RoFormerModel-turned-values", ("rotary.values", "off", m.config(rotary_value=False))),
        *of(
            "LayoutLMForMaskedLM-all",
            ("tables.column", "right in place of left", m.policy("bbox, column: 0,", "bbox, column: 2,")),
            ("tables.column", "upper in place of lower", m.policy("column: 3, rows", "column: 1, rows")),
            ("tables.minus_column", "the height alone", m.policy("column: 3, minus_column: 1", "column: 3")),
            (
                "tables.minus_column",
                "the width from the upper edge",
                m.policy("minus_column: 0, rows", "minus_column: 2, rows"),
            ),
            (
                "input.tables",
                "height and width change places",
                m.swapped("h_position_embeddings", "w_position_embeddings"),
            ),
        ),
        *of(
            "TapasForQuestionAnswering-all",
            (
                "tables.column",
                "another one",
                m.policy(
                    "token_type_embeddings_4, input: token_type_ids, column: 4",
                    "token_type_embeddings_4, input: token_type_ids, column: 5",
                ),
                "",
                ("logits_aggregation",),
            ),
            (
                "head.cells",
                "of the column chosen by other scores",
                m.swapped("column_output_weights", "output_weights"),
            ),
            ("cells.columns", "shifted", m.rolled(r"^column_output_weights")),
            ("cells.temperature", "one", m.config(temperature=1.0)),
            ("cells.max_rows", "fewer", m.config(max_num_rows=2)),
            ("cells.max_columns", "fewer", m.config(max_num_columns=2)),
            ("cells.allow_empty_column", "on", m.config(allow_empty_column_selection=True)),
            ("classes.vector", "bias dropped", m.dropped(r"^output_bias")),
        ),
        *of(
            "TapasForQuestionAnswering-one-count",
            (
                "position.reset_per_cell",
                "again in each cell",
                m.config(reset_position_index_per_cell=True),
                "",
                ("hidden_states.1",),
            ),
        ),
        *of(
            "VisualBertForPreTraining-all",
            ("input.features", "bias dropped", m.dropped(r"visual_projection\.bias")),
            ("features.position", "dropped", m.dropped(r"visual_position_embeddings")),
            ("features.position", "another row", m.rolled(r"visual_position_embeddings")),
            ("features.tables", "types shifted", m.rolled(r"visual_token_type_embeddings")),
            ("tables.default_row", "the first", m.policy('default_row: "types > 1 ? 1 : 0"', "default_row: 0"), "left"),
        ),
        *of(
            "VisualBertForQuestionAnswering-seven-answers",
            ("head.pool", "the first token", m.policy("pool: last_but_one", "pool: first")),
        ),
        *of(
            "VisualBertForRegionToPhraseAlignment-regions",
            ("head.pairs", "query and key change places", m.swapped("attention.query", "attention.key")),
            ("pairs.query", "bias dropped", m.dropped(r"^attention\.query\.bias")),
            ("pairs.key", "shifted", m.rolled(r"^attention\.key\.weight", 1)),
        ),
        *of(
            "XLMForQuestionAnswering-search",
            ("head.spans", "ends and answers change places", m.swapped("end_logits.dense_0", "answer_class.dense_0")),
            ("spans.start", "shifted", m.rolled(r"start_logits\.dense\.weight", 1)),
            (
                "spans.end_dense",
                "the token and the first token change places",
                m.blocks_swapped(r"end_logits\.dense_0\.weight", 2, 0, 1, 1),
            ),
            ("spans.end_norm", "weight dropped", m.ones(r"end_logits\.LayerNorm\.weight")),
            ("spans.end", "shifted", m.rolled(r"end_logits\.dense_1\.weight", 1)),
            ("spans.answer_dense", "bias dropped", m.dropped(r"answer_class\.dense_0\.bias")),
            ("spans.answer", "shifted", m.rolled(r"answer_class\.dense_1\.weight", 1)),
            ("spans.start_n_top", "one less", m.config(start_n_top=2)),
            ("spans.end_n_top", "one more", m.config(end_n_top=3)),
        ),
        *of(
            "XLMWithLMHeadModel-all",
            (
                "tables.skip_if_absent",
                "language 0 where none is given",
                m.policy("          skip_if_absent: true\n", ""),
            ),
            ("input.tables", "of languages dropped", m.dropped(r"lang_embeddings"), "given"),
            ("input.norm", "weight dropped", m.ones(r"layer_norm_emb\.weight")),
            ("mlp.act", "relu", m.config(gelu_activation=False)),
            ("attn.mask", "causal", m.config(causal=True)),
            ("head.logits", "bias dropped", m.dropped(r"pred_layer\.proj\.bias")),
        ),
        *of("FlaubertModel-all", ("layer.order", "norms before", m.config(pre_norm=True))),
        *of("FlaubertWithLMHeadModel-norms-before", ("layer.order", "norms after the sums", m.config(pre_norm=False))),
    )
