# SPDX-License-Identifier: Apache-2.0
"""Cases of the parity tests: model classes, configurations, numbers of ranks. Plain data, one row per class and
configuration, without heavy imports, so that documentation can be generated from it.

Sizes are awkward on purpose: 5 or 7 heads, FFN and vocabulary sizes that no number of ranks divides, windows and
bucket ranges shorter than the text, epsilons large enough to be seen.
"""

import dataclasses
import json

import cases_audio
import cases_composites
import cases_decoders
import cases_decoders_dense
import cases_detection
import cases_distances
import cases_encoders
import cases_entities
import cases_experts
import cases_gemma4
import cases_latent_attention
import cases_latents
import cases_memory
import cases_multimodal
import cases_neighbors
import cases_pooled
import cases_prophetnet
import cases_quantized
import cases_recurrent
import cases_reformer
import cases_relative
import cases_sparse
import cases_streams

RANKS = (1, 2, 3, 4)
LENGTHS = (5, 1, 16, 17, 33)  # of texts: inside a block of 16 tokens, on its edge, over it


@dataclasses.dataclass(frozen=True)
class Case:
    """A model class, its configuration (JSON, so that it can be a key), a seed. `dtype`: what the checkpoint stores."""

    name: str
    model_class: str
    config_class: str
    config: str
    seed: int
    dtype: str = "float32"
    model_type: str = ""
    kind: str = ""  # decoder, encoder, encoder-decoder, dual, vision
    # of token_type_ids, position_ids, bbox, langs, cells (token_type_ids of tables), features (vectors of an image),
    # spans (where no answer is), global_attention_mask, entities, regions
    takes: tuple = ()
    generates: bool = False
    lengths: tuple = LENGTHS
    ranks: tuple = RANKS
    folder: str = ""  # of a checkpoint that exists already; `digest` tells its contents
    digest: str = ""

    @property
    def settings(self):
        return json.loads(self.config)

    @property
    def text(self):
        """Returns the configuration of the text model. A composite's is that of its encoder, with the ids that both
        parts know."""
        settings = self.settings
        found = {**settings, **settings.get("text_config", {}), **settings.get("encoder", {})}
        if "encoder" in settings:
            sizes = [settings[part].get("vocab_size") for part in ("encoder", "decoder")]
            found["vocab_size"] = min(size for size in sizes if size)
        return found

    @property
    def is_text_of_many(self):
        """Returns whether the checkpoint reads more than text, of which only the text is served."""
        return self.kind == "decoder" and "text_config" in self.settings

    @property
    def reads(self):
        """Returns the inputs of the model: of "text", "choices", "images", "audio"."""
        if self.model_type == "vision-encoder-decoder":
            return ("images",)
        if self.model_type in cases_audio.MODEL_TYPES:
            return ("audio",)
        if self.model_type in cases_detection.MODEL_TYPES:
            return ("images",)
        if self.kind == "vision" or "Vision" in self.model_class or self.model_class.endswith("ForImageClassification"):
            return ("images",)
        return (
            ("text", "images")
            if self.model_class == "CLIPModel"
            else ("choices",)
            if "MultipleChoice" in self.model_class or self.has_two_heads
            else ("text",)
        )

    @property
    def has_two_heads(self):
        """Returns whether a class of decoders scores choices at a token that the request names, beside all tokens."""
        return self.model_class.endswith("DoubleHeadsModel")

    @property
    def decodes(self):
        """Returns whether a decoder attends to an encoder."""
        return self.kind == "encoder-decoder" and not self.model_class.endswith(
            ("EncoderModel", "TokenClassification", "ForCausalLM", "ProphetNetEncoder", "ProphetNetDecoder")
        )

    @property
    def shows_attentions(self):
        """Returns whether a forward pass puts out attentions."""
        return self.model_type not in cases_reformer.MODEL_TYPES

    @property
    def recomputes(self):
        """Returns whether answers are generated without a KV cache, by a class with another task."""
        return self.generates and self.model_class.endswith(
            ("WithLMHeadModel", "ModelWithLMHead", "XLNetLMHeadModel", "TransfoXLLMHeadModel")
        )

    @property
    def media(self):
        """Returns whether answers are generated from images or audio."""
        return self.generates and self.reads in (("images",), ("audio",))

    @property
    def one_per_row(self):
        """Returns whether `logits` are per sequence, not per token."""
        return any(
            word in self.model_class
            for word in (
                "SequenceClassification",
                "MultipleChoice",
                "NextSentence",
                "ImageClassification",
                "VisualReasoning",
                "VisualBertForQuestionAnswering",
            )
        )


# of those whose greedy answers would else be one token again and again, or whose softmaxes are so sharp that answers
# follow the last bit (test_forward)
_SEEDS = {
    "BertLMHeadModel-all": 3432,
    "BloomForCausalLM-residual-after-norm": 61542,
    "T5ForConditionalGeneration-all": 41169,
    "T5ForConditionalGeneration-gated-silu-seven-heads": 53177,
    "T5ForConditionalGeneration-gated-untied": 2312021,
    "T5ForConditionalGeneration-byt5": 9170,
    "AlbertForMaskedLM-all": 5637,
    "GPTNeoForQuestionAnswering-all": 1752,
    "BartForConditionalGeneration-all": 8425,
    "AlbertForPreTraining-all": 11636,
    "AlbertForTokenClassification-all": 5639,
    "AlbertModel-all": 5634,
    "BertForQuestionAnswering-all": 2437,
    "BertModel-all": 2429,
    "BloomModel-all": 1538,
    "CLIPVisionModel-all": 1808,
    "FalconModel-7b": 1628,
    "GPTNeoForTokenClassification-all": 1751,
    "LlamaForCausalLM-fewer-rows-than-ranks": 1533,
    "LlamaForCausalLM-llama3-rope": 5527,
    "LlamaForQuestionAnswering-all": 1523,
    "LlamaModel-all": 2520,
    **cases_encoders.SEEDS,
    **cases_composites.SEEDS,
    **cases_decoders.SEEDS,
    **cases_latents.SEEDS,
    **cases_reformer.SEEDS,
    **cases_relative.SEEDS,
    **cases_distances.SEEDS,
    **cases_quantized.SEEDS,
    **cases_neighbors.SEEDS,
    **cases_prophetnet.SEEDS,
    **cases_memory.SEEDS,
    **cases_pooled.SEEDS,
    **cases_entities.SEEDS,
    **cases_decoders_dense.SEEDS,
    **cases_experts.SEEDS,
    **cases_latent_attention.SEEDS,
    **cases_recurrent.SEEDS,
    **cases_gemma4.SEEDS,
    **cases_multimodal.SEEDS,
    **cases_sparse.SEEDS,
    **cases_streams.SEEDS,
    **cases_audio.SEEDS,
    **cases_detection.SEEDS,
}


def _family(model_type, kind, config_class, takes=(), **base):
    """A function that makes one row per class of `classes` for a configuration; seeds count up within a family."""
    seeds = iter(range(sum(map(ord, model_type)), 10**6))

    def rows(label, classes, lengths=LENGTHS, takes=takes, dtype="float32", ranks=RANKS, speaks=True, **settings):
        found = []
        for name in classes.split():
            generates = speaks and any(
                name.endswith(word)
                for word in (
                    "LMHeadModel",
                    "ModelWithLMHead",
                    "ForCausalLM",
                    "ForConditionalGeneration",
                    "MTModel",
                    "GenerationDecoder",
                    "EncoderDecoderModel",
                )
            )
            config = {**base, **settings}
            if any(word in name for word in ("SequenceClassification", "TokenClassification", "ImageClassification")):
                config["num_labels"] = 5
            if name in ("BertLMHeadModel", "BertGenerationDecoder"):
                config["is_decoder"] = True
            if kind == "encoder-decoder" and name.endswith("ForCausalLM"):
                config |= {"is_decoder": True, "is_encoder_decoder": False}
            seed = next(seeds)
            found.append(
                Case(
                    f"{name}-{label}",
                    name,
                    config_class,
                    json.dumps(config, sort_keys=True),
                    _SEEDS.get(f"{name}-{label}", seed),
                    dtype,
                    model_type,
                    kind,
                    tuple(takes),
                    generates,
                    tuple(lengths),
                    tuple(ranks),
                )
            )
        return found

    return rows


bert = _family(
    "bert",
    "encoder",
    "BertConfig",
    ("token_type_ids", "position_ids"),
    hidden_size=30,
    num_attention_heads=5,
    num_hidden_layers=3,
    intermediate_size=37,
    vocab_size=101,
    max_position_embeddings=80,
    type_vocab_size=3,
    layer_norm_eps=1e-3,
    pad_token_id=3,
    bos_token_id=4,
    eos_token_id=100,
)
albert = _family(
    "albert",
    "encoder",
    "AlbertConfig",
    ("token_type_ids", "position_ids"),
    hidden_size=30,
    embedding_size=13,
    num_attention_heads=5,
    num_hidden_layers=4,
    num_hidden_groups=2,
    inner_group_num=1,
    intermediate_size=37,
    vocab_size=101,
    max_position_embeddings=80,
    type_vocab_size=3,
    layer_norm_eps=1e-3,
    pad_token_id=3,
    classifier_dropout_prob=0.0,
)
mpnet = _family(
    "mpnet",
    "encoder",
    "MPNetConfig",
    ("position_ids",),
    hidden_size=30,
    num_attention_heads=5,
    num_hidden_layers=3,
    intermediate_size=37,
    vocab_size=101,
    max_position_embeddings=80,
    layer_norm_eps=1e-3,
    pad_token_id=1,
)
gpt2 = _family(
    "gpt2",
    "decoder",
    "GPT2Config",
    ("position_ids", "token_types"),
    n_embd=30,
    n_head=5,
    n_layer=3,
    vocab_size=211,
    n_positions=80,
    bos_token_id=0,
    eos_token_id=210,
    pad_token_id=3,
)
gpt_neo = _family(
    "gpt_neo",
    "decoder",
    "GPTNeoConfig",
    ("position_ids", "token_types"),
    hidden_size=30,
    num_heads=5,
    num_layers=4,
    vocab_size=211,
    attention_types=[[["global", "local"], 2]],
    window_size=6,
    max_position_embeddings=80,
    bos_token_id=0,
    eos_token_id=210,
    pad_token_id=3,
)
gptj = _family(
    "gptj",
    "decoder",
    "GPTJConfig",
    ("position_ids", "token_types"),
    n_embd=40,
    n_head=5,
    n_layer=3,
    rotary_dim=4,
    n_inner=77,
    vocab_size=211,
    n_positions=80,
    bos_token_id=0,
    eos_token_id=210,
    pad_token_id=3,
    tie_word_embeddings=False,
)
llama = _family(
    "llama",
    "decoder",
    "LlamaConfig",
    ("position_ids",),
    hidden_size=30,
    num_attention_heads=5,
    num_key_value_heads=5,
    num_hidden_layers=3,
    intermediate_size=77,
    vocab_size=211,
    max_position_embeddings=80,
    bos_token_id=0,
    eos_token_id=210,
    pad_token_id=3,
    rms_norm_eps=1e-3,
)
falcon = _family(
    "falcon",
    "decoder",
    "FalconConfig",
    ("position_ids",),
    hidden_size=30,
    num_attention_heads=5,
    num_hidden_layers=3,
    vocab_size=211,
    max_position_embeddings=80,
    bos_token_id=0,
    eos_token_id=210,
    pad_token_id=3,
    layer_norm_epsilon=1e-3,
)
bloom = _family(
    "bloom",
    "decoder",
    "BloomConfig",
    hidden_size=35,
    n_head=7,
    n_layer=3,
    vocab_size=211,
    bos_token_id=0,
    eos_token_id=210,
    pad_token_id=3,
    layer_norm_epsilon=1e-3,
)
t5 = _family(
    "t5",
    "encoder-decoder",
    "T5Config",
    d_model=20,
    d_kv=6,
    d_ff=37,
    num_layers=2,
    num_decoder_layers=3,
    num_heads=5,
    vocab_size=211,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=14,
    pad_token_id=0,
    eos_token_id=1,
    decoder_start_token_id=0,
    layer_norm_epsilon=1e-3,
)
bart = _family(
    "bart",
    "encoder-decoder",
    "BartConfig",
    d_model=30,
    encoder_attention_heads=5,
    decoder_attention_heads=6,
    encoder_layers=2,
    decoder_layers=3,
    encoder_ffn_dim=37,
    decoder_ffn_dim=43,
    vocab_size=211,
    max_position_embeddings=80,
    bos_token_id=0,
    pad_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=2,
    forced_eos_token_id=None,
    forced_bos_token_id=None,
)

_CLIP_TEXT = {
    "hidden_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "intermediate_size": 37,
    "vocab_size": 211,
    "max_position_embeddings": 40,
    "projection_dim": 9,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 1,
    "layer_norm_eps": 1e-3,
}
_CLIP_VISION = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 31,
    "image_size": 16,
    "patch_size": 4,
    "projection_dim": 9,
    "layer_norm_eps": 1e-3,
}
_SIGLIP_VISION = {name: _CLIP_VISION[name] for name in _CLIP_VISION if name != "projection_dim"}
_SIGLIP_VISION["vision_use_head"] = False
_SIGLIP_TEXT = {
    "vocab_size": 20,
    "hidden_size": 24,
    "intermediate_size": 9,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
clip = _family(
    "clip",
    "dual",
    "CLIPConfig",
    ("position_ids",),
    text_config=_CLIP_TEXT,
    vision_config=_CLIP_VISION,
    projection_dim=9,
)
clip_text = _family("clip_text_model", "dual", "CLIPTextConfig", ("position_ids",), **_CLIP_TEXT)
clip_vision = _family("clip_vision_model", "dual", "CLIPVisionConfig", **_CLIP_VISION)
siglip = _family("siglip", "vision", "SiglipConfig", vision_config=_SIGLIP_VISION, text_config=_SIGLIP_TEXT)
siglip_vision = _family("siglip_vision_model", "vision", "SiglipVisionConfig", **_SIGLIP_VISION)
vit = _family(
    "vit",
    "vision",
    "ViTConfig",
    hidden_size=30,
    num_attention_heads=5,
    num_hidden_layers=3,
    intermediate_size=37,
    image_size=16,
    patch_size=4,
    layer_norm_eps=1e-3,
)

_ROPE = {"rope_theta": 1000.0}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 20.0,
    "factor": 4.0,
    "original_max_position_embeddings": 40,
    "beta_fast": 2.0,
    "beta_slow": 0.5,
}

CASES = (
    *bert(
        "all",
        "BertModel BertForMaskedLM BertForPreTraining BertLMHeadModel BertForNextSentencePrediction "
        "BertForSequenceClassification "
        "BertForMultipleChoice BertForTokenClassification BertForQuestionAnswering",
    ),
    *bert(
        "seven-heads-relu-untied",
        "BertForMaskedLM",
        hidden_size=35,
        num_attention_heads=7,
        hidden_act="relu",
        tie_word_embeddings=False,
        vocab_size=97,
    ),
    *bert(
        "one-layer-wide",
        "BertModel",
        hidden_size=32,
        num_attention_heads=4,
        num_hidden_layers=1,
        intermediate_size=257,
        hidden_act="gelu_new",
        type_vocab_size=1,
        layer_norm_eps=1e-12,
    ),
    *bert("causal", "BertModel", is_decoder=True),
    *albert(
        "all",
        "AlbertModel AlbertForMaskedLM AlbertForPreTraining AlbertForSequenceClassification AlbertForMultipleChoice "
        "AlbertForTokenClassification AlbertForQuestionAnswering",
    ),
    *albert(
        "one-group-relu",
        "AlbertForMaskedLM",
        num_hidden_groups=1,
        num_hidden_layers=3,
        hidden_size=35,
        num_attention_heads=7,
        embedding_size=40,
        hidden_act="relu",
    ),
    *albert("inner-groups", "AlbertModel", num_hidden_layers=2, inner_group_num=2, hidden_act="gelu", vocab_size=97),
    *mpnet(
        "all",
        "MPNetModel MPNetForMaskedLM MPNetForSequenceClassification MPNetForMultipleChoice MPNetForTokenClassification "
        "MPNetForQuestionAnswering",
    ),
    *mpnet("beyond-the-far-distance", "MPNetModel", lengths=(150, 3), num_hidden_layers=2, max_position_embeddings=160),
    *mpnet(
        "seven-heads-untied",
        "MPNetForMaskedLM",
        hidden_size=35,
        num_attention_heads=7,
        num_hidden_layers=2,
        hidden_act="relu",
        tie_word_embeddings=False,
        vocab_size=97,
    ),
    *gpt2(
        "all",
        "GPT2LMHeadModel GPT2Model GPT2ForSequenceClassification GPT2ForTokenClassification GPT2ForQuestionAnswering",
        layer_norm_epsilon=1e-3,
    ),
    *gpt2(
        "inverse-layer-scale",
        "GPT2LMHeadModel",
        n_embd=65,
        n_inner=77,
        scale_attn_by_inverse_layer_idx=True,
        vocab_size=307,
        eos_token_id=306,
    ),
    *gpt2(
        "untied-gelu",
        "GPT2LMHeadModel",
        n_embd=63,
        n_head=7,
        n_inner=101,
        activation_function="gelu",
        tie_word_embeddings=False,
    ),
    *gpt2("no-scale-relu", "GPT2Model", n_inner=67, scale_attn_weights=False, activation_function="relu"),
    *gpt2(
        "one-layer-wide",
        "GPT2LMHeadModel",
        n_embd=64,
        n_head=4,
        n_layer=1,
        n_inner=640,
        activation_function="gelu_pytorch_tanh",
    ),
    *gpt2("choices", "GPT2DoubleHeadsModel", takes=("token_types",)),
    *gpt_neo(
        "all",
        "GPTNeoForCausalLM GPTNeoModel GPTNeoForSequenceClassification GPTNeoForTokenClassification "
        "GPTNeoForQuestionAnswering",
        layer_norm_epsilon=1e-3,
    ),
    *gpt_neo(
        "seven-heads-local-untied",
        "GPTNeoForCausalLM",
        hidden_size=35,
        num_heads=7,
        num_layers=2,
        attention_types=[[["local"], 2]],
        window_size=17,
        intermediate_size=67,
        tie_word_embeddings=False,
        activation_function="gelu",
    ),
    *gpt_neo(
        "window-of-one",
        "GPTNeoForCausalLM",
        hidden_size=32,
        num_heads=4,
        num_layers=3,
        attention_types=[[["global", "local", "global"], 1]],
        window_size=1,
        intermediate_size=41,
    ),
    *gptj(
        "all",
        "GPTJForCausalLM GPTJModel GPTJForSequenceClassification GPTJForQuestionAnswering",
        layer_norm_epsilon=1e-3,
    ),
    *gptj(
        "rotary-whole-head-tied",
        "GPTJForCausalLM",
        n_embd=42,
        n_head=7,
        rotary_dim=6,
        tie_word_embeddings=True,
        activation_function="relu",
    ),
    *gptj("one-layer-wide", "GPTJForCausalLM", n_embd=48, n_head=4, rotary_dim=2, n_layer=1, n_inner=257),
    *llama(
        "all",
        "LlamaForCausalLM LlamaModel LlamaForSequenceClassification LlamaForTokenClassification "
        "LlamaForQuestionAnswering",
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        hidden_size=36,
    ),
    *llama("heads-of-their-own", "LlamaForCausalLM", attention_bias=True, mlp_bias=True, rope_parameters=_ROPE),
    *llama("one-kv-head-tied", "LlamaForCausalLM", num_key_value_heads=1, head_dim=10, tie_word_embeddings=True),
    *llama(
        "three-kv-heads-of-six-gelu",
        "LlamaForCausalLM",
        num_attention_heads=6,
        num_key_value_heads=3,
        hidden_size=36,
        hidden_act="gelu",
        num_hidden_layers=2,
    ),
    *llama("llama3-rope", "LlamaForCausalLM", rope_parameters=cases_decoders.LLAMA3, head_dim=12),
    *llama(
        "linear-rope",
        "LlamaForCausalLM",
        rope_parameters={"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0},
        num_hidden_layers=2,
    ),
    *llama("yarn-rope", "LlamaForCausalLM", rope_parameters=_YARN, head_dim=12, num_hidden_layers=2),
    *llama(
        "dynamic-rope",
        "LlamaForCausalLM",
        rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
        num_hidden_layers=2,
    ),
    *llama(
        "one-layer-wide",
        "LlamaForCausalLM",
        num_attention_heads=7,
        num_key_value_heads=7,
        hidden_size=42,
        intermediate_size=257,
        num_hidden_layers=1,
    ),
    *llama(
        "two-kv-heads-of-fourteen-dimensions",
        "LlamaForCausalLM",
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=14,
        attention_bias=True,
        num_hidden_layers=2,
    ),
    *llama(
        "fewer-rows-than-ranks",
        "LlamaForCausalLM",
        num_key_value_heads=1,
        head_dim=2,
        attention_bias=True,
        num_hidden_layers=2,
    ),
    *falcon("7b", "FalconForCausalLM FalconModel"),
    *falcon(
        "7b", "FalconForSequenceClassification FalconForTokenClassification FalconForQuestionAnswering", takes=()
    ),  # they drop position_ids
    *falcon(
        "40b",
        "FalconForCausalLM",
        hidden_size=60,
        num_attention_heads=10,
        num_kv_heads=2,
        new_decoder_architecture=True,
    ),
    *falcon(
        "11b-untied-bias",
        "FalconForCausalLM",
        hidden_size=60,
        num_attention_heads=10,
        num_kv_heads=5,
        new_decoder_architecture=True,
        num_ln_in_parallel_attn=1,
        tie_word_embeddings=False,
        bias=True,
    ),
    *falcon("rw", "FalconForCausalLM", multi_query=False, alibi=True, parallel_attn=False, bias=True),
    *falcon(
        "rw-ten-heads",
        "FalconModel",
        hidden_size=60,
        num_attention_heads=10,
        multi_query=False,
        alibi=True,
        parallel_attn=False,
        bias=True,
        num_hidden_layers=2,
    ),
    *falcon("alibi-multi-query-parallel", "FalconForCausalLM", alibi=True, num_hidden_layers=2),
    *falcon(
        "rotary-sequential-wide",
        "FalconForCausalLM",
        multi_query=False,
        parallel_attn=False,
        ffn_hidden_size=77,
        activation="gelu_new",
        rope_parameters=_ROPE,
        num_hidden_layers=2,
    ),
    *bloom(
        "all",
        "BloomForCausalLM BloomModel BloomForSequenceClassification BloomForTokenClassification "
        "BloomForQuestionAnswering",
    ),
    *bloom(
        "residual-after-norm",
        "BloomForCausalLM",
        apply_residual_connection_post_layernorm=True,
        hidden_size=40,
        n_head=10,
    ),
    *bloom("one-layer-untied", "BloomForCausalLM", hidden_size=32, n_head=4, n_layer=1, tie_word_embeddings=False),
    *t5(
        "all",
        "T5ForConditionalGeneration T5Model T5EncoderModel T5ForSequenceClassification "
        "T5ForTokenClassification T5ForQuestionAnswering",
    ),
    *t5("gated-untied", "T5ForConditionalGeneration", feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    *t5(
        "gated-silu-seven-heads",
        "T5ForConditionalGeneration",
        feed_forward_proj="gated-silu",
        num_heads=7,
        d_kv=5,
        d_model=24,
        num_layers=3,
        num_decoder_layers=1,
        relative_attention_num_buckets=32,
        relative_attention_max_distance=128,
    ),
    *t5("gated-encoder", "T5EncoderModel", feed_forward_proj="gated-gelu", num_layers=1, d_ff=257),
    *bart(
        "all",
        "BartForConditionalGeneration BartModel BartForSequenceClassification BartForQuestionAnswering BartForCausalLM",
    ),
    *bart(
        "scaled-relu",
        "BartModel",
        scale_embedding=True,
        activation_function="relu",
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=6,
        decoder_attention_heads=5,
    ),
    *bart(
        "seven-heads-untied",
        "BartForConditionalGeneration",
        d_model=35,
        encoder_attention_heads=7,
        decoder_attention_heads=7,
        decoder_layers=2,
        tie_word_embeddings=False,
    ),
    *clip("all", "CLIPModel CLIPForImageClassification"),
    *clip_text("all", "CLIPTextModel CLIPTextModelWithProjection"),
    *clip_vision("all", "CLIPVisionModel CLIPVisionModelWithProjection"),
    *siglip("all", "SiglipForImageClassification"),
    *siglip_vision("all", "SiglipVisionModel"),
    *clip(
        "end-by-its-id-gelu",
        "CLIPModel",
        text_config={
            **_CLIP_TEXT,
            "eos_token_id": 150,
            "hidden_act": "gelu",
            "hidden_size": 28,
            "num_attention_heads": 7,
        },
        vision_config={
            **_CLIP_VISION,
            "hidden_size": 25,
            "num_attention_heads": 5,
            "hidden_act": "gelu",
            "image_size": 15,
            "patch_size": 5,
        },
    ),
    *clip_text("end-by-its-id", "CLIPTextModelWithProjection", eos_token_id=150, num_hidden_layers=1),
    *vit("all", "ViTModel ViTForImageClassification"),
    *vit(
        "one-channel-seven-heads-no-bias",
        "ViTForImageClassification",
        hidden_size=35,
        num_attention_heads=7,
        num_channels=1,
        qkv_bias=False,
        hidden_act="relu",
        patch_size=8,
    ),
    *vit(
        "one-layer-wide",
        "ViTModel",
        num_hidden_layers=1,
        intermediate_size=257,
        hidden_act="gelu_new",
        image_size=18,
        patch_size=6,
    ),
    *vit(
        "not-square", "ViTModel ViTForImageClassification", num_hidden_layers=1, image_size=(13, 24), patch_size=(4, 6)
    ),
    *vit("masked", "ViTForMaskedImageModeling", encoder_stride=4, num_channels=2),
    *vit(
        "halves",
        "ViTForMaskedImageModeling",
        encoder_stride=2,
        num_hidden_layers=1,
        image_size=(12, 18),
        patch_size=(4, 6),
    ),
    *cases_encoders.cases(_family),
    *cases_decoders.decoders(_family),
    *cases_latents.cases(_family),
    *cases_reformer.cases(_family),
    *cases_relative.cases(_family),
    *cases_pooled.cases(_family),
    *cases_memory.cases(_family),
    *cases_neighbors.cases(_family),
    *cases_prophetnet.cases(_family),
    *cases_entities.cases(_family),
    *cases_detection.cases(_family),
    *cases_streams.cases(_family),
    *cases_decoders_dense.cases(_family),
    *cases_experts.cases(_family),
    *cases_latent_attention.cases(_family),
    *cases_recurrent.cases(_family),
    *cases_gemma4.cases(_family),
    *cases_multimodal.cases(_family),
    *cases_sparse.cases(_family),
    *cases_audio.cases(_family),
    *cases_composites.cases(_family),
    *cases_distances.cases(_family),
    *cases_quantized.cases(_family),
)

BY_NAME = {case.name: case for case in CASES}
assert len(BY_NAME) == len(CASES)

# one of each kind of model for what is slow or needs little: real processes, 16 bits
OF_KINDS = tuple(
    BY_NAME[name]
    for name in (
        "GPTNeoForCausalLM-all",
        "BertForPreTraining-all",
        "T5ForConditionalGeneration-all",
        "CLIPModel-all",
        "ViTModel-all",
        "Wav2Vec2ForCTC-all",
    )
)
