// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "worker/base/error.h"

namespace pm::checkpoint {

SafetensorsWriter::SafetensorsWriter(std::filesystem::path folder, std::vector<WrittenTensor> tensors,
                                     int64_t shard_bytes)
    : folder_(std::move(folder)), tensors_(std::move(tensors)) {
  for (size_t i = 0, bytes = 0; i < tensors_.size(); ++i) {
    const auto more = static_cast<size_t>(tensors_[i].bytes);
    if (i == 0 || bytes + more > static_cast<size_t>(shard_bytes)) first_.push_back(i), bytes = 0;
    bytes += more;
  }
  if (first_.empty()) first_.push_back(0);
  begin_shard();
}

std::string SafetensorsWriter::file_of(size_t shard) const {
  if (first_.size() == 1) return "model.safetensors";
  const auto digits = [](size_t number) {
    const std::string text = std::to_string(number);
    return std::string(5 - std::min<size_t>(5, text.size()), '0') + text;
  };
  return "model-" + digits(shard + 1) + "-of-" + digits(first_.size()) + ".safetensors";
}

void SafetensorsWriter::fail(const std::filesystem::path& file) const {
  throw Error(Reason::Usage, "cannot write " + file.string() + ": " + std::strerror(errno));
}

void SafetensorsWriter::begin_shard() {
  nlohmann::json header{{"__metadata__", {{"format", "pt"}}}};
  const size_t end = shard_ + 1 < first_.size() ? first_[shard_ + 1] : tensors_.size();
  left_ = 0;
  for (size_t i = first_[shard_]; i < end; ++i) {
    const WrittenTensor& tensor = tensors_[i];
    header[tensor.name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {left_, left_ + tensor.bytes}}};
    left_ += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto bytes = static_cast<uint64_t>(text.size());
  out_.open(folder_ / file_of(shard_), std::ios::binary | std::ios::trunc);
  out_.write(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  out_ << text;
  if (!out_) fail(folder_ / file_of(shard_));
}

void SafetensorsWriter::next_shard() {
  out_.close();
  if (!out_) fail(folder_ / file_of(shard_));
  ++shard_;
  begin_shard();
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (left_ == 0) {
      if (shard_ + 1 == first_.size()) throw std::logic_error("more bytes than the tensors have");
      next_shard();
      continue;
    }
    const auto some = bytes.first(std::min(bytes.size(), static_cast<size_t>(left_)));
    out_.write(reinterpret_cast<const char*>(some.data()), static_cast<std::streamsize>(some.size()));
    if (!out_) fail(folder_ / file_of(shard_));
    left_ -= static_cast<int64_t>(some.size());
    bytes = bytes.subspan(some.size());
  }
}

void SafetensorsWriter::finish() {
  while (left_ == 0 && shard_ + 1 < first_.size()) next_shard();  // of tensors without elements
  if (left_ > 0) throw std::logic_error("some tensors are not written whole");
  out_.close();
  if (!out_) fail(folder_ / file_of(shard_));
  if (first_.size() == 1) return;
  int64_t total = 0;
  nlohmann::json files = nlohmann::json::object();
  for (size_t i = 0, shard = 0; i < tensors_.size(); ++i) {
    if (shard + 1 < first_.size() && i == first_[shard + 1]) ++shard;
    files[tensors_[i].name] = file_of(shard);
    total += tensors_[i].bytes;
  }
  const std::filesystem::path index = folder_ / "model.safetensors.index.json";
  std::ofstream out(index);
  out << nlohmann::json{{"metadata", {{"total_size", total}}}, {"weight_map", files}}.dump(2) << "\n";
  out.close();
  if (!out) fail(index);
}

}  // namespace pm::checkpoint
