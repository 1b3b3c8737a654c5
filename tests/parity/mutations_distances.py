# SPDX-License-Identifier: Apache-2.0
"""Mutations of the families of cases_distances.py; collected by mutations.py."""

_POSITIONS = ", when: \"distances == 'absolute'\""


def rows(of, m):
    """`of(name of a case, *rows)` makes mutations; `m` is mutations.py with what changes a model."""

    def vectors(name, layer):
        return of(
            name,
            ("relative_content.head_vectors", "a distance further", m.rolled(layer + r".*distance_embedding")),
            ("relative_content.head_vectors", "dropped", m.dropped(layer + r".*distance_embedding")),
        )

    def met_by_keys(name):
        return of(name, ("head_vectors.both", "by queries alone", m.config(position_embedding_type="relative_key")))

    return (
        *vectors("BertForMaskedLM-relative-key-query", r"layer\.2\."),
        *met_by_keys("BertForMaskedLM-relative-key-query"),
        *of(
            "BertForMaskedLM-relative-key-query",
            ("input.position", "added too", m.policy(_POSITIONS, "")),
            (
                "relative_content.head_vectors",
                "of the layer before",
                m.swapped("layer.2.attention.self.distance_embedding", "layer.1.attention.self.distance_embedding"),
            ),
            (
                "relative_content.head_vectors",
                "distances turned around",
                m.tensors(r"layer\.2\..*distance_embedding", lambda tensor: tensor[::-1]),
            ),
            (
                "head_vectors.scaled",
                "added to scaled scores",
                m.policy(
                    "\"distances == 'relative_key_query'\"}", "\"distances == 'relative_key_query'\", scaled: false}"
                ),
            ),
        ),
        *of(
            "BertForMaskedLM-relative-key",
            ("head_vectors.both", "by keys too", m.config(position_embedding_type="relative_key_query")),
            ("input.position", "absolute ones", m.policy(_POSITIONS, "")),
        ),
        *vectors("BertLMHeadModel-relative-key-query", r"layer\.2\."),
        *vectors("AlbertForMaskedLM-relative-key-query", r"groups\.2\."),
        *met_by_keys("AlbertForMaskedLM-relative-key-query"),
        *of(
            "AlbertForMaskedLM-relative-key-query",
            ("head_vectors.scaled", "as the scores are", m.policy("scaled: false", "scaled: true")),
            ("input.position", "added too", m.policy(_POSITIONS, "")),
        ),
        *vectors("ElectraForMaskedLM-relative-key-query", r"layer\.2\."),
        *met_by_keys("ElectraForMaskedLM-relative-key-query"),
        *of("ElectraForMaskedLM-relative-key-query", ("input.position", "added too", m.policy(_POSITIONS, ""))),
        *vectors("RobertaForMaskedLM-relative-key-query", r"layer\.2\."),
        *met_by_keys("RobertaForMaskedLM-relative-key-query"),
        *of("RobertaForMaskedLM-relative-key-query", ("input.position", "added too", m.policy(_POSITIONS, ""))),
        *vectors("XLMRobertaForMaskedLM-relative-key", r"layer\.2\."),
        *vectors("CamembertForMaskedLM-relative-key", r"layer\.2\."),
        *vectors("MegatronBertForMaskedLM-relative-key-query", r"layer\.2\."),
        *met_by_keys("MegatronBertForMaskedLM-relative-key-query"),
        *of("MegatronBertForMaskedLM-relative-key-query", ("input.position", "added too", m.policy(_POSITIONS, ""))),
        *vectors("DPRQuestionEncoder-relative-key-query", r"layer\.2\."),
        *met_by_keys("DPRQuestionEncoder-relative-key-query"),
        *of("DPRQuestionEncoder-relative-key-query", ("input.position", "added too", m.policy(_POSITIONS, ""))),
        *vectors("BertGenerationDecoder-relative-key-query", r"layer\.2\."),
        *met_by_keys("BertGenerationDecoder-relative-key-query"),
        *of(
            "BertGenerationDecoder-relative-key-query", ("input.position", "dropped", m.dropped("position_embeddings"))
        ),
    )
