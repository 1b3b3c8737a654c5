// SPDX-License-Identifier: Apache-2.0
// Reads a text with the entities that it mentions from a request, as tensors of a forward pass.
#pragma once
#include <string>

#include "worker/server/http/json_body.h"
#include "worker/server/http/operation.h"
#include "worker/server/serving/server_context.h"

namespace pm::server {

/// Returns whether the model reads entities, and the checkpoint says how they are made of texts.
bool reads_entities_of_texts(const ServerContext&);

/// Returns the tensors of one row, made of `text` and of the fields entity_spans and entities of the request. With
/// `truncate` a text that is too long is cut, and entities behind it are left out. Throws ApiError 400 and 413.
Arrays parse_entity_inputs(Fields&, const ServerContext&, const std::string& text, bool truncate);

/// Returns the schemas of the fields text, entity_spans and entities.
schema::Properties entity_properties();

}  // namespace pm::server
