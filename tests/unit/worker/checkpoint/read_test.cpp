// SPDX-License-Identifier: Apache-2.0
// Strided reads return the bytes of slices of the whole tensor for any stride, and read nothing outside of a tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "tests/unit/worker/checkpoint/folder.h"
#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/direct_io.h"

namespace pm::checkpoint {
namespace {

class Read : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(7);
    data.resize(rows * columns + 16);
    for (char& byte : data) byte = static_cast<char>(random());
    folder.write("config.json", "{}");
    const std::string size = std::to_string(rows * columns);
    folder.write_tensors("model.safetensors",
                         R"({"m":{"dtype":"U8","shape":[)" + std::to_string(rows) + "," + std::to_string(columns) +
                             R"(],"data_offsets":[0,)" + size + R"(]},"x":{"dtype":"U8","shape":[8],"data_offsets":[)" +
                             size + "," + std::to_string(rows * columns + 8) +
                             R"(]},"y":{"dtype":"U8","shape":[8],"data_offsets":[)" +
                             std::to_string(rows * columns + 8) + "," + std::to_string(rows * columns + 16) + "]}}",
                         data);
    checkpoint.emplace(Checkpoint::open(folder.path));
  }
  std::string expected(const Strip& strip) const {
    std::string bytes;
    for (int64_t row = 0; row < strip.rows; ++row)
      bytes +=
          data.substr(static_cast<size_t>(strip.offset + row * strip.stride), static_cast<size_t>(strip.row_bytes));
    return bytes;
  }
  std::string read(std::vector<Strip> strips) const {
    int64_t total = 0;
    for (const Strip& strip : strips) total += strip.rows * strip.row_bytes;
    std::string out(static_cast<size_t>(total), '\0');
    checkpoint->read(*checkpoint->find("m"), strips, {reinterpret_cast<std::byte*>(out.data()), out.size()});
    return out;
  }
  static constexpr int64_t rows = 1500, columns = 9000;  // 13.5 MB: several staging blocks
  Folder folder;
  std::string data;
  std::optional<Checkpoint> checkpoint;
};

TEST_F(Read, StripsComeBackToBack) {
  for (const Strip& strip :
       {Strip{0, 1, rows * columns, 0}, Strip{columns * 3, 7, columns, columns}, Strip{5, rows, 10, columns},
        Strip{100, rows, columns - 200, columns}, Strip{4500, rows, 4500, columns}, Strip{17, rows, 1, columns},
        Strip{0, 0, 5, 5}, Strip{3, 200, 40, 50}, Strip{9, 4, 100, 0}, Strip{0, 2, 100, 50}}) {
    EXPECT_EQ(read({strip}), expected(strip))
        << strip.offset << " " << strip.rows << " " << strip.row_bytes << " " << strip.stride;
  }
  const Strip a{7, 3, 11, columns}, b{90000, 2, 20, 30};
  EXPECT_EQ(read({a, b}), expected(a) + expected(b));
}

TEST_F(Read, PastThePageCacheBytesAreTheSame) {
  const DirectFiles direct(*checkpoint);
  const auto past_cache = [&](const Strip& strip) {
    std::string out(static_cast<size_t>(strip.rows * strip.row_bytes), '\0');
    direct.read(*checkpoint->find("m"), {&strip, 1}, {reinterpret_cast<std::byte*>(out.data()), out.size()});
    return out;
  };
  for (const Strip& strip :
       {Strip{0, 1, rows * columns, 0}, Strip{columns * 3, 7, columns, columns}, Strip{5, rows, 10, columns},
        Strip{rows * columns - 1, 1, 1, 1}, Strip{4500, rows, 4500, columns}, Strip{0, 20, 5, 500000},
        Strip{0, 0, 5, 5}, Strip{9, 4, 100, 0}}) {
    EXPECT_EQ(past_cache(strip), expected(strip))
        << strip.offset << " " << strip.rows << " " << strip.row_bytes << " " << strip.stride;
  }
  EXPECT_THROW(past_cache({rows * columns, 1, 1, 1}), std::out_of_range);
  std::filesystem::resize_file(folder.path / "model.safetensors", 4096);
  EXPECT_THROW(past_cache({0, 1, rows * columns, 0}), Error);
}

TEST_F(Read, NothingOutsideOfTheTensorIsRead) {
  for (const Strip& strip :
       {Strip{-1, 1, 1, 1}, Strip{rows * columns, 1, 1, 1}, Strip{0, rows + 1, columns, columns},
        Strip{0, 2, 1, INT64_MAX}, Strip{INT64_MAX, 1, INT64_MAX, 0}, Strip{0, INT64_MAX, 1, INT64_MAX}}) {
    std::byte byte{};
    EXPECT_THROW(checkpoint->read(*checkpoint->find("m"), {&strip, 1}, {&byte, 1}), std::out_of_range);
  }
}

TEST_F(Read, ATargetOfAnotherSizeIsAMistake) {
  std::byte bytes[4];
  const Strip strip{0, 1, 3, 3};
  EXPECT_THROW(checkpoint->read(*checkpoint->find("m"), {&strip, 1}, bytes), std::out_of_range);
}

TEST_F(Read, AFileThatShrankIsNamed) {
  std::filesystem::resize_file(folder.path / "model.safetensors", 1000);
  try {
    read({{0, 1, rows * columns, 0}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("model.safetensors"), testing::HasSubstr("\"m\""),
                                             testing::HasSubstr("shorter")));
  }
}

TEST_F(Read, EqualComparesTypeShapeAndBytes) {
  EXPECT_TRUE(checkpoint->equal(*checkpoint->find("m"), *checkpoint->find("m")));
  EXPECT_FALSE(checkpoint->equal(*checkpoint->find("x"), *checkpoint->find("y")));
  EXPECT_FALSE(checkpoint->equal(*checkpoint->find("x"), *checkpoint->find("m")));
  TensorInfo copy = *checkpoint->find("x");
  copy.dtype = DType::I8;
  EXPECT_FALSE(checkpoint->equal(copy, *checkpoint->find("x")));
  Folder twice;
  twice.write("config.json", "{}");
  twice.write_tensors(
      "model.safetensors",
      R"({"p":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"q":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
      "abab");
  const Checkpoint same = Checkpoint::open(twice.path);
  EXPECT_TRUE(same.equal(*same.find("p"), *same.find("q")));
}

}  // namespace
}  // namespace pm::checkpoint
