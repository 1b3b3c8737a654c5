// SPDX-License-Identifier: Apache-2.0
// Cases of attention: encoders and cross-attention on rows, decode and prefill on a paged cache; with windows, softcaps
// and position biases.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/ops/case.h"
#include "tests/unit/worker/ops/reference.h"
#include "worker/ops/cpu/kernels/kernels.h"

namespace pm::bench {

namespace {

using ops::AttentionOptions;
using ops::reference::AttentionInputs;
using ops::reference::SequenceShape;

constexpr double fp32_tolerance = 5e-6;
constexpr double alibi_tolerance = 5e-5;  // biases of hundreds leave fewer bits of the scores

struct HeadShape {
  int64_t heads, kv_heads, d;
};
constexpr HeadShape bert{12, 12, 64}, llama{32, 8, 128}, gemma{8, 1, 256}, small{8, 2, 64};

struct AttentionCase {
  std::string name;
  HeadShape shape;
  std::vector<SequenceShape> sequences;
  AttentionOptions options = {};
  at::ScalarType type = at::kFloat;  ///< of the cache
  bool is_paged = true, is_large = false;
  bool drafts = false;  ///< SequenceSpan::drafts
  double tolerance = fp32_tolerance;
};

std::vector<SequenceShape> repeated(int64_t count, const SequenceShape& shape) {
  return std::vector<SequenceShape>(static_cast<size_t>(count), shape);
}

AttentionOptions scaled(int64_t d, AttentionOptions options = {}) {
  options.scale = 1 / std::sqrt(static_cast<double>(d));
  return options;
}

AttentionOptions on_device(AttentionOptions options, at::Device device) {
  for (at::Tensor* bias : {&options.sinks, &options.alibi.slopes, &options.relative_bias.table})
    if (bias->defined()) *bias = bias->to(device);
  return options;
}

/// Returns how many keys the queries of a sequence attend to, all queries together.
int64_t visible_keys(const SequenceShape& sequence, const AttentionOptions& options) {
  const int64_t keys = sequence.keys > 0 ? sequence.keys : sequence.context + sequence.tokens;
  int64_t count = 0;
  for (int64_t i = 0; i < sequence.tokens; ++i) {
    const int64_t seen = options.causal ? std::min(keys, sequence.context + i + 1) : keys;
    count += options.window > 0 ? std::min(seen, options.window) : seen;
  }
  return count;
}

Problem make_problem(const AttentionCase& c) {
  const HeadShape& s = c.shape;
  auto made = std::make_shared<AttentionInputs>(
      ops::reference::attention_inputs(s.heads, s.kv_heads, s.d, c.sequences, c.type));
  // Devices may round the queries to the type of the cache; these numbers are the same in both types.
  made->q = made->q.to(c.type).to(at::kFloat);
  const std::shared_ptr<const AttentionInputs> inputs = std::move(made);
  const auto expected = [inputs, c]() -> Outputs { return {ops::reference::attention(*inputs, c.options)}; };
  const auto on = [inputs, c](at::Device device) -> Run {
    const at::Tensor q = inputs->q.to(device);
    const AttentionOptions options = on_device(c.options, device);
    ops::StepSequences sequences = inputs->sequences;
    for (ops::SequenceSpan& span : sequences.spans) span.drafts = c.drafts;
    ops::make_attention_metadata(sequences, device);
    if (!c.is_paged) {
      return [inputs, q, options, k = inputs->k.to(device), v = inputs->v.to(device), sequences](
                 const ops::Backend& backend, const Call&) -> Outputs {
        return {backend.ragged_attention(q, k, v, sequences, options, nullptr)};
      };
    }
    at::Tensor k_cache = at::zeros({inputs->blocks, c.shape.kv_heads, block_tokens, c.shape.d}, c.type),
               v_cache = at::zeros_like(k_cache);
    ops::Backend().write_kv(inputs->k, inputs->v, inputs->slots, k_cache, v_cache);
    return [inputs, q, options, k_cache = k_cache.to(device), v_cache = v_cache.to(device), sequences](
               const ops::Backend& backend, const Call&) -> Outputs {
      return {backend.paged_attention(q, k_cache, v_cache, sequences, options)};
    };
  };
  return {expected, on};
}

Case make_case(const AttentionCase& c) {
  const HeadShape& s = c.shape;
  Case one{.name = std::string(type_name(c.type)) + ", " + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) +
                   " heads of " + std::to_string(s.d) + ", " + c.name,
           .make = [c] { return make_problem(c); },
           .tolerance = c.tolerance,
           .is_large = c.is_large};
  const bool decode =
      std::ranges::all_of(c.sequences, [](const SequenceShape& sequence) { return sequence.tokens == 1; });
  int64_t visible = 0;
  for (const SequenceShape& sequence : c.sequences) visible += visible_keys(sequence, c.options);
  if (decode) {
    one.bytes = 2. * static_cast<double>(visible * s.kv_heads * s.d) * static_cast<double>(c10::elementSize(c.type));
  } else {
    one.flops = 4. * static_cast<double>(visible * s.heads * s.d);
    // probabilities and results are rounded to the type of the cache
    if (c.type != at::kFloat) one.device_tolerance = c.tolerance + 2.5 * rounding_error(c.type);
  }
  // so are a softmax's weights by CPU kernels that multiply bf16 numbers
  if (c.type == at::kBFloat16 && ops::kernels().bf16_products)
    one.tolerance = c.tolerance + 2.5 * rounding_error(c.type);
  return one;
}

}  // namespace

std::vector<Case> ragged_attention_cases() {
  std::vector<Case> cases;
  const auto add = [&](AttentionCase c) {
    c.is_paged = false;
    cases.push_back(make_case(c));
  };
  const AttentionOptions encoder = scaled(64, {.causal = false});
  at::manual_seed(1);
  const at::Tensor table = at::randn({32, 12});
  add({"encoder, 8 x 128 tokens", bert, repeated(8, {0, 128}), encoder});
  add({"encoder, T5's position bias",
       bert,
       {{0, 40}, {0, 200}},
       scaled(64, {.causal = false, .relative_bias = {.table = table}})});
  add({"cross-attention", bert, {{0, 1, 40}, {0, 5, 77}}, encoder});
  add({"causal, 1 to 33 tokens", small, {{0, 17}, {0, 33}, {0, 1}}, scaled(64)});
  add({"causal, window of 16", small, {{0, 40}, {0, 100}}, scaled(64, {.window = 16})});
  add({.name = "causal, ALiBi",
       .shape = small,
       .sequences = {{0, 40}, {0, 100}},
       .options = scaled(64, {.alibi = {.slopes = ops::alibi_slopes(8)}}),
       .tolerance = alibi_tolerance});
  add({.name = "encoder, 8 x 512 tokens",
       .shape = {16, 16, 64},
       .sequences = repeated(8, {0, 512}),
       .options = encoder,
       .is_large = true});
  return cases;
}

namespace {

/// Inputs of the terms of relative positions: one sequence, with one row per distance up to `span`.
struct RelativeInputs {
  at::Tensor q, k, scores;
  ops::RelativeContent content;
  ops::RelativeIndex index;
};

RelativeInputs relative_inputs(int64_t heads, int64_t d, int64_t tokens, int64_t span) {
  RelativeInputs in{.q = at::randn({tokens, heads, d}),
                    .k = at::randn({heads, tokens, d}),
                    .scores = at::randn({heads, tokens, tokens}),
                    .content = {},
                    .index = {.reach = tokens - 1, .rows = {}, .sequences = {{}}}};
  in.index.sequences[0].columns = in.index.sequences[0].key_columns = at::arange(tokens, at::kLong);
  in.index.rows = at::arange(1 - tokens, tokens, at::kLong).clamp(-span, span - 1) + std::min(span, tokens - 1);
  const int64_t rows = in.index.rows[-1].item<int64_t>() + 1;
  in.content.keys = at::randn({rows, heads, d});
  in.content.queries = at::randn({rows, heads, d});
  return in;
}

/// The rows of each pair's distance, one pair after another: fp64.
Outputs expected_relative(const RelativeInputs& in) {
  const at::Tensor columns = in.index.sequences[0].columns, distance = columns.unsqueeze(1) - columns.unsqueeze(0);
  const at::Tensor row = at::index_select(in.index.rows, 0, (distance + in.index.reach).flatten());
  const int64_t tokens = columns.numel();
  const auto of_pairs = [&](const at::Tensor& table) {  // [heads, tokens, tokens, d]
    return at::index_select(table.to(at::kDouble), 0, row).unflatten(0, {tokens, tokens}).permute({2, 0, 1, 3});
  };
  const at::Tensor q = in.q.to(at::kDouble).permute({1, 0, 2}).unsqueeze(2), k = in.k.to(at::kDouble).unsqueeze(1);
  return {in.scores.to(at::kDouble) + (q * of_pairs(in.content.keys)).sum(3) +
          (k * of_pairs(in.content.queries)).sum(3)};
}

}  // namespace

std::vector<Case> add_relative_content_cases() {
  std::vector<Case> cases;
  for (const auto& [heads, d, tokens, span] :
       {std::array<int64_t, 4>{5, 8, 33, 9}, {12, 64, 128, 512}, {12, 64, 512, 256}}) {
    Case one{.name = std::to_string(tokens) + " tokens, " + std::to_string(heads) + " heads of " + std::to_string(d) +
                     ", span " + std::to_string(span),
             .tolerance = fp32_tolerance,
             .is_large = tokens == 512};
    one.flops = 4. * static_cast<double>(heads * tokens * d * std::min(2 * span, 2 * tokens - 1));
    one.make = [=, h = heads, e = d, n = tokens, s = span]() -> Problem {
      const auto in = std::make_shared<const RelativeInputs>(relative_inputs(h, e, n, s));
      const auto on = [in](at::Device device) -> Run {
        auto here = std::make_shared<RelativeInputs>(*in);
        for (at::Tensor* one :
             {&here->q, &here->k, &here->scores, &here->content.keys, &here->content.queries, &here->index.rows,
              &here->index.sequences[0].columns, &here->index.sequences[0].key_columns})
          *one = one->to(device);
        here->content.index = &here->index;
        return [here](const ops::Backend& backend, const Call& call) -> Outputs {
          at::Tensor scores = call.keep_inputs ? here->scores.clone() : here->scores;
          backend.add_relative_content(scores, here->q, here->k, here->content, here->index.sequences[0]);
          return {scores};
        };
      };
      return {[in] { return expected_relative(*in); }, on};
    };
    cases.push_back(one);
  }
  return cases;
}

std::vector<Case> paged_attention_cases() {
  std::vector<Case> cases;
  const auto add = [&](const AttentionCase& c) { cases.push_back(make_case(c)); };
  at::manual_seed(1);
  const at::Tensor table = at::randn({32, 8});
  const std::vector<SequenceShape> lengths{{999, 1}, {15, 1}, {16, 1}, {0, 1}, {512, 1}, {511, 1}, {700, 1}, {63, 1}};
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    add({"decode, 1 sequence of 1000 keys", llama, {{999, 1}}, scaled(128), type});
    add({"decode, 8 sequences of 1 to 1000 keys", llama, lengths, scaled(128), type});
    add({"prefill of 128 tokens", llama, {{0, 128}}, scaled(128), type});
    add({"prefill of 9 tokens after 1000", llama, {{1000, 9}}, scaled(128), type});
    add({.name = "9 drafts after 1000",
         .shape = llama,
         .sequences = {{1000, 9}},
         .options = scaled(128),
         .type = type,
         .drafts = true});
    add({"prefill and decode", small, {{0, 40}, {63, 1}, {5, 1}, {20, 20}, {0, 1}}, scaled(64), type});
    add({"decode, softcap, window of 256", gemma, lengths, scaled(256, {.softcap = 50, .window = 256}), type});
    add({"prefill, softcap, window of 32",
         gemma,
         {{0, 40}, {64, 40}},
         scaled(256, {.softcap = 50, .window = 32}),
         type});
  }
  const AttentionOptions alibi = scaled(64, {.alibi = {.slopes = ops::alibi_slopes(8)}});
  const AttentionOptions relative = scaled(64, {.relative_bias = {.table = table, .bidirectional = false}});
  const auto add_alibi = [&](const std::string& name, const std::vector<SequenceShape>& sequences) {
    add({.name = name, .shape = small, .sequences = sequences, .options = alibi, .tolerance = alibi_tolerance});
  };
  add_alibi("decode, ALiBi", lengths);
  add_alibi("prefill, ALiBi", {{0, 40}, {64, 40}});
  add({"prefill and decode, sinks",
       small,
       {{0, 40}, {63, 1}, {999, 1}, {20, 20}},
       scaled(64, {.sinks = at::randn({8})}),
       at::kBFloat16});
  add({"decode, T5's position bias", small, lengths, relative});
  add({"prefill, T5's position bias", small, {{0, 40}, {64, 40}}, relative});
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const auto add_large = [&](const std::string& name, const std::vector<SequenceShape>& sequences) {
      add({.name = name,
           .shape = llama,
           .sequences = sequences,
           .options = scaled(128),
           .type = type,
           .is_large = true});
    };
    add_large("decode, 1 sequence of 8192 keys", {{8191, 1}});
    add_large("decode, 32 sequences of 1024 keys", repeated(32, {1023, 1}));
    add_large("prefill of 512 tokens", {{0, 512}});
    add_large("prefill of 512 tokens after 1024", {{1024, 512}});
  }
  return cases;
}

}  // namespace pm::bench
