// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu_kernels/array.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <stdexcept>

namespace pm::bench_gpu {

namespace {

int64_t period = 4'194'301;

/// Returns the bits of the nearest bf16, ties to even.
uint16_t bf16_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float from_bf16_bits(uint16_t stored) {
  const uint32_t bits = static_cast<uint32_t>(stored) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

template <typename T>
std::shared_ptr<void> upload(const std::vector<T>& values) {
  std::shared_ptr<void> memory = allocate(static_cast<int64_t>(values.size() * sizeof(T)));
  copy_memory(memory.get(), values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  return memory;
}

Numbers make_numbers(Element type) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  Numbers made;
  made.values.resize(static_cast<size_t>(period));
  for (float& value : made.values) value = normal(random);
  if (type == Element::F32) {
    made.stored = upload(made.values);
  } else if (type == Element::BF16) {
    std::vector<uint16_t> stored;
    stored.reserve(made.values.size());
    for (float& value : made.values) {
      stored.push_back(bf16_bits(value));
      value = from_bf16_bits(stored.back());
    }
    made.stored = upload(stored);
  } else if (type == Element::I8) {
    std::vector<int8_t> stored;
    stored.reserve(made.values.size());
    for (float& value : made.values) {
      value = std::clamp(std::round(40 * value), -127.f, 127.f);
      stored.push_back(static_cast<int8_t>(value));
    }
    made.stored = upload(stored);
  } else {
    throw std::invalid_argument("no case has fp16 numbers");
  }
  return made;
}

}  // namespace

void use_few_numbers() { period = 65'521; }

const Numbers& numbers(Element type) {
  static std::map<Element, Numbers> made;
  const auto found = made.find(type);
  return found != made.end() ? found->second : made.emplace(type, make_numbers(type)).first->second;
}

Array::Array(int64_t count, Element type, int64_t first)
    : type_(type), first_(first), memory_(allocate(count * element_bytes(type))) {
  const Numbers& source = numbers(type);
  const auto place = [&](int64_t i) { return static_cast<std::byte*>(memory_.get()) + i * element_bytes(type); };
  const int64_t begin = first % period, head = std::min(count, period - begin);
  copy_memory(place(0), static_cast<const std::byte*>(source.stored.get()) + begin * element_bytes(type),
              head * element_bytes(type));
  const int64_t tail = std::min(count - head, begin);
  if (tail > 0) copy_memory(place(head), source.stored.get(), tail * element_bytes(type));
  // A whole period is there; each copy doubles what is there.
  for (int64_t done = head + tail; done < count;) {
    const int64_t more = std::min(done, count - done);
    copy_memory(place(done), place(0), more * element_bytes(type));
    done += more;
  }
}

std::vector<double> Array::read(int64_t begin, int64_t count) const {
  const std::vector<float>& source = numbers(type_).values;
  auto next = static_cast<size_t>((first_ + begin) % static_cast<int64_t>(source.size()));
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) {
    value = static_cast<double>(source[next]);
    if (++next == source.size()) next = 0;
  }
  return values;
}

Result::Result(int64_t count, Element type) : type_(type), memory_(allocate(count * element_bytes(type))) {
  poison(memory_.get(), count * element_bytes(type));
}

std::vector<double> Result::read(int64_t begin, int64_t count) const {
  const std::byte* from = static_cast<const std::byte*>(memory_.get()) + begin * element_bytes(type_);
  std::vector<double> values(static_cast<size_t>(count));
  if (type_ == Element::F32) {
    std::vector<float> stored(values.size());
    copy_memory(stored.data(), from, count * 4);
    std::copy(stored.begin(), stored.end(), values.begin());
  } else if (type_ == Element::BF16) {
    std::vector<uint16_t> stored(values.size());
    copy_memory(stored.data(), from, count * 2);
    std::transform(stored.begin(), stored.end(), values.begin(), from_bf16_bits);
  } else {
    throw std::invalid_argument("no case has such results");
  }
  return values;
}

double Error::relative() const { return std::sqrt(difference_) / std::max(std::sqrt(size_), 1e-30); }

}  // namespace pm::bench_gpu
