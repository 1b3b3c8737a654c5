// The grammar of policy files as one table: which keys stand where and what their values are. Whatever it lets through, resolve.cpp reads.
#include <algorithm>
#include <functional>

#include "worker/policy/document.h"
#include "worker/policy/expression.h"
#include "worker/policy/words.h"

namespace pm::policy {

namespace {

struct Key;

struct Rule {
  enum class Kind : uint8_t {
    Expression,   ///< a scalar over config.json
    Word,         ///< one of `words`, or an expression that gives one
    Text,         ///< a plain scalar
    Texts,        ///< one or a list of them
    Names,        ///< one or a list of name templates
    Bias,         ///< an expression (true, false), names of whole tensors ([..] or =name), or a section with `keys` that has them as `from`
    Row,          ///< names, or a section that has them as `from`
    Section,      ///< a map with `keys`
    Each,         ///< a map with any keys, each value as keys[0]
    Flag,         ///< an expression (true, false), or a section with `keys` that is on unless its `when` is false
    Sentence,     ///< a plain scalar, or a map from expressions to such
    Known,        ///< a plain scalar that is one of `words`
    Position,     ///< a word of `words`, or a section with `keys`
    Rows,         ///< a list of Row
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

const Rule expression{Rule::Kind::Expression}, text{Rule::Kind::Text}, texts{Rule::Kind::Texts}, names{Rule::Kind::Names},
    sentence{Rule::Kind::Sentence}, bias{Rule::Kind::Bias, {}, {{"from", names}, {"when", expression}, {"optional", expression}}};

Rule word(std::vector<std::string_view> words) { return {Rule::Kind::Word, std::move(words)}; }
Rule section(Keys keys) { return {Rule::Kind::Section, {}, std::move(keys)}; }
Rule known(std::vector<std::string_view> words) { return {Rule::Kind::Known, std::move(words)}; }
Rule each(Rule value) { return {Rule::Kind::Each, {}, {{"", std::move(value)}}}; }

Keys operator+(Keys a, Keys b) {
  for (auto& entry : b) a.push_back(std::move(entry));
  return a;
}

/// Any parameter: `from` names it, `tie` says whose storage it may share, `optional` lets it be absent from the checkpoint, `first` lets its
/// names be different tensors, of which the first that is there counts.
Keys row_keys() { return {{"from", names}, {"tie", text}, {"when", expression}, {"optional", expression}, {"first", expression}}; }
Rule row(Keys more = {}) { return {Rule::Kind::Row, {}, row_keys() + std::move(more)}; }
Rule linear(Keys more = {}) {
  return row(Keys{{"bias", bias}, {"stored", word(stored_words)}, {"keep", word(keep_words)}} + std::move(more));
}
Rule norm_row() { return row({{"bias", bias}, {"kind", word(norm_words)}, {"eps", expression}}); }

Keys block_keys() {
  return {{"at", names}, {"norm", norm_row()}, {"post_norm", norm_row()}, {"bias", expression}, {"stored", word(stored_words)}};
}

Rule attention(Keys more = {}) {
  const Rule fused{Rule::Kind::Position, fused_words, {{"blocks", expression}, {"order", texts}}};
  const Rule rotary = section({{"when", expression}, {"style", word(rotary_words)}, {"dims", expression}, {"theta", expression}, {"scaling", expression}, {"values", expression}});
  const Rule alibi{Rule::Kind::Flag, {}, {{"when", expression}, {"scaled", expression}, {"bf16", expression}}};
  return section(block_keys() + Keys{{"mask", word(mask_words)}, {"scale", expression}, {"window", expression}, {"alibi", alibi}, {"softcap", expression},
                                     {"heads", expression}, {"kv_heads", expression}, {"head_dim", expression}, {"rotary", rotary},
                                     {"bucket_bias", row({{"layer", expression}, {"buckets", expression}, {"far", expression}, {"bidirectional", expression}})},
                                     {"query_norm", norm_row()}, {"key_norm", norm_row()}, {"qkv", linear({{"fused", fused}})}, {"q", linear()}, {"k", linear()}, {"v", linear()}, {"out", linear()}} + std::move(more));
}

Rule stack() {
  const Rule position{Rule::Kind::Position, position_words, {{"learned", row()}, {"sinusoidal", word(sinusoid_words)}, {"offset", expression}, {"kept", expression}, {"cells", expression},
                                                             {"rows", expression}, {"given", word(given_words)}, {"last", expression}}};
  const Rule tables{Rule::Kind::Rows, {}, row_keys() + Keys{{"input", text}, {"rows", expression}, {"column", expression}, {"minus", expression}, {"given", expression}, {"usual", expression}}};
  const Rule input = section({{"at", names}, {"token", row()}, {"scale", expression}, {"position", position}, {"tables", tables},
                              {"features", linear({{"input", text}, {"mask", text}, {"position", row()}, {"align", text}, {"tables", tables}})},
                              {"projection", linear()}, {"patches", linear({{"channels", expression}, {"size", expression}})},
                              {"class_token", row()}, {"distillation_token", row()}, {"norm", norm_row()}});
  const Rule layer = section({{"at", names}, {"order", word(order_words)}, {"norm", word(norm_words)}, {"bias", expression}, {"stored", word(stored_words)},
                              {"residual_normed", expression}});
  const Rule mlp = section(block_keys() + Keys{{"act", word(activation_words)}, {"up", linear()}, {"gate", linear()}, {"gate_up", linear()}, {"down", linear()}});
  const Rule pooler = section(row_keys() + Keys{{"bias", bias}, {"stored", word(stored_words)}, {"act", word(activation_words)},
                                                {"pool", word(pooler_words)}, {"norm", norm_row()}});
  const Rule output = section({{"at", names}, {"norm", norm_row()}, {"projection", linear()}, {"states", word(states_words)}, {"pooler", pooler}});
  Keys keys{{"like", text}, {"when", expression}, {"prefix", names}, {"let", each(expression)}, {"input", input}, {"layer", layer},
            {"attn", attention()}, {"cross", attention({{"source", text}, {"when", expression}})}, {"mlp", mlp}, {"output", output}};
  for (std::string_view name : size_words) keys.push_back({name, expression});
  return section(std::move(keys));
}

Rule head() {
  return section({{"at", names}, {"when", expression}, {"stack", text}, {"pool", word(pool_words)}, {"dense", linear()},
                  {"act", word(activation_words)}, {"norm", norm_row()}, {"scale_input", expression}, {"softcap", expression}, {"scalar", row()},
                  {"logits", linear({{"scale_input", expression}})}, {"classes", linear({{"vector", expression}})}, {"output", texts},
                  {"cells", section({{"columns", linear()}, {"temperature", expression}, {"rows", expression}, {"across", expression}, {"empty", expression}})},
                  {"spans", section({{"at", names}, {"start", linear()}, {"end_dense", linear()}, {"end_norm", norm_row()}, {"end", linear()}, {"answer_dense", linear()}, {"answer", linear()},
                                     {"starts", expression}, {"ends", expression}})},
                  {"pairs", section({{"query", linear()}, {"key", linear()}, {"chosen", text}})}, {"mean", texts}, {"between", texts}});
}

const Rule& grammar() {
  static const Rule rule = section({{"model_type", texts}, {"extends", text}, {"topology", known(topology_words)}, {"let", each(expression)},
                                    {"eos", expression}, {"decoder_start", expression}, {"wraps", expression},
                                    {"rename", each(text)}, {"refuse", each(text)}, {"ignore", names}, {"stacks", each(stack())}, {"heads", each(head())},
                                    {"architectures", each(section({{"task", known(task_words)}, {"heads", texts}, {"stacks", texts},
                                                                    {"topology", known(topology_words)}, {"outputs", each(texts)},
                                                                    {"refuse", sentence}, {"as", text}}))}});
  return rule;
}

const Rule& under(const Rule& rule, std::string_view key) {
  return std::find_if(rule.keys.begin(), rule.keys.end(), [&](const Key& entry) { return entry.name == key; })->rule;
}

/// Names of the rule's keys that `base` does not have.
std::vector<std::string> own_keys(const Rule& rule, const Rule& base = {}) {
  std::vector<std::string> names;
  for (const Key& key : rule.keys) {
    const bool shared = std::any_of(base.keys.begin(), base.keys.end(), [&](const Key& other) { return other.name == key.name; });
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
    auto found = std::find_if(rule.keys.begin(), rule.keys.end(), [&, &wanted = name.text](const auto& entry) { return entry.name == wanted; });
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

/// {condition: message}
void check_sentences(const Node& node, const std::string& key) {
  for (const auto& [condition, message] : node.entries) {
    check_expression(condition);
    check_text(message, key);
  }
}

void check(const Node& node, const Rule& rule, const std::string& key) {
  if (node.kind == Node::Kind::Null) return;
  switch (rule.kind) {
    case Rule::Kind::Expression: return check_expression(node);
    case Rule::Kind::Word: return check_word(node, rule, key);
    case Rule::Kind::Text: return check_text(node, key);
    case Rule::Kind::Texts: return check_each(node, key, [&](const Node& item) { check_text(item, key); });
    case Rule::Kind::Names: return check_each(node, key, check_template);
    case Rule::Kind::Sentence: return node.is_map() ? check_sentences(node, key) : check_text(node, key);
    case Rule::Kind::Known:
      check_text(node, key);
      if (std::find(rule.words.begin(), rule.words.end(), node.text) == rule.words.end()) {
        refuse_policy(node, "\"" + key + "\" is \"" + node.text + "\"; there are " + listed(rule.words));
      }
      return;
    case Rule::Kind::Flag: return node.is_map() ? check_keys(node, rule, key) : check_expression(node);
    case Rule::Kind::Bias:
      if (node.is_map()) {
        check_keys(node, rule, key);
        if (!node.get("from")) refuse_policy(node, "\"bias\" as a section needs \"from\"");
        return;
      }
      if (node.is_list() || (node.is_scalar() && node.text.starts_with('='))) return check_each(node, key, check_template);
      return check_expression(node);
    case Rule::Kind::Row: return check_row(node, rule, key);
    case Rule::Kind::Section: return check_keys(node, rule, key);
    case Rule::Kind::Each:
      if (!node.is_map()) refuse_policy(node, "\"" + key + "\" has to be a map");
      for (const auto& [name, value] : node.entries) check(value, rule.keys[0].rule, name.text);
      return;
    case Rule::Kind::Position: return node.is_map() ? check_keys(node, rule, key) : check_word(node, rule, key);
    case Rule::Kind::Rows:
      if (!node.is_list()) refuse_policy(node, "\"" + key + "\" has to be a list");
      for (const Node& item : node.items) check_row(item, rule, key);
  }
}

}  // namespace

namespace {

/// Each class has a task, or a sentence that says why it has none; the heads and stacks it names are there.
void check_architectures(const Node& policy, const std::function<void(const char*, const Node&)>& known) {
  for (const auto& [name, architecture] : policy.get("architectures")->entries) {
    if (!architecture.is_map()) refuse_policy(name, "the architecture " + name.text + " has no task");
    if (const Node* other = architecture.get("as")) {
      known("architectures", *other);
      if (architecture.entries.size() > 1 || policy.get("architectures")->get(other->text)->get("as")) {
        refuse_policy(*other, "\"as\" stands alone and names a class that is described");
      }
      continue;
    }
    const Node* heads = architecture.get("heads");
    for (const char* section : {"heads", "stacks"}) {
      if (const Node* list = architecture.get(section)) check_each(*list, section, [&](const Node& item) { known(section, item); });
    }
    const Node* refusal = architecture.get("refuse");
    if (!architecture.get("task") && !(refusal && refusal->is_scalar())) refuse_policy(name, "the architecture " + name.text + " has no task");
    const Node* outputs = architecture.get("outputs");
    for (const auto& [head, output] : outputs ? outputs->entries : decltype(outputs->entries){}) {
      bool listed = false;
      if (heads) check_each(*heads, "heads", [&, &wanted = head.text](const Node& item) { listed = listed || item.text == wanted; });
      if (!listed) refuse_policy(head, "outputs: \"" + head.text + "\" is not one of the heads of " + name.text);
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::vector<std::string>>> grammar_keys() {
  const Rule &policy = grammar(), &stack = under(policy, "stacks").keys[0].rule, &head = under(policy, "heads").keys[0].rule;
  const Rule &input = under(stack, "input"), &attn = under(stack, "attn"), &output = under(stack, "output"), plain = row(), matrix = linear();
  return {{"policy", own_keys(policy)}, {"architecture", own_keys(under(policy, "architectures").keys[0].rule)}, {"stack", own_keys(stack)},
          {"input", own_keys(input)}, {"position", own_keys(under(input, "position"))}, {"tables", own_keys(under(input, "tables"), plain)},
          {"features", own_keys(under(input, "features"), matrix)}, {"patches", own_keys(under(input, "patches"), matrix)}, {"layer", own_keys(under(stack, "layer"))}, {"attn", own_keys(attn)},
          {"cross", own_keys(under(stack, "cross"), attn)}, {"alibi", own_keys(under(attn, "alibi"))}, {"rotary", own_keys(under(attn, "rotary"))}, {"bucket_bias", own_keys(under(attn, "bucket_bias"), plain)},
          {"qkv", own_keys(under(attn, "qkv"), matrix)}, {"fused", own_keys(under(under(attn, "qkv"), "fused"))}, {"mlp", own_keys(under(stack, "mlp"))}, {"output", own_keys(output)},
          {"pooler", own_keys(under(output, "pooler"), plain)}, {"head", own_keys(head)}, {"logits", own_keys(under(head, "logits"), matrix)}, {"classes", own_keys(under(head, "classes"), matrix)}, {"cells", own_keys(under(head, "cells"))},
          {"spans", own_keys(under(head, "spans"))}, {"pairs", own_keys(under(head, "pairs"))},
          {"row", own_keys(plain)}, {"linear", own_keys(matrix, plain)}, {"norm row", own_keys(under(attn, "norm"), plain)},
          {"bias", own_keys(bias)}};
}

void validate(const Node& policy) {
  check(policy, grammar(), "the policy");
  for (const char* key : {"model_type", "topology", "stacks", "architectures"}) {
    if (!policy.get(key)) refuse_policy(policy, std::string("the policy has no \"") + key + "\"");
  }
  if (const Node* refusals = policy.get("refuse")) check_sentences(*refusals, "refuse");
  auto known = [&](const char* section, const Node& name) {
    const Node* map = policy.get(section);
    if (!map || !map->get(name.text)) refuse_policy(name, "\"" + name.text + "\" is not one of the policy's " + section);
  };
  check_architectures(policy, known);
  if (const Node* heads = policy.get("heads")) {
    for (const auto& [name, head] : heads->entries) {
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
