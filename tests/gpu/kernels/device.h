// SPDX-License-Identifier: Apache-2.0
// The device that kernel tests run on: a GPU (device_cuda.cpp) or the emulation on the host (device_emulated.cpp). The
// tests are the same.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "worker/ops/cuda/types.h"

namespace pm::cuda_test {

using ops::cuda::Element;

/// Returns why no kernel can run here; empty: kernels run. Throws std::runtime_error where there is a GPU that cannot
/// be used.
std::string why_no_device();
/// Allocates exactly `bytes`, filled with 0xFF: floats that are not written are NaN.
void* allocate(size_t bytes);
void release(void*);
void upload(void* to, const void* from, size_t bytes);
/// Waits for the kernels launched before. Throws std::runtime_error when one failed.
void download(void* to, const void* from, size_t bytes);
/// Calls f for each order of threads that is tried: several in the emulation, one on a GPU.
void in_each_order(const std::function<void()>& f);

/// Fixture that skips a test by name where there is no device.
class Kernels : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_device(); !why.empty()) GTEST_SKIP() << why;
  }
};

template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count), data_(static_cast<T*>(allocate(count * sizeof(T)))) {}
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    upload(data_, values.data(), count_ * sizeof(T));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { release(data_); }
  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    download(values.data(), data_, count_ * sizeof(T));
    return values;
  }

 private:
  size_t count_;
  T* data_;
};

/// Returns `value` rounded to `type`.
float rounded(float value, Element type);
/// Returns half a unit in the last place of numbers near 1.
inline double unit(Element type) { return type == Element::F32 ? 6e-8 : type == Element::F16 ? 4.9e-4 : 3.9e-3; }
const char* name(Element type);

/// Floats in device memory, offset by `before` elements, so that they need not be 16-byte aligned.
class Floats {
 public:
  Floats(const std::vector<float>& values, Element type, size_t before = 0);
  Floats(size_t count, Element type);  ///< for a result: NaN until written
  void* data() const { return bytes_.data() + before_; }
  const std::vector<float>& values() const { return values_; }  ///< as given, rounded
  std::vector<float> read() const;

 private:
  Element type_;
  size_t before_;
  std::vector<float> values_;
  Buffer<unsigned char> bytes_;
};

/// Returns normally distributed numbers.
inline std::vector<float> numbers(size_t count, uint64_t seed, double scale = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, static_cast<float>(scale));
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// Returns the largest difference; infinite where a result is NaN.
template <typename A, typename B>
double largest_error(const std::vector<A>& got, const std::vector<B>& expected) {
  if (got.size() != expected.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    largest = std::isnan(error) ? INFINITY : std::max(largest, error);
  }
  return largest;
}

}  // namespace pm::cuda_test
