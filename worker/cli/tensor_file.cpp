// See tensor_file.h.
#include "worker/cli/tensor_file.h"

#include <ATen/ATen.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/layers/loader.h"

namespace pm::cli {

namespace {

DType type_of(at::ScalarType type) {
  for (DType candidate : {DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8, DType::U8, DType::Bool, DType::I16, DType::I32, DType::I64}) {
    if (layers::scalar_type(candidate) == type) return candidate;
  }
  throw Error(ErrorKind::Request, "OutputUnwritable", std::string("no safetensors type for ") + c10::toString(type));
}

}  // namespace

Tensors read_tensors(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  uint64_t header_bytes = 0;
  if (!in.read(reinterpret_cast<char*>(&header_bytes), sizeof header_bytes)) {
    throw Error(ErrorKind::Request, "InputUnreadable", "cannot read " + path.string() + " as a safetensors file");
  }
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  if (header_bytes > static_cast<uint64_t>(size)) throw Error(ErrorKind::Request, "InputUnreadable", path.string() + ": the header is longer than the file");
  std::string header(header_bytes, '\0');
  in.read(header.data(), static_cast<std::streamsize>(header_bytes));
  Tensors result;
  for (const auto& [name, info] : checkpoint::parse_header(header, size, path.string()).tensors) {
    at::Tensor tensor = at::empty(info.shape, layers::scalar_type(info.dtype));
    in.seekg(info.offset);
    in.read(static_cast<char*>(tensor.mutable_data_ptr()), static_cast<std::streamsize>(info.bytes));
    result[name] = tensor;
  }
  if (!in) throw Error(ErrorKind::Request, "InputUnreadable", path.string() + " is cut short");
  return result;
}

void write_tensors(const std::filesystem::path& path, const Tensors& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  int64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    header[name] = {{"dtype", name_of(type_of(tensor.scalar_type()))}, {"shape", tensor.sizes().vec()}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const auto partial = path.string() + ".partial";
  {
    std::ofstream out(partial, std::ios::binary);
    const auto length = static_cast<uint64_t>(text.size());
    out.write(reinterpret_cast<const char*>(&length), sizeof length).write(text.data(), static_cast<std::streamsize>(text.size()));
    for (const auto& [name, tensor] : tensors) {
      const at::Tensor whole = tensor.contiguous();
      out.write(static_cast<const char*>(whole.const_data_ptr()), static_cast<std::streamsize>(whole.nbytes()));
    }
    if (!out.flush()) throw Error(ErrorKind::Request, "OutputUnwritable", "cannot write " + partial);
  }
  std::filesystem::rename(partial, path);
}

}  // namespace pm::cli
