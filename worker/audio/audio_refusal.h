// SPDX-License-Identifier: Apache-2.0
// The errors of refused audio.
#pragma once
#include <string>

#include "worker/base/error.h"

namespace pm::audio {

inline Error refused(const std::string& why) { return Error(Reason::AudioRefused, "the audio cannot be read: " + why); }

}  // namespace pm::audio
