// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/passage_index.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "worker/base/error.h"

namespace pm::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr int64_t block_bytes = int64_t{1} << 20;
constexpr int64_t max_line_bytes = int64_t{1} << 20;
constexpr int max_depth = 16;  // of what else a line may have

[[noreturn]] void refuse(const std::string& message) { throw Error(Reason::ModelUnreadable, message); }

/// The number and the count of a shard.
struct Shard {
  int64_t number = 0, count = 0;
};

/// Returns the shard that "-00001-of-00003" names.
std::optional<Shard> shard_of(std::string_view text) {
  constexpr size_t digits = 5;
  constexpr std::string_view between = "-of-";
  if (text.size() != 1 + digits + between.size() + digits || text[0] != '-' ||
      text.substr(1 + digits, between.size()) != between)
    return std::nullopt;
  const auto number = [](std::string_view part) {
    int64_t value = 0;
    for (const char c : part) value = c >= '0' && c <= '9' && value >= 0 ? value * 10 + (c - '0') : -1;
    return value;
  };
  const Shard shard{number(text.substr(1, digits)), number(text.substr(1 + digits + between.size()))};
  return shard.number > 0 && shard.count > 0 ? std::optional(shard) : std::nullopt;
}

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// Returns where the lines of a file begin, and the end of the last one, after parsing each.
std::vector<int64_t> find_lines(const RandomAccessFile& file) {
  std::vector<int64_t> begins{0};
  std::string line, block;
  const auto take = [&](int64_t end) {
    parse_passage(line, file.name + " line " + std::to_string(begins.size()));
    begins.push_back(end);
    line.clear();
  };
  for (int64_t at = 0; at < file.size;) {
    block.resize(static_cast<size_t>(std::min(block_bytes, file.size - at)));
    file.read(at, {block.data(), block.size()});
    for (size_t from = 0; from < block.size();) {
      const size_t newline = block.find('\n', from), end = newline == std::string::npos ? block.size() : newline;
      line.append(block, from, end - from);
      if (static_cast<int64_t>(line.size()) > max_line_bytes)
        refuse(file.name + " line " + std::to_string(begins.size()) + " has more than 1 MiB");
      from = end + 1;
      if (newline != std::string::npos) take(at + static_cast<int64_t>(newline) + 1);
    }
    at += static_cast<int64_t>(block.size());
  }
  if (!line.empty()) take(file.size);
  return begins;
}

}  // namespace

std::vector<std::string> find_shards(const fs::path& folder, const std::string& stem, const std::string& extension) {
  std::error_code error;
  bool whole = false;
  std::map<int64_t, std::string> shards;
  int64_t count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    whole = whole || name == stem + extension;
    if (name.size() < stem.size() + extension.size() || !name.starts_with(stem) || !name.ends_with(extension)) continue;
    const auto shard =
        shard_of(std::string_view(name).substr(stem.size(), name.size() - stem.size() - extension.size()));
    if (!shard) continue;
    if (count != 0 && shard->count != count)
      refuse(folder.string() + " has shards of " + std::to_string(count) + " and of " + std::to_string(shard->count) +
             " files of " + stem + extension + "; keep those of one");
    count = shard->count;
    shards[shard->number] = name;
  }
  if (whole && count > 0) refuse(folder.string() + " has " + stem + extension + " and shards of it; keep one of both");
  if (whole) return {stem + extension};
  std::vector<std::string> names;
  for (const auto& [number, name] : shards) {
    if (number != static_cast<int64_t>(names.size()) + 1 || number > count) break;
    names.push_back(name);
  }
  if (static_cast<int64_t>(names.size()) != count)
    refuse(folder.string() + " has " + std::to_string(shards.size()) + " of the " + std::to_string(count) +
           " shards of " + stem + extension + "; number " + std::to_string(names.size() + 1) +
           " is missing: copy all of them");
  return names;
}

TensorInfo read_embeddings(const RandomAccessFile& file) {
  constexpr std::string_view expected = "embeddings";
  const Header header = read_safetensors(file);
  for (const auto& [name, tensor] : header.unsupported)
    refuse(file, "the tensor \"" + name + "\" has the element type " + tensor.type + ", expected F32, F16 or BF16");
  for (const auto& [name, info] : header.tensors)
    if (name != expected) refuse(file, "has the tensor \"" + name + "\"; a file of an index has only \"embeddings\"");
  const auto found = header.tensors.find(expected);
  if (found == header.tensors.end()) refuse(file, "has no tensor \"embeddings\"");
  const TensorInfo& info = found->second;
  if (info.shape.size() != 2 || info.shape[0] < 1 || info.shape[1] < 1)
    refuse(file, "\"embeddings\" has the shape " + text_of(info.shape) +
                     ", expected [passages, width] with at least one of each");
  if (info.dtype != DType::F32 && info.dtype != DType::F16 && info.dtype != DType::BF16)
    refuse(file,
           "\"embeddings\" has the element type " + std::string(name_of(info.dtype)) + ", expected F32, F16 or BF16");
  return info;
}

Passage parse_passage(std::string_view line, const std::string& where) {
  using nlohmann::json;
  const auto depth = [&](int level, json::parse_event_t, json&) {
    if (level > max_depth) refuse(where + " is nested deeper than " + std::to_string(max_depth));
    return true;
  };
  const json object = json::parse(line, depth, /*allow_exceptions=*/false);
  if (!object.is_object()) refuse(where + " is not a JSON object in UTF-8, as {\"title\": \"...\", \"text\": \"...\"}");
  Passage passage;
  for (const auto& [key, into] : {std::pair{"title", &passage.title}, std::pair{"text", &passage.text}}) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) refuse(where + " has no string \"" + key + "\"");
    *into = found->get<std::string>();
  }
  return passage;
}

Passages Passages::open(const fs::path& folder) {
  const std::vector<std::string> names = find_shards(folder, "passages", ".jsonl");
  if (names.empty())
    refuse(folder.string() +
           " has no passages.jsonl: one line {\"title\": \"...\", \"text\": \"...\"} for each row of the "
           "embeddings");
  std::vector<RandomAccessFile> files;
  files.reserve(names.size());
  for (const std::string& name : names) files.push_back(open_file(folder / name));
  return Passages(std::move(files));
}

Passages::Passages(std::vector<RandomAccessFile> files) {
  for (RandomAccessFile& file : files) {
    std::vector<int64_t> begins = find_lines(file);
    count_ += static_cast<int64_t>(begins.size()) - 1;
    files_.push_back({std::move(file), std::move(begins)});
  }
}

Passage Passages::read(int64_t number) const {
  int64_t line = number;
  for (const File& file : files_) {
    const auto lines = static_cast<int64_t>(file.begins.size()) - 1;
    if (line < 0 || line >= lines) {
      line -= lines;
      continue;
    }
    const auto at = static_cast<size_t>(line);
    std::string text(static_cast<size_t>(file.begins[at + 1] - file.begins[at]), '\0');
    file.bytes.read(file.begins[at], {text.data(), text.size()});
    if (text.ends_with('\n')) text.pop_back();
    return parse_passage(text, file.bytes.name + " line " + std::to_string(line + 1));
  }
  throw std::out_of_range("passage " + std::to_string(number) + " of " + std::to_string(count_));
}

}  // namespace pm::checkpoint
