# SPDX-License-Identifier: Apache-2.0
"""Rows of parity for Reformer, whose attention is one of chunks, in the order of tokens or of hashes; cases.py collects
them. Chunks are so short that texts of 33 tokens have several, and padding to whole chunks."""

LIGHT = (2,)
# as in cases.py
SEEDS = {
    "ReformerModelWithLMHead-all": 1005,
    "ReformerModelWithLMHead-in-order-of-tokens": 1012,
    "ReformerModelWithLMHead-in-order-of-hashes": 1022,
    "ReformerModelWithLMHead-two-rounds": 1036,
}
MODEL_TYPES = ("reformer",)


def cases(family):
    reformer = family(
        "reformer",
        "encoder",
        "ReformerConfig",
        hidden_size=30,
        num_attention_heads=5,
        attention_head_size=7,
        attn_layers=["local", "lsh", "lsh"],
        feed_forward_size=37,
        vocab_size=101,
        max_position_embeddings=84,
        axial_pos_shape=[7, 12],
        axial_pos_embds_dim=[13, 17],
        local_attn_chunk_length=6,
        local_num_chunks_before=1,
        local_num_chunks_after=1,
        lsh_attn_chunk_length=4,
        lsh_num_chunks_before=1,
        lsh_num_chunks_after=1,
        num_buckets=[4, 6],
        num_hashes=3,
        hash_seed=7,
        layer_norm_eps=1e-3,
        is_decoder=False,
        pad_token_id=3,
        eos_token_id=100,
    )
    causal = {"is_decoder": True, "local_num_chunks_after": 0, "lsh_num_chunks_after": 0}
    return (
        *reformer("all", "ReformerModel"),
        # transformers generates only where a chunk in the order of hashes has more tokens than there are heads
        *reformer("all", "ReformerModelWithLMHead", lsh_attn_chunk_length=8, **causal),
        *reformer(  # tokens near the beginning see fewer chunks than those that are computed with their prompt
            "in-order-of-tokens",
            "ReformerModelWithLMHead",
            ranks=LIGHT,
            attn_layers=["local", "local"],
            local_attn_chunk_length=5,
            local_num_chunks_before=3,
            num_buckets=None,
            **causal,
        ),
        *reformer(  # chunks that see themselves alone, and one round
            "in-order-of-hashes",
            "ReformerModelWithLMHead",
            ranks=LIGHT,
            attn_layers=["lsh", "lsh"],
            lsh_attn_chunk_length=7,
            lsh_num_chunks_before=0,
            num_buckets=6,
            num_hashes=1,
            **causal,
        ),
        *reformer(  # chunks that see more tokens than there are, and padding beside a prompt of one chunk
            "two-rounds",
            "ReformerModelWithLMHead",
            ranks=LIGHT,
            attn_layers=["lsh", "local"],
            local_attn_chunk_length=4,
            lsh_attn_chunk_length=12,
            lsh_num_chunks_before=2,
            num_buckets=4,
            num_hashes=2,
            **causal,
        ),
        *reformer(
            "light",
            "ReformerForMaskedLM ReformerForSequenceClassification ReformerForQuestionAnswering",
            ranks=LIGHT,
            attn_layers=["lsh", "local"],
            num_buckets=6,
            num_hashes=1,
        ),
        *reformer(  # tables of positions as others have them; a step of three chunks, of which there are not as many
            "learned-positions-local",
            "ReformerModel",
            takes=("position_ids",),
            ranks=LIGHT,
            attn_layers=["local", "local"],
            axial_pos_embds=False,
            local_attn_chunk_length=11,
            local_num_chunks_before=0,
            local_num_chunks_after=4,
            hidden_act="gelu",
            max_position_embeddings=70,
        ),
        *reformer(  # the number of buckets follows from the length: two factors of it
            "seven-heads-hashed-alone",
            "ReformerModel",
            num_attention_heads=7,
            attn_layers=["lsh"],
            lsh_attn_chunk_length=2,
            lsh_num_chunks_before=3,
            lsh_num_chunks_after=0,
            num_buckets=None,
            num_hashes=2,
            chunk_size_feed_forward=1,
        ),
        *reformer(  # one factor of it
            "causal-hashed-alone",
            "ReformerModelWithLMHead",
            ranks=LIGHT,
            attn_layers=["lsh", "lsh"],
            lsh_attn_chunk_length=8,
            lsh_num_chunks_before=0,
            num_buckets=None,
            num_hashes=1,
            speaks=False,  # the number of buckets would be that of the first text
            **causal,
        ),
    )


def each_by_itself(usual):
    """A step of generation whose rows read their own hidden states: that of transformers reads those of the first row
    for all (test_chunk_steps)."""
    import torch

    def apart(*, query_vectors, attention_mask, num_hashes, hidden_states, past_states, past_buckets):
        rows = [
            usual(one, attention_mask, num_hashes, *others)
            for one, *others in zip(
                *(part.split(1) for part in (query_vectors, hidden_states, past_states, past_buckets))
            )
        ]
        return tuple(map(torch.cat, zip(*rows)))

    return apart


def quiet(loaded, case):
    """Hides what ours does not put out: attentions by chunks and in the order of hashes, hidden states of what fills
    the last chunk, and the cache. Undoes what every model keeps, the number of buckets of the first text, and what
    makes rows of a batch depend on each other."""
    for part in loaded.modules():
        if type(part).__name__ == "LSHSelfAttention":
            part._get_relevant_hid_states_and_buckets = each_by_itself(part._get_relevant_hid_states_and_buckets)

    def before(module, positional, named):
        if named.get("past_buckets_states") is None:
            for part in module.modules():
                if type(part).__name__ == "LSHSelfAttention":
                    part.num_buckets = part.config.num_buckets = case.settings["num_buckets"]
        without = {"use_cache": False} if case.model_class in ("ReformerModel", "ReformerModelWithLMHead") else {}
        return positional, {**without, **named, "output_attentions": False}

    def after(_, positional, named, outputs):
        if outputs.hidden_states is not None:
            length = named["input_ids"].shape[1]
            outputs.hidden_states = tuple(states[:, :length] for states in outputs.hidden_states)

    loaded.register_forward_pre_hook(before, with_kwargs=True)
    loaded.register_forward_hook(after, with_kwargs=True)
