// SPDX-License-Identifier: Apache-2.0
// Arrays on the device whose elements the host knows without a copy: one sequence of random numbers, repeated.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "bench/gpu_kernels/device.h"

namespace pm::bench_gpu {

using ops::cuda::Element;

/// Numbers of a normal distribution, rounded to a type, on the host and on the device. INT8: whole numbers of -127 to
/// 127. There are `period` of them, a prime, so that rows of a matrix do not repeat each other.
struct Numbers {
  std::vector<float> values;     ///< as rounded
  std::shared_ptr<void> stored;  ///< on the device, as stored
};
/// Chooses the period: short for the emulation. It must be called before the first array is made.
void use_few_numbers();
const Numbers& numbers(Element);

/// [count] random elements; element i is number (first + i) of the period.
class Array {
 public:
  Array(int64_t count, Element type, int64_t first = 0);
  void* data() const { return memory_.get(); }
  /// Returns the address of an element.
  void* at(int64_t i) const { return static_cast<std::byte*>(memory_.get()) + i * element_bytes(type_); }
  /// Returns the values of elements begin .. begin + count - 1.
  std::vector<double> read(int64_t begin, int64_t count) const;

 private:
  Element type_;
  int64_t first_;
  std::shared_ptr<void> memory_;
};

/// A copy of the host's values on the device.
template <typename T>
class Table {
 public:
  explicit Table(std::vector<T> values)
      : values_(std::move(values)), memory_(allocate(static_cast<int64_t>(values_.size() * sizeof(T)))) {
    copy_memory(memory_.get(), values_.data(), static_cast<int64_t>(values_.size() * sizeof(T)));
  }
  T* data() const { return static_cast<T*>(memory_.get()); }
  T operator[](int64_t i) const { return values_[static_cast<size_t>(i)]; }

 private:
  std::vector<T> values_;
  std::shared_ptr<void> memory_;
};

/// Memory for results. It is poisoned when it is made.
class Result {
 public:
  Result(int64_t count, Element type);
  void* data() const { return memory_.get(); }
  /// Copies elements begin .. begin + count - 1 to the host, widened to fp64.
  std::vector<double> read(int64_t begin, int64_t count) const;

 private:
  Element type_;
  std::shared_ptr<void> memory_;
};

/// Adds up ‖got - expected‖ / ‖expected‖ over the elements that a case samples.
class Error {
 public:
  void add(double got, double expected) {
    difference_ += (got - expected) * (got - expected);
    size_ += expected * expected;
  }
  double relative() const;  ///< NaN where a result is NaN

 private:
  double difference_ = 0, size_ = 0;
};

}  // namespace pm::bench_gpu
