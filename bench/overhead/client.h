// SPDX-License-Identifier: Apache-2.0
// Load generator: concurrent clients that read as fast as they can, all in one thread.
#pragma once
#include <cstdint>

namespace pm::bench {

struct Asked {
  int port = 0;
  int64_t clients = 1, tokens = 1;
  bool stream = true;
};

/// Returns the seconds from the first request to the end of the last reply. Throws std::runtime_error unless every
/// reply is whole and has all its tokens.
double ask(const Asked&);

}  // namespace pm::bench
