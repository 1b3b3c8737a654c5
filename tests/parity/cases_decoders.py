# SPDX-License-Identifier: Apache-2.0
"""Further rows of cases.py for decoders and encoder-decoders. One class of each family runs on all numbers of ranks;
the others, which only add a head, run on two.
"""

TWO = (2,)  # ranks
_ROPE = {"rope_type": "default", "rope_theta": 1000.0}

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
# sizes of decoders in the manner of LLaMA; columns and vocabulary divide by no number of ranks
SMALL_DECODER = {
    "bos_token_id": 0,
    "eos_token_id": 210,
    "pad_token_id": 3,
    "vocab_size": 211,
    "hidden_size": 36,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "intermediate_size": 77,
    "max_position_embeddings": 80,
    "rms_norm_eps": 1e-3,
}

_LONG = {
    "rope_type": "longrope",
    "rope_theta": 1000.0,
    "short_factor": [1.1, 1.3, 1.7],
    "long_factor": [1.5, 4.0, 11.0],
}

# as in cases.py; or answers would be nearly tied
SEEDS = {
    "OPTForCausalLM-norms-after-narrow": 1343,
    "OpenAIGPTLMHeadModel-all": 7012,
    "OpenAIGPTLMHeadModel-silu": 4015,
    "CTRLLMHeadModel-all": 51437,
    "BertGenerationDecoder-all": 38543,
    "MBartForConditionalGeneration-all": 2535,
    "MBartForCausalLM-all": 1538,
    "BlenderbotForConditionalGeneration-all": 5057,
    "BlenderbotSmallForConditionalGeneration-all": 20639,
    "BlenderbotSmallForCausalLM-all": 15641,
    "MarianMTModel-all": 2632,
    "PegasusForCausalLM-all": 19763,
    "M2M100ForConditionalGeneration-all": 23508,
    "FSMTForConditionalGeneration-all": 49442,
    "T5ForConditionalGeneration-ul2": 289172,
    "MT5ForConditionalGeneration-all": 32279,
    "MT5Model-all": 32279,
    "MT5EncoderModel-all": 21280,
    "MT5ForSequenceClassification-all": 955283,
    "MT5ForTokenClassification-all": 9282,
    "MT5ForQuestionAnswering-all": 239283,
    "MT5ForConditionalGeneration-untied": 242284,
    "Qwen2ForTokenClassification-all": 1496,
    "MBartForSequenceClassification-all": 4536,
    "MistralForCausalLM-all": 3764,
    "MistralForSequenceClassification-all": 1766,
    "MistralForTokenClassification-all": 1767,
    "MistralModel-all": 1765,
    "Phi3Model-all": 2373,
}


def decoders(family):
    """All rows; `family` is that of cases.py."""
    ids = {"bos_token_id": 0, "eos_token_id": 210, "pad_token_id": 3, "vocab_size": 211}
    mistral = family("mistral", "decoder", "MistralConfig", ("position_ids",), **SMALL_DECODER, sliding_window=7)
    qwen2 = family(
        "qwen2",
        "decoder",
        "Qwen2Config",
        ("position_ids",),
        **SMALL_DECODER,
        use_sliding_window=True,
        sliding_window=6,
        max_window_layers=1,
    )
    qwen3 = family(
        "qwen3", "decoder", "Qwen3Config", ("position_ids",), **SMALL_DECODER, head_dim=8, rope_parameters=_ROPE
    )
    phi3 = family(
        "phi3",
        "decoder",
        "Phi3Config",
        ("position_ids",),
        **(SMALL_DECODER | {"hidden_size": 48}),
        sliding_window=9,
        rope_parameters={**_ROPE, "partial_rotary_factor": 0.5},
    )
    gemma2 = family(
        "gemma2",
        "decoder",
        "Gemma2Config",
        ("position_ids",),
        **SMALL_DECODER,
        head_dim=8,
        sliding_window=5,
        query_pre_attn_scalar=11,
        attn_logit_softcapping=5.0,
        final_logit_softcapping=3.0,
        rope_parameters=_ROPE,
    )
    gpt_neox = family(
        "gpt_neox",
        "decoder",
        "GPTNeoXConfig",
        ("position_ids",),
        **ids,
        hidden_size=40,
        num_attention_heads=5,
        num_hidden_layers=3,
        intermediate_size=77,
        max_position_embeddings=80,
        layer_norm_eps=1e-3,
        rotary_pct=0.5,
    )
    codegen = family(
        "codegen",
        "decoder",
        "CodeGenConfig",
        ("position_ids", "token_types"),
        **ids,
        n_embd=48,
        n_head=8,
        n_layer=3,
        rotary_dim=4,
        n_inner=77,
        n_positions=80,
        layer_norm_epsilon=1e-3,
    )
    opt = family(
        "opt",
        "decoder",
        "OPTConfig",
        ("position_ids",),
        **ids,
        hidden_size=30,
        num_attention_heads=5,
        num_hidden_layers=3,
        ffn_dim=37,
        max_position_embeddings=80,
    )
    openai = family(
        "openai-gpt",
        "decoder",
        "OpenAIGPTConfig",
        ("position_ids", "token_types"),
        **ids,
        n_embd=30,
        n_head=5,
        n_layer=3,
        n_positions=80,
        layer_norm_epsilon=1e-3,
    )
    ctrl = family(
        "ctrl",
        "decoder",
        "CTRLConfig",
        ("position_ids", "token_types"),
        **ids,
        n_embd=30,
        n_head=5,
        n_layer=3,
        dff=37,
        n_positions=80,
        layer_norm_epsilon=0.1,
    )
    bert_generation = family(
        "bert-generation",
        "encoder",
        "BertGenerationConfig",
        ("position_ids",),
        **ids,
        hidden_size=30,
        num_attention_heads=5,
        num_hidden_layers=3,
        intermediate_size=37,
        max_position_embeddings=80,
        layer_norm_eps=1e-3,
    )
    gpt2 = family(
        "gpt2", "decoder", "GPT2Config", ("position_ids",), **ids, n_embd=40, n_head=8, n_layer=2, n_positions=80
    )
    both = {
        "d_model": 30,
        "encoder_attention_heads": 5,
        "decoder_attention_heads": 6,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_ffn_dim": 37,
        "decoder_ffn_dim": 43,
        "max_position_embeddings": 80,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
    }
    one = both | {"vocab_size": 211}
    mbart = family("mbart", "encoder-decoder", "MBartConfig", **one, scale_embedding=True)
    blenderbot = family(
        "blenderbot", "encoder-decoder", "BlenderbotConfig", **one, scale_embedding=True, encoder_no_repeat_ngram_size=0
    )
    blenderbot_small = family(
        "blenderbot-small", "encoder-decoder", "BlenderbotSmallConfig", **one, scale_embedding=True
    )
    marian = family(
        "marian", "encoder-decoder", "MarianConfig", **one, scale_embedding=True, activation_function="swish"
    )
    pegasus = family(
        "pegasus", "encoder-decoder", "PegasusConfig", **one, scale_embedding=True, activation_function="relu"
    )
    m2m_100 = family("m2m_100", "encoder-decoder", "M2M100Config", **one)
    fsmt = family(
        "fsmt",
        "encoder-decoder",
        "FSMTConfig",
        **(both | {"encoder_layers": 3}),
        src_vocab_size=211,
        tgt_vocab_size=223,
    )
    t5 = {
        "d_model": 20,
        "d_kv": 6,
        "d_ff": 37,
        "num_layers": 2,
        "num_decoder_layers": 3,
        "num_heads": 5,
        "vocab_size": 211,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 14,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        "layer_norm_epsilon": 1e-3,
    }
    mt5 = family("mt5", "encoder-decoder", "MT5Config", **(t5 | {"num_decoder_layers": 2}))
    of_t5 = family("t5", "encoder-decoder", "T5Config", **t5)
    return (
        *mistral("all", "MistralForCausalLM"),
        *mistral(
            "all",
            "MistralModel MistralForSequenceClassification MistralForTokenClassification MistralForQuestionAnswering",
            ranks=TWO,
        ),
        *mistral(
            "no-window-tied",
            "MistralForCausalLM",
            ranks=TWO,
            sliding_window=None,
            head_dim=10,
            tie_word_embeddings=True,
            rope_parameters=_ROPE,
            num_hidden_layers=2,
        ),
        *qwen2("all", "Qwen2ForCausalLM"),
        *qwen2(
            "all",
            "Qwen2Model Qwen2ForSequenceClassification Qwen2ForTokenClassification Qwen2ForQuestionAnswering",
            ranks=TWO,
        ),
        *qwen2(
            "one-kv-head-tied-no-window",
            "Qwen2ForCausalLM",
            num_key_value_heads=1,
            use_sliding_window=False,
            tie_word_embeddings=True,
            num_hidden_layers=2,
        ),
        *qwen3("all", "Qwen3ForCausalLM"),
        *qwen3(
            "all",
            "Qwen3Model Qwen3ForSequenceClassification Qwen3ForTokenClassification Qwen3ForQuestionAnswering",
            ranks=TWO,
        ),
        *qwen3(
            "one-kv-head-bias-tied-window",
            "Qwen3ForCausalLM",
            num_key_value_heads=1,
            attention_bias=True,
            use_sliding_window=True,
            sliding_window=4,
            max_window_layers=1,
            tie_word_embeddings=True,
            num_hidden_layers=2,
        ),
        *phi3("all", "Phi3ForCausalLM"),
        *phi3("all", "Phi3Model Phi3ForSequenceClassification Phi3ForTokenClassification", ranks=TWO),
        *phi3(
            "one-kv-head-no-window",
            "Phi3ForCausalLM",
            ranks=TWO,
            num_key_value_heads=1,
            sliding_window=None,
            rope_parameters=_ROPE,
            num_hidden_layers=2,
        ),
        *(
            row
            for label, original, more in (  # of up to 80 positions
                ("longrope-long", 4, {"attention_factor": 0.8}),
                ("longrope-short", 80, {"factor": 2.0}),
            )
            for row in phi3(
                label,
                "Phi3ForCausalLM",
                ranks=TWO,
                original_max_position_embeddings=original,
                rope_parameters={**_LONG, "partial_rotary_factor": 0.75, **more},
            )
        ),
        *gemma2("all", "Gemma2ForCausalLM"),
        *gemma2("all", "Gemma2Model Gemma2ForSequenceClassification Gemma2ForTokenClassification", ranks=TWO),
        *gemma2(
            "one-kv-head-no-caps",
            "Gemma2ForCausalLM",
            ranks=TWO,
            num_key_value_heads=1,
            attn_logit_softcapping=None,
            final_logit_softcapping=None,
            attention_bias=True,
            num_hidden_layers=2,
        ),
        *gpt_neox("all", "GPTNeoXForCausalLM"),
        *gpt_neox(
            "all",
            "GPTNeoXModel GPTNeoXForSequenceClassification GPTNeoXForTokenClassification GPTNeoXForQuestionAnswering",
            ranks=TWO,
        ),
        *gpt_neox(
            "sequential-no-bias-tied",
            "GPTNeoXForCausalLM",
            ranks=TWO,
            use_parallel_residual=False,
            attention_bias=False,
            rotary_pct=1.0,
            tie_word_embeddings=True,
            num_hidden_layers=2,
        ),
        *codegen("all", "CodeGenForCausalLM"),
        *codegen("all", "CodeGenModel", ranks=TWO),
        *codegen("four-heads", "CodeGenForCausalLM", ranks=TWO, n_head=4, n_layer=2, rotary_dim=12, n_inner=None),
        *opt("all", "OPTForCausalLM"),
        *opt("all", "OPTModel OPTForSequenceClassification OPTForQuestionAnswering", ranks=TWO),
        *opt("norms-after-narrow", "OPTForCausalLM", do_layer_norm_before=False, word_embed_proj_dim=17),
        *opt(
            "norms-after-narrow",
            "OPTModel OPTForSequenceClassification",
            ranks=TWO,
            do_layer_norm_before=False,
            word_embed_proj_dim=17,
        ),
        *opt(
            "no-bias-plain-norms-gelu",
            "OPTForCausalLM",
            ranks=TWO,
            enable_bias=False,
            layer_norm_elementwise_affine=False,
            activation_function="gelu",
            num_hidden_layers=2,
        ),
        *opt("no-last-norm", "OPTModel", ranks=TWO, _remove_final_layer_norm=True, num_hidden_layers=2),
        *openai("all", "OpenAIGPTLMHeadModel"),
        *openai("all", "OpenAIGPTModel OpenAIGPTForSequenceClassification", ranks=TWO),
        *openai("silu", "OpenAIGPTLMHeadModel", ranks=TWO, afn="silu", n_layer=2),
        *openai("choices", "OpenAIGPTDoubleHeadsModel", takes=("token_types",), ranks=TWO),
        *ctrl("all", "CTRLLMHeadModel"),
        *ctrl("all", "CTRLModel CTRLForSequenceClassification", ranks=TWO),
        *bert_generation("all", "BertGenerationEncoder BertGenerationDecoder"),
        *gpt2("dialogpt-cpm-megatron", "GPT2LMHeadModel", ranks=TWO),
        *mbart("all", "MBartForConditionalGeneration"),
        *mbart(
            "all", "MBartModel MBartForSequenceClassification MBartForQuestionAnswering MBartForCausalLM", ranks=TWO
        ),
        *mbart(
            "barthez-unscaled",
            "MBartForConditionalGeneration",
            ranks=TWO,
            scale_embedding=False,
            encoder_layers=1,
            decoder_layers=1,
        ),
        *blenderbot("all", "BlenderbotForConditionalGeneration"),
        *blenderbot("all", "BlenderbotModel BlenderbotForCausalLM", ranks=TWO),
        # models this small whose heads are tied to tables that are scaled say their last token again: of those tied
        # forward passes alone are compared
        *blenderbot_small("all", "BlenderbotSmallForConditionalGeneration", tie_word_embeddings=False),
        *blenderbot_small("tied", "BlenderbotSmallForConditionalGeneration", ranks=TWO, speaks=False),
        *blenderbot_small("all", "BlenderbotSmallModel BlenderbotSmallForCausalLM", ranks=TWO),
        *marian("all", "MarianMTModel", tie_word_embeddings=False),
        *marian("tied", "MarianMTModel", ranks=TWO, speaks=False),
        *marian("all", "MarianModel MarianForCausalLM", ranks=TWO),
        *marian("odd-width", "MarianModel", ranks=TWO, d_model=35, decoder_attention_heads=7),
        *marian(
            "two-vocabularies",
            "MarianMTModel",
            ranks=TWO,
            speaks=False,
            share_encoder_decoder_embeddings=False,
            decoder_vocab_size=223,
        ),
        *pegasus("all", "PegasusForConditionalGeneration", tie_word_embeddings=False),
        *pegasus("tied", "PegasusForConditionalGeneration", ranks=TWO, speaks=False),
        *pegasus("all", "PegasusModel PegasusForCausalLM", ranks=TWO),
        *m2m_100("all", "M2M100ForConditionalGeneration"),
        *m2m_100("all", "M2M100Model", ranks=TWO),
        *m2m_100("odd-width", "M2M100Model", ranks=TWO, d_model=35, decoder_attention_heads=7),
        *fsmt("all", "FSMTForConditionalGeneration"),
        *fsmt("light", "FSMTModel", ranks=TWO, speaks=False),
        *mt5("all", "MT5ForConditionalGeneration"),
        *mt5(
            "all",
            "MT5Model MT5EncoderModel MT5ForSequenceClassification MT5ForTokenClassification MT5ForQuestionAnswering",
            ranks=TWO,
        ),
        *mt5("untied", "MT5ForConditionalGeneration", ranks=TWO, tie_word_embeddings=False),
        *of_t5(
            "byt5",
            "T5ForConditionalGeneration",
            ranks=TWO,
            vocab_size=384,
            num_layers=3,
            num_decoder_layers=1,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
        ),
        *of_t5(
            "ul2", "T5ForConditionalGeneration", ranks=TWO, feed_forward_proj="gated-silu", tie_word_embeddings=False
        ),
    )
