// SPDX-License-Identifier: Apache-2.0
// Stands for base/log.h in the fuzzers, which are built without torch: what is logged is dropped.
#pragma once
#include <ostream>

namespace pm::fuzz {

struct Dropped {
  template <class T>
  const Dropped& operator<<(const T&) const {
    return *this;
  }
};

}  // namespace pm::fuzz

#define LOG(severity) ::pm::fuzz::Dropped()
