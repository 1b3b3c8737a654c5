// SPDX-License-Identifier: Apache-2.0
// POST /v1/audio/classifications: labels of a recording with their scores, as transformers' pipeline gives them.
#pragma once
#include "worker/server/http/operation.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

http::Response classify_audio(const ServerContext&, const RoutedRequest&);
Operation describe_audio_classification(const ServerContext&);

}  // namespace pm::server
