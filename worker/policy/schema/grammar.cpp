// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/schema/grammar.h"

#include <algorithm>

#include "worker/policy/document.h"
#include "worker/policy/keywords.h"
#include "worker/policy/schema/layer_rules.h"
#include "worker/policy/schema/part_rules.h"
#include "worker/policy/schema/rules.h"
#include "worker/policy/spec/enums.h"
#include "worker/policy/spec/experts.h"
#include "worker/policy/spec/retrieval.h"

namespace pm::policy {

namespace {

Rule attention(Keys more = {}) {
  const Rule fused{Rule::Kind::Position, fused_words, {{"blocks", expression}, {"order", texts}}};
  const Rule rotary =
      section(expressions({"when", "dims", "theta", "scaling", "values"}) +
              Keys{{"style", word(rotary_words)},
                   {"longrope", section(expressions({"original", "long_factor", "attention_factors"}))},
                   {"query_growth", section(expressions({"when", "beta", "original", "offset"}))},
                   {"axes", section(Keys{{"layout", word(rotary_axes_words)}} + expressions({"count", "sections"}))}});
  const Rule alibi{Rule::Kind::Flag, {}, {{"when", expression}, {"scaled", expression}, {"bf16", expression}}};
  return section(
      block_keys() +
      Keys{{"mask", word(mask_words)},
           {"scale", expression},
           {"window", expression},
           {"patch_windows", expression},
           {"alibi", alibi},
           {"sliding_window",
            section({{"size", expression}, {"global_q", linear()}, {"global_k", linear()}, {"global_v", linear()}})},
           {"block_sparse", section({{"when", expression}, {"block", expression}, {"random", expression}})},
           {"chunks",
            section(expressions({"length", "before", "after"}) +
                    Keys{{"hashes", section(expressions({"when", "rounds", "buckets", "positions", "seed"}))}})},
           {"softcap", expression},
           {"sinks", row()},
           {"attentions", word(attentions_words)},
           {"heads", expression},
           {"kv_heads", expression},
           {"head_dim", expression},
           {"value_dim", expression},
           {"rotary", rotary},
           {"relative_position_bias", row({{"layer", expression},
                                           {"num_buckets", expression},
                                           {"max_distance", expression},
                                           {"bidirectional", expression}})},
           {"relative_content",
            section(
                {{"when", expression},
                 {"table", row()},
                 {"norm", norm_row()},
                 {"head_vectors", row({{"both", expression}, {"scaled", expression}})},
                 {"span", expression},
                 {"max_distance", expression},
                 {"content_to_position", linear({{"shared", expression}, {"query_bias", names}})},
                 {"position_to_content", linear({{"shared", expression}})},
                 {"content_bias", names},
                 {"segments",
                  row({{"input", text}, {"query_bias", names}, {"common", expression}, {"others_first", expression}})},
                 {"class_apart", expression}})},
           {"content_buckets",
            linear({{"num_buckets", expression}, {"max_distance", expression}, {"swapped_in_streams", expression}})},
           {"entity_queries", section({{"when", expression},
                                       {"word_to_entity", linear()},
                                       {"entity_to_word", linear()},
                                       {"entity_to_entity", linear()}})},
           {"span_convolution", section({{"size", expression},
                                         {"depthwise", row()},
                                         {"pointwise", linear()},
                                         {"kernel", linear()},
                                         {"values", linear()}})},
           {"query_norm", norm_row({{"over", word(over_words)}})},
           {"key_norm", norm_row({{"over", word(over_words)}})},
           {"norms_after_rotary", expression},
           {"value_norm", norm_row()},
           {"values_are_keys", expression},
           {"qkv", linear({{"fused", fused}, {"q_bias", names}, {"k_bias", names}, {"v_bias", names}})},
           {"latent", latent_attention()},
           {"q", projection()},
           {"q_gate", linear()},
           {"k", projection()},
           {"v", projection()},
           {"out", projection()}} +
      std::move(more));
}

Rule mlp(Keys more = {}) {
  return section(
      block_keys() +
      Keys{{"act", word(words<Activation>())},
           {"up", projection()},
           {"gate", projection()},
           {"gate_up", gate_up()},
           {"up_gate", linear()},
           {"down", projection()},
           {"limit", expression},
           {"up_offset", expression},
           {"xielu",
            section(
                {{"when", expression}, {"positive", row()}, {"negative", row()}, {"beta", row()}, {"eps", row()}})}} +
      std::move(more));
}

/// The keys of a gated block inside of another, whose width is its own.
Keys gated_keys() {
  return {{"when", expression},   {"at", names},          {"width", expression}, {"up", projection()},
          {"gate", projection()}, {"gate_up", gate_up()}, {"down", projection()}};
}

Rule experts() {
  const Rule stacked{Rule::Kind::Flag,
                     {},
                     {{"at", names},
                      {"layout", word(expert_layout_words)},
                      {"up", projection()},
                      {"gate", projection()},
                      {"gate_up", gate_up()},
                      {"down", projection()}}};
  return section(gated_keys() + Keys{{"stacked", stacked},
                                     {"layout", word(expert_layout_words)},
                                     {"count", expression},
                                     {"per_token", expression},
                                     {"router", linear()},
                                     {"router_norm", norm_row()},
                                     {"router_scale_input", expression},
                                     {"expert_factors", row()},
                                     {"scores", word(words<RouterScores>())},
                                     {"choice_bias", row()},
                                     {"groups", expression},
                                     {"groups_kept", expression},
                                     {"group_score", word(words<GroupScore>())},
                                     {"normalise", expression},
                                     {"factor", expression},
                                     {"weigh_input", expression},
                                     {"jitter", expression}});
}

/// The keys of rows that attend to others.
Keys cross_block_keys() {
  return {{"at", names},
          {"ffn", expression},
          {"adds_queries", expression},
          {"attn", attention({{"source_norm", norm_row()}})},
          {"mlp", mlp()}};
}

/// Ranges of integers in a block: `more` names those of its own.
Rule quantized(Keys more) {
  return section(Keys{{"when", expression}, {"sum", names}, {"output", names}, {"shift", row()}} + std::move(more));
}

/// The keys of a vocabulary in clusters.
const Keys clusters{{"ends", expression}, {"divisor", expression}, {"projection", row()}};

Rule stack() {
  const Rule position{Rule::Kind::Position,
                      position_words,
                      {{"learned", row()},
                       {"convolution", linear({{"size", expression},
                                               {"groups", expression},
                                               {"gain", row()},
                                               {"batch_norm", row({{"eps", expression}})},
                                               {"act", word(words<Activation>())},
                                               {"norm", norm_row()}})},
                       {"sinusoidal", word(sinusoid_words)},
                       {"grid", word(grid_words)},
                       {"axial", section({{"when", expression},
                                          {"rows", expression},
                                          {"columns", expression},
                                          {"width", expression},
                                          {"row", row()},
                                          {"column", row()}})},
                       {"row", row()},
                       {"column", row()},
                       {"offset", expression},
                       {"skip_padding", expression},
                       {"reset_per_cell", expression},
                       {"rows", expression},
                       {"position_ids", word(position_ids_words)},
                       {"after_norm", expression}}};
  const Rule tables{
      Rule::Kind::Rows,
      {},
      row_keys() + Keys{{"input", text}} +
          expressions({"rows", "column", "minus_column", "skip_if_absent", "default_row", "generation_row"})};
  const Rule convolutions = section({{"input", text},
                                     {"features", text},
                                     {"bins", expression},
                                     {"bins_first", expression},
                                     {"exact_length", expression},
                                     {"layers", expression},
                                     {"at", names},
                                     {"kernel", linear()},
                                     {"channels", expression},
                                     {"size", expression},
                                     {"stride", expression},
                                     {"padding", expression},
                                     {"norm", norm_row()},
                                     {"norm_over_time", expression},
                                     {"act", word(words<Activation>())},
                                     {"gated", expression}});
  const Keys filtered{{"kernel", row()}, {"batch_norm", row({{"eps", expression}})}};
  const Keys sizes{{"channels", expression}, {"size", expression}, {"stride", expression}};
  const Rule backbone = section(
      {{"mask", text},
       {"at", names},
       {"channels", expression},
       {"act", word(words<Activation>())},
       {"stages", expression},
       {"blocks", expression},
       {"stem", section(filtered + sizes)},
       {"block",
        section(filtered + sizes +
                Keys{{"convolutions", expression}, {"dilation", expression}, {"shortcut", section(filtered)}})}});
  const Rule input = section(
      {{"at", names},
       {"convolutions", convolutions},
       {"backbone", backbone},
       {"queries", row({{"count", expression}})},
       {"token", row()},
       {"clusters", section(clusters + Keys{{"when", expression}, {"table", row()}})},
       {"scale", expression},
       {"token_types", text},
       {"position", position},
       {"tables", tables},
       {"features",
        linear({{"input", text}, {"mask", text}, {"position", row()}, {"align", text}, {"tables", tables}})},
       {"entities", section({{"at", names},
                             {"input", text},
                             {"mask", text},
                             {"mentions", text},
                             {"table", row()},
                             {"rows", expression},
                             {"width", expression},
                             {"projection", linear()},
                             {"positions", row()},
                             {"position_rows", expression},
                             {"tables", tables},
                             {"norm", norm_row()}})},
       {"streams", row({{"count", expression}})},
       {"targets", row({{"mapping", text}, {"hidden", text}})},
       {"vectors", section({{"mask", text},
                            {"parts", {Rule::Kind::Rows, {}, linear({{"input", text}, {"norm", norm_row()}}).keys}}})},
       {"projection", linear()},
       {"project_tokens", expression},
       {"trigram", expression},
       {"patches", linear(expressions({"channels", "size", "image", "frames", "merge", "window"}) +
                          Keys{{"sizes", text}, {"positions", row({{"rows", expression}})}})},
       {"class_token", row()},
       {"distillation_token", row()},
       {"mask_token", row()},
       {"norm", norm_row()},
       {"norm_projected", expression},
       {"pixels", section({{"input", text},
                           {"at", names},
                           {"channels", expression},
                           {"frames", expression},
                           {"image", expression},
                           {"convolution", section(filtered + sizes)},
                           {"projection", linear()},
                           {"kernel", linear()},
                           {"positions", row({{"width", expression}})},
                           {"position_projection", linear()},
                           {"fourier", section({{"bands", expression}, {"resolution", expression}})}})},
       {"per_layer_inputs", section({{"when", expression},
                                     {"width", expression},
                                     {"rows", expression},
                                     {"table", row()},
                                     {"scale", expression},
                                     {"projection", linear()},
                                     {"projection_scale", expression},
                                     {"norm", norm_row()},
                                     {"factor", expression}})},
       {"quantized", quantized({})},
       {"latents", row(Keys{{"count", expression}} + cross_block_keys())}});
  const Rule branch =
      linear({{"size", expression}, {"groups", expression}, {"act", word(words<Activation>())}, {"norm", norm_row()}});
  const Rule bottleneck = section({{"when", expression},
                                   {"width", expression},
                                   {"input", linear()},
                                   {"input_norm", norm_row()},
                                   {"attention", linear()},
                                   {"attention_norm", norm_row()},
                                   {"wide", expression},
                                   {"output", linear()},
                                   {"output_norm", norm_row()}});
  const Rule pooling = section({{"when", expression},
                                {"kind", word(pooling_words)},
                                {"class_apart", expression},
                                {"truncate", expression},
                                {"queries_only", expression}});
  const Rule upsampling =
      section({{"when", expression}, {"stride", expression}, {"added_layer", expression}, {"class_apart", expression}});
  const Rule layer = section({{"at", names},
                              {"order", word(order_words)},
                              {"norm", word(norm_words)},
                              {"bias", expression},
                              {"layout", word(layout_words)},
                              {"residual_normed", expression},
                              {"convolution_branch", branch},
                              {"bottleneck", bottleneck},
                              {"pooling", pooling},
                              {"upsampling", upsampling},
                              {"repeats_state", expression},
                              {"memory", section({{"when", expression}, {"length", expression}, {"input", text}})},
                              {"residual_multiplier", expression},
                              {"layer_scalar", row()},
                              {"per_layer_input", section({{"when", expression},
                                                           {"gate", linear()},
                                                           {"projection", linear()},
                                                           {"norm", norm_row()},
                                                           {"act", word(words<Activation>())}})}});
  const Rule pooler = section(row_keys() + Keys{{"bias", bias},
                                                {"layout", word(layout_words)},
                                                {"act", word(words<Activation>())},
                                                {"pool", word(pooler_words)},
                                                {"norm", norm_row()}});
  const Rule output =
      section({{"at", names},
               {"norm", norm_row()},
               {"projection", linear()},
               {"states", word(states_words)},
               {"latent_queries",
                section(Keys{{"from", names}, {"count", expression}, {"width", expression}} + cross_block_keys())},
               {"pooler", pooler}});
  Keys keys{
      {"like", text},
      {"when", expression},
      {"prefix", names},
      {"let", each(expression)},
      {"input", input},
      {"layer", layer},
      {"mtp", section({{"at", names},
                       {"token_norm", norm_row()},
                       {"state_norm", norm_row()},
                       {"projection", linear()},
                       {"norm", norm_row()},
                       {"ignore", texts}})},
      {"attn",
       attention(
           {{"when", expression},
            {"reuses", section({{"when", expression}, {"like", expression}})},
            {"quantized",
             quantized(
                 {{"query", names}, {"key", names}, {"value", names}, {"exponents", row()}, {"heads", names}})}})},
      {"delta_net", delta_net()},
      {"short_convolution", short_convolution()},
      {"state_space", state_space()},
      {"cross", attention({{"source", text}, {"when", expression}, {"kv", linear()}})},
      {"mlp",
       mlp({{"when", expression},
            {"width", expression},
            {"experts", experts()},
            {"shared", section(gated_keys() + Keys{{"gated_by", linear()}, {"factor", expression}})},
            {"quantized",
             quantized(
                 {{"input", names}, {"activation", names}, {"float_activation", expression}, {"down", names}})}})},
      {"stacked_mlp", mlp({{"count", expression}})},
      {"beside_mlp", mlp({{"when", expression},
                          {"width", expression},
                          {"first_norm", norm_row()},
                          {"experts", experts()},
                          {"shared", section(gated_keys() + Keys{{"gated_by", linear()}, {"factor", expression}})}})},
      {"output", output},
      {"joins", texts},
      {"co_attention", attention()},
      {"second", section({{"attn", attention()}, {"mlp", mlp()}})}};
  for (std::string_view name : size_words) keys.push_back({name, expression});
  return section(std::move(keys));
}

Rule head() {
  return section(
      {{"at", names},
       {"when", expression},
       {"stack", text},
       {"pool", word(words<Pool>())},
       {"entities", word(words<EntityStates>())},
       {"streams", expression},
       {"mlp", mlp()},
       {"dense", linear()},
       {"act", word(words<Activation>())},
       {"norm", norm_row()},
       {"mask_question", expression},
       {"scale_input", expression},
       {"softcap", expression},
       {"logit_scale", row()},
       {"logits", linear({{"scale_input", expression}, {"concat", row({{"layout", word(layout_words)}})}})},
       {"classes", linear({{"vector", expression}, {"divisor", expression}, {"per_pixel", expression}})},
       {"output", texts},
       {"cells", section({{"columns", linear()},
                          {"temperature", expression},
                          {"max_rows", expression},
                          {"max_columns", expression},
                          {"allow_empty_column", expression}})},
       {"spans", section({{"at", names},
                          {"start", linear()},
                          {"end_dense", linear()},
                          {"end_norm", norm_row()},
                          {"end", linear()},
                          {"answer_dense", linear()},
                          {"answer", linear()},
                          {"start_n_top", expression},
                          {"end_n_top", expression}})},
       {"pairs", section({{"query", linear()}, {"key", linear()}, {"positions", text}})},
       {"layer_weights", row()},
       {"time_delay", section({{"layers", expression},
                               {"at", names},
                               {"linear", linear()},
                               {"channels", expression},
                               {"size", expression},
                               {"dilation", expression},
                               {"vector", linear()},
                               {"classes", linear()}})},
       {"codebook", section({{"groups", expression},
                             {"size", expression},
                             {"width", expression},
                             {"states", linear()},
                             {"scores", linear()},
                             {"entries", row()},
                             {"quantized", linear()}})},
       {"boxes", section({{"layers", expression}, {"linear", linear()}})},
       {"pixel_shuffle", linear({{"channels", expression}, {"size", expression}})},
       {"score_clusters", section(clusters + Keys{{"scores", linear()}, {"others", linear()}})},
       {"masks", section({{"heads", expression},
                          {"act", word(words<Activation>())},
                          {"query", linear()},
                          {"key", linear()},
                          {"convolution", linear({{"norm", norm_row()}})},
                          {"fusion", section({{"adapter", linear()}, {"refine", linear({{"norm", norm_row()}})}})},
                          {"final", linear()}})},
       {"mean", texts},
       {"between", texts}});
}

}  // namespace

const Rule& grammar() {
  static const Rule rule = section({{"model_type", texts},
                                    {"extends", text},
                                    {"kind", known(words<ModelKind>())},
                                    {"section", text},
                                    {"let", each(expression)},
                                    {"eos", expression},
                                    {"decoder_start", expression},
                                    {"shift_tokens", expression},
                                    {"separator", expression},
                                    {"replies", text},
                                    {"rename", each(text)},
                                    {"refuse", each(text)},
                                    {"ignore", names},
                                    {"compose", compose()},
                                    {"images", images()},
                                    {"retrieve", retrieve()},
                                    {"stacks", each(stack())},
                                    {"heads", each(head())},
                                    {"architectures", each(section({{"task", known(words<Task>())},
                                                                    {"heads", texts},
                                                                    {"stacks", texts},
                                                                    {"kind", known(words<ModelKind>())},
                                                                    {"outputs", each(texts)},
                                                                    {"global_tokens", known(words<GlobalTokens>())},
                                                                    {"marginal", known(words<Marginal>())},
                                                                    {"recompute", section({{"when", expression},
                                                                                           {"append", expression},
                                                                                           {"target", expression},
                                                                                           {"overlap", expression},
                                                                                           {"memory", expression}})},
                                                                    {"refuse", sentence},
                                                                    {"alias_of", text}}))}});
  return rule;
}

const Rule& under(const Rule& rule, std::string_view key) {
  return std::find_if(rule.keys.begin(), rule.keys.end(), [&](const Key& entry) { return entry.name == key; })->rule;
}

}  // namespace pm::policy
