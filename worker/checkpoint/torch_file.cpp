// SPDX-License-Identifier: Apache-2.0
// Reads the tensor table of a pytorch_model.bin.
#include "worker/checkpoint/torch_file.h"

#include <algorithm>

#include "worker/base/error.h"
#include "worker/checkpoint/pickle.h"
#include "worker/checkpoint/zip.h"

namespace pm::checkpoint {

namespace {

constexpr int64_t max_pickle_bytes = int64_t{64} << 20;
using Records = std::map<std::string, ZipRecord, std::less<>>;

std::string load(const RandomAccessFile& file, int64_t offset, int64_t bytes) {
  std::string out(static_cast<size_t>(bytes), '\0');
  file.read(offset, {out.data(), out.size()});
  return out;
}

/// Refuses the formats that torch.save wrote before PyTorch 1.6, which are recognised by their first bytes.
void refuse_legacy(const RandomAccessFile& file) {
  const std::string begin = load(file, 0, std::min<int64_t>(file.size, 512));
  if (begin.starts_with("PK\x03\x04")) return;
  // the pickled number 0x1950a86a20f9469cfc6c, torch.serialization.MAGIC_NUMBER
  const bool stream = begin.size() > 14 && begin.substr(2, 12) == "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  const bool tar = begin.size() > 262 && begin.substr(257, 5) == "ustar";
  if (stream || tar) {
    refuse(file, std::string("is in the ") + (tar ? "tar form" : "legacy form (no zip archive)") +
                     " that torch.save wrote before PyTorch 1.6, which has no table to read ranges by; " +
                     how_to_convert());
  }
  refuse(file, "is not an archive of torch.save: it does not begin with a zip record; " + how_to_convert());
}

/// Returns the records by their name without the archive's own prefix, which PyTorch takes from the first record.
Records records_of(const RandomAccessFile& file) {
  Records records;
  std::string prefix;
  for (ZipRecord& record : read_zip(file)) {
    if (prefix.empty()) prefix = record.name.substr(0, record.name.find('/')) + "/";
    if (!record.name.starts_with(prefix))
      refuse(file, "record \"" + record.name + "\" is outside of the archive's folder \"" + prefix + "\"");
    std::string name = record.name.substr(prefix.size());
    records.emplace(std::move(name), std::move(record));
  }
  if (records.contains("constants.pkl"))
    refuse(file,
           "is a TorchScript archive (torch.jit.save), expected a state_dict saved by torch.save; " + how_to_convert());
  if (!records.contains("data.pkl")) refuse(file, "has no record data.pkl, so it is not an archive of torch.save");
  return records;
}

void refuse_other_byte_order(const RandomAccessFile& file, const Records& records) {
  const auto found = records.find("byteorder");
  if (found == records.end()) return;  // absent before PyTorch 2.1
  const std::string order = load(file, found->second.offset, std::min<int64_t>(found->second.bytes, 16));
  if (order != "little")
    refuse(file, order == "big" ? "was saved on a big-endian machine; " + how_to_convert()
                                : "has a byte order that is neither little nor big");
}

std::string text_of(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// Returns the number of elements. Throws where it exceeds 2^63.
int64_t count(const RandomAccessFile& file, const PickledTensor& tensor) {
  int64_t total = 1;
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
  for (int64_t size : tensor.shape)
    if (__builtin_mul_overflow(total, size, &total))
      refuse(file, "tensor \"" + tensor.name + "\" of shape " + text_of(tensor.shape) + " has more than 2^63 elements");
  return total;
}

bool row_major(const PickledTensor& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] == 1) continue;
    if (tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

/// Returns the largest element offset that a non-empty tensor touches. Throws for views whose elements overlap, with
/// which a small file could claim any size.
int64_t reach(const RandomAccessFile& file, const PickledTensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    if (tensor.shape[i] > 1) dims.emplace_back(tensor.strides[i], tensor.shape[i]);
  std::sort(dims.begin(), dims.end());
  int64_t last = 0;
  for (const auto& [stride, size] : dims) {
    int64_t span = 0;
    if (stride <= last) {
      refuse(file, "tensor \"" + tensor.name + "\" of shape " + text_of(tensor.shape) + " is a view with strides " +
                       text_of(tensor.strides) + " whose elements overlap (expand); save it as tensor.contiguous()");
    }
    if (__builtin_mul_overflow(size - 1, stride, &span) || __builtin_add_overflow(last, span, &last)) {
      refuse(file,
             "tensor \"" + tensor.name + "\" with strides " + text_of(tensor.strides) + " reaches past 2^63 elements");
    }
  }
  return last;
}

/// Locates a tensor in its storage's record and checks its bounds.
TensorInfo place(const RandomAccessFile& file, const PickledTensor& tensor, const Records& records) {
  const std::string what = "tensor \"" + tensor.name + "\"";
  const auto found = records.find("data/" + tensor.storage);
  if (found == records.end())
    refuse(file, what + " is in the storage \"" + tensor.storage.substr(0, 80) + "\", which the archive does not have");
  const ZipRecord& record = found->second;
  int64_t storage = 0;
  if (__builtin_mul_overflow(tensor.elements, tensor.element_bytes, &storage) || storage > record.bytes ||
      record.bytes - storage >= tensor.element_bytes) {
    refuse(file, what + " is in the storage \"" + tensor.storage.substr(0, 80) + "\" of " +
                     std::to_string(tensor.elements) + " elements of type " + std::string(tensor.type) +
                     ", but its record has " + std::to_string(record.bytes) + " bytes");
  }
  const int64_t elements = count(file, tensor);
  TensorInfo info{.name = tensor.name, .shape = tensor.shape, .offset = record.offset, .bytes = 0};
  if (elements == 0) return info;
  int64_t last = 0;
  if (__builtin_add_overflow(tensor.offset, reach(file, tensor), &last) || last >= tensor.elements) {
    refuse(file, what + " of shape " + text_of(tensor.shape) + ", strides " + text_of(tensor.strides) + " and offset " +
                     std::to_string(tensor.offset) + " reaches past the " + std::to_string(tensor.elements) +
                     " elements of its storage");
  }
  info.offset += tensor.offset * tensor.element_bytes;
  info.bytes = elements * tensor.element_bytes;
  if (!row_major(tensor)) info.strides = tensor.strides;
  return info;
}

}  // namespace

Header read_torch_file(const RandomAccessFile& file) {
  refuse_legacy(file);
  const Records records = records_of(file);
  refuse_other_byte_order(file, records);
  const ZipRecord& pickle = records.find("data.pkl")->second;
  if (pickle.bytes > max_pickle_bytes)
    refuse(file, "has a pickle of " + std::to_string(pickle.bytes) + " bytes, at most 64 MiB are allowed");
  Header header;
  for (PickledTensor& tensor : read_state_dict(load(file, pickle.offset, pickle.bytes), file.name)) {
    TensorInfo info = place(file, tensor, records);
    if (const auto type = dtype_of(tensor.type)) {
      info.dtype = *type;
      header.tensors[tensor.name] = std::move(info);
    } else {
      info.dtype = DType::U8;
      if (tensor.element_bytes != 1) info.shape = {info.bytes}, info.strides.clear();
      header.unsupported[tensor.name] = {std::string(tensor.type), std::move(info)};
    }
  }
  return header;
}

}  // namespace pm::checkpoint
