// SPDX-License-Identifier: Apache-2.0
// PyTorch's FlashAttention (aten::_flash_attention_forward) on the fake device.
#pragma once
#include <cstdint>

namespace pm::fake_device {

/// Returns how often it was called in this process.
int64_t flash_attention_calls();

}  // namespace pm::fake_device
