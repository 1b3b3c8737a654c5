# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_entities.py; collected by mutations.py."""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""
    return (
        *of(
            "LukeForMaskedLM-all",
            ("input.entities", "without their table", m.dropped(r"entity_embeddings\.entity_embeddings\.weight")),
            ("entities.table", "rows shifted", m.rolled(r"entity_embeddings\.entity_embeddings\.weight")),
            ("entities.projection", "columns shifted", m.rolled(r"entity_embedding_dense\.weight", 1)),
            ("entities.positions", "rows shifted", m.rolled(r"entity_embeddings\.position_embeddings\.weight")),
            ("entities.tables", "types shifted", m.rolled(r"entity_embeddings\.token_type_embeddings\.weight")),
            ("entities.norm", "bias dropped", m.dropped(r"entity_embeddings\.LayerNorm\.bias")),
            ("attn.entity_queries", "two heads change places", m.blocks_swapped(r"layer\.2\..*w2e_query", 5, 0, 4)),
            (
                "entity_queries.word_to_entity",
                "asks what tokens ask of tokens",
                m.swapped(".self.w2e_query.", ".self.query."),
            ),
            (
                "entity_queries.entity_to_word",
                "two heads change places",
                m.blocks_swapped(r"layer\.2\..*e2w_query\.weight", 5, 0, 4),
            ),
            ("entity_queries.entity_to_word", "bias dropped", m.dropped(r"layer\.2\..*e2w_query\.bias")),
            (
                "entity_queries.entity_to_entity",
                "asks what entities ask of tokens",
                m.swapped(".self.e2e_query.", ".self.e2w_query."),
            ),
            ("head.logits", "bias of entities dropped", m.dropped(r"entity_predictions\.bias")),
            ("head.norm", "of entities: weight dropped", m.ones(r"entity_predictions\.transform\.LayerNorm\.weight")),
        ),
        *of(
            "LukeForEntityPairClassification-light",
            ("head.entities", "the second entity first", m.blocks_swapped(r"classifier\.weight", 2, 0, 1, 1)),
        ),
        *of(
            "LukeForEntitySpanClassification-light",
            ("head.entities", "the last token first", m.blocks_swapped(r"classifier\.weight", 3, 0, 1, 1)),
        ),
    )
