// SPDX-License-Identifier: Apache-2.0
// Serves POST /question-answering: the extractive pipeline of transformers 4, which later releases dropped.
#pragma once
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Replies with spans of the context and their scores. Throws ApiError.
http::Response question_answering(const ServerContext&, const RoutedRequest&);
/// Describes the route for GET /openapi.json.
Operation describe_question_answering(const ServerContext&);

}  // namespace pm::server
