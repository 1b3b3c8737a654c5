// The tensors that a pickled state_dict describes, by our own reader: it knows the operations and the few names that torch.save uses
// for a dictionary of tensors, runs no code and refuses everything else by name.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pm::checkpoint {

/// One tensor as the pickle describes it; nothing of it is checked against a storage yet.
struct PickledTensor {
  std::string name;
  std::string storage;                 ///< key of its storage: the record data/<key>
  std::string_view type;               ///< as safetensors names it: F32, BF16, ..., C64, C128
  int64_t element_bytes = 0;
  int64_t elements = 0;                ///< of the storage
  int64_t offset = 0;                  ///< of the first element in the storage, in elements
  std::vector<int64_t> shape, strides; ///< as many as dimensions, in elements, all >= 0
};

/// Reads the bytes of data.pkl; `file` names it in errors. No recursion, and no more memory than a bounded multiple of the text.
/// Throws Error{Model, "ModelUnreadable"}: a name outside of the list, an operation that torch.save does not use, a value that is no
/// tensor, a dictionary inside of the dictionary (what to do is said).
std::vector<PickledTensor> read_state_dict(std::string_view pickle, const std::string& file);

}  // namespace pm::checkpoint
