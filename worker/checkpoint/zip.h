// The records of an uncompressed zip archive, as PyTorch writes them: name -> place in the file. Nothing is unpacked.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "worker/checkpoint/bytes.h"

namespace pm::checkpoint {

/// One stored record: `bytes` bytes of data that begin at `offset` of the file.
struct ZipRecord {
  std::string name;
  int64_t offset = 0, bytes = 0;
};

/// Reads the central directory (zip and zip64) in its order. Strict: one disk, no comment, no compression, no encryption, every record
/// inside the file, none over another, none twice, the local header's name equal to the directory's. Throws Error{Model, "ModelUnreadable"}.
/// Format: PKWARE's APPNOTE 6.3.10, sections 4.3.7, 4.3.12, 4.3.14 - 4.3.16, 4.5.3.
std::vector<ZipRecord> read_zip(const Bytes& file);

}  // namespace pm::checkpoint
