// SPDX-License-Identifier: Apache-2.0
// Validates policies by the grammar.
#include <algorithm>
#include <functional>

#include "worker/policy/document.h"
#include "worker/policy/expression.h"
#include "worker/policy/keywords.h"
#include "worker/policy/schema/grammar.h"

namespace pm::policy {

namespace {

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
  if (node.get("weight")) return;  // a norm that may have no parameters
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
      {"logits", {"pool", "entities", "streams", "dense", "act", "norm", "scale_input", "softcap", "layer_weights"}},
      {"time_delay", {"dense", "act", "norm", "scale_input", "layer_weights"}},
      {"codebook", {}},
      {"boxes", {}},
      {"pixel_shuffle", {}},
      {"score_clusters", {}},
      {"masks", {}},
      {"cells", {"classes", "pool", "dense", "act", "norm", "scale_input"}},
      {"spans", {"pool"}},
      {"pairs", {"pool"}},
      {"mean", {}},
      {"between", {"logit_scale"}},
      {"classes",
       {"pool", "entities", "mlp", "dense", "act", "norm", "scale_input", "mask_question", "layer_weights"}}};
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

/// Checks that a section has the keys that it needs.
void check_needed(const Node& section, const std::string& name, const std::vector<const char*>& needed) {
  for (const char* key : needed)
    if (!section.get(key)) refuse_policy(section, name + " needs \"" + key + "\"");
}

/// Checks that a model of several families names what it needs, and that it describes nothing that their policies do.
void check_parts(const Node& policy, const std::string& name, const std::vector<const char*>& needed) {
  const Node& section = *policy.get(name);
  check_needed(section, name, needed);
  for (const char* key : {"stacks", "heads", "rename", "ignore", "section", "images"}) {
    if (const Node* node = policy.get(key))
      refuse_policy(*node, std::string("\"") + key + "\" cannot stand beside " + name + ", for each part has a policy");
  }
}

/// Checks that every class of a model that retrieves says how it marginalises, and no other one does.
void check_marginals(const Node& policy) {
  for (const auto& [name, row] : policy.get("architectures")->entries) {
    const Node *marginal = row.get("marginal"), *task = row.get("task");
    if (policy.get("retrieve") && task && !marginal)
      refuse_policy(name, "the architecture " + name.text + " has no \"marginal\", which retrieve needs");
    if (!policy.get("retrieve") && marginal)
      refuse_policy(*marginal, "\"marginal\" has no meaning without \"retrieve\"");
  }
}

}  // namespace

void validate(const Node& policy) {
  check(policy, grammar(), "the policy");
  for (const char* key : {"model_type", "kind", "architectures"}) {
    if (!policy.get(key)) refuse_policy(policy, std::string("the policy has no \"") + key + "\"");
  }
  const Node *compose = policy.get("compose"), *retrieve = policy.get("retrieve");
  if (!policy.get("stacks") && !compose && !retrieve) refuse_policy(policy, "the policy has no \"stacks\"");
  if (compose && retrieve) refuse_policy(*retrieve, "\"retrieve\" cannot stand beside compose");
  if (compose) check_parts(policy, "compose", {"encoder", "decoder"});
  if (retrieve)
    check_parts(policy, "retrieve",
                {"prefix", "question_encoder", "generator", "docs", "max_length", "text_prefix", "title_sep", "doc_sep",
                 "deduplicate"});
  if (const Node* images = policy.get("images")) {
    check_needed(*images, "images", {"section", "prefix", "token", "projector"});
    check_needed(*images->get("projector"), "projector", {"prefix", "first"});
    if (const Node* deep = images->get("deepstack")) check_needed(*deep, "deepstack", {"prefix", "first", "states"});
  }
  if (const Node* refusals = policy.get("refuse")) check_sentences(*refusals, "refuse");
  auto known = [&](const char* section, const Node& name) {
    const Node* map = policy.get(section);
    if (!map || !map->get(name.text))
      refuse_policy(name, "\"" + name.text + "\" is not one of the policy's " + section);
  };
  check_architectures(policy, known);
  check_marginals(policy);
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
