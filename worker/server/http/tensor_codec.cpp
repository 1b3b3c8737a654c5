// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/tensor_codec.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "worker/server/http/api_error.h"
#include "worker/server/http/json_body.h"

namespace pm::server {
namespace {

using nlohmann::json;

/// Walks nested lists in row-major order.
struct NestedListReader {
  std::string name;
  Array array;
  std::vector<double> values;
  std::vector<int64_t> integers;
  bool floats = false;

  void shape_of(const json& value) {
    for (const json* level = &value; level->is_array(); level = &level->front()) {
      array.shape.push_back(static_cast<int64_t>(level->size()));
      if (level->empty()) throw ApiError(400, "invalid_value", name + " has an empty list", name);
    }
  }

  void read(const json& value, size_t depth, const std::string& path) {
    if (depth == array.shape.size()) {
      if (!value.is_number()) throw bad_field(path, json_excerpt(value), "a number");
      const bool integer =
          value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX});
      floats = floats || !integer;
      values.push_back(value);
      integers.push_back(integer ? value.get<int64_t>() : 0);
      return;
    }
    if (!value.is_array())
      throw bad_field(path, json_excerpt(value),
                      "a list of " + std::to_string(array.shape[depth]) + ", as its neighbours");
    if (static_cast<int64_t>(value.size()) != array.shape[depth])
      throw ApiError(400, "invalid_value",
                     path + " has " + std::to_string(value.size()) + " entries, its neighbours have " +
                         std::to_string(array.shape[depth]) + "; pad the lists and send an attention_mask",
                     name);
    for (size_t i = 0; i < value.size(); ++i) {
      // the path is only used in errors, so it is extended per list and not per number
      if (depth + 1 < array.shape.size())
        read(value[i], depth + 1, path + "[" + std::to_string(i) + "]");
      else
        read(value[i], depth + 1, path);
    }
  }
};

template <class T>
void append_numbers(std::string& to, std::span<const T> values) {
  to += '[';
  char text[32];
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) to += ',';
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(values[i])) {
        to += "null";
        continue;
      }
    }
    const auto end = std::to_chars(text, text + sizeof text, values[i]).ptr;
    to.append(text, end);
  }
  to += ']';
}

template <class T>
void append_nested(std::string& to, const std::vector<T>& values, const std::vector<int64_t>& shape, size_t depth,
                   size_t& at) {
  if (depth + 1 >= shape.size()) {
    const size_t n = shape.empty() ? values.size() : static_cast<size_t>(shape.back());
    append_json(to, std::span<const T>(values).subspan(at, n));
    at += n;
    return;
  }
  to += '[';
  for (int64_t i = 0; i < shape[depth]; ++i) {
    if (i > 0) to += ',';
    append_nested(to, values, shape, depth + 1, at);
  }
  to += ']';
}

ApiError invalid_safetensors(const std::string& why) {
  return ApiError(400, "invalid_safetensors", "the body is not a valid safetensors file: " + why);
}

template <class Stored, class Value>
std::vector<Value> decode_values(std::string_view bytes) {
  std::vector<Value> values(bytes.size() / sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored one;
    std::memcpy(&one, bytes.data() + i * sizeof one, sizeof one);
    values[i] = static_cast<Value>(one);
  }
  return values;
}

size_t element_size(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64") return 8;
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "I16") return 2;
  if (dtype == "U8" || dtype == "BOOL") return 1;
  return 0;
}

Array array_from(const std::string& dtype, std::vector<int64_t> shape, std::string_view bytes) {
  if (dtype == "F32") return {std::move(shape), decode_values<float, float>(bytes)};
  if (dtype == "F64") return {std::move(shape), decode_values<double, float>(bytes)};
  if (dtype == "I64") return {std::move(shape), decode_values<int64_t, int64_t>(bytes)};
  if (dtype == "I32") return {std::move(shape), decode_values<int32_t, int64_t>(bytes)};
  if (dtype == "I16") return {std::move(shape), decode_values<int16_t, int64_t>(bytes)};
  return {std::move(shape), decode_values<uint8_t, int64_t>(bytes)};
}

/// Decodes one entry of the header. Throws json::exception when a field is missing or has another type.
Array parse_entry(const std::string& name, const json& info, std::string_view data) {
  const auto dtype = info.at("dtype").get<std::string>();
  const size_t size = element_size(dtype);
  if (size == 0)
    throw invalid_safetensors(name.substr(0, 60) + " has the dtype " + dtype.substr(0, 20) +
                              "; supported are F32, F64, I64, I32, I16, U8, BOOL");
  std::vector<int64_t> shape;
  uint64_t count = 1;
  for (const json& one : info.at("shape")) {
    shape.push_back(one.get<int64_t>());
    if (shape.back() < 0 || static_cast<uint64_t>(shape.back()) > data.size())
      throw invalid_safetensors(name.substr(0, 60) + " has a shape larger than the file");
    count *= static_cast<uint64_t>(shape.back());
    if (count > data.size()) throw invalid_safetensors(name.substr(0, 60) + " has a shape larger than the file");
  }
  const auto begin = info.at("data_offsets").at(0).get<uint64_t>(), end = info.at("data_offsets").at(1).get<uint64_t>();
  if (begin > end || end > data.size() || end - begin != count * size)
    throw invalid_safetensors(name.substr(0, 60) + " has bytes that do not fit its shape");
  return array_from(dtype, std::move(shape), data.substr(begin, end - begin));
}

}  // namespace

void append_json(std::string& to, std::span<const float> values) { append_numbers(to, values); }
void append_json(std::string& to, std::span<const int64_t> values) { append_numbers(to, values); }

Array parse_json_tensor(const json& value, const std::string& name, bool floats) {
  NestedListReader reader{name, {}, {}, {}, floats};
  if (!value.is_array()) throw bad_field(name, json_excerpt(value), "nested lists of numbers");
  reader.shape_of(value);
  reader.read(value, 0, name);
  if (reader.floats)
    reader.array.values = std::vector<float>(reader.values.begin(), reader.values.end());
  else
    reader.array.values = std::move(reader.integers);
  return std::move(reader.array);
}

void append_json(std::string& to, const Array& array) {
  const bool floats = std::holds_alternative<std::vector<float>>(array.values);
  to += floats ? R"({"dtype":"float32","shape":)" : R"({"dtype":"int64","shape":)";
  append_json(to, std::span<const int64_t>(array.shape));
  to += R"(,"data":)";
  size_t at = 0;
  std::visit([&](const auto& values) { append_nested(to, values, array.shape, 0, at); }, array.values);
  to += '}';
}

Arrays from_safetensors(std::string_view file) {
  uint64_t length = 0;
  if (file.size() < sizeof length) throw invalid_safetensors("it is shorter than 8 bytes");
  std::memcpy(&length, file.data(), sizeof length);
  if (length > file.size() - sizeof length) throw invalid_safetensors("its header is longer than the file");
  const std::string_view data = file.substr(sizeof length + length);
  Arrays arrays;
  const json header = parse_object(file.substr(sizeof length, length));
  for (const auto& [name, info] : header.items()) {
    if (name == "__metadata__") continue;
    try {
      arrays[name] = parse_entry(name, info, data);
    } catch (const json::exception&) {
      throw invalid_safetensors(name.substr(0, 60) + " has no dtype, shape and data_offsets of the right types");
    }
  }
  return arrays;
}

std::string to_safetensors(const Arrays& arrays) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  size_t offset = 0;
  for (const auto& [name, array] : arrays) {
    const bool floats = std::holds_alternative<std::vector<float>>(array.values);
    const size_t bytes = std::visit([](const auto& values) { return values.size() * sizeof(values[0]); }, array.values);
    header[name] = {
        {"dtype", floats ? "F32" : "I64"}, {"shape", array.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const auto length = static_cast<uint64_t>(text.size());
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file.reserve(file.size() + text.size() + offset);
  file += text;
  for (const auto& [name, array] : arrays)
    std::visit(
        [&](const auto& values) {
          file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
        },
        array.values);
  return file;
}

}  // namespace pm::server
