// SPDX-License-Identifier: Apache-2.0
// Declares how values are read from untrusted objects and clipped for messages.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "controller/core/json.h"

namespace pm::op {

/// Truncates text to at most `bytes` at a character boundary, with "..." at the end; control characters become spaces.
/// It is used for every text from outside: API fields are bounded, and a refused status must never stop the operator.
std::string clip(std::string_view text, size_t bytes);
/// Returns `text` when it is a CamelCase word that a condition takes as its reason, else `fallback`.
std::string reason_word(std::string_view text, const std::string& fallback);

/// Returns the integer at a JSON pointer; nullopt when it is absent or does not fit.
std::optional<int64_t> integer_at(const k8s::Json& object, std::string_view pointer);
bool bool_at(const k8s::Json& object, std::string_view pointer);
/// Returns the value at a JSON pointer, or null.
const k8s::Json& at(const k8s::Json& object, std::string_view pointer);
std::string annotation_of(const k8s::Json& object, const std::string& name);
/// Parses a decimal integer; returns nullopt for any other text.
std::optional<int64_t> parse_integer(const std::string& text);

}  // namespace pm::op
