// SPDX-License-Identifier: Apache-2.0
// POST /embed: the vector of a recording, such as a speaker's x-vector.
#pragma once
#include "worker/server/http/operation.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

http::Response embed_audio(const ServerContext&, const RoutedRequest&);
Operation describe_audio_embedding(const ServerContext&);

}  // namespace pm::server
