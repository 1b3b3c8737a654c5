// SPDX-License-Identifier: Apache-2.0
// Defines the grammar of policy files as one table, which keys stand where and what their values are, and validates
// policies by it.
#include <algorithm>
#include <functional>

#include "worker/policy/document.h"
#include "worker/policy/expression.h"
#include "worker/policy/keywords.h"
#include "worker/policy/spec/enums.h"

namespace pm::policy {

namespace {

struct Key;

struct Rule {
  enum class Kind : uint8_t {
    Expression,  ///< a scalar over config.json
    Word,        ///< one of `words`, or an expression that gives one
    Text,        ///< a plain scalar
    Texts,       ///< one or a list of them
    Names,       ///< one or a list of name templates
    Bias,  ///< an expression (true, false), names of whole tensors ([..] or =name), or a section with `keys` that has
           ///< them as `from`
    Row,   ///< names, or a section that has them as `from`
    Section,   ///< a map with `keys`
    Each,      ///< a map with any keys, each value as keys[0]
    Flag,      ///< an expression (true, false), or a section with `keys` that is on unless its `when` is false
    Sentence,  ///< a plain scalar, or a map from expressions to such
    Known,     ///< a plain scalar that is one of `words`
    Position,  ///< a word of `words`, or a section with `keys`
    Rows,      ///< a list of Row
  };
  Kind kind = Kind::Expression;
  std::vector<std::string_view> words;
  std::vector<Key> keys;
};

struct Key {
  std::string_view name;
  Rule rule;
};

using Keys = std::vector<Key>;

const Rule expression{Rule::Kind::Expression}, text{Rule::Kind::Text}, texts{Rule::Kind::Texts},
    names{Rule::Kind::Names}, sentence{Rule::Kind::Sentence},
    bias{Rule::Kind::Bias, {}, {{"from", names}, {"when", expression}, {"optional", expression}}};

Rule word(std::vector<std::string_view> words) { return {Rule::Kind::Word, std::move(words)}; }
Rule section(Keys keys) { return {Rule::Kind::Section, {}, std::move(keys)}; }
Rule known(std::vector<std::string_view> words) { return {Rule::Kind::Known, std::move(words)}; }
Rule each(Rule value) { return {Rule::Kind::Each, {}, {{"", std::move(value)}}}; }

Keys operator+(Keys a, Keys b) {
  for (auto& entry : b) a.push_back(std::move(entry));
  return a;
}

/// The keys of a parameter: `from` names it, `tie` names the parameter whose storage it may share, `optional` lets
/// the checkpoint lack it, and with `first_match` its names may be different tensors, of which the first that exists
/// is read.
Keys row_keys() {
  return {{"from", names}, {"tie", text}, {"when", expression}, {"optional", expression}, {"first_match", expression}};
}
Rule row(Keys more = {}) { return {Rule::Kind::Row, {}, row_keys() + std::move(more)}; }
Rule linear(Keys more = {}) {
  return row(Keys{{"bias", bias}, {"layout", word(layout_words)}, {"keep_in_fp32", word(keep_in_fp32_words)}} +
             std::move(more));
}
Rule norm_row() { return row({{"bias", bias}, {"kind", word(norm_words)}, {"eps", expression}}); }

Keys block_keys() {
  return {{"at", names},
          {"norm", norm_row()},
          {"post_norm", norm_row()},
          {"bias", expression},
          {"layout", word(layout_words)}};
}

Rule attention(Keys more = {}) {
  const Rule fused{Rule::Kind::Position, fused_words, {{"blocks", expression}, {"order", texts}}};
  const Rule rotary = section({{"when", expression},
                               {"style", word(rotary_words)},
                               {"dims", expression},
                               {"theta", expression},
                               {"scaling", expression},
                               {"values", expression}});
  const Rule alibi{Rule::Kind::Flag, {}, {{"when", expression}, {"scaled", expression}, {"bf16", expression}}};
  return section(
      block_keys() +
      Keys{{"mask", word(mask_words)},
           {"scale", expression},
           {"window", expression},
           {"alibi", alibi},
           {"sliding_window",
            section({{"size", expression}, {"global_q", linear()}, {"global_k", linear()}, {"global_v", linear()}})},
           {"block_sparse", section({{"when", expression}, {"block", expression}, {"random", expression}})},
           {"softcap", expression},
           {"heads", expression},
           {"kv_heads", expression},
           {"head_dim", expression},
           {"rotary", rotary},
           {"relative_position_bias", row({{"layer", expression},
                                           {"num_buckets", expression},
                                           {"max_distance", expression},
                                           {"bidirectional", expression}})},
           {"query_norm", norm_row()},
           {"key_norm", norm_row()},
           {"qkv", linear({{"fused", fused}})},
           {"q", linear()},
           {"k", linear()},
           {"v", linear()},
           {"out", linear()}} +
      std::move(more));
}

Rule mlp() {
  return section(block_keys() + Keys{{"act", word(words<Activation>())},
                                     {"up", linear()},
                                     {"gate", linear()},
                                     {"gate_up", linear()},
                                     {"down", linear()}});
}

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
                       {"offset", expression},
                       {"skip_padding", expression},
                       {"reset_per_cell", expression},
                       {"rows", expression},
                       {"position_ids", word(position_ids_words)},
                       {"after_norm", expression}}};
  const Rule tables{Rule::Kind::Rows,
                    {},
                    row_keys() + Keys{{"input", text},
                                      {"rows", expression},
                                      {"column", expression},
                                      {"minus_column", expression},
                                      {"skip_if_absent", expression},
                                      {"default_row", expression}}};
  const Rule convolutions = section({{"input", text},
                                     {"features", text},
                                     {"bins", expression},
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
  const Rule input =
      section({{"at", names},
               {"convolutions", convolutions},
               {"token", row()},
               {"scale", expression},
               {"token_types", text},
               {"position", position},
               {"tables", tables},
               {"features",
                linear({{"input", text}, {"mask", text}, {"position", row()}, {"align", text}, {"tables", tables}})},
               {"projection", linear()},
               {"patches", linear({{"channels", expression}, {"size", expression}, {"image", expression}})},
               {"class_token", row()},
               {"distillation_token", row()},
               {"norm", norm_row()}});
  const Rule layer = section({{"at", names},
                              {"order", word(order_words)},
                              {"norm", word(norm_words)},
                              {"bias", expression},
                              {"layout", word(layout_words)},
                              {"residual_normed", expression}});
  const Rule pooler = section(row_keys() + Keys{{"bias", bias},
                                                {"layout", word(layout_words)},
                                                {"act", word(words<Activation>())},
                                                {"pool", word(pooler_words)},
                                                {"norm", norm_row()}});
  const Rule output = section({{"at", names},
                               {"norm", norm_row()},
                               {"projection", linear()},
                               {"states", word(states_words)},
                               {"pooler", pooler}});
  Keys keys{{"like", text},        {"when", expression},
            {"prefix", names},     {"let", each(expression)},
            {"input", input},      {"layer", layer},
            {"attn", attention()}, {"cross", attention({{"source", text}, {"when", expression}, {"kv", linear()}})},
            {"mlp", mlp()},        {"output", output}};
  for (std::string_view name : size_words) keys.push_back({name, expression});
  return section(std::move(keys));
}

Rule head() {
  return section({{"at", names},
                  {"when", expression},
                  {"stack", text},
                  {"pool", word(words<Pool>())},
                  {"mlp", mlp()},
                  {"dense", linear()},
                  {"act", word(words<Activation>())},
                  {"norm", norm_row()},
                  {"mask_question", expression},
                  {"scale_input", expression},
                  {"softcap", expression},
                  {"logit_scale", row()},
                  {"logits", linear({{"scale_input", expression}})},
                  {"classes", linear({{"vector", expression}})},
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
                  {"mean", texts},
                  {"between", texts}});
}

Rule compose() { return section({{"encoder", text}, {"decoder", text}, {"projection", linear()}}); }

const Rule& grammar() {
  static const Rule rule = section({{"model_type", texts},
                                    {"extends", text},
                                    {"kind", known(words<ModelKind>())},
                                    {"let", each(expression)},
                                    {"eos", expression},
                                    {"decoder_start", expression},
                                    {"shift_tokens", expression},
                                    {"separator", expression},
                                    {"rename", each(text)},
                                    {"refuse", each(text)},
                                    {"ignore", names},
                                    {"compose", compose()},
                                    {"stacks", each(stack())},
                                    {"heads", each(head())},
                                    {"architectures", each(section({{"task", known(words<Task>())},
                                                                    {"heads", texts},
                                                                    {"stacks", texts},
                                                                    {"kind", known(words<ModelKind>())},
                                                                    {"outputs", each(texts)},
                                                                    {"global_tokens", known(words<GlobalTokens>())},
                                                                    {"refuse", sentence},
                                                                    {"alias_of", text}}))}});
  return rule;
}

const Rule& under(const Rule& rule, std::string_view key) {
  return std::find_if(rule.keys.begin(), rule.keys.end(), [&](const Key& entry) { return entry.name == key; })->rule;
}

/// Returns the names of the rule's keys that `base` lacks.
std::vector<std::string> own_keys(const Rule& rule, const Rule& base = {}) {
  std::vector<std::string> names;
  for (const Key& key : rule.keys) {
    const bool shared =
        std::any_of(base.keys.begin(), base.keys.end(), [&](const Key& other) { return other.name == key.name; });
    if (!shared) names.emplace_back(key.name);
  }
  return names;
}

std::string listed(const std::vector<std::string_view>& list) {
  std::string all;
  for (std::string_view item : list) all += (all.empty() ? "" : ", ") + std::string(item);
  return all;
}

void check(const Node& node, const Rule& rule, const std::string& key);

void check_keys(const Node& node, const Rule& rule, const std::string& key) {
  if (!node.is_map()) refuse_policy(node, "\"" + key + "\" has to be a map");
  for (const auto& [name, value] : node.entries) {
    auto found = std::find_if(rule.keys.begin(), rule.keys.end(),
                              [&, &wanted = name.text](const auto& entry) { return entry.name == wanted; });
    if (found == rule.keys.end()) {
      std::vector<std::string_view> allowed;
      for (const auto& entry : rule.keys) allowed.push_back(entry.name);
      refuse_policy(name, "unknown key \"" + name.text + "\" in " + key + "; allowed are " + listed(allowed));
    }
    check(value, found->rule, name.text);
  }
}

void check_each(const Node& node, const std::string& key, const std::function<void(const Node&)>& one) {
  if (!node.is_list()) return one(node);
  if (node.items.empty()) refuse_policy(node, "\"" + key + "\" is an empty list");
  for (const Node& item : node.items) one(item);
}

void check_text(const Node& node, const std::string& key) {
  if (!node.is_scalar() || node.text.empty()) refuse_policy(node, "\"" + key + "\" has to be a word");
}

void check_word(const Node& node, const Rule& rule, const std::string& key) {
  check_text(node, key);
  if (std::find(rule.words.begin(), rule.words.end(), node.text) == rule.words.end()) check_expression(node);
}

void check_row(const Node& node, const Rule& rule, const std::string& key) {
  if (!node.is_map()) return check_each(node, key, check_template);
  check_keys(node, rule, key);
  if (!node.get("from") && !node.get("tie")) refuse_policy(node, "\"" + key + "\" has neither \"from\" nor \"tie\"");
}

/// Checks a map of conditions to messages.
void check_sentences(const Node& node, const std::string& key) {
  for (const auto& [condition, message] : node.entries) {
    check_expression(condition);
    check_text(message, key);
  }
}

void check(const Node& node, const Rule& rule, const std::string& key) {
  if (node.kind == Node::Kind::Null) return;
  switch (rule.kind) {
    case Rule::Kind::Expression:
      return check_expression(node);
    case Rule::Kind::Word:
      return check_word(node, rule, key);
    case Rule::Kind::Text:
      return check_text(node, key);
    case Rule::Kind::Texts:
      return check_each(node, key, [&](const Node& item) { check_text(item, key); });
    case Rule::Kind::Names:
      return check_each(node, key, check_template);
    case Rule::Kind::Sentence:
      return node.is_map() ? check_sentences(node, key) : check_text(node, key);
    case Rule::Kind::Known:
      check_text(node, key);
      if (std::find(rule.words.begin(), rule.words.end(), node.text) == rule.words.end()) {
        refuse_policy(node, "\"" + key + "\" is \"" + node.text + "\"; there are " + listed(rule.words));
      }
      return;
    case Rule::Kind::Flag:
      return node.is_map() ? check_keys(node, rule, key) : check_expression(node);
    case Rule::Kind::Bias:
      if (node.is_map()) {
        check_keys(node, rule, key);
        if (!node.get("from")) refuse_policy(node, "\"bias\" as a section needs \"from\"");
        return;
      }
      if (node.is_list() || (node.is_scalar() && node.text.starts_with('=')))
        return check_each(node, key, check_template);
      return check_expression(node);
    case Rule::Kind::Row:
      return check_row(node, rule, key);
    case Rule::Kind::Section:
      return check_keys(node, rule, key);
    case Rule::Kind::Each:
      if (!node.is_map()) refuse_policy(node, "\"" + key + "\" has to be a map");
      for (const auto& [name, value] : node.entries) check(value, rule.keys[0].rule, name.text);
      return;
    case Rule::Kind::Position:
      return node.is_map() ? check_keys(node, rule, key) : check_word(node, rule, key);
    case Rule::Kind::Rows:
      if (!node.is_list()) refuse_policy(node, "\"" + key + "\" has to be a list");
      for (const Node& item : node.items) check_row(item, rule, key);
  }
}

}  // namespace

namespace {

/// A kind of head: the key that makes a head one of it, and the keys that may stand beside it and those of every head.
struct HeadKind {
  std::string_view key;
  std::vector<std::string_view> beside;
};

/// Checks that a head is of one kind and has only the keys of that kind. A head without the key of any kind is one of
/// classes, whose scores are the states after its transform.
void check_head(const Node& name, const Node& head) {
  static const std::vector<std::string_view> of_every_head{"at", "when", "stack", "output"};
  static const std::vector<HeadKind> kinds{
      {"logits", {"pool", "dense", "act", "norm", "scale_input", "softcap", "layer_weights"}},
      {"time_delay", {"dense", "act", "norm", "scale_input", "layer_weights"}},
      {"codebook", {}},
      {"cells", {"classes", "pool", "dense", "act", "norm", "scale_input"}},
      {"spans", {"pool"}},
      {"pairs", {"pool"}},
      {"mean", {}},
      {"between", {"logit_scale"}},
      {"classes", {"pool", "mlp", "dense", "act", "norm", "scale_input", "mask_question", "layer_weights"}}};
  const auto kind =
      std::find_if(kinds.begin(), kinds.end() - 1, [&](const HeadKind& one) { return head.get(one.key); });
  const auto has = [](const std::vector<std::string_view>& keys, const std::string& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  for (const auto& [key, value] : head.entries) {
    if (value.kind == Node::Kind::Null || key.text == kind->key || has(of_every_head, key.text) ||
        has(kind->beside, key.text))
      continue;
    std::vector<std::string_view> allowed = of_every_head;
    allowed.insert(allowed.end(), kind->beside.begin(), kind->beside.end());
    refuse_policy(key, "\"" + key.text + "\" has no meaning in the head \"" + name.text + "\" of " +
                           std::string(kind->key) + "; allowed beside it are " + listed(allowed));
  }
}

/// Checks that a composite names its two parts, and that it describes nothing that their policies do.
void check_compose(const Node& policy, const Node& compose) {
  for (const char* key : {"encoder", "decoder"})
    if (!compose.get(key)) refuse_policy(compose, std::string("compose needs \"") + key + "\"");
  for (const char* key : {"stacks", "heads", "rename", "ignore"}) {
    if (const Node* node = policy.get(key))
      refuse_policy(*node, std::string("\"") + key + "\" cannot stand beside compose, for each part has a policy");
  }
}

}  // namespace

std::vector<std::pair<std::string, std::vector<std::string>>> grammar_keys() {
  const Rule &policy = grammar(), &stack = under(policy, "stacks").keys[0].rule,
             &head = under(policy, "heads").keys[0].rule;
  const Rule &input = under(stack, "input"), &attn = under(stack, "attn"), &output = under(stack, "output"),
             plain = row(), matrix = linear();
  return {{"policy", own_keys(policy)},
          {"architecture", own_keys(under(policy, "architectures").keys[0].rule)},
          {"compose", own_keys(under(policy, "compose"))},
          {"stack", own_keys(stack)},
          {"input", own_keys(input)},
          {"convolutions", own_keys(under(input, "convolutions"))},
          {"position", own_keys(under(input, "position"))},
          {"convolution", own_keys(under(under(input, "position"), "convolution"), matrix)},
          {"batch_norm", own_keys(under(under(under(input, "position"), "convolution"), "batch_norm"), plain)},
          {"tables", own_keys(under(input, "tables"), plain)},
          {"features", own_keys(under(input, "features"), matrix)},
          {"patches", own_keys(under(input, "patches"), matrix)},
          {"layer", own_keys(under(stack, "layer"))},
          {"attn", own_keys(attn)},
          {"cross", own_keys(under(stack, "cross"), attn)},
          {"sliding_window", own_keys(under(attn, "sliding_window"))},
          {"block_sparse", own_keys(under(attn, "block_sparse"))},
          {"alibi", own_keys(under(attn, "alibi"))},
          {"rotary", own_keys(under(attn, "rotary"))},
          {"relative_position_bias", own_keys(under(attn, "relative_position_bias"), plain)},
          {"qkv", own_keys(under(attn, "qkv"), matrix)},
          {"fused", own_keys(under(under(attn, "qkv"), "fused"))},
          {"mlp", own_keys(under(stack, "mlp"))},
          {"output", own_keys(output)},
          {"pooler", own_keys(under(output, "pooler"), plain)},
          {"head", own_keys(head)},
          {"logits", own_keys(under(head, "logits"), matrix)},
          {"classes", own_keys(under(head, "classes"), matrix)},
          {"cells", own_keys(under(head, "cells"))},
          {"spans", own_keys(under(head, "spans"))},
          {"pairs", own_keys(under(head, "pairs"))},
          {"time_delay", own_keys(under(head, "time_delay"))},
          {"codebook", own_keys(under(head, "codebook"))},
          {"parameter", own_keys(plain)},
          {"linear", own_keys(matrix, plain)},
          {"norm", own_keys(under(attn, "norm"), plain)},
          {"bias", own_keys(bias)}};
}

void validate(const Node& policy) {
  check(policy, grammar(), "the policy");
  for (const char* key : {"model_type", "kind", "architectures"}) {
    if (!policy.get(key)) refuse_policy(policy, std::string("the policy has no \"") + key + "\"");
  }
  const Node* compose = policy.get("compose");
  if (!policy.get("stacks") && !compose) refuse_policy(policy, "the policy has no \"stacks\"");
  if (compose) check_compose(policy, *compose);
  if (const Node* refusals = policy.get("refuse")) check_sentences(*refusals, "refuse");
  auto known = [&](const char* section, const Node& name) {
    const Node* map = policy.get(section);
    if (!map || !map->get(name.text))
      refuse_policy(name, "\"" + name.text + "\" is not one of the policy's " + section);
  };
  check_architectures(policy, known);
  if (const Node* heads = policy.get("heads")) {
    for (const auto& [name, head] : heads->entries) {
      check_head(name, head);
      if (const Node* stack = head.get("stack")) known("stacks", *stack);
      for (const char* key : {"between", "mean"}) {
        const Node* list = head.get(key);
        if (!list) continue;
        if (list->items.size() != 2) refuse_policy(*list, std::string("\"") + key + "\" has to list two heads");
        for (const Node& item : list->items) known("heads", item);
      }
    }
  }
}

}  // namespace pm::policy
