// SPDX-License-Identifier: Apache-2.0
// An attention block: masks, position encodings, sizes and projections.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "worker/policy/spec/activation_ranges.h"
#include "worker/policy/spec/chunks.h"
#include "worker/policy/spec/input/entities.h"
#include "worker/policy/spec/latent_attention.h"
#include "worker/policy/spec/param.h"
#include "worker/policy/spec/span_convolution.h"

namespace pm::policy {

enum class Mask : uint8_t { Full, Causal };
enum class RotaryStyle : uint8_t { Neox, Interleaved };
/// LongRoPE (Ding et al. 2024): sequences of more than `original` tokens have other frequencies than shorter ones, and
/// another factor of cosines and sines.
struct LongRope {
  int64_t original = 0;
  std::vector<double> short_factors, long_factors;  ///< [dims / 2]: what the frequencies are divided by
  double short_attention = 1, long_attention = 1;   ///< of cosines and sines
  bool operator==(const LongRope&) const = default;
};
/// The factor of queries behind rotary embedding: 1 + beta * ln(1 + floor((position + offset) / original)), which
/// sharpens the softmax of long texts (Llama 4).
struct QueryGrowth {
  double beta = 0;
  int64_t original = 1;
  int64_t offset = 0;
  bool operator==(const QueryGrowth&) const = default;
};
/// Positions along several axes, such as the row and the column of a patch. Each frequency turns by one of them.
struct RotaryAxes {
  int64_t count = 2;
  std::vector<int64_t> of_frequency;  ///< [dims / 2]: the axis of each
  std::vector<double> exponents;      ///< [dims / 2]: each is theta^-exponent; empty: they are those of one axis
  bool operator==(const RotaryAxes&) const = default;
};
/// `values`: values are rotated as queries and keys are (RoFormer's rotary_value).
struct Rotary {
  RotaryStyle style = RotaryStyle::Neox;
  int64_t dims = 0;
  double theta = 10000;
  nlohmann::json scaling;
  bool values = false;
  std::optional<LongRope> long_rope;  ///< where the scaling is of that type
  std::optional<QueryGrowth> query_growth;
  std::optional<RotaryAxes> axes;  ///< without positions along them, all of them are the position of a token
};
struct RelativePositionBias {
  Param table;
  int64_t num_buckets = 32, max_distance = 128;
  bool bidirectional = true;
};
/// Attention to relative positions by content (He et al., "DeBERTa", 2021; Dai et al., "Transformer-XL", 2019). There
/// is a row for each distance query - key. Scores get query . key of the row (content to position) and key . query of
/// the row (position to content).
struct RelativeContent {
  /// What projects the rows: a linear of its own, or the block's.
  struct Term {
    bool shared = false;              ///< the block's projection
    Linear projection;                ///< where it is not shared
    std::optional<Param> query_bias;  ///< content to position: added to its queries
  };
  /// Scores get query . states[0] for keys of the query's segment, query . states[1] for others (XLNet).
  struct Segments {
    std::string input;              ///< the input tensor that numbers the segments of tokens
    std::optional<int64_t> common;  ///< this one and any other are one segment
    bool others_first = false;      ///< states[0] is for keys of others, states[1] for those of the query's segment
    Param states;                   ///< [2, heads x head_dim]
    Param query_bias;               ///< added to the queries of this term
  };
  /// [2 span, hidden], of all layers; row span + distance, or the first or the last one. Absent: rows are the sines,
  /// then the cosines of the distance, which is clamped to -span .. span.
  std::optional<Param> table;
  std::optional<Norm> norm;  ///< of its rows
  /// A vector for each distance that serves all heads of a layer, instead of projected rows: query . vector (content to
  /// position), and key . vector where they meet keys too (Shaw et al. 2018; Huang et al. 2020, methods 3 and 4).
  struct HeadVectors {
    Param vectors;           ///< [2 span - 1, head_dim], of this layer; row span - 1 + distance, or the first or last
    bool meet_keys = false;  ///< position to content
    double factor = 1;       ///< of both terms, before scores are scaled
  };
  std::optional<HeadVectors> head_vectors;
  int64_t span = 512;
  int64_t max_distance = 0;  ///< 0: none; else distances beyond span / 2 share rows, logarithmically up to this one
  std::optional<Term> content_to_position, position_to_content;
  std::optional<Param> content_bias;  ///< added to the queries where they meet keys
  std::optional<Segments> segments;
  bool class_apart = false;  ///< the first token has neither distances nor segments
};
/// Scores get what the query's state says for the bucket of its distance to the key, after scaling (Qi et al.,
/// "ProphetNet", 2020). Buckets are those of keys before the query: half of them exact, the others logarithmic.
struct ContentBuckets {
  Linear linear;  ///< [num_buckets x heads, hidden], the head fastest
  int64_t num_buckets = 32, max_distance = 128;
  /// Without a cache, streams that predict following tokens take biases [streams, heads, tokens] out of an array that
  /// is laid out as [tokens, streams, heads]: that of another head, token and stream. Tokens of padding are among them.
  bool swapped_in_streams = false;
};
/// ALiBi: the slopes of Press et al., "Train short, test long" (2021). BLOOM adds the bias to the scaled scores.
/// Falcon rounds it to BF16 and adds it before scaling.
struct Alibi {
  bool scaled = false, bf16 = false;
};

/// A token sees those at a distance of at most size / 2, and global tokens, which a request names. Global tokens see
/// all tokens, by projections of their own (Longformer).
struct SlidingWindow {
  int64_t size = 512;
  Linear query, key, value;  ///< of global tokens, as Attention's
};
/// Attention in blocks: ops::BlockSparse describes it (BigBird).
struct BlockSparse {
  int64_t block = 64, random = 3;
};
/// Which keys a query sees; std::monostate: all that the mask shows.
using Pattern = std::variant<std::monostate, SlidingWindow, BlockSparse>;

/// Norms of all queries and of all keys of a token, over all heads together, before rotary embedding (OLMo 2). Their
/// weights are cut with the heads.
struct ProjectionNorms {
  Norm query, key;
};

struct Attention {
  std::optional<Norm> norm;       ///< before (pre) or after the residual sum (post), as the layer's order says
  std::optional<Norm> post_norm;  ///< of what the block adds to the residual (Gemma 2)
  std::optional<Norm> query_norm, key_norm;  ///< of each head's vector, before rotary embedding (Qwen3)
  bool norms_after_rotary = false;           ///< query_norm and key_norm are behind it (Hunyuan)
  std::optional<Norm> value_norm;            ///< of each head's values (Gemma 4)
  bool values_are_keys = false;  ///< values are what `key` projects, before its norm and rotation; `value` is empty
  /// An earlier layer whose keys and values are those of this one, which has none of its own: `key`, `value` and their
  /// norms are empty.
  std::optional<int64_t> reuses;
  std::optional<int64_t> reused_as;  ///< the number of its own layer, where later ones reuse its keys and values
  int layout = 0;                    ///< of its heads in the stack: planner's Part::layout
  std::optional<ProjectionNorms> projection_norms;
  Mask mask = Mask::Full;
  double scale = 1;    ///< of q.k
  double softcap = 0;  ///< 0: none; else scaled scores become softcap * tanh(score / softcap)
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  /// Keys and values are made of latents; then there are as many kv heads as heads, `key` is [heads x (head_dim -
  /// rotary_dims), rank] and `value` is [heads x value_dim, rank].
  std::optional<LatentAttention> latent;
  /// Width of a head's values, where it is one of its own. Then keys and values are cut by heads, as queries are, and
  /// there are as many kv heads as heads. 0: values are as wide as keys.
  int64_t value_dim = 0;
  /// 0: none; else a token sees itself and window - 1 before it, with a full mask also after it.
  int64_t window = 0;
  bool in_patch_windows = false;  ///< a patch sees those of its window (PatchGrid::window)
  Pattern pattern;                ///< of the keys that a query sees
  std::optional<Chunks> chunks;   ///< instead of a pattern; with hashes `key` is empty, for queries are keys
  std::string source;             ///< cross-attention: the stack it attends to
  std::optional<Alibi> alibi;
  std::optional<Rotary> rotary;
  std::optional<RelativePositionBias> relative_position_bias;  ///< of this layer, or of the layer that shares its table
  std::optional<RelativeContent> relative_content;
  std::optional<ContentBuckets> content_buckets;
  std::optional<EntityQueries> entity_queries;
  /// The results of heads are multiplied by its sigmoid [heads x head_dim, hidden] (Qwen3-Next).
  std::optional<Linear> output_gate;
  std::optional<Param> sinks;  ///< [heads]: one more logit of each head's softmax, whose value is 0
  std::optional<SpanConvolution> span_convolution;  ///< heads whose results stand behind those that attend
  /// Values are projected from other states than queries and keys (MobileBERT), or keys of cross-attention have
  /// positions (DETR).
  bool values_apart = false;
  /// Queries are projected from other states than keys and values: layers of the stack pool, or read a memory.
  bool queries_apart = false;
  std::optional<QuantizedAttention> quantized;  ///< the block computes in integers
  bool shows_scores = false;  ///< what is captured are the scores before the softmax, not the probabilities
  Linear query, key, value, out;

  /// Returns the width of a head's values.
  int64_t value_width() const { return value_dim > 0 ? value_dim : head_dim; }
  bool is_sparse() const { return !std::holds_alternative<std::monostate>(pattern); }
  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
