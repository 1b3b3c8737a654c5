// SPDX-License-Identifier: Apache-2.0
// A buffer allocated by the Rust side, freed with this object.
#pragma once
#include <string>

#include "worker/tokenizer/ffi/textops.h"

namespace pm {

struct Buffer : TxBuf {
  Buffer() : TxBuf{nullptr, 0} {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { tx_buf_free(*this); }
  std::string text() const { return {reinterpret_cast<const char*>(ptr), len}; }
};

}  // namespace pm
