// SPDX-License-Identifier: Apache-2.0
// What is written is read again, whole and in shards; what cannot be written is an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/checkpoint/folder.h"
#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/safetensors_writer.h"

namespace pm::checkpoint {
namespace {

const std::vector<WrittenTensor> tensors{{"c", "U8", {3, 5}, 15},
                                         {"a", "F32", {2}, 8},
                                         {"empty", "F32", {0, 4}, 0},
                                         {"b", "BF16", {4}, 8},
                                         {"one", "F32", {}, 4}};

/// Writes the bytes 0, 1, 2, ... in pieces of `some`, and returns the tensors that the checkpoint has then.
std::map<std::string, std::vector<std::byte>> written(int64_t shard_bytes, size_t some, size_t files) {
  const Folder folder;
  folder.write("config.json", "{}");
  SafetensorsWriter writer(folder.path, tensors, shard_bytes);
  std::vector<std::byte> bytes(35);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  for (size_t i = 0; i < bytes.size(); i += some)
    writer.write(std::span(bytes).subspan(i, std::min(some, bytes.size() - i)));
  writer.finish();
  const auto checkpoint = Checkpoint::open(folder.path);
  EXPECT_EQ(checkpoint.files().size(), files);
  std::map<std::string, std::vector<std::byte>> read;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    std::vector<std::byte>& own = read[name] = std::vector<std::byte>(static_cast<size_t>(tensor.bytes));
    const Strip whole{0, 1, tensor.bytes, tensor.bytes};
    if (tensor.bytes > 0) checkpoint.read(tensor, {&whole, 1}, own);
  }
  return read;
}

TEST(SafetensorsWriter, IsReadAgainInAnyShardsAndPieces) {
  const auto whole = written(1 << 20, 100, 1);
  EXPECT_EQ(whole.size(), 5u);
  EXPECT_EQ(whole.at("c")[14], std::byte{14});
  EXPECT_EQ(whole.at("a")[0], std::byte{15});
  EXPECT_EQ(whole.at("one")[3], std::byte{34});
  for (const size_t some : {1, 7, 35}) {
    EXPECT_EQ(written(16, some, 3), whole) << "c; a, empty and b; one";
    EXPECT_EQ(written(8, some, 4), whole) << "c is larger than a shard";
    EXPECT_EQ(written(23, some, 2), whole);
  }
}

TEST(SafetensorsWriter, WantsAllBytesAndNoMore) {
  const Folder folder;
  SafetensorsWriter writer(folder.path, tensors, 1 << 20);
  std::vector<std::byte> bytes(36);
  EXPECT_THROW(writer.write(bytes), std::logic_error);
  SafetensorsWriter fewer(folder.path, tensors, 1 << 20);
  fewer.write(std::span(bytes).first(34));
  EXPECT_THROW(fewer.finish(), std::logic_error);
}

TEST(SafetensorsWriter, SaysWhichFileCannotBeWritten) {
  try {
    SafetensorsWriter("/proc/nothing", tensors, 1 << 20);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("cannot write /proc/nothing/model.safetensors: "));
  }
}

}  // namespace
}  // namespace pm::checkpoint
