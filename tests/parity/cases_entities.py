# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for families with entities behind the tokens of a text; cases.py collects them."""

LIGHT = (2,)
# as in cases.py
SEEDS = {}
ENCODERS = ("luke",)


def cases(family):
    luke = family(
        "luke",
        "encoder",
        "LukeConfig",
        ("token_type_ids", "position_ids", "entities"),
        hidden_size=30,
        num_attention_heads=5,
        num_hidden_layers=3,
        intermediate_size=37,
        vocab_size=101,
        entity_vocab_size=43,
        entity_emb_size=11,
        max_position_embeddings=80,
        type_vocab_size=3,
        layer_norm_eps=1e-3,
        pad_token_id=3,
        bos_token_id=4,
        eos_token_id=100,
        num_labels=4,
    )
    return (
        *luke("all", "LukeForMaskedLM"),
        *luke(
            "light",
            "LukeModel LukeForEntityClassification LukeForEntityPairClassification LukeForEntitySpanClassification "
            "LukeForSequenceClassification LukeForMultipleChoice LukeForTokenClassification",
            ranks=LIGHT,
            num_hidden_layers=2,
        ),
        *luke("answers", "LukeForQuestionAnswering", ranks=LIGHT, num_hidden_layers=2, num_labels=2),
        *luke(  # mLUKE, and entities as wide as states
            "plain-attention",
            "LukeModel",
            num_hidden_layers=2,
            use_entity_aware_attention=False,
            entity_emb_size=30,
            hidden_act="relu",
        ),
    )


def entities(case, kind, mask):
    """Entities of rows with this mask [rows, length]: masked ones behind the first two, typed ones, mentioned at some
    positions or at none. Bare inputs of a class that reads none have none."""
    import numpy

    reads = "Entity" in case.model_class
    if "entities" not in case.takes or (kind == "bare" and not reads):
        return {}
    random, shape = numpy.random.default_rng(case.seed + 13), (len(mask), 4)
    found = {
        "entity_ids": random.integers(0, case.settings["entity_vocab_size"], shape),
        "entity_position_ids": random.integers(-1, case.settings["max_position_embeddings"], (*shape, 3)),
    }
    found["entity_position_ids"][:, 1] = -1
    if kind != "bare":
        found["entity_attention_mask"] = random.integers(0, 2, shape)
        found["entity_attention_mask"][:, :2] = 1
        found["entity_token_type_ids"] = random.integers(0, case.settings["type_vocab_size"], shape)
    if "Span" in case.model_class:
        columns = [numpy.flatnonzero(row) for row in mask]
        for name in ("entity_start_positions", "entity_end_positions"):
            found[name] = numpy.stack([random.choice(row, shape[1]) for row in columns])
    return found


def rows_that_count(case, name, inputs):
    """As inputs.rows_that_count, for what speaks of entities; False where the common rule decides."""
    import numpy

    if "entity_ids" not in inputs:
        return False
    mask = inputs.get("entity_attention_mask", numpy.ones_like(inputs["entity_ids"]))
    mask = mask.reshape(-1, mask.shape[-1])
    if name.startswith("entity_") or (name == "logits" and "Span" in case.model_class):
        return mask
    if name == "logits" and "Entity" in case.model_class:  # of the first entities, which are there in every row
        return None
    if name.startswith("attentions."):
        words = inputs.get("attention_mask", numpy.ones_like(inputs["input_ids"]))
        return numpy.concatenate([words.reshape(-1, words.shape[-1]), mask], 1)
    return False
