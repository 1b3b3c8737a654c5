// SPDX-License-Identifier: Apache-2.0
// Tensors that are not row-major: any strips of them equal the same strips of the row-major tensor.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>

#include "tests/unit/worker/checkpoint/archive.h"
#include "tests/unit/worker/checkpoint/folder.h"
#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {
namespace {

std::string counted(size_t elements) {
  std::string data(elements * 2, '\0');
  for (size_t i = 0; i < elements; ++i) {
    const uint16_t value = static_cast<uint16_t>(i * 40503u);
    std::memcpy(data.data() + 2 * i, &value, 2);
  }
  return data;
}

/// Returns the row-major bytes of a view, element by element.
std::string row_major(const std::string& data, const Pickled& view) {
  std::string out;
  const uint64_t count = std::accumulate(view.shape.begin(), view.shape.end(), uint64_t{1}, std::multiplies<>());
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t rest = i, at = view.offset;
    for (size_t d = view.shape.size(); d-- > 0; rest /= view.shape[d]) at += rest % view.shape[d] * view.strides[d];
    out += data.substr(2 * at, 2);
  }
  return out;
}

Checkpoint opened(const Folder& folder, const std::string& data, const std::vector<Pickled>& views) {
  folder.write("config.json", "{}");
  folder.write("pytorch_model.bin", torch_archive(state_dict(views), {{"0", data}}).bytes());
  return Checkpoint::open(folder.path);
}

std::string read(const Checkpoint& checkpoint, const std::string& name, std::span<const Strip> strips) {
  int64_t bytes = 0;
  for (const Strip& strip : strips) bytes += strip.rows * strip.row_bytes;
  std::string out(static_cast<size_t>(bytes), '?');
  checkpoint.read(*checkpoint.find(name), strips, std::as_writable_bytes(std::span(out)));
  return out;
}

const std::vector<Pickled> view_cases = {{"transposed", "0", 5040, 0, {70, 72}, {1, 70}, "HalfStorage"},
                                         {"columns", "0", 5040, 3, {72, 20}, {70, 1}, "HalfStorage"},
                                         {"both", "0", 5040, 7, {20, 72}, {1, 70}, "HalfStorage"},
                                         {"cube", "0", 5040, 0, {7, 10, 9, 8}, {8, 504, 56, 1}, "HalfStorage"},
                                         {"steps", "0", 5040, 1, {100, 5}, {50, 7}, "HalfStorage"},
                                         {"last", "0", 5040, 39, {1, 72}, {1, 70}, "HalfStorage"}};

TEST(Strided, StripsOfViewsAreStripsOfTheRowMajorTensor) {
  Folder folder;
  const std::string data = counted(5040);
  const Checkpoint checkpoint = opened(folder, data, view_cases);
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const Pickled& view : view_cases) {
    ASSERT_FALSE(checkpoint.find(view.name)->strides.empty()) << view.name;
    const std::string whole = row_major(data, view);
    const int64_t bytes = static_cast<int64_t>(whole.size());
    const Strip all{0, 1, bytes, bytes};
    EXPECT_EQ(read(checkpoint, view.name, {&all, 1}), whole) << view.name;
    for (int round = 0; round < 200; ++round) {
      std::vector<Strip> strips;
      std::string expected;
      for (int i = 0; i < 2; ++i) {
        const int64_t width = 2 * (1 + static_cast<int64_t>(random()) % 40),
                      stride = width + 2 * (static_cast<int64_t>(random()) % 50);
        const int64_t offset = 2 * (static_cast<int64_t>(random()) % (bytes / 4)),
                      rows = std::min<int64_t>(static_cast<int64_t>(random()) % 9, (bytes - offset - width) / stride);
        if (rows < 1) continue;
        strips.push_back({offset, rows, width, stride});
        for (int64_t row = 0; row < rows; ++row)
          expected += whole.substr(static_cast<size_t>(offset + row * stride), static_cast<size_t>(width));
      }
      ASSERT_EQ(read(checkpoint, view.name, strips), expected) << view.name;
    }
  }
}

TEST(Strided, ATensorLargerThanTheWindowIsReadWhole) {
  Folder folder;
  const uint64_t rows = 1500, columns = 2100;
  const std::string data = counted(rows * columns);
  const Pickled view{"w", "0", rows * columns, 0, {columns, rows}, {1, columns}, "HalfStorage"},
      wide{"v", "0", rows * columns, 0, {2, 1500, 1}, {1, 2100, 1}, "HalfStorage"};
  const Checkpoint checkpoint = opened(folder, data, {view, wide});
  const Strip all{0, 1, static_cast<int64_t>(data.size()), 0}, some{0, 1, 6000, 0};
  EXPECT_EQ(read(checkpoint, "w", {&all, 1}), row_major(data, view));
  EXPECT_EQ(read(checkpoint, "v", {&some, 1}), row_major(data, wide));
}

TEST(Strided, TiesAreSeenByPlaceAndByBytes) {
  Folder folder;
  const std::string data = counted(5040);
  folder.write("config.json", "{}");
  const std::vector<Pickled> views = {{"w", "0", 5040, 0, {70, 72}, {1, 70}, "HalfStorage"},
                                      {"tied", "0", 5040, 0, {70, 72}, {1, 70}, "HalfStorage"},
                                      {"other", "0", 5040, 0, {70, 72}, {72, 1}, "HalfStorage"},
                                      {"copy", "1", 5040, 0, {70, 72}, {72, 1}, "HalfStorage"},
                                      {"float", "2", 2520, 0, {70, 36}, {36, 1}}};
  const std::string copy = row_major(data, views[0]);
  folder.write("pytorch_model.bin", torch_archive(state_dict(views), {{"0", data}, {"1", copy}, {"2", data}}).bytes());
  const Checkpoint checkpoint = Checkpoint::open(folder.path);
  const auto equal = [&](const char* a, const char* b) {
    return checkpoint.equal(*checkpoint.find(a), *checkpoint.find(b));
  };
  EXPECT_TRUE(equal("w", "tied"));
  EXPECT_FALSE(equal("w", "other")) << "one place, but in another order";
  EXPECT_TRUE(equal("w", "copy"));
  EXPECT_TRUE(equal("copy", "w"));
  EXPECT_FALSE(equal("w", "float"));
}

}  // namespace
}  // namespace pm::checkpoint
