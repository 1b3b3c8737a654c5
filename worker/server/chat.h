// POST /v1/chat/completions, OpenAI's.
#pragma once
#include "worker/server/completions.h"

namespace pm::server {

/// A conversation through the checkpoint's chat template, plain or as server-sent events. A model without a template is refused with 400.
http::Response create_chat_completion(const Serving&, const Call&);

}  // namespace pm::server
