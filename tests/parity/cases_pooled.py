# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for families whose layers pool rows; cases.py collects them."""

LIGHT = (2,)
# as in cases.py
SEEDS = {}
MODEL_TYPES = ("funnel",)
# Padding is pooled with the tokens beside it, which then are padding. So no row is so short that nothing is left of it.
LENGTHS = (5, 4, 16, 17, 33)
CHOICES = [5, 4, 17, 9, 33, 6]
_FUNNEL = {
    "d_model": 30,
    "n_head": 5,
    "d_head": 8,
    "d_inner": 37,
    "block_sizes": [2, 1, 2],
    "num_decoder_layers": 2,
    "vocab_size": 101,
    "type_vocab_size": 3,  # which tells inputs.py the types: the last is that of <cls>
    "layer_norm_eps": 1e-3,
    "pad_token_id": 3,
    "bos_token_id": 4,
    "eos_token_id": 100,
}
_ON_BASE = ("FunnelBaseModel", "FunnelForSequenceClassification", "FunnelForMultipleChoice")


def layers(case):
    """Returns the numbers of layers before and behind the upsampling."""
    settings = case.settings
    repeats = settings.get("block_repeats", [1] * len(settings["block_sizes"]))
    encoded = sum(size * times for size, times in zip(settings["block_sizes"], repeats))
    return encoded, 0 if case.model_class in _ON_BASE else settings["num_decoder_layers"]


def blocks(case, base):
    """Returns transformers' layers in the order in which they run, by the name of our stack."""
    settings = case.settings
    repeats = settings.get("block_repeats", [1] * len(settings["block_sizes"]))
    encoder = [layer for block, times in zip(base.encoder.blocks, repeats) for layer in block for _ in range(times)]
    return {"encoder": encoder} if case.model_class in _ON_BASE else {"whole": [*encoder, *base.decoder.layers]}


def cases(family):
    rows = family("funnel", "encoder", "FunnelConfig", ("token_type_ids",), **_FUNNEL)

    def funnel(label, classes, **settings):
        return rows(label, classes, **{"lengths": LENGTHS, **settings})

    return (
        *funnel("all", "FunnelForMaskedLM", block_repeats=[1, 2, 1]),
        *funnel(
            "light",
            "FunnelModel FunnelForPreTraining FunnelForSequenceClassification FunnelForMultipleChoice "
            "FunnelForTokenClassification FunnelForQuestionAnswering",
            ranks=LIGHT,
            block_sizes=[1, 1, 1],
            num_decoder_layers=1,
            hidden_act="relu",
        ),
        *funnel("base", "FunnelBaseModel"),
        *funnel(  # keys and values are pooled too, by the largest
            "pooled-keys",
            "FunnelModel",
            block_sizes=[1, 1, 1],
            num_decoder_layers=1,
            pooling_type="max",
            pool_q_only=False,
            attention_type="factorized",
        ),
        *funnel(
            "untruncated",
            "FunnelModel",
            ranks=LIGHT,
            block_sizes=[1, 1, 1],
            num_decoder_layers=1,
            truncate_seq=False,
            attention_type="factorized",
        ),
        *funnel("first-in-a-pair", "FunnelModel", ranks=LIGHT, separate_cls=False, block_sizes=[1, 1, 1]),
        *funnel(  # too short for the last blocks, which transformers runs by this form of attention only
            "short",
            "FunnelModel",
            lengths=(3, 4, 3),
            ranks=LIGHT,
            block_sizes=[1, 1, 1],
            num_decoder_layers=1,
            attention_type="factorized",
        ),
        *funnel(
            "shortest",
            "FunnelModel",
            lengths=(2, 2),
            ranks=LIGHT,
            block_sizes=[1, 1],
            num_decoder_layers=1,
            attention_type="factorized",
        ),
        *funnel("one-block", "FunnelModel", ranks=LIGHT, block_sizes=[2], num_decoder_layers=1),
        *funnel(
            "untied",
            "FunnelForMaskedLM",
            ranks=LIGHT,
            d_head=6,  # heads as wide as states
            block_sizes=[1, 1],
            num_decoder_layers=1,
            tie_word_embeddings=False,
        ),
    )
