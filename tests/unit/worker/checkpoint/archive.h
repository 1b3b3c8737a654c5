// SPDX-License-Identifier: Apache-2.0
// Builds small archives as torch.save writes them, in which a test can damage every part.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

/// A zip archive in memory. A test changes fields before bytes() to damage it.
class Archive {
 public:
  struct Record {
    std::string name, data;
    std::string local_name = {};  ///< in the local header, when it shall differ
    uint64_t method = 0, flags = 0x808;
    uint64_t claimed = UINT64_MAX;  ///< size in the directory, when it shall differ
    uint64_t header = UINT64_MAX;   ///< offset in the directory, when it shall differ
    bool wide = false;              ///< sizes and offset in a zip64 field
  };
  std::vector<Record> records;
  bool zip64 = true;                                      ///< writes the zip64 end record, as torch.save always does
  uint64_t entries = UINT64_MAX, directory = UINT64_MAX;  ///< in the end record, when they shall differ
  std::string comment;

  Archive& add(std::string name, std::string data) {
    return records.push_back({std::move(name), std::move(data)}), *this;
  }
  std::string bytes() const;
};

/// Returns a little-endian number of `width` bytes.
std::string number(uint64_t value, int width);

/// One tensor of a pickle.
struct Pickled {
  std::string name, storage;
  uint64_t elements, offset;
  std::vector<uint64_t> shape, strides;
  std::string type = "FloatStorage";
};
/// Returns the pickle (protocol 2) of {name: tensor}.
std::string state_dict(const std::vector<Pickled>& tensors);
/// Returns a complete pickle of protocol 2 with `operations` between its first and last byte.
std::string pickle(const std::string& operations);
std::string text(const std::string& value);
std::string global(const std::string& module, const std::string& name);

/// Returns the archive of one state_dict and its storages.
Archive torch_archive(const std::string& pickled, const std::vector<std::pair<std::string, std::string>>& storages);
/// Returns a file named "m.bin" over a buffer.
RandomAccessFile in_memory(const std::string& bytes);

}  // namespace pm::checkpoint
