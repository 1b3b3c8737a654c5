// Text and numbers out of objects that we did not write, and into messages that people read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "controller/core/json.h"

namespace pm::op {

/// At most `bytes` of text, cut between characters with "..." at the end; control characters become spaces. For every text that did not
/// come from this program: API fields are bounded, and a status that is refused must never stop the operator.
std::string clip(std::string_view text, size_t bytes);
/// A CamelCase word that a condition takes as its reason, or `fallback`.
std::string reason_word(std::string_view text, const std::string& fallback);
/// "1.5 GiB", "12 MiB", "7 B"
std::string bytes_text(int64_t bytes);

/// The integer at a pointer when it is there and fits.
std::optional<int64_t> integer_at(const k8s::Json& object, std::string_view pointer);
bool bool_at(const k8s::Json& object, std::string_view pointer);
/// The value at a pointer, or null.
const k8s::Json& at(const k8s::Json& object, std::string_view pointer);
std::string annotation_of(const k8s::Json& object, const std::string& name);
/// A whole decimal number, or nothing.
std::optional<int64_t> number_of(const std::string& text);

}  // namespace pm::op
