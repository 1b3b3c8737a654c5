// SPDX-License-Identifier: Apache-2.0
// The byte format of messages between ranks: fixed-width little-endian fields in declaration order, vectors with a
// leading count.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "worker/base/array.h"

namespace pm::engine {

/// Appends the encoding of its arguments to `out`.
class WireWriter {
 public:
  template <typename T>
  void operator()(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof(T));
  }
  template <typename T>
  void operator()(const std::vector<T>& values) {
    static_assert(std::is_arithmetic_v<T>);
    (*this)(static_cast<uint32_t>(values.size()));
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    out.insert(out.end(), bytes, bytes + values.size() * sizeof(T));
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<uint32_t>(text.size()));
    out.insert(out.end(), text.begin(), text.end());
  }
  void operator()(const std::vector<std::string>& texts) {
    (*this)(static_cast<uint32_t>(texts.size()));
    for (const std::string& text : texts) (*this)(text);
  }
  void operator()(const Arrays& arrays) {
    (*this)(static_cast<uint32_t>(arrays.size()));
    for (const auto& [name, array] : arrays) {
      (*this)(name), (*this)(array.shape), (*this)(std::holds_alternative<std::vector<float>>(array.values));
      std::visit([this](const auto& values) { (*this)(values); }, array.values);
    }
  }
  void operator()(const std::vector<Arrays>& all) {
    (*this)(static_cast<uint32_t>(all.size()));
    for (const Arrays& arrays : all) (*this)(arrays);
  }
  std::vector<uint8_t> out;
};

/// Reads values from untrusted bytes. Throws std::invalid_argument for bytes that a WireWriter cannot have written.
class WireReader {
 public:
  explicit WireReader(std::span<const uint8_t> in) : in_(in) {}
  template <typename T>
  void operator()(T& value) {
    take(&value, sizeof(T));
  }
  void operator()(bool& value) {
    uint8_t byte = 0;
    take(&byte, 1);
    value = byte != 0;
  }
  template <typename T>
  void operator()(std::vector<T>& values) {
    static_assert(std::is_arithmetic_v<T>);
    values.resize(count(sizeof(T)));
    take(values.data(), values.size() * sizeof(T));
  }
  void operator()(std::string& text) {
    text.resize(count(1));
    take(text.data(), text.size());
  }
  void operator()(std::vector<std::string>& texts) {
    texts.resize(count(sizeof(uint32_t)));
    for (std::string& text : texts) (*this)(text);
  }
  void operator()(Arrays& arrays) {
    for (uint32_t left = count(2 * sizeof(uint32_t)); left > 0; --left) {
      std::string name;
      Array array;
      bool fractional = false;
      (*this)(name), (*this)(array.shape), (*this)(fractional);
      if (fractional) array.values = std::vector<float>();
      std::visit([this](auto& values) { (*this)(values); }, array.values);
      if (std::visit([](const auto& values) { return values.size(); }, array.values) != elements_of(array.shape))
        throw std::invalid_argument("step message: the values of an array do not match its shape");
      arrays.emplace(std::move(name), std::move(array));
    }
  }
  void operator()(std::vector<Arrays>& all) {
    all.resize(count(sizeof(uint32_t)));
    for (Arrays& arrays : all) (*this)(arrays);
  }
  uint32_t count(size_t element) {
    uint32_t n = 0;
    (*this)(n);
    if (n > in_.size() / element)
      throw std::invalid_argument("step message: a count of " + std::to_string(n) + " exceeds the message");
    return n;
  }
  bool empty() const { return in_.empty(); }

 private:
  static size_t elements_of(const std::vector<int64_t>& shape) {
    constexpr int64_t max_elements = int64_t{1} << 40;
    int64_t elements = 1;
    for (const int64_t size : shape) {
      if (size < 0 || size > max_elements || (size > 0 && elements > max_elements / size))
        throw std::invalid_argument("step message: invalid array shape");
      elements *= size;
    }
    return static_cast<size_t>(elements);
  }

  void take(void* to, size_t size) {
    if (size > in_.size()) throw std::invalid_argument("step message: truncated");
    if (size > 0) std::memcpy(to, in_.data(), size);
    in_ = in_.subspan(size);
  }
  std::span<const uint8_t> in_;
};

}  // namespace pm::engine
