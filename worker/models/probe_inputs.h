// SPDX-License-Identifier: Apache-2.0
// Inputs without content, with which a replica measures its memory and checks itself before it becomes ready.
#pragma once
#include "worker/base/array.h"
#include "worker/policy/spec/model.h"

namespace pm::models {

/// Returns an input without content for an encoder of images or audio: one black image, or silence of which it makes
/// `states` states. Throws std::logic_error where there is no such encoder.
Arrays blank_source(const policy::Model&, int64_t states);

/// Returns one black image for the tower whose rows stand among a prompt's tokens; nothing where there is none. Of a
/// tower of images of any size it has up to `patches` patches, and at least one square.
Arrays blank_image(const policy::Model&, int64_t patches = 1);

/// Returns the smallest inputs that the model takes: for each stack one token (its end token if it has one, because
/// some heads pool it), more if its heads need more, or one black image.
Arrays probe_inputs(const policy::Model&);

}  // namespace pm::models
