// SPDX-License-Identifier: Apache-2.0
// Binder: makes tensor names, chooses prefixes, and reports the tensors that no parameter reads.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/policy/binder.h"

namespace pm::policy {

namespace {

constexpr std::string_view hole = "{l}";  // in a pattern: any number

/// `{l}` in the pattern stands for a number, `*` at its beginning for any beginning, at its end for any end.
bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.starts_with('*')) return name.ends_with(pattern.substr(1));
  const size_t at = pattern.find(hole);
  if (at == std::string_view::npos && pattern.ends_with('*'))
    return name.starts_with(pattern.substr(0, pattern.size() - 1));
  if (at == std::string_view::npos) return pattern == name;
  if (name.substr(0, at) != pattern.substr(0, at)) return false;
  size_t end = at;
  while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
  return end > at && matches(pattern.substr(at + hole.size()), name.substr(end));
}

/// Returns the patterns of `ignore`, with the values of the expressions in their braces but for {l}.
std::vector<std::string> ignore_patterns(const Node* node, const Variables& variables) {
  std::vector<std::string> patterns;
  const auto add = [&](const Node& one) {
    const size_t at = one.text.find(hole);
    Node parts[2] = {one, one};
    parts[0].text = one.text.substr(0, at);
    parts[1].text = at == std::string::npos ? "" : one.text.substr(at);
    patterns.push_back(interpolate(parts[0], variables) + parts[1].text);
  };
  if (node && node->is_scalar()) add(*node);
  if (node && node->is_list()) std::for_each(node->items.begin(), node->items.end(), add);
  return patterns;
}

/// Applies the policy's `rename`: each entry replaces an ending that begins at a dot.
std::string renamed(const std::string& name, const Node* renames) {
  if (!renames) return name;
  for (const auto& [from, to] : renames->entries) {
    if (name == from.text) return to.text;
    if (name.size() > from.text.size() && name.ends_with("." + from.text))
      return name.substr(0, name.size() - from.text.size()) + to.text;
  }
  return name;
}

std::string listed(const std::vector<std::string>& items, size_t most) {
  std::string all;
  for (size_t i = 0; i < std::min(most, items.size()); ++i) all += (i ? ", " : "") + items[i];
  return items.size() > most ? all + " and " + std::to_string(items.size() - most) + " more" : all;
}

/// Returns one line for all names that differ in numbers only, with their count.
template <typename Names>
std::vector<std::string> grouped(const Names& names) {
  std::map<std::string, std::vector<std::string>> forms;
  for (const std::string& name : names) {
    std::string form;
    for (char c : name) {
      const bool digit = c >= '0' && c <= '9';
      if (!digit)
        form += c;
      else if (form.empty() || form.back() != '#')
        form += '#';
    }
    forms[form].push_back(name);
  }
  std::vector<std::string> lines;
  for (const auto& [form, all] : forms) {
    lines.push_back(all.front() +
                    (all.size() > 1 ? " and " + std::to_string(all.size() - 1) + " more of this form" : ""));
  }
  return lines;
}

}  // namespace

std::optional<std::string> CheckpointView::own_name(const std::string& name) const {
  const auto begins = [&](const std::string& other) { return name.starts_with(other); };
  if (!begins(prefix) || std::any_of(others.begin(), others.end(), begins)) return std::nullopt;
  return name.substr(prefix.size());
}

Binder::Binder(const CheckpointView& view, const Node& policy)
    : view_(view),
      policy_(policy),
      ignored_(ignore_patterns(policy.get("ignore"),
                               {.config = &view.config, .lets = {policy.get("let")}, .layer = {}, .expert = {}})) {
  const Node* renames = policy.get("rename");
  for (const auto& [name, info] : view.checkpoint.tensors()) {
    const std::optional<std::string> own = view.own_name(name);
    if (!own) continue;
    const std::string known = renamed(*own, renames);
    auto [entry, fresh] = table_.emplace(known, &info);
    if (!fresh)
      problems_.push_back("the tensors \"" + entry->second->name + "\" and \"" + name + "\" are both \"" + known +
                          "\"");
  }
  for (const auto& [name, tensor] : view.checkpoint.unsupported()) {
    const std::optional<std::string> own = view.own_name(name);
    if (!own) continue;
    table_.emplace(renamed(*own, renames), nullptr);
    unserved_[renamed(*own, renames)] = tensor.type;
  }
}

const checkpoint::TensorInfo* Binder::find(const std::string& name) const {
  auto found = table_.find(name);
  return found == table_.end() ? nullptr : found->second;
}

std::optional<Binding> Binder::binding(const Node* node, const Variables& variables) const {
  if (!node) return std::nullopt;
  if (const Node* when = node->get("when"); when && !evaluate_bool(*when, variables)) return std::nullopt;
  return Binding{node};
}

std::vector<std::string> Binder::names(const Node& spelled, const Scope& scope, std::string_view suffix) const {
  std::vector<std::string> all;
  auto add = [&](const Node& one) {
    std::string text = interpolate(one, scope.variables);
    const bool whole = text.starts_with('=');
    if (whole) text.erase(0, 1);
    if (text.starts_with('/'))
      text.erase(0, 1);
    else
      text = scope.prefix + scope.at + text;
    all.push_back(whole ? text : text + std::string(suffix));
  };
  if (spelled.is_list())
    std::for_each(spelled.items.begin(), spelled.items.end(), add);
  else
    add(spelled);
  return all;
}

bool Binder::occurs(const std::string& prefix) const {
  auto at = table_.lower_bound(prefix);
  return at != table_.end() && at->first.starts_with(prefix);
}

bool Binder::has(const Node& spelled, const Scope& scope, std::string_view suffix) const {
  const std::vector<std::string> all = names(spelled, scope, suffix);
  return std::any_of(all.begin(), all.end(), [&](const std::string& name) { return find(name) != nullptr; });
}

void Binder::enter(const Node& at, Scope& scope) const {
  std::string chosen;
  if (!at.is_list()) chosen = interpolate(at, scope.variables);
  for (const Node& item : at.items) {
    chosen = interpolate(item, scope.variables);
    if (occurs(scope.prefix + scope.at + chosen)) break;
  }
  scope.at += chosen;
}

std::string Binder::prefix(const Node* spelled, const Variables& variables) {
  std::string chosen;
  if (spelled && spelled->is_scalar()) chosen = interpolate(*spelled, variables);
  if (spelled && spelled->is_list()) {
    for (const Node& item : spelled->items) {
      chosen = interpolate(item, variables);
      if (occurs(chosen)) break;
    }
  }
  prefixes_.insert(chosen);
  return chosen;
}

void Binder::read_part(const std::string& prefix, const Node* ignore) {
  part_ = prefix;
  ignored_in_part_ = texts_of(ignore);
}

bool Binder::ignored(const std::string& name) const {
  const auto in_part = [&](const std::string& pattern) {
    return matches(pattern, std::string_view(name).substr(part_.size()));
  };
  if (!part_.empty() &&
      (!name.starts_with(part_) || std::any_of(ignored_in_part_.begin(), ignored_in_part_.end(), in_part)))
    return true;
  if (std::any_of(left_out_.begin(), left_out_.end(),
                  [&](const std::string& other) { return name.starts_with(other); }))
    return true;
  return std::any_of(prefixes_.begin(), prefixes_.end(), [&](const std::string& prefix) {
    return name.starts_with(prefix) && std::any_of(ignored_.begin(), ignored_.end(), [&](const std::string& pattern) {
             return matches(pattern, std::string_view(name).substr(prefix.size()));
           });
  });
}

std::vector<std::string> Binder::finish() {
  std::vector<std::string> not_loaded, unknown;
  for (const auto& [where, names] : missing_) {
    for (const std::string& line : grouped(names)) problems_.push_back("no tensor " + line + " (" + where + ")");
  }
  for (const auto& [name, info] : table_) {
    if (used_.contains(name)) continue;
    const std::string shown = info ? info->name : view_.prefix + name;
    if (known_.contains(name) || ignored(name))
      not_loaded.push_back(shown);
    else
      unknown.push_back("\"" + shown + "\"");
  }
  if (problems_.empty() && unknown.empty()) return not_loaded;
  std::string message =
      view_.checkpoint.folder().string() + " does not fit the policy " + (policy_.file ? *policy_.file : "") + ": ";
  message += listed(problems_, 24);
  if (!unknown.empty()) {
    message += std::string(problems_.empty() ? "" : "; ") + "no parameter of the policy reads " +
               listed(grouped(unknown), 24) + " (add a parameter for it, or list it under `ignore`)";
  }
  throw Error(Reason::ModelUnreadable, message);
}

}  // namespace pm::policy
