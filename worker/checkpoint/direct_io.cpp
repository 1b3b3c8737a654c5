// SPDX-License-Identifier: Apache-2.0
// Reads weights with O_DIRECT.
#include "worker/checkpoint/direct_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "worker/base/error.h"
#include "worker/checkpoint/quantized/packed_matrix.h"
#include "worker/checkpoint/strips.h"

namespace pm::checkpoint {

namespace {

constexpr int64_t alignment = 4096;  ///< of positions, lengths and memory; every file system and disk accepts it
constexpr int64_t max_gap_on_disk = 64 << 10;  ///< reading a gap of some pages costs less than another disk access

/// An aligned buffer for O_DIRECT.
class Block {
 public:
  static constexpr int64_t size = int64_t{4} << 20;
  Block() : data_(static_cast<std::byte*>(std::aligned_alloc(alignment, size))) {
    if (!data_) throw std::bad_alloc();
  }
  ~Block() { std::free(data_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  std::byte* data() { return data_; }

 private:
  std::byte* data_;
};

}  // namespace

DirectFiles::DirectFiles(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  Block block;
  for (const std::filesystem::path& path : checkpoint.files()) {
    const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    const bool reads = opened >= 0 && ::pread(opened, block.data(), alignment, 0) >=
                                          0;  // some file systems accept the flag, but fail to read
    if (!reads) refusal_ = path.string() + ": " + std::strerror(errno);
    if (!reads && opened >= 0) ::close(opened);
    descriptors_.push_back(!reads ? nullptr : std::shared_ptr<const int>(new int(opened), [](const int* held) {
      ::close(*held);
      delete held;
    }));
  }
}

void DirectFiles::read(const TensorInfo& tensor, std::span<const Strip> strips, std::span<std::byte> out) const {
  if (tensor.packed)
    return read_packed(tensor, strips, out,
                       [this](const TensorInfo& stored, std::span<const Strip> parts, std::span<std::byte> to) {
                         read(stored, parts, to);
                       });
  const auto& descriptor = descriptors_.at(static_cast<size_t>(tensor.file));
  if (!descriptor || !tensor.strides.empty()) return checkpoint_.read(tensor, strips, out);
  thread_local Block block;
  read_strips(tensor, strips, out, max_gap_on_disk, [&](int64_t offset, std::span<std::byte> part) {
    while (!part.empty()) {
      const int64_t before = offset % alignment,
                    needed = (before + static_cast<int64_t>(part.size()) + alignment - 1) / alignment * alignment;
      const ssize_t got =
          ::pread(*descriptor, block.data(), static_cast<size_t>(std::min(needed, Block::size)), offset - before);
      if (got < 0 && errno == EINTR) continue;
      if (got <= before) {
        throw Error(Reason::ModelUnreadable,
                    checkpoint_.files()[static_cast<size_t>(tensor.file)].string() + ": tensor \"" + tensor.name +
                        "\": " + std::to_string(part.size()) + " bytes at " + std::to_string(offset) +
                        " cannot be read: " +
                        (got < 0 ? std::strerror(errno) : "the file has become shorter than its header says"));
      }
      const size_t count = std::min(part.size(), static_cast<size_t>(got - before));
      std::memcpy(part.data(), block.data() + before, count);
      part = part.subspan(count);
      offset += static_cast<int64_t>(count);
    }
  });
}

}  // namespace pm::checkpoint
