// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/gguf/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <set>

namespace pm::checkpoint {

namespace {

using nlohmann::json;

/// Bytes that are read at a time: most headers of parts are short, and those with a vocabulary have megabytes.
constexpr int64_t first_chunk_bytes = int64_t{64} << 10, chunk_bytes = int64_t{1} << 20;
constexpr int64_t max_key_bytes = 65535, max_text_bytes = int64_t{64} << 20;
constexpr int64_t max_header_bytes = int64_t{1} << 30;
constexpr int64_t max_list_items = 4'000'000;  ///< of all lists: the largest vocabularies have a fifth of them
constexpr int max_nesting = 4;
constexpr uint64_t default_alignment = 32;

/// The types of metadata, by their numbers in the file.
enum class ValueType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };
constexpr std::array<int64_t, 13> value_bytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  ///< at least

/// Returns whether the bytes are UTF-8 without surrogates and overlong forms, which JSON needs.
bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
    const unsigned first = byte(i);
    const size_t more = first < 0x80 ? 0 : first >> 5 == 6 ? 1 : first >> 4 == 14 ? 2 : first >> 3 == 30 ? 3 : 9;
    if (more == 9) return false;
    uint32_t code = more == 0 ? first : first & (0x3fu >> more);
    for (size_t k = 1; k <= more; ++k) {
      if (byte(i + k) >> 6 != 2) return false;
      code = code << 6 | (byte(i + k) & 0x3f);
    }
    constexpr uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (code < least[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += more + 1;
  }
  return true;
}

/// Returns the shortest decimal number that is this F32: conversions take them from the decimals of config.json.
double from_shortest_decimal(float value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  double out = 0;
  std::from_chars(text.data(), end, out);
  return out;
}

/// Reads a file from its beginning, in chunks, for a file may be on a hub.
class Stream {
 public:
  explicit Stream(const RandomAccessFile& file) : file_(file), end_(std::min(file.size, max_header_bytes)) {}

  int64_t position() const { return position_; }
  int64_t left() const { return end_ - position_; }
  /// Throws unless so many bytes follow.
  void expect(int64_t bytes, const std::string& what) const {
    if (bytes >= 0 && bytes <= left()) return;
    refuse(file_, what + " reaches past the end of the " +
                      (end_ < file_.size ? "1 GiB that a header may have" : "file: the file is cut off"));
  }
  void skip(int64_t bytes, const std::string& what) {
    expect(bytes, what);
    position_ += bytes;
  }
  void read(void* out, int64_t bytes, const std::string& what) {
    expect(bytes, what);
    for (auto* to = static_cast<char*>(out); bytes > 0;) {
      if (position_ < begin_ || position_ >= begin_ + static_cast<int64_t>(chunk_.size())) fill();
      const int64_t at = position_ - begin_, some = std::min(bytes, static_cast<int64_t>(chunk_.size()) - at);
      to = std::copy_n(chunk_.data() + at, some, to);
      position_ += some, bytes -= some;
    }
  }
  /// Reads a little-endian number of this type.
  template <typename T>
  T number(const std::string& what) {
    std::array<unsigned char, sizeof(T)> bytes{};
    read(bytes.data(), sizeof(T), what);
    std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t> bits = 0;
    for (size_t i = sizeof(T); i-- > 0;) bits = bits << 8 | bytes[i];
    if constexpr (std::is_floating_point_v<T>)
      return std::bit_cast<T>(bits);
    else
      return static_cast<T>(bits);
  }
  /// Reads a count of items of at least `each` bytes. Throws where the file has no room for them.
  int64_t count(int64_t each, const std::string& what) {
    const auto found = number<uint64_t>(what);
    if (found > static_cast<uint64_t>(left() / each))
      refuse(file_, what + " is " + std::to_string(found) + ", for which the file is too short");
    return static_cast<int64_t>(found);
  }
  std::string text(int64_t most, const std::string& what) {
    const int64_t bytes = count(1, "the length of " + what);
    if (bytes > most)
      refuse(file_, what + " has " + std::to_string(bytes) + " bytes, expected at most " + std::to_string(most));
    std::string out(static_cast<size_t>(bytes), '\0');
    read(out.data(), bytes, what);
    if (!is_utf8(out)) refuse(file_, what + " is not UTF-8");
    return out;
  }

 private:
  void fill() {
    begin_ = position_;
    chunk_.resize(static_cast<size_t>(std::min(next_chunk_, file_.size - begin_)));
    next_chunk_ = std::min(chunk_bytes, 4 * next_chunk_);
    file_.read(begin_, chunk_);
  }
  const RandomAccessFile& file_;
  const int64_t end_;
  int64_t position_ = 0, begin_ = 0, next_chunk_ = first_chunk_bytes;
  std::vector<char> chunk_;
};

class Parser {
 public:
  Parser(const RandomAccessFile& file, GgufLists lists) : file_(file), lists_(lists), stream_(file) {}

  GgufHeader parse() {
    read_version();
    const int64_t tensors = stream_.count(32, "the number of tensors"),
                  keys = stream_.count(13, "the number of metadata keys");
    header_.metadata = json::object();
    for (int64_t i = 0; i < keys; ++i) read_pair();
    for (int64_t i = 0; i < tensors; ++i) read_tensor();
    place_tensors();
    return std::move(header_);
  }

 private:
  void read_version() {
    std::array<char, 4> magic{};
    stream_.read(magic.data(), 4, "the mark of GGUF");
    if (std::string_view(magic.data(), 4) != "GGUF") refuse(file_, "does not begin with \"GGUF\"");
    const auto version = stream_.number<uint32_t>("the version");
    if (version != 0 && (version & 0xffff) == 0)
      refuse(file_, "is a big-endian GGUF file; convert it with gguf_convert_endian of the Python package gguf");
    if (version < 2 || version > 3)
      refuse(file_, "has version " + std::to_string(version) +
                        " of GGUF, expected 2 or 3: write it again with a newer llama.cpp");
  }

  void read_pair() {
    const std::string key = stream_.text(max_key_bytes, "a metadata key");
    if (header_.metadata.contains(key)) refuse(file_, "has the metadata key \"" + key + "\" twice");
    const std::string what = "metadata \"" + key + "\"";
    const auto type = stream_.number<uint32_t>(what);
    const bool tokenizer = lists_ == GgufLists::AllButTokenizer && key.starts_with("tokenizer.");
    if (tokenizer && static_cast<ValueType>(type) == ValueType::Array)
      skip_value(type, what, 0);
    else
      header_.metadata[key] = read_value(type, what, 0);
  }

  void check_type(uint32_t type, const std::string& what, int depth) {
    if (type >= value_bytes.size())
      refuse(file_, what + " has the type " + std::to_string(type) + ", expected 0 to 12");
    if (depth > max_nesting) refuse(file_, what + " has lists in lists, deeper than 4");
  }

  json read_value(uint32_t type, const std::string& what, int depth) {
    check_type(type, what, depth);
    switch (static_cast<ValueType>(type)) {
      case ValueType::U8:
        return stream_.number<uint8_t>(what);
      case ValueType::I8:
        return stream_.number<int8_t>(what);
      case ValueType::U16:
        return stream_.number<uint16_t>(what);
      case ValueType::I16:
        return stream_.number<int16_t>(what);
      case ValueType::U32:
        return stream_.number<uint32_t>(what);
      case ValueType::I32:
        return stream_.number<int32_t>(what);
      case ValueType::F32:
        return depth == 0 ? from_shortest_decimal(stream_.number<float>(what)) : stream_.number<float>(what);
      case ValueType::Bool:
        return stream_.number<uint8_t>(what) != 0;
      case ValueType::String:
        return stream_.text(max_text_bytes, what);
      case ValueType::U64:
        return stream_.number<uint64_t>(what);
      case ValueType::I64:
        return stream_.number<int64_t>(what);
      case ValueType::F64:
        return stream_.number<double>(what);
      case ValueType::Array:
        break;
    }
    const auto element = stream_.number<uint32_t>(what);
    check_type(element, what, depth + 1);
    const int64_t count = stream_.count(value_bytes[element], "the length of " + what);
    items_ += count;
    if (items_ > max_list_items)
      refuse(file_, what + " and the lists before it have " + std::to_string(items_) + " items, expected at most " +
                        std::to_string(max_list_items));
    json list = json::array();
    for (int64_t i = 0; i < count; ++i) list.push_back(read_value(element, what, depth + 1));
    return list;
  }

  void skip_value(uint32_t type, const std::string& what, int depth) {
    check_type(type, what, depth);
    const auto kind = static_cast<ValueType>(type);
    if (kind == ValueType::String) return stream_.skip(stream_.count(1, "the length of " + what), what);
    if (kind != ValueType::Array) return stream_.skip(value_bytes[type], what);
    const auto element = stream_.number<uint32_t>(what);
    check_type(element, what, depth + 1);
    const int64_t count = stream_.count(value_bytes[element], "the length of " + what);
    for (int64_t i = 0; i < count; ++i) skip_value(element, what, depth + 1);
  }

  void read_tensor() {
    GgufTensor tensor;
    tensor.name = stream_.text(max_key_bytes, "the name of a tensor");
    const std::string what = "tensor \"" + tensor.name + "\"";
    if (!names_.insert(tensor.name).second) refuse(file_, "has the " + what + " twice");
    const auto dimensions = stream_.number<uint32_t>(what);
    if (dimensions < 1 || dimensions > 4)
      refuse(file_, what + " has " + std::to_string(dimensions) + " dimensions, expected 1 to 4");
    int64_t elements = 1;
    for (uint32_t i = 0; i < dimensions; ++i) {
      const auto size = stream_.number<int64_t>(what);
      if (size < 1 || __builtin_mul_overflow(elements, size, &elements))
        refuse(file_, what + " has a dimension of " + std::to_string(size) +
                          ", expected sizes from 1 whose product is below 2^63");
      tensor.shape.insert(tensor.shape.begin(), size);
    }
    const auto type = stream_.number<uint32_t>(what);
    tensor.type = find_block_type(type);
    if (!tensor.type || tensor.type->bytes == 0)
      refuse(file_, what + " has the type " +
                        (tensor.type ? std::string(tensor.type->name) : "number " + std::to_string(type)) +
                        ", which is not read; read are " + readable_block_types());
    if (tensor.shape.back() % tensor.type->elements)
      refuse(file_, what + " has rows of " + std::to_string(tensor.shape.back()) +
                        " values, expected whole blocks of " + std::to_string(tensor.type->elements) + " for " +
                        std::string(tensor.type->name));
    if (__builtin_mul_overflow(elements / tensor.type->elements, tensor.type->bytes, &tensor.bytes))
      refuse(file_, what + " is larger than 2^63 bytes");
    tensor.offset = stream_.number<int64_t>(what);
    header_.tensors.push_back(std::move(tensor));
  }

  /// Makes the offsets of tensors those in the file, and checks them.
  void place_tensors() {
    const json stated = header_.metadata.value("general.alignment", json(default_alignment));
    const uint64_t alignment = stated.is_number_unsigned() ? stated.get<uint64_t>() : 0;
    if (!std::has_single_bit(alignment) || alignment > chunk_bytes)
      refuse(file_, "has a general.alignment of " + stated.dump() + ", expected a power of two up to 2^20");
    const auto step = static_cast<int64_t>(alignment);
    const int64_t data = (stream_.position() + step - 1) / step * step, room = file_.size - data;
    std::vector<GgufTensor*> order;
    for (GgufTensor& tensor : header_.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
    int64_t end = 0;
    for (GgufTensor* tensor : order) {
      const std::string what = "tensor \"" + tensor->name + "\"";
      if (tensor->offset < end || tensor->offset % step)
        refuse(file_, what + " begins at " + std::to_string(tensor->offset) + ", expected a multiple of " +
                          std::to_string(step) + " from " + std::to_string(end) + " on");
      if (tensor->bytes > room || tensor->offset > room - tensor->bytes)
        refuse(file_, what + " has " + std::to_string(tensor->bytes) + " bytes at " + std::to_string(tensor->offset) +
                          " of the data, which has " + std::to_string(std::max<int64_t>(0, room)) +
                          " bytes: the file is cut off");
      end = tensor->offset + tensor->bytes;
      tensor->offset += data;
    }
  }

  const RandomAccessFile& file_;
  const GgufLists lists_;
  Stream stream_;
  GgufHeader header_;
  std::set<std::string> names_;
  int64_t items_ = 0;
};

}  // namespace

GgufHeader read_gguf_header(const RandomAccessFile& file, GgufLists lists) { return Parser(file, lists).parse(); }

}  // namespace pm::checkpoint
