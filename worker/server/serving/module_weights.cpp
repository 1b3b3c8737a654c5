// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/module_weights.h"

#include <cstring>
#include <fstream>

#include "worker/base/error.h"
#include "worker/checkpoint/quantized/float_codes.h"
#include "worker/checkpoint/torch_file.h"

namespace pm::server {
namespace {

std::string words(const std::vector<int64_t>& sizes) { return nlohmann::json(sizes).dump(); }

float widen(std::span<const std::byte> bytes, DType type, size_t i) {
  if (type == DType::F32) {
    float value = 0;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, bytes.data() + 2 * i, 2);
  return type == DType::BF16 ? checkpoint::from_bf16(half) : checkpoint::from_f16(half);
}

}  // namespace

ModuleWeights ModuleWeights::of_folder(const std::filesystem::path& folder) {
  const auto opened = std::make_shared<checkpoint::Checkpoint>(checkpoint::Checkpoint::open(folder));
  checkpoint::Header header{opened->tensors(), opened->unsupported()};
  return {folder.string(), std::move(header), [opened](const checkpoint::TensorInfo& info, std::span<std::byte> out) {
            const checkpoint::Strip all{0, 1, info.bytes, info.bytes};
            opened->read(info, {&all, 1}, out);
          }};
}

ModuleWeights ModuleWeights::of_torch_file(const std::filesystem::path& file) {
  const auto in = std::make_shared<std::ifstream>(file, std::ios::binary);
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (!*in || error) throw Error(Reason::ModelUnreadable, file.string() + " cannot be read");
  const auto read_at = [in, name = file.string()](int64_t offset, std::span<char> out) {
    in->seekg(offset);
    in->read(out.data(), static_cast<std::streamsize>(out.size()));
    if (!*in) throw Error(Reason::ModelUnreadable, name + " ends early");
  };
  const checkpoint::RandomAccessFile opened{file.string(), static_cast<int64_t>(size), read_at};
  checkpoint::Header header = checkpoint::read_torch_file(opened);
  for (const auto& [name, info] : header.tensors)
    if (!info.strides.empty())
      throw Error(Reason::ModelUnreadable, file.string() + ": " + name + " is a transposed view; save it contiguous");
  return {file.string(), std::move(header), [read_at](const checkpoint::TensorInfo& info, std::span<std::byte> out) {
            read_at(info.offset, {reinterpret_cast<char*>(out.data()), out.size()});
          }};
}

std::vector<float> ModuleWeights::read(const std::string& name, const std::vector<int64_t>& shape) {
  const auto found = header_.tensors.find(name);
  if (found == header_.tensors.end()) throw Error(Reason::ModelUnreadable, name_ + " has no tensor " + name);
  const checkpoint::TensorInfo& info = found->second;
  if (info.shape != shape || (info.dtype != DType::F32 && info.dtype != DType::F16 && info.dtype != DType::BF16))
    throw Error(Reason::ModelUnreadable, name_ + ": " + name + " is " + std::string(name_of(info.dtype)) + " " +
                                             words(info.shape) + "; expected F32, F16 or BF16 " + words(shape));
  ++taken_;
  std::vector<std::byte> bytes(static_cast<size_t>(info.bytes));
  read_(info, bytes);
  size_t count = 1;
  for (int64_t size : shape) count *= static_cast<size_t>(size);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = widen(bytes, info.dtype, i);
  return values;
}

std::vector<float> ModuleWeights::read_matrix(const std::string& name, size_t inputs, size_t outputs) {
  const auto stored = read(name, {static_cast<int64_t>(outputs), static_cast<int64_t>(inputs)});
  std::vector<float> matrix(stored.size());
  for (size_t o = 0; o < outputs; ++o)
    for (size_t i = 0; i < inputs; ++i) matrix[i * outputs + o] = stored[o * inputs + i];
  return matrix;
}

void ModuleWeights::end() const {
  const size_t count = header_.tensors.size() + header_.unsupported.size();
  if (taken_ != count)
    throw Error(Reason::ModelUnreadable, name_ + " has " + std::to_string(count) + " tensors, of which " +
                                             std::to_string(taken_) + " are known here");
}

}  // namespace pm::server
