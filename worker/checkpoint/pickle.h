// SPDX-License-Identifier: Apache-2.0
// Reads the tensors that a pickled state_dict describes. The reader knows only the opcodes and the few names that
// torch.save uses for a dictionary of tensors, runs no code and refuses everything else by name.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pm::checkpoint {

/// One tensor as the pickle describes it, not yet checked against its storage.
struct PickledTensor {
  std::string name;
  std::string storage;    ///< key of its storage: the record data/<key>
  std::string_view type;  ///< safetensors' name of the type: F32, BF16, ..., C64, C128
  int64_t element_bytes = 0;
  int64_t elements = 0;                 ///< of the storage
  int64_t offset = 0;                   ///< of the first element in the storage, in elements
  std::vector<int64_t> shape, strides;  ///< as many as dimensions, in elements, all >= 0
};

/// Reads the bytes of data.pkl; `file` names it in errors. It does not recurse, and its memory is bounded by a multiple
/// of the input size. Throws Error{ModelUnreadable} for a name outside of the list, an opcode that torch.save
/// does not use, a value that is not a tensor, or a nested dictionary; the message says what to do.
std::vector<PickledTensor> read_state_dict(std::string_view pickle, const std::string& file);

}  // namespace pm::checkpoint
