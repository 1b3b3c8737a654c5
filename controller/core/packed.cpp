// SPDX-License-Identifier: Apache-2.0
#include "controller/core/packed.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

namespace pm::k8s {
namespace {

/// The first byte of a value is its kind and a number below 31; 31: the number follows, seven bits a byte, the lowest
/// first.
enum class Kind : uint8_t { Simple, Unsigned, Signed, Negative, Text, Word, Array, Object };
enum Simple : uint8_t { Null, False, True, Double };
constexpr uint64_t much = 31;

/// The table of strings that many values share. It only grows, up to a bound; numbered strings are read without a lock.
class Words {
 public:
  static constexpr size_t most = 4096, longest = 64;

  std::mutex mutex;  ///< guards number()

  /// Returns the number of a word, or -1. `name` says that the word is the name of a member.
  int number(const std::string& text, bool name) {
    if (text.size() < 2 || text.size() > longest) return -1;
    const auto found = numbers_.find(text);
    if (found != numbers_.end()) return found->second;
    if (count_ == most || (!name && changing(text)) || !again(text)) return -1;
    all_[count_] = text;
    numbers_.emplace(all_[count_], static_cast<int>(count_));
    return static_cast<int>(count_++);
  }
  const std::string& at(uint64_t number) const { return all_[number]; }

 private:
  /// Returns whether the text contains digits, as numbers, times and uids do.
  static bool changing(const std::string& text) {
    return std::any_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  }
  /// Returns whether the word was seen before, as far as it is remembered.
  bool again(const std::string& text) {
    const size_t hash = std::hash<std::string>{}(text);
    size_t& last = seen_[hash % seen_.size()];
    const bool before = last == hash;
    last = hash;
    return before;
  }

  std::array<std::string, most> all_;  // never moves
  size_t count_ = 0;
  std::unordered_map<std::string_view, int> numbers_;
  std::array<size_t, 1024> seen_{};
};

Words& words() {
  static Words one;
  return one;
}

class Writer {
 public:
  void write(const Json& value) {
    switch (value.type()) {
      case Json::value_t::null:
        return head(Kind::Simple, Null);
      case Json::value_t::boolean:
        return head(Kind::Simple, value.get<bool>() ? True : False);
      case Json::value_t::number_unsigned:
        return head(Kind::Unsigned, value.get<uint64_t>());
      case Json::value_t::number_integer: {
        const auto number = value.get<int64_t>();
        return number < 0 ? head(Kind::Negative, ~static_cast<uint64_t>(number))
                          : head(Kind::Signed, static_cast<uint64_t>(number));
      }
      case Json::value_t::number_float: {
        const double number = value.get<double>();
        head(Kind::Simple, Double);
        bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
        return;
      }
      case Json::value_t::string:
        return text(value.get_ref<const std::string&>(), false);
      case Json::value_t::array:
        head(Kind::Array, value.size());
        for (const Json& one : value) write(one);
        return;
      case Json::value_t::object:
        head(Kind::Object, value.size());
        for (const auto& [name, member] : value.get_ref<const Json::object_t&>()) text(name, true), write(member);
        return;
      default:
        throw std::invalid_argument("a " + std::string(value.type_name()) + " value is no JSON");
    }
  }

  std::string bytes;

 private:
  void head(Kind kind, uint64_t number) {
    bytes += static_cast<char>(static_cast<uint8_t>(kind) << 5 | std::min(number, much));
    if (number < much) return;
    for (; number >= 0x80; number >>= 7) bytes += static_cast<char>(number | 0x80);
    bytes += static_cast<char>(number);
  }
  void text(const std::string& text, bool name) {
    const int number = words().number(text, name);
    if (number >= 0) return head(Kind::Word, static_cast<uint64_t>(number));
    head(Kind::Text, text.size());
    bytes += text;
  }
};

class Reader {
 public:
  explicit Reader(const char* at) : at_(at) {}

  Json read() {
    const auto [kind, number] = head();
    switch (kind) {
      case Kind::Simple:
        return simple(number);
      case Kind::Unsigned:
        return number;
      case Kind::Signed:
        return static_cast<int64_t>(number);
      case Kind::Negative:
        return static_cast<int64_t>(~number);
      case Kind::Text:
      case Kind::Word:
        return Json(text(kind, number));
      case Kind::Array: {
        Json::array_t array;
        array.reserve(number);
        for (uint64_t i = 0; i < number; ++i) array.push_back(read());
        return Json(std::move(array));
      }
      case Kind::Object:
        break;
    }
    Json::object_t object;
    for (uint64_t i = 0; i < number; ++i) {  // in the order of the map
      const auto [name, length] = head();
      const auto member = object.emplace_hint(object.end(), text(name, length), nullptr);
      member->second = read();
    }
    return Json(std::move(object));
  }

 private:
  std::pair<Kind, uint64_t> head() {
    const auto first = static_cast<uint8_t>(*at_++);
    uint64_t number = first & much;
    if (number == much) {
      number = 0;
      for (int shift = 0;; shift += 7) {
        const auto next = static_cast<uint8_t>(*at_++);
        number |= static_cast<uint64_t>(next & 0x7f) << shift;
        if (next < 0x80) break;
      }
    }
    return {static_cast<Kind>(first >> 5), number};
  }
  Json simple(uint64_t which) {
    if (which != Double) return which == Null ? Json() : Json(which == True);
    double number = 0;
    std::memcpy(&number, at_, sizeof number);
    at_ += sizeof number;
    return number;
  }
  std::string text(Kind kind, uint64_t number) {
    if (kind == Kind::Word) return words().at(number);
    const char* begin = at_;
    at_ += number;
    return std::string(begin, number);
  }

  const char* at_;
};

}  // namespace

Packed::Packed(const Json& value) {
  Writer writer;
  {
    const std::lock_guard lock(words().mutex);
    writer.write(value);
  }
  if (writer.bytes.size() > UINT32_MAX)
    throw std::invalid_argument("a value of " + std::to_string(writer.bytes.size()) +
                                " bytes is too large to be packed");
  const auto bytes = std::make_shared<char[]>(writer.bytes.size());
  std::memcpy(bytes.get(), writer.bytes.data(), writer.bytes.size());
  bytes_ = bytes;
  size_ = static_cast<uint32_t>(writer.bytes.size());
}

Json Packed::unpack() const { return size_ ? Reader(bytes_.get()).read() : Json(); }

bool Packed::same_bytes(const Packed& other) const {
  return size_ == other.size_ && (bytes_ == other.bytes_ || std::memcmp(bytes_.get(), other.bytes_.get(), size_) == 0);
}

}  // namespace pm::k8s
