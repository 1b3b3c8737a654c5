// SPDX-License-Identifier: Apache-2.0
// Quantised checkpoints: a line with a quantization_config, then a safetensors file. Every dense tensor that is put
// together can be read, whole and cut, without leaving the file.
#include <nlohmann/json.hpp>

#include "tests/fuzz/input.h"
#include "tests/unit/worker/checkpoint/archive.h"
#include "worker/checkpoint/quantized/formats.h"
#include "worker/checkpoint/quantized/packed_matrix.h"
#include "worker/checkpoint/strips.h"

namespace {

using namespace pm::checkpoint;

constexpr int64_t max_dense_bytes = 1 << 16;

void read_dense(const TensorInfo& tensor, const ReadStored& read) {
  int64_t bytes = size_of(tensor.dtype);
  for (const int64_t size : tensor.shape) bytes *= size;
  pm::fuzz::hold(bytes == tensor.bytes, "\"" + tensor.name + "\" has other bytes than its shape says");
  if (bytes > max_dense_bytes) return;
  const auto part = [&](int64_t first, int64_t count) {
    std::string out(static_cast<size_t>(count), '\0');
    const Strip strip{first, 1, count, count};
    read_packed(tensor, {&strip, 1}, std::as_writable_bytes(std::span(out)), read);
    return out;
  };
  const int64_t middle = bytes / 3 / size_of(tensor.dtype) * size_of(tensor.dtype);
  pm::fuzz::hold(part(0, bytes) == part(0, middle) + part(middle, bytes - middle),
                 "\"" + tensor.name + "\" differs where it is cut");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input = pm::fuzz::text(data, size);
  const size_t line = std::min(input.find('\n'), input.size());
  nlohmann::json settings = nlohmann::json::parse(input.substr(0, line), nullptr, false);
  if (settings.is_discarded()) return 0;
  const std::string file = input.substr(std::min(line + 1, input.size()));
  const nlohmann::json config = {{"dtype", "bfloat16"}, {"quantization_config", std::move(settings)}};
  const ReadStored read = [&](const TensorInfo& tensor, std::span<const Strip> strips, std::span<std::byte> out) {
    read_strips(tensor, strips, out, 64, [&](int64_t offset, std::span<std::byte> part) {
      pm::fuzz::hold(offset >= 0 && offset + static_cast<int64_t>(part.size()) <= static_cast<int64_t>(file.size()),
                     "\"" + tensor.name + "\" is read outside of the file");
      std::copy_n(reinterpret_cast<const std::byte*>(file.data()) + offset, part.size(), part.begin());
    });
  };
  try {
    Header header = read_safetensors(in_memory(file));
    assemble_quantized("model", config, header.tensors, header.unsupported, read);
    for (const auto& [name, tensor] : header.tensors)
      if (tensor.packed) read_dense(tensor, read);
  } catch (const pm::Error&) {
  }
  return 0;
}
