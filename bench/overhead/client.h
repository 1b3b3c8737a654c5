// The other end of the wire: clients that ask at the same time and read as fast as they can, all in one thread.
#pragma once
#include <cstdint>

namespace pm::bench {

struct Asked {
  int port = 0;
  int64_t clients = 1, tokens = 1;
  bool stream = true;
};

/// Seconds from the first request to the last reply's end. Throws std::runtime_error unless every reply is whole and has all its tokens.
double ask(const Asked&);

}  // namespace pm::bench
