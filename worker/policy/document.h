// SPDX-License-Identifier: Apache-2.0
// Loads and validates policies: `extends` and `like` are resolved, every key is known, every expression parses.
#pragma once
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/policy/node.h"

namespace pm::policy {

/// A policy file that is part of the binary; `name` is "gpt2" for policies/gpt2.yaml.
struct Builtin {
  std::string_view name, text;
};
std::span<const Builtin> builtins();

/// Parses and validates a policy's text. Throws Error{UnsupportedPolicy} with file, line and, for an unknown
/// key, those allowed.
Node parse_policy(const std::string& text, const std::string& file);
/// Returns the built-in policy for a model_type. Throws Error{UnknownArchitecture} that lists the known
/// types.
Node builtin_policy(const std::string& model_type);
/// Loads a policy file of the user. Throws as parse_policy, and when the file cannot be read.
Node load_policy(const std::filesystem::path& file);
/// Returns the model types of a policy: `model_type: gpt2` or a list.
std::vector<std::string> model_types(const Node& policy);

/// Checks keys, words and expressions of a merged policy against the grammar of policies.
void validate(const Node& policy);
/// Checks that each class has a task or a refusal, and that the heads and stacks it names exist. `known` throws for a
/// name that the section lacks.
void check_architectures(const Node& policy, const std::function<void(const char* section, const Node& name)>& known);

/// Returns the keys of each section of a policy. A section that extends another ("parameter", "linear", "norm") lists
/// only its own keys. A test compares docs/reference/policies.md with it.
std::vector<std::pair<std::string, std::vector<std::string>>> grammar_keys();

}  // namespace pm::policy
