// SPDX-License-Identifier: Apache-2.0
// Serves POST /generate and GET /generate_text/<text>, Hugging Face's generate over HTTP.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Takes {"inputs" or "input_ids", "parameters": {...}} and replies {"generated_text", ...}; several inputs, or several
/// sequences of one input, give lists. With stream: true it sends server-sent events, one per token, in the form of
/// text-generation-inference.
http::Response generate(const ServerContext&, const RoutedRequest&);
Operation describe_generate(const ServerContext&);

/// Serves the predecessor's API: replies {"inputs": text, "outputs": text and its continuation}. The query takes the
/// parameters of /generate.
http::Response generate_text(const ServerContext&, const RoutedRequest&);
Operation describe_generate_text(const ServerContext&);

}  // namespace pm::server
