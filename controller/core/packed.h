// SPDX-License-Identifier: Apache-2.0
// A compact serialization of JSON for objects that are stored long and read rarely. It takes a tenth of the memory of
// Json.
#pragma once
#include <cstdint>
#include <memory>

#include "controller/core/json.h"

namespace pm::k8s {

/// An immutable value; copies share its bytes. Names of members, and words that values have in common ("True", kinds,
/// reasons), are written once for the whole process: the first 4,096 of at most 64 bytes that come a second time, of
/// values those without digits. Reading takes no lock.
class Packed {
 public:
  Packed() = default;  ///< null
  /// Throws std::invalid_argument for binary values, which no JSON text holds.
  explicit Packed(const Json&);
  /// Returns a value equal to the packed one, including the types of numbers.
  Json unpack() const;
  /// Returns whether the bytes are equal, which implies equal values. Equal values may have different bytes, because
  /// the table of words grows over time.
  bool same_bytes(const Packed&) const;
  size_t size() const { return size_; }

 private:
  std::shared_ptr<const char[]> bytes_;
  uint32_t size_ = 0;
};

}  // namespace pm::k8s
