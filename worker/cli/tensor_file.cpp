// SPDX-License-Identifier: Apache-2.0
#include "worker/cli/tensor_file.h"

#include <ATen/ATen.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/layers/loader.h"
#include "worker/models/requests/arrays.h"

namespace pm::cli {

Arrays read_tensors(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  uint64_t header_bytes = 0;
  if (!in.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes)) {
    throw Error(Reason::InputUnreadable, "cannot read " + path.string() + " as a safetensors file");
  }
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  if (header_bytes > static_cast<uint64_t>(size))
    throw Error(Reason::InputUnreadable, path.string() + ": the header is longer than the file");
  std::string header(header_bytes, '\0');
  in.read(header.data(), static_cast<std::streamsize>(header_bytes));
  Arrays result;
  for (const auto& [name, info] : checkpoint::parse_header(header, size, path.string()).tensors) {
    at::Tensor tensor = at::empty(info.shape, layers::scalar_type(info.dtype));
    in.seekg(info.offset);
    in.read(static_cast<char*>(tensor.mutable_data_ptr()), static_cast<std::streamsize>(info.bytes));
    result[name] = models::array_of(tensor);
  }
  if (!in) throw Error(Reason::InputUnreadable, path.string() + " is truncated");
  return result;
}

void write_tensors(const std::filesystem::path& path, const Arrays& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  int64_t offset = 0;
  for (const auto& [name, array] : tensors) {
    const at::Tensor tensor = models::tensor_of(array);
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    header[name] = {{"dtype", tensor.scalar_type() == at::kFloat ? "F32" : "I64"},
                    {"shape", array.shape},
                    {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const auto partial = path.string() + ".partial";
  {
    std::ofstream out(partial, std::ios::binary);
    const auto length = static_cast<uint64_t>(text.size());
    out.write(reinterpret_cast<const char*>(&length), sizeof length)
        .write(text.data(), static_cast<std::streamsize>(text.size()));
    for (const auto& [name, tensor] : tensors) {
      const at::Tensor whole = models::tensor_of(tensor);
      out.write(static_cast<const char*>(whole.const_data_ptr()), static_cast<std::streamsize>(whole.nbytes()));
    }
    if (!out.flush()) throw Error(Reason::OutputUnwritable, "cannot write " + partial);
  }
  std::filesystem::rename(partial, path);
}

}  // namespace pm::cli
