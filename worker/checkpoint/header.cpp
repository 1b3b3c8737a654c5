// SPDX-License-Identifier: Apache-2.0
// The strict parser of a safetensors header: a SAX handler that builds the tensor table and refuses what safetensors
// refuses.
#include <algorithm>
#include <array>
#include <set>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

namespace {

/// Element types of safetensors that are not supported, with their bits.
struct UnsupportedType {
  std::string_view name;
  int64_t bits;
};
constexpr std::array<UnsupportedType, 12> unsupported_types{{{"F8_E4M3", 8},
                                                             {"F8_E5M2", 8},
                                                             {"F8_E8M0", 8},
                                                             {"F8_E4M3FNUZ", 8},
                                                             {"F8_E5M2FNUZ", 8},
                                                             {"F6_E2M3", 6},
                                                             {"F6_E3M2", 6},
                                                             {"F4", 4},
                                                             {"U16", 16},
                                                             {"U32", 32},
                                                             {"U64", 64},
                                                             {"C64", 64}}};

/// Returns the bits of one element; 0 for a name that safetensors does not know.
int64_t bits_of(std::string_view type) {
  if (auto served = dtype_of(type)) return 8 * size_of(*served);
  for (const UnsupportedType& other : unsupported_types)
    if (other.name == type) return other.bits;
  return 0;
}

/// One entry as the header spells it.
struct Entry {
  std::string name, dtype;
  std::vector<int64_t> shape, offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw Error(Reason::ModelUnreadable, file + ": " + printable(what));
}

/// Converts the events of nlohmann's parser to entries. It throws from the events, so that no document is ever built.
class HeaderSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderSax(const std::string& file) : file_(file) {}
  std::vector<Entry> entries;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { return unexpected(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::Numbers) return unexpected(std::to_string(value));
    if (value > static_cast<uint64_t>(INT64_MAX))
      refuse(file_, where() + " holds " + std::to_string(value) + ", expected less than 2^63");
    (key_ == "shape" ? entries.back().shape : entries.back().offsets).push_back(static_cast<int64_t>(value));
    if (entries.back().shape.size() > 64) refuse(file_, where() + " has more than 64 dimensions");
    return true;
  }
  bool number_float(number_float_t, const string_t& text) override { return unexpected(text); }
  bool string(string_t& text) override {
    if (state_ == State::Metadata) return true;
    if (state_ != State::Tensor || key_ != "dtype") return unexpected("the string \"" + text.substr(0, 80) + "\"");
    entries.back().dtype = text;
    return true;
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool start_object(std::size_t) override {
    if (state_ == State::Start)
      state_ = State::Top;
    else if (state_ == State::Top)
      state_ = name_ == "__metadata__" ? State::Metadata : State::Tensor;
    else
      return unexpected("an object");
    if (state_ == State::Tensor) entries.push_back({.name = name_});
    return true;
  }
  bool key(string_t& text) override {
    if (state_ == State::Top) {
      // Names end up in messages, logs and conditions.
      if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' '; }))
        refuse(file_, "a tensor's name has a control character");
      name_ = text;
      key_.clear();
      if (!names_.insert(text).second) refuse(file_, "the header names \"" + text + "\" twice");
    } else if (state_ == State::Metadata) {
      key_ = text;
      if (!metadata_.insert(text).second) refuse(file_, "__metadata__ names \"" + text + "\" twice");
    } else {
      tensor_key(text);
    }
    return true;
  }
  bool end_object() override {
    if (state_ == State::Tensor) {
      const Entry& entry = entries.back();
      if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets) {
        refuse(file_, "tensor \"" + entry.name + "\" lacks one of dtype, shape, data_offsets");
      }
    }
    state_ = state_ == State::Top ? State::End : State::Top;
    return true;
  }
  bool start_array(std::size_t) override {
    if (state_ != State::Tensor || (key_ != "shape" && key_ != "data_offsets")) return unexpected("a list");
    state_ = State::Numbers;
    return true;
  }
  bool end_array() override {
    state_ = State::Tensor;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    refuse(file_, "the header is not JSON at byte " + std::to_string(position) + ": " + error.what());
  }

 private:
  enum class State { Start, Top, Metadata, Tensor, Numbers, End };

  void tensor_key(const std::string& text) {
    Entry& entry = entries.back();
    bool* seen = text == "dtype"          ? &entry.has_dtype
                 : text == "shape"        ? &entry.has_shape
                 : text == "data_offsets" ? &entry.has_offsets
                                          : nullptr;
    if (!seen)
      refuse(file_,
             "tensor \"" + name_ + "\" has the key \"" + text + "\", expected dtype, shape and data_offsets only");
    if (*seen) refuse(file_, "tensor \"" + name_ + "\" has the key \"" + text + "\" twice");
    *seen = true;
    key_ = text;
  }
  std::string where() const {
    if (name_.empty()) return "the header";
    return "\"" + name_ + "\"" + (key_.empty() ? "" : " (" + key_ + ")");
  }
  bool unexpected(const std::string& what) {
    const char* wanted = state_ == State::Metadata  ? "a string"
                         : state_ == State::Start   ? "an object"
                         : state_ == State::Top     ? "an object"
                         : state_ == State::Numbers ? "whole numbers from 0"
                         : key_ == "dtype"          ? "a string"
                                                    : "a list of whole numbers from 0";
    refuse(file_, where() + " is " + what + ", expected " + wanted);
  }

  const std::string& file_;
  State state_ = State::Start;
  std::string name_, key_;
  std::set<std::string> names_, metadata_;
};

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// Returns the bytes that type and shape require. Throws when they exceed 2^63 or are not whole bytes.
int64_t bytes_of(const Entry& entry, const std::string& file) {
  const int64_t bits = bits_of(entry.dtype);
  if (!bits)
    refuse(file, "tensor \"" + entry.name + "\" has the element type \"" + entry.dtype +
                     "\", which safetensors does not know");
  int64_t total = bits;
  const bool empty = std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end();
  // safetensors multiplies in order and refuses an overflow even where a later 0 would make the product 0.
  for (int64_t size : entry.shape) {
    if (__builtin_mul_overflow(total, size, &total))
      refuse(file, "tensor \"" + entry.name + "\" of shape " + text_of(entry.shape) + " is larger than 2^63 bits");
  }
  if (empty) return 0;
  if (total % 8) refuse(file, "tensor \"" + entry.name + "\" of type " + entry.dtype + " does not end at a whole byte");
  return total / 8;
}

}  // namespace

Header parse_header(std::string_view json, int64_t file_size, const std::string& file) {
  if (json.empty() || json.front() != '{') refuse(file, "the header does not begin with '{'");
  // nlohmann's parser takes a zero byte for the end of the text.
  if (json.find('\0') != std::string_view::npos) refuse(file, "the header has a zero byte");
  HeaderSax sax(file);
  nlohmann::json::sax_parse(json.begin(), json.end(), &sax);
  std::vector<Entry>& entries = sax.entries;
  for (const Entry& entry : entries) {
    if (entry.offsets.size() != 2)
      refuse(file,
             "tensor \"" + entry.name + "\" has " + std::to_string(entry.offsets.size()) + " data_offsets, expected 2");
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  const int64_t data = 8 + static_cast<int64_t>(json.size());
  int64_t end = 0;
  Header header;
  for (const Entry& entry : entries) {
    const int64_t from = entry.offsets[0], to = entry.offsets[1];
    if (from != end || to < from) {
      refuse(file, "tensor \"" + entry.name + "\" lies at bytes " + text_of(entry.offsets) +
                       ", expected it to begin at " + std::to_string(end));
    }
    const int64_t bytes = bytes_of(entry, file);
    if (to - from != bytes) {
      refuse(file, "tensor \"" + entry.name + "\" has " + std::to_string(to - from) + " bytes, but " + entry.dtype +
                       " " + text_of(entry.shape) + " needs " + std::to_string(bytes));
    }
    end = to;
    if (end > file_size - data) break;
    if (auto type = dtype_of(entry.dtype))
      header.tensors[entry.name] = {
          .name = entry.name, .dtype = *type, .shape = entry.shape, .offset = data + from, .bytes = bytes};
    else
      header.unsupported[entry.name] = {entry.dtype,
                                        {.name = entry.name,
                                         .dtype = DType::U8,
                                         .shape = bits_of(entry.dtype) == 8 ? entry.shape : std::vector<int64_t>{bytes},
                                         .offset = data + from,
                                         .bytes = bytes}};
  }
  if (end != file_size - data) {
    refuse(file, "the header describes " + std::to_string(end) + " bytes of tensors, the file holds " +
                     std::to_string(file_size - data) +
                     (end > file_size - data ? ": the file is cut off" : ": bytes that no tensor owns"));
  }
  return header;
}

}  // namespace pm::checkpoint
