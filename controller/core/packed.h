// JSON in little memory: a tenth of what the tree of a Json takes, for what is kept long and looked at now and then.
#pragma once
#include <cstdint>
#include <memory>

#include "controller/core/json.h"

namespace pm::k8s {

/// An immutable value; copies share its bytes. Names of members, and words that values have in common ("True", kinds, reasons), are written once for the whole process: the
/// first 4,096 of at most 64 bytes that come a second time, of values those without digits. Reading takes no lock.
class Packed {
 public:
  Packed() = default;                     ///< null
  /// Throws std::invalid_argument for binary values, which no JSON text holds.
  explicit Packed(const Json&);
  /// Equal to what was packed, types of numbers included.
  Json unpack() const;
  /// The same bytes: then the values are equal. Equal values may have different bytes, for words are learnt.
  bool same_bytes(const Packed&) const;
  size_t size() const { return size_; }

 private:
  std::shared_ptr<const char[]> bytes_;
  uint32_t size_ = 0;
};

}  // namespace pm::k8s
