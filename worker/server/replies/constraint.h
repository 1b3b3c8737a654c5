// SPDX-License-Identifier: Apache-2.0
// Structured outputs: reads response_format and structured_outputs of a request and makes the engine's constraint.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "worker/engine/token_constraint.h"
#include "worker/server/http/json_body.h"
#include "worker/tokenizer/token_matcher.h"

namespace pm::server {

/// Limits of a constraint; the text of a schema is its JSON.
constexpr size_t max_constraint_bytes = 128 << 10, max_choices = 1024;

/// What an answer has to follow, as the request says it.
struct ConstraintSpec {
  ConstraintKind kind = ConstraintKind::JsonSchema;
  std::string text;   ///< a schema has its keys in the order of the request, in which they are generated
  std::string field;  ///< that says so, for messages
};

/// Reads "response_format" of OpenAI's API and "structured_outputs" of vLLM's; `body` is the request's text. Returns
/// nothing where neither constrains the answer. Throws ApiError 400: a form that is not known, or both at once.
std::optional<ConstraintSpec> read_constraint(Fields&, std::string_view body);
/// Reads the same fields or "grammar" of Hugging Face's text-generation-inference, of which a body may have some under
/// "parameters". Throws likewise.
std::optional<ConstraintSpec> read_generate_constraint(Fields&, std::string_view body);

/// Compiles the constraint of an answer that begins at nothing (`at_start`) or continues a text. Throws ApiError 400
/// with the reason why it cannot be held.
std::shared_ptr<const engine::TokenConstraint> make_constraint(const Tokenizer*, const ConstraintSpec&, bool at_start);

}  // namespace pm::server
