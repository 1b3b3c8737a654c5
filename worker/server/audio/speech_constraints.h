// SPDX-License-Identifier: Apache-2.0
// Constraints of the tokens of speech: the rules of times, and a language that is recognized.
#pragma once
#include <memory>

#include "worker/engine/token_constraint.h"
#include "worker/server/serving/speech_tokens.h"

namespace pm::server {

/// Returns the rules by which times are written, those of transformers' WhisperTimeStampLogitsProcessor. The answer
/// begins with a time of at most `most_initial`. A second time in a row ends a segment and begins the next, so text or
/// the end (`end` and the special tokens behind it) follow two times, and a time or the end follow one that text stands
/// before. Times do not decrease, and only the beginning of a segment equals the end of the one before. Where the times
/// are together more probable than each other token, one of them is written.
std::shared_ptr<const engine::TokenConstraint> times_constraint(const SpeechTokens&, int32_t end);

/// Returns the constraint of one token: that of a language.
std::shared_ptr<const engine::TokenConstraint> language_constraint(const SpeechTokens&);

}  // namespace pm::server
