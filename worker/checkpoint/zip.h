// SPDX-License-Identifier: Apache-2.0
// Reads the directory of an uncompressed zip archive, as PyTorch writes it: name -> offset in the file.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

/// One stored record: `bytes` bytes of data that begin at `offset` of the file.
struct ZipRecord {
  std::string name;
  int64_t offset = 0, bytes = 0;
};

/// Returns the records of the central directory (zip and zip64) in its order. It is strict: one disk, no comment, no
/// compression, no encryption; every record lies inside the file, none overlap, no name occurs twice, and the name in
/// the local header equals the directory's. Throws Error{ModelUnreadable}. Format: PKWARE's APPNOTE 6.3.10,
/// sections 4.3.7, 4.3.12, 4.3.14 - 4.3.16, 4.5.3.
std::vector<ZipRecord> read_zip(const RandomAccessFile& file);

}  // namespace pm::checkpoint
