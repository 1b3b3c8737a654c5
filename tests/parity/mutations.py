# SPDX-License-Identifier: Apache-2.0
"""Mutants for mutation testing: checkpoints, configurations and policies with one change, each for one option of a
policy.
"""

import dataclasses
import functools
import operator
import re
import sys
from collections.abc import Callable

import mutations_audio
import mutations_composites
import mutations_decoders
import mutations_dense
import mutations_detection
import mutations_distances
import mutations_encoders
import mutations_entities
import mutations_experts
import mutations_gemma4
import mutations_latent_attention
import mutations_latents
import mutations_memory
import mutations_multimodal
import mutations_neighbors
import mutations_pooled
import mutations_prophetnet
import mutations_quantized
import mutations_recurrent
import mutations_reformer
import mutations_relative
import mutations_sparse
import mutations_streams
import numpy
import yaml
from cases import BY_NAME, Case

import worker

POLICIES = worker.REPOSITORY / "policies"
FILES = {
    kind: path.stem
    for path in POLICIES.glob("*.yaml")
    for kind in numpy.atleast_1d(yaml.load(path.read_text(), yaml.CSafeLoader)["model_type"])
}  # of each model_type


def policy_of(case):
    return (POLICIES / f"{FILES[case.model_type]}.yaml").read_text()


@dataclasses.dataclass
class Model:
    """The parts of a model that a mutation may change."""

    tensors: dict
    config: dict
    policy: str


@dataclasses.dataclass(frozen=True)
class Mutation:
    option: str  # as the policies call it, "attn.window"
    case: Case
    what: str
    change: Callable[[Model], None]
    kind: str = ""  # of input; empty: the case's first
    names: tuple = ()  # of outputs; empty: all but states and attentions

    @property
    def id(self):
        return f"{self.case.name}: {self.option}: {self.what}"


def tensors(pattern, make):
    """Applies `make` to the tensors whose names the pattern finds; at least one."""

    def change(model):
        found = [name for name in model.tensors if re.search(pattern, name)]
        assert found, f"{pattern} names none of {sorted(model.tensors)}"
        for name in found:
            model.tensors[name] = numpy.array(make(model.tensors[name]), order="C")

    return change


def turned(pattern):
    """A square matrix, with the last dimension of 1 of a convolution, is transposed."""
    return tensors(pattern, lambda tensor: numpy.ascontiguousarray(tensor.transpose(1, 0, 2)))


def dropped(pattern):
    return tensors(pattern, numpy.zeros_like)


def twice(pattern):
    return tensors(pattern, lambda tensor: 2 * tensor)


def ones(pattern):
    return tensors(pattern, numpy.ones_like)


def rolled(pattern, axis=0):
    return tensors(pattern, lambda tensor: numpy.roll(tensor, 1, axis))


def swapped(one, other):
    """Swaps the tensors whose names contain `one` with those whose names contain `other`."""

    def change(model):
        names = [name for name in model.tensors if one in name]
        assert names, f"{one} is in none of {sorted(model.tensors)}"
        for name in names:
            twin = name.replace(one, other)
            model.tensors[name], model.tensors[twin] = model.tensors[twin], model.tensors[name]

    return change


def blocks_swapped(pattern, parts, i, j, axis=0):
    """Two of the `parts` equal blocks of a tensor change places: heads, kv heads, fused matrices."""

    def make(tensor):
        blocks = numpy.split(tensor, parts, axis)
        blocks[i], blocks[j] = blocks[j], blocks[i]
        return numpy.concatenate(blocks, axis)

    return tensors(pattern, make)


def config(**settings):
    """Keys of config.json; those of a section as section__key."""

    def change(model):
        for key, value in settings.items():
            *sections, inner = key.split("__")
            functools.reduce(operator.getitem, sections, model.config)[inner] = value

    return change


def policy(old, new, count=1):
    """One option of the policy says something else."""

    def change(model):
        assert model.policy.count(old) == count, f"{old!r} is {model.policy.count(old)} times in the policy"
        model.policy = model.policy.replace(old, new)

    return change


def _of(name, *rows):
    return [Mutation(option, BY_NAME[name], what, change, *rest) for option, what, change, *rest in rows]


# the last layer of three: what changes there has the least to show for it
MUTATIONS = (
    *_of(
        "GPT2LMHeadModel-all",
        ("input.token", "rows shifted", rolled(r"wte\.weight")),
        ("input.position", "dropped", dropped(r"wpe\.weight")),
        ("input.position", "shifted by one", rolled(r"wpe\.weight")),
        ("attn.qkv", "bias dropped", dropped(r"h\.2\.attn\.c_attn\.bias")),
        ("attn.qkv", "queries and keys change places", blocks_swapped(r"h\.2\.attn\.c_attn", 3, 0, 1, -1)),
        ("attn.out", "bias dropped", dropped(r"h\.2\.attn\.c_proj\.bias")),
        ("attn.out", "bias added twice", twice(r"h\.2\.attn\.c_proj\.bias")),
        ("attn.out", "attention dropped", dropped(r"h\.2\.attn\.c_proj\.weight")),
        ("attn.out", "two heads change places", blocks_swapped(r"h\.2\.attn\.c_proj\.weight", 5, 0, 4)),
        ("layer.layout", "a square matrix transposed", tensors(r"h\.2\.attn\.c_proj\.weight", numpy.transpose)),
        ("attn.norm", "bias dropped", dropped(r"h\.2\.ln_1\.bias")),
        ("mlp.norm", "weight dropped", ones(r"h\.2\.ln_2\.weight")),
        ("mlp.up", "bias dropped", dropped(r"h\.2\.mlp\.c_fc\.bias")),
        ("mlp.up", "columns shifted", rolled(r"h\.2\.mlp\.c_fc\.weight", 1)),
        ("mlp.down", "bias dropped", dropped(r"h\.2\.mlp\.c_proj\.bias")),
        ("mlp.down", "bias added twice", twice(r"h\.2\.mlp\.c_proj\.bias")),
        ("mlp.down", "dropped", dropped(r"h\.2\.mlp\.c_proj\.weight")),
        ("output.norm", "bias dropped", dropped(r"ln_f\.bias")),
        ("mlp.act", "exact gelu", config(activation_function="gelu")),
        ("mlp.act", "relu", config(activation_function="relu")),
        ("mlp.act", "quick gelu", config(activation_function="quick_gelu")),
        ("scale", "none", config(scale_attn_weights=False)),
        ("scale", "divided by the layer", config(scale_attn_by_inverse_layer_idx=True)),
        ("eps", "that of others", config(layer_norm_epsilon=1e-5)),
        ("heads", "twice as many", config(n_head=10)),
        ("layer.order", "norms after the sums", policy("order: pre", "order: post")),
    ),
    *_of("GPT2Model-all", ("attn.mask", "full", policy("mask: causal", "mask: full"))),
    *_of(
        "GPT2LMHeadModel-untied-gelu",
        (
            "logits.tie",
            "the token table in place of the head's own",
            lambda model: model.tensors.update({"lm_head.weight": model.tensors["transformer.wte.weight"]}),
        ),
    ),
    *_of(
        "GPT2ForSequenceClassification-all",
        ("head.pool", "the first token", policy("score: {pool: last", "score: {pool: first")),
        ("head.classes", "shifted", rolled(r"score\.weight")),
    ),
    *_of(
        "GPTNeoForCausalLM-all",
        ("attn.window", "off", policy("window: \"kind == 'local' ? window_size ?? 256 : 0\"", "window: 0")),
        ("attn.window", "one token longer", config(window_size=7)),
        ("attn.window", "one token shorter", config(window_size=5)),
        (
            "attn.window",
            "in the other layers",
            config(attention_types=[[["local", "global"], 2]], attention_layers=["local", "global"] * 2),
        ),
        ("scale", "of others", policy("  scale: 1\n", '  scale: "head_dim ** -0.5"\n')),
        ("attn.q", "scaled by a half", tensors(r"h\.3\..*q_proj", lambda tensor: tensor / 2)),
        ("attn.k", "dropped", dropped(r"h\.3\..*k_proj")),
        ("attn.v", "two heads change places", blocks_swapped(r"h\.3\..*v_proj", 5, 1, 3)),
    ),
    *_of(
        "GPTJForCausalLM-all",
        ("rotary.style", "halves", policy("style: interleaved", "style: neox")),
        ("rotary.dims", "two fewer", config(rotary_dim=2)),
        ("rotary.dims", "all of the head", config(rotary_dim=8)),
        ("rotary.theta", "another", policy('dims: "rotary_dim ?? 64"', 'dims: "rotary_dim ?? 64", theta: 9000')),
        ("attn.rotary", "off", policy("rotary: {", "rotary: {when: false, ")),
        ("layer.order", "the MLP after the attention", policy("order: parallel", "order: pre")),
        ("head.logits", "bias dropped", dropped(r"lm_head\.bias")),
    ),
    *_of(
        "LlamaForCausalLM-all",
        (
            "layer.norm",
            "mean taken off too",
            policy("norm: input_layernorm", "norm: {from: input_layernorm, kind: layer, bias: false}"),
        ),
        ("mlp.gate", "gate and up change places", swapped("gate_proj", "up_proj")),
        ("mlp.act", "gelu", config(hidden_act="gelu")),
        ("eps", "that of others", config(rms_norm_eps=1e-6)),
        ("kv_heads", "keys change places", blocks_swapped(r"2\.self_attn\.k_proj", 2, 0, 1)),
        ("kv_heads", "values change places", blocks_swapped(r"2\.self_attn\.v_proj", 2, 0, 1)),
        ("heads", "of two kv groups change places", blocks_swapped(r"2\.self_attn\.q_proj", 6, 2, 3)),
        ("head_dim", "half", config(head_dim=4, num_attention_heads=12, num_key_value_heads=4)),
        ("rotary.theta", "another", policy("rope_parameters.rope_theta ?? rope_theta ?? 10000", "9000")),
        ("rotary.style", "interleaved", policy("style: neox", "style: interleaved")),
    ),
    *_of(
        "LlamaForCausalLM-llama3-rope",
        ("rotary.scaling", "dropped", policy('scaling: "rope_parameters ?? rope_scaling"', "scaling: nothing")),
        ("rotary.scaling", "another factor", config(rope_parameters__factor=4.0)),
        ("rotary.scaling", "another low frequency", config(rope_parameters__low_freq_factor=2.0)),
        ("rotary.scaling", "another high frequency", config(rope_parameters__high_freq_factor=8.0)),
        ("rotary.scaling", "another length of training", config(rope_parameters__original_max_position_embeddings=40)),
        ("rotary.scaling", "linear", config(rope_parameters__rope_type="linear")),
    ),
    *_of("LlamaForCausalLM-linear-rope", ("rotary.scaling", "another factor", config(rope_parameters__factor=2.0))),
    *_of(
        "LlamaForCausalLM-yarn-rope",
        ("rotary.scaling", "another factor", config(rope_parameters__factor=3.0)),
        ("rotary.scaling", "another fast end", config(rope_parameters__beta_fast=4.0)),
        ("rotary.scaling", "another slow end", config(rope_parameters__beta_slow=1.0)),
        ("rotary.scaling", "another scale of the scores", config(rope_parameters__attention_factor=1.0)),
    ),
    *_of(
        "LlamaForCausalLM-heads-of-their-own",
        ("attn.bias", "of the keys", dropped(r"2\.self_attn\.k_proj\.bias")),
        ("attn.bias", "of the values", dropped(r"2\.self_attn\.v_proj\.bias")),
        ("mlp.bias", "of the gate", dropped(r"2\.mlp\.gate_proj\.bias")),
        ("mlp.bias", "of the down projection, twice", twice(r"2\.mlp\.down_proj\.bias")),
    ),
    *_of(
        "FalconForCausalLM-7b",
        ("rotary.style", "interleaved", policy("style: neox", "style: interleaved")),
        (
            "layer.order",
            "the MLP after the attention",
            policy("order: \"parallel ? 'parallel' : 'pre'\"", "order: pre"),
        ),
    ),
    *_of(
        "FalconForCausalLM-40b",
        (
            "qkv.fused",
            "one after the other",
            policy("fused: \"new or single ? 'grouped' : 'per_head'\"", "fused: concat"),
        ),
        ("mlp.norm", "that of the attention", swapped("ln_attn", "ln_mlp")),
    ),
    *_of(
        "FalconForCausalLM-rw",
        (
            "qkv.fused",
            "one after the other",
            policy("fused: \"new or single ? 'grouped' : 'per_head'\"", "fused: concat"),
        ),
        ("alibi.scaled", "slopes not scaled", policy("scaled: true", "scaled: false")),
        ("attn.alibi", "off", policy('alibi: {when: "alibi ?? false",', "alibi: {when: false,")),
        (
            "layer.order",
            "the MLP beside the attention",
            policy("order: \"parallel ? 'parallel' : 'pre'\"", "order: parallel"),
        ),
    ),
    *_of(
        "FalconModel-rw-ten-heads", ("alibi.bf16", "slopes not rounded", policy("bf16: true", "bf16: false"))
    ),  # those of 8 heads and fewer need no rounding
    *_of(
        "BloomForCausalLM-all",
        ("attn.alibi", "off", policy("alibi: true", "alibi: false")),
        ("heads", "fewer, with other slopes", config(n_head=5)),
        ("alibi.scaled", "slopes scaled", policy("alibi: true", "alibi: {scaled: true}")),
        ("qkv.fused", "one after the other", policy("fused: per_head", "fused: concat")),
        ("input.norm", "weight dropped", ones(r"word_embeddings_layernorm\.weight")),
        ("layer.residual_normed", "on", config(apply_residual_connection_post_layernorm=True)),
        ("mlp.act", "exact gelu", policy("act: gelu_new", "act: gelu")),
    ),
    *_of(
        "BloomForCausalLM-residual-after-norm",
        ("layer.residual_normed", "off", config(apply_residual_connection_post_layernorm=False)),
        ("alibi.bf16", "slopes rounded", policy("alibi: true", "alibi: {bf16: true}")),
    ),
    *_of(
        "BertForPreTraining-all",
        ("input.tables", "types dropped", dropped(r"token_type_embeddings")),
        ("input.tables", "types shifted", rolled(r"token_type_embeddings")),
        ("input.norm", "bias dropped", dropped(r"embeddings\.LayerNorm\.bias")),
        ("layer.order", "norms before", policy("order: post", "order: pre")),
        ("attn.mask", "causal", config(is_decoder=True)),
        ("attn.q", "bias dropped", dropped(r"layer\.2\.attention\.self\.query\.bias")),
        ("attn.norm", "that of the MLP", swapped("attention.output.LayerNorm", "output.LayerNorm")),
        ("scale", "none", policy("let:\n", "let:\n  scale: 1\n")),
        ("eps", "that of others", config(layer_norm_eps=1e-12)),
        ("pooler.act", "none", policy("act: tanh, optional", "optional")),
        ("pooler.act", "relu", policy("act: tanh, optional", "act: relu, optional")),
        ("output.pooler", "bias dropped", dropped(r"pooler\.dense\.bias")),
        (
            "pooler.pool",
            "the last token",
            policy("pooler: {from: pooler.dense,", "pooler: {from: pooler.dense, pool: last,"),
        ),
        ("head.dense", "dropped", dropped(r"transform\.dense\.weight")),
        ("head.act", "relu", policy("act: act, norm: transform", "act: relu, norm: transform")),
        ("head.norm", "weight dropped", ones(r"transform\.LayerNorm\.weight")),
        ("logits.bias", "dropped", dropped(r"cls\.predictions\.(decoder\.)?bias")),
        (
            "head.output",
            "each has the other's name",
            policy(
                "{mlm: prediction_logits, nsp: seq_relationship_logits}",
                "{nsp: prediction_logits, mlm: seq_relationship_logits}",
            ),
        ),
    ),
    *_of(
        "BertForQuestionAnswering-all",
        (
            "head.output",
            "start and end change places",
            policy("[start_logits, end_logits]", "[end_logits, start_logits]"),
        ),
    ),
    *_of(
        "AlbertForMaskedLM-all",
        ("input.projection", "bias dropped", dropped(r"embedding_hidden_mapping_in\.bias")),
        ("input.projection", "outputs shifted", rolled(r"embedding_hidden_mapping_in\.weight")),
        ("layer.at", "the groups change places", policy("{group}", "{1 - group}")),
        ("mlp.act", "exact gelu", config(hidden_act="gelu")),
    ),
    *_of(
        "AlbertForPreTraining-all",
        ("head.pool", "the first token's state", policy("sop: {pool: pooler", "sop: {pool: first")),
    ),
    *_of(
        "MPNetForMaskedLM-all",
        ("attn.relative_position_bias", "dropped", dropped(r"relative_attention_bias")),
        ("attn.relative_position_bias", "heads shifted", rolled(r"relative_attention_bias", 1)),
        ("attn.relative_position_bias", "buckets shifted", rolled(r"relative_attention_bias", 0)),
        (
            "relative_position_bias.bidirectional",
            "off",
            policy("max_distance: 128", "max_distance: 128\n        bidirectional: false"),
        ),
        ("position.offset", "one less", policy("offset: 2", "offset: 1")),
        ("position.skip_padding", "columns of the batch", policy("skip_padding: true", "skip_padding: false"), "left"),
        (
            "head.act",
            "tanh",
            policy("act: gelu\n", "act: tanh\n"),
        ),
    ),
    *_of(
        "MPNetModel-beyond-the-far-distance",
        ("relative_position_bias.max_distance", "half as far", policy("max_distance: 128", "max_distance: 64")),
        ("relative_position_bias.max_distance", "a little farther", policy("max_distance: 128", "max_distance: 144")),
    ),
    *_of(
        "MPNetForSequenceClassification-all",
        (
            "head.pool",
            "the last token",
            policy("seq: {at: classifier., pool: first", "seq: {at: classifier., pool: last"),
        ),
        ("head.act", "none", policy("pool: first, dense: dense, act: tanh", "pool: first, dense: dense")),
        ("head.dense", "bias dropped", dropped(r"classifier\.dense\.bias")),
    ),
    *_of(
        "T5ForConditionalGeneration-all",
        ("attn.relative_position_bias", "of the encoder dropped", dropped(r"encoder\..*relative_attention_bias")),
        ("attn.relative_position_bias", "of the decoder dropped", dropped(r"decoder\..*relative_attention_bias")),
        (
            "relative_position_bias.bidirectional",
            "of the encoder off",
            policy(
                'max_distance: "relative_attention_max_distance ?? 128"',
                'max_distance: "relative_attention_max_distance ?? 128"\n        bidirectional: false',
            ),
        ),
        ("relative_position_bias.max_distance", "farther", config(relative_attention_max_distance=20)),
        ("attn.mask", "of the encoder causal", policy("mask: full", "mask: causal")),
        ("scale", "of others", policy("  scale: 1\n", '  scale: "head_dim ** -0.5"\n')),
        ("cross.out", "dropped", dropped(r"decoder\.block\.2\.layer\.1\.EncDecAttention\.o")),
        (
            "cross.q",
            "two heads change places",
            blocks_swapped(r"decoder\.block\.2\.layer\.1\.EncDecAttention\.q", 5, 0, 4),
        ),
        ("cross.k", "those of the values", swapped("EncDecAttention.k", "EncDecAttention.v")),
        ("cross.norm", "weight dropped", ones(r"decoder\.block\.2\.layer\.1\.layer_norm")),
        ("cross.source", "states before the encoder's norm", ones(r"encoder\.final_layer_norm")),
        ("logits.scale_input", "none", config(scale_decoder_outputs=False)),
        (
            "layer.norm",
            "mean taken off too",
            policy(
                "attn:\n      at: layer.0.\n      norm: layer_norm\n",
                "attn:\n      at: layer.0.\n      norm: {from: layer_norm, kind: layer, bias: false}\n",
            ),
        ),
        ("mlp.act", "silu", config(feed_forward_proj="silu")),
    ),
    *_of("T5Model-all", ("attn.mask", "of the decoder full", policy("attn: {mask: causal}", "attn: {mask: full}"))),
    *_of(
        "T5ForConditionalGeneration-gated-untied",
        ("mlp.gate", "gate and up change places", swapped("wi_0", "wi_1")),
        ("mlp.act", "silu", config(feed_forward_proj="gated-silu")),
        (
            "logits.tie",
            "the token table in place of the head's own",
            lambda model: model.tensors.update({"lm_head.weight": model.tensors["shared.weight"]}),
        ),
        ("logits.scale_input", "that of tied ones", config(scale_decoder_outputs=True)),
    ),
    *_of(
        "T5ForSequenceClassification-all",
        ("head.pool", "the last token", policy("pool: last_eos", "pool: last")),
        ("head.pool", "the first token", policy("pool: last_eos", "pool: first")),
    ),
    *_of("T5ForTokenClassification-all", ("head.classes", "bias dropped", dropped(r"classifier\.bias"))),
    *_of(
        "BartForConditionalGeneration-all",
        ("position.offset", "rows shifted", rolled(r"embed_positions")),
        (
            "position.offset",
            "encoder's and decoder's tables change places",
            swapped("encoder.embed_positions", "decoder.embed_positions"),
        ),
        ("cross.norm", "that of the attention itself", swapped("encoder_attn_layer_norm", "self_attn_layer_norm")),
        ("cross.v", "bias dropped", dropped(r"decoder\.layers\.2\.encoder_attn\.v_proj\.bias")),
        ("cross.out", "bias added twice", twice(r"decoder\.layers\.2\.encoder_attn\.out_proj\.bias")),
        ("logits.bias", "dropped", dropped(r"final_logits_bias")),
        ("mlp.act", "tanh gelu", config(activation_function="gelu_new")),
    ),
    *_of(
        "BartForConditionalGeneration-seven-heads-untied",
        (
            "token.first_match",
            "the shared table in place of its own",
            policy(
                'token: {from: [embed_tokens, "/model.shared", "/shared"]',
                'token: {from: ["/model.shared", embed_tokens, "/shared"]',
            ),
        ),
    ),
    *_of("BartModel-scaled-relu", ("input.scale", "off", config(scale_embedding=False))),
    *_of(
        "BartForSequenceClassification-all",
        ("head.act", "none", policy("dense: dense, act: tanh, classes", "dense: dense, classes")),
        ("head.pool", "the last token", policy("pool: last_eos", "pool: last")),
    ),
    *_of(
        "CLIPModel-all",
        ("input.class_token", "dropped", dropped(r"class_embedding")),
        (
            "input.patches",
            "rows and columns of a patch change places",
            tensors(r"patch_embedding\.weight", lambda tensor: tensor.transpose(0, 1, 3, 2)),
        ),
        (
            "input.patches",
            "red and blue change places",
            tensors(r"patch_embedding\.weight", lambda tensor: tensor[:, ::-1]),
        ),
        ("input.position", "of patches shifted", rolled(r"vision_model\.embeddings\.position_embedding")),
        ("input.norm", "of the images, weight dropped", ones(r"pre_layrnorm\.weight")),
        ("attn.mask", "of texts full", policy("mask: causal", "mask: full")),
        ("attn.mask", "of images causal", policy("attn: {mask: full}", "attn: {mask: causal}")),
        ("mlp.act", "of texts exact gelu", config(text_config__hidden_act="gelu")),
        ("mlp.act", "of images exact gelu", config(vision_config__hidden_act="gelu")),
        ("pooler.pool", "the first token of texts", policy("pooler: {pool: eot}", "pooler: {pool: first}")),
        (
            "pooler.pool",
            "the mean of the patches",
            policy("pooler: {pool: first, norm", "pooler: {pool: patches, norm"),
        ),
        ("pooler.norm", "weight dropped", ones(r"post_layernorm\.weight")),
        (
            "output.states",
            "after the norm",
            policy("norm: final_layer_norm, states: raw", "norm: final_layer_norm"),
            "",
            ("text_model_output.hidden_states.2",),
        ),
        ("head.logit_scale", "one", dropped(r"logit_scale")),
        ("head.classes", "of the texts shifted", rolled(r"text_projection")),
        (
            "head.between",
            "texts and images change places",
            policy("between: [text, vision]", "between: [vision, text]"),
        ),
    ),
    *_of(
        "CLIPModel-end-by-its-id-gelu",
        ("pooler.pool", "the end by the largest id", config(text_config__eos_token_id=2)),
    ),
    *_of(
        "SiglipVisionModel-all",
        ("output.norm", "weight dropped", ones(r"post_layernorm\.weight")),
        ("mlp.act", "exact gelu", config(hidden_act="gelu")),
        ("input.position", "shifted by one", rolled(r"position_embedding")),
        (
            "output.states",
            "after the norm",
            policy("norm: post_layernorm, states: raw", "norm: post_layernorm"),
            "",
            ("hidden_states.3",),
        ),
    ),
    *_of("SiglipForImageClassification-all", ("head.classes", "shifted", rolled(r"classifier\.weight"))),
    *_of("CLIPForImageClassification-all", ("head.pool", "the class token", policy("pool: patches", "pool: first"))),
    *_of(
        "ViTModel-all",
        ("input.patches", "bias dropped", dropped(r"patch_embeddings\.projection\.bias")),
        (
            "input.patches",
            "columns shifted",
            tensors(r"patch_embeddings\.projection\.weight", lambda tensor: numpy.roll(tensor, 1, 3)),
        ),
        ("input.class_token", "dropped", dropped(r"cls_token")),
        ("pooler.act", "relu", config(pooler_act="relu")),
        ("output.states", "after the norm", policy("states: raw, ", ""), "", ("hidden_states.3",)),
        ("eps", "that of others", config(layer_norm_eps=1e-12)),
    ),
    *_of(
        "ViTForImageClassification-all",
        ("head.pool", "the mean of the patches", policy("image: {pool: first", "image: {pool: patches")),
    ),
    *_of(
        "ViTForMaskedImageModeling-masked",
        ("input.mask_token", "dropped", dropped(r"mask_token"), "masked"),
        ("head.pixel_shuffle", "bias dropped", dropped(r"decoder\.0\.bias")),
        (
            "pixel_shuffle.size",
            "smaller squares",
            policy('channels: "num_channels ?? 3", size: "encoder_stride ?? 16"', "channels: 8, size: 2"),
        ),
        (
            "pixel_shuffle.channels",
            "one pixel each",
            policy('channels: "num_channels ?? 3", size: "encoder_stride ?? 16"', "channels: 32, size: 1"),
        ),
    ),
    *mutations_encoders.rows(_of, sys.modules[__name__]),
    *mutations_dense.rows(_of, sys.modules[__name__]),
    *mutations_experts.rows(_of, sys.modules[__name__]),
    *mutations_latent_attention.rows(_of, sys.modules[__name__]),
    *mutations_recurrent.rows(_of, sys.modules[__name__]),
    *mutations_gemma4.rows(_of, sys.modules[__name__]),
    *mutations_latents.rows(_of, sys.modules[__name__]),
    *mutations_reformer.rows(_of, sys.modules[__name__]),
    *mutations_relative.rows(_of, sys.modules[__name__]),
    *mutations_distances.rows(_of, sys.modules[__name__]),
    *mutations_quantized.rows(_of, sys.modules[__name__]),
    *mutations_pooled.rows(_of, sys.modules[__name__]),
    *mutations_memory.rows(_of, sys.modules[__name__]),
    *mutations_multimodal.rows(_of, sys.modules[__name__]),
    *mutations_neighbors.rows(_of, sys.modules[__name__]),
    *mutations_prophetnet.rows(_of, sys.modules[__name__]),
    *mutations_entities.rows(_of, sys.modules[__name__]),
    *mutations_sparse.rows(_of, sys.modules[__name__]),
    *mutations_detection.rows(_of, sys.modules[__name__]),
    *mutations_streams.rows(_of, sys.modules[__name__]),
    *mutations_decoders.decoders(sys.modules[__name__]),
    *mutations_audio.rows(_of, sys.modules[__name__]),
    *mutations_composites.rows(_of, sys.modules[__name__]),
)
