// SPDX-License-Identifier: Apache-2.0
// The files of an index of passages: the first byte chooses embeddings, or passages in one file or two.
#include <algorithm>
#include <optional>
#include <vector>

#include "tests/fuzz/input.h"
#include "tests/unit/worker/checkpoint/archive.h"
#include "worker/checkpoint/passage_index.h"

namespace {

using pm::checkpoint::in_memory;

void read_passages(const std::vector<std::string>& files) {
  std::vector<pm::checkpoint::RandomAccessFile> opened;
  int64_t ends = 0;
  for (const std::string& file : files) {
    opened.push_back(in_memory(file));
    ends += std::count(file.begin(), file.end(), '\n') + (file.empty() || file.back() == '\n' ? 0 : 1);
  }
  const pm::checkpoint::Passages passages(std::move(opened));
  pm::fuzz::hold(passages.size() == ends, "another number of passages than of lines");
  for (int64_t number = 0; number < passages.size(); ++number) passages.read(number);  // every line was parsed before
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string file = pm::fuzz::text(data + 2, size - 2);
  try {
    if (data[0] % 3 == 0) {
      const pm::checkpoint::TensorInfo info = pm::checkpoint::read_embeddings(in_memory(file));
      pm::fuzz::hold(info.shape.size() == 2 && info.shape[0] > 0 && info.shape[1] > 0, "embeddings without rows");
      pm::fuzz::hold(info.offset + info.bytes <= static_cast<int64_t>(file.size()), "embeddings outside of the file");
      return 0;
    }
  } catch (const pm::Error&) {
    return 0;
  }
  const size_t cut = data[0] % 3 == 1 ? file.size() : std::min<size_t>(file.size(), data[1]);
  std::optional<std::string> refused;
  try {
    read_passages({file.substr(0, cut), file.substr(cut)});
  } catch (const pm::Error& error) {
    refused = error.what();
  }
  pm::fuzz::hold(!refused || refused->starts_with("m.bin line "), "a refusal names no line: " + refused.value_or(""));
  return 0;
}
