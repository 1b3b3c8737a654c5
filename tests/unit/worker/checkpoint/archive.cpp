// SPDX-License-Identifier: Apache-2.0
// Writes the zip archives and pickles of the checkpoint tests.
#include "tests/unit/worker/checkpoint/archive.h"

#include <cstring>
#include <stdexcept>

namespace pm::checkpoint {

std::string number(uint64_t value, int width) {
  std::string bytes;
  for (int i = 0; i < width; ++i) bytes += i < 8 ? static_cast<char>(value >> (8 * i) & 0xff) : '\0';
  return bytes;
}

std::string Archive::bytes() const {
  constexpr uint64_t all_ones = 0xffffffff;
  std::string out, list;
  for (const Record& record : records) {
    const uint64_t header = record.header == UINT64_MAX ? out.size() : record.header;
    const uint64_t size = record.claimed == UINT64_MAX ? record.data.size() : record.claimed;
    const std::string& local = record.local_name.empty() ? record.name : record.local_name;
    out += "PK\x03\x04" + number(0, 2) + number(record.flags, 2) + number(record.method, 2) + number(0, 4) +
           number(0, 12) + number(local.size(), 2) + number(5, 2) + local + "FB\x01" + std::string(2, '\0') +
           record.data;
    const std::string extra =
        record.wide ? number(1, 2) + number(24, 2) + number(size, 8) + number(size, 8) + number(header, 8) : "";
    list += "PK\x01\x02" + number(0, 4) + number(record.flags, 2) + number(record.method, 2) + number(0, 8) +
            number(record.wide ? all_ones : size, 4) + number(record.wide ? all_ones : size, 4) +
            number(record.name.size(), 2) + number(extra.size(), 2) + number(0, 2) + number(0, 8) +
            number(record.wide ? all_ones : header, 4) + record.name + extra;
  }
  const uint64_t at = directory == UINT64_MAX ? out.size() : directory,
                 many = entries == UINT64_MAX ? records.size() : entries;
  out += list;
  if (zip64) {
    const uint64_t end = out.size();
    out += "PK\x06\x06" + number(44, 8) + number(0x2d031e, 4) + number(0, 8) + number(many, 8) + number(many, 8) +
           number(list.size(), 8) + number(at, 8);
    out += "PK\x06\x07" + number(0, 4) + number(end, 8) + number(1, 4);
  }
  return out + "PK\x05\x06" + number(0, 4) + number(many, 2) + number(many, 2) + number(list.size(), 4) +
         number(at, 4) + number(comment.size(), 2) + comment;
}

std::string text(const std::string& value) { return "X" + number(value.size(), 4) + value; }
std::string global(const std::string& module, const std::string& name) { return "c" + module + "\n" + name + "\n"; }
std::string pickle(const std::string& operations) { return "\x80\x02" + operations + "."; }

namespace {

std::string whole(uint64_t value) {
  return value < 0x80000000u ? "J" + number(value, 4) : "\x8a\x08" + number(value, 8);
}

std::string tuple(const std::vector<uint64_t>& values) {
  std::string out = "(";
  for (uint64_t value : values) out += whole(value);
  return out + "t";
}

}  // namespace

std::string state_dict(const std::vector<Pickled>& tensors) {
  std::string out = global("collections", "OrderedDict") + ")R(";
  for (const Pickled& t : tensors)
    out += text(t.name) + global("torch._utils", "_rebuild_tensor_v2") + "((" + text("storage") +
           global("torch", t.type) + text(t.storage) + text("cpu") + whole(t.elements) + "tQ" + whole(t.offset) +
           tuple(t.shape) + tuple(t.strides) + "\x89" + global("collections", "OrderedDict") + ")RtR";
  return pickle(out + "u");
}

Archive torch_archive(const std::string& pickled, const std::vector<std::pair<std::string, std::string>>& storages) {
  Archive archive;
  archive.add("m/data.pkl", pickled).add("m/byteorder", "little");
  for (const auto& [key, data] : storages) archive.add("m/data/" + key, data);
  archive.add("m/version", "3\n");
  return archive;
}

RandomAccessFile in_memory(const std::string& bytes) {
  return {.name = "m.bin",
          .size = static_cast<int64_t>(bytes.size()),
          .read = [bytes](int64_t offset, std::span<char> out) {
            if (offset < 0 || static_cast<uint64_t>(offset) + out.size() > bytes.size())
              throw std::logic_error("a read outside of the file");
            std::memcpy(out.data(), bytes.data() + offset, out.size());
          }};
}

}  // namespace pm::checkpoint
