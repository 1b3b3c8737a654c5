// A validated policy: `extends` and `like` are resolved, every key is known, every expression parses.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/policy/node.h"

namespace pm::policy {

/// A policy file that is part of the binary; `name` is "gpt2" for policies/gpt2.yaml.
struct Builtin { std::string_view name, text; };
std::span<const Builtin> builtins();

/// Parses and validates a policy's text. Throws Error{Model, "UnsupportedPolicy"} with file, line and, for an unknown key, those allowed.
Node parse_policy(const std::string& text, const std::string& file);
/// The built-in policy for a model_type; throws Error{Model, "UnknownArchitecture"} that lists those there are.
Node builtin_policy(const std::string& model_type);
/// A policy of the user. Throws also when the file cannot be read.
Node load_policy(const std::filesystem::path& file);
/// The model types that a policy is for: `model_type: gpt2` or a list.
std::vector<std::string> model_types(const Node& policy);

/// Checks keys, words and expressions of a merged policy against the grammar of policies.
void validate(const Node& policy);

/// Which keys a section of a policy may have: the section's name, or that of the row it is a kind of ("row", "linear", "norm row"), and its keys
/// without those of the kind. docs/policies.md is held to it.
std::vector<std::pair<std::string, std::vector<std::string>>> grammar_keys();

}  // namespace pm::policy
