// SPDX-License-Identifier: Apache-2.0
// POST /v1/audio/transcriptions: the text of a recording, and /v1/audio/translations: the same in English. Compatible
// with OpenAI's API.
#pragma once
#include "worker/server/http/operation.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

http::Response transcribe(const ServerContext&, const RoutedRequest&);
Operation describe_transcription(const ServerContext&);
http::Response translate(const ServerContext&, const RoutedRequest&);
Operation describe_translation(const ServerContext&);

}  // namespace pm::server
