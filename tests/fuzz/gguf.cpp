// SPDX-License-Identifier: Apache-2.0
// GGUF files. Of one that is read, every tensor can be read, whole and cut, without leaving the file, and its tokenizer
// is built and used.
#include <nlohmann/json.hpp>

#include "tests/fuzz/input.h"
#include "tests/unit/worker/checkpoint/archive.h"
#include "worker/checkpoint/gguf/gguf_model.h"
#include "worker/checkpoint/gguf/gguf_tokenizer.h"
#include "worker/checkpoint/strips.h"
#include "worker/tokenizer/ffi/textops.h"

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
    const auto to = std::as_writable_bytes(std::span(out));
    tensor.packed ? read_packed(tensor, {&strip, 1}, to, read) : read(tensor, {&strip, 1}, to);
    return out;
  };
  const int64_t middle = bytes / 3 / size_of(tensor.dtype) * size_of(tensor.dtype);
  pm::fuzz::hold(part(0, bytes) == part(0, middle) + part(middle, bytes - middle),
                 "\"" + tensor.name + "\" differs where it is cut");
}

/// Builds the tokenizer and uses it. A status of 2 is a panic of the crate.
void use_tokenizer(const std::string& metadata) {
  TxTokenizer* tokenizer = nullptr;
  TxBuf why{};
  const int opened = tx_tokenizer_open("absent", metadata.c_str(), &tokenizer, &why);
  pm::fuzz::hold(opened != 2, "opening panics: " + pm::fuzz::text(why.ptr, why.len));
  tx_buf_free(why);
  if (!tokenizer) return;
  const std::string text = "a ab  b <s>\xE3\x81\x82 1,5's";
  TxIds ids{};
  TxBuf error{}, shown{};
  int64_t special[7] = {};
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  pm::fuzz::hold(tx_encode(tokenizer, bytes, text.size(), true, &ids, &error) != 2, "encoding panics");
  pm::fuzz::hold(tx_decode(tokenizer, ids.ptr, ids.len, false, &shown, &error) != 2, "decoding panics");
  pm::fuzz::hold(tx_special_ids(tokenizer, "absent", metadata.c_str(), special, &error) != 2, "roles panic");
  tx_buf_free(shown);
  tx_buf_free(error);
  tx_ids_free(ids);
  tx_tokenizer_free(tokenizer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = pm::fuzz::text(data, size);
  const RandomAccessFile file = in_memory(bytes);
  const ReadStored read = [&](const TensorInfo& tensor, std::span<const Strip> strips, std::span<std::byte> out) {
    read_strips(tensor, strips, out, 64, [&](int64_t offset, std::span<std::byte> part) {
      pm::fuzz::hold(offset >= 0 && offset + static_cast<int64_t>(part.size()) <= static_cast<int64_t>(bytes.size()),
                     "\"" + tensor.name + "\" is read outside of the file");
      std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()) + offset, part.size(), part.begin());
    });
  };
  try {
    const GgufModel model = read_gguf_model({&file, 1}, {}, read);
    for (const auto& [name, tensor] : model.tensors) read_dense(tensor, read);
  } catch (const pm::Error&) {
  }
  try {
    use_tokenizer(read_gguf_tokenizer(file, GgufVocabulary::Included));
  } catch (const pm::Error&) {
  }
  return 0;
}
