// POST /generate and GET /generate_text/<text>: Hugging Face's generate over HTTP.
#pragma once
#include "worker/server/completions.h"

namespace pm::server {

/// {"inputs" or "input_ids", "parameters": {...}} gives {"generated_text", ...}; several inputs, or several sequences of one, give lists. With
/// stream: true server-sent events, one per token, in text-generation-inference's form.
http::Response generate(const Serving&, const Call&);

/// The predecessor's API: {"inputs": text, "outputs": text and its continuation}; the query has /generate's parameters.
http::Response generate_text(const Serving&, const Call&);

}  // namespace pm::server
