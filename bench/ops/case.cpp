// SPDX-License-Identifier: Apache-2.0
#include "bench/ops/case.h"

#include <stdexcept>

namespace pm::bench {

const char* type_name(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "F32";
    case at::kHalf:
      return "F16";
    case at::kBFloat16:
      return "BF16";
    case at::kChar:
      return "I8";
    case at::kByte:
      return "I4";
    default:
      throw std::logic_error(std::string("no case has the type ") + c10::toString(type));
  }
}

double rounding_error(at::ScalarType type) { return type == at::kHalf ? 0x1p-11 : type == at::kBFloat16 ? 0x1p-8 : 0; }

}  // namespace pm::bench
