// SPDX-License-Identifier: Apache-2.0
// The zip reader. Every number of the archive is checked against the file before it is used.
#include "worker/checkpoint/zip.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

namespace pm::checkpoint {

namespace {

constexpr int64_t end_bytes = 22, locator_bytes = 20, end64_bytes = 56, entry_bytes = 46, local_bytes = 30;
constexpr int64_t max_directory_bytes = int64_t{256} << 20;
constexpr uint64_t max_records = 1'000'000;
constexpr uint32_t all_ones = 0xffffffff;
/// Flags of an entry that do not change its layout: compression hints, sizes after the data, UTF-8 names.
constexpr uint64_t harmless_flags = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 11;

/// Reads a little-endian number from bytes that exist.
uint64_t number(std::string_view bytes, size_t at, size_t width) {
  uint64_t value = 0;
  for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return value;
}

std::string load(const RandomAccessFile& file, int64_t offset, int64_t bytes, const std::string& what) {
  if (offset < 0 || bytes < 0 || offset > file.size || bytes > file.size - offset)
    refuse(file, what + " lies outside of the file: it is cut off or not an archive");
  std::string out(static_cast<size_t>(bytes), '\0');
  file.read(offset, {out.data(), out.size()});
  return out;
}

/// Offset and size of the central directory, and its number of entries.
struct Directory {
  int64_t offset = 0, bytes = 0;
  uint64_t entries = 0;
};

Directory directory_of(const RandomAccessFile& file) {
  if (file.size < end_bytes) refuse(file, "has " + std::to_string(file.size) + " bytes, too few for an archive");
  const int64_t end = file.size - end_bytes;
  const std::string tail = load(file, end, end_bytes, "the end record");
  if (number(tail, 0, 4) != 0x06054b50 || number(tail, 20, 2) != 0)
    refuse(file, "does not end as a zip archive without comment: it is cut off or was changed");
  uint64_t entries = number(tail, 10, 2), bytes = number(tail, 12, 4), offset = number(tail, 16, 4);
  if (number(tail, 4, 2) != 0 || number(tail, 6, 2) != 0 || number(tail, 8, 2) != entries)
    refuse(file, "is one of several disks of an archive");
  int64_t directory_end = end;
  const std::string locator = end < locator_bytes ? std::string(locator_bytes, '\0')
                                                  : load(file, end - locator_bytes, locator_bytes, "the zip64 locator");
  if (number(locator, 0, 4) == 0x07064b50) {
    directory_end = end - locator_bytes - end64_bytes;
    const std::string wide = load(file, directory_end, end64_bytes, "the zip64 end record");
    if (number(wide, 0, 4) != 0x06064b50 || number(wide, 4, 8) != end64_bytes - 12 ||
        number(locator, 8, 8) != static_cast<uint64_t>(directory_end)) {
      refuse(file, "has a zip64 end record that is not where its locator says");
    }
    if (number(locator, 4, 4) != 0 || number(locator, 16, 4) > 1 || number(wide, 16, 4) != 0 ||
        number(wide, 20, 4) != 0 || number(wide, 24, 8) != number(wide, 32, 8)) {
      refuse(file, "is one of several disks of an archive");
    }
    const std::array<uint64_t, 3> exact = {number(wide, 32, 8), number(wide, 40, 8), number(wide, 48, 8)};
    if ((entries != 0xffff && entries != exact[0]) || (bytes != all_ones && bytes != exact[1]) ||
        (offset != all_ones && offset != exact[2])) {
      refuse(file, "has two end records that contradict each other");
    }
    entries = exact[0], bytes = exact[1], offset = exact[2];
  } else if (entries == 0xffff || bytes == all_ones || offset == all_ones) {
    refuse(file, "lacks its zip64 end record");
  }
  if (bytes > static_cast<uint64_t>(max_directory_bytes) || entries > max_records || entries > bytes / entry_bytes) {
    refuse(file, "says that its directory has " + std::to_string(entries) + " entries in " + std::to_string(bytes) +
                     " bytes, which is impossible");
  }
  if (offset > static_cast<uint64_t>(directory_end) || static_cast<int64_t>(offset + bytes) != directory_end) {
    refuse(file,
           "has its directory at byte " + std::to_string(offset) + ", which does not end where the end record begins");
  }
  return {static_cast<int64_t>(offset), static_cast<int64_t>(bytes), entries};
}

struct Entry {
  std::string name;
  uint64_t packed = 0, bytes = 0, header = 0;
};

/// Reads the values that do not fit into 32 bits from the zip64 extra field.
void widen(const RandomAccessFile& file, std::string_view extra, Entry& entry) {
  std::array<uint64_t*, 3> wide = {&entry.bytes, &entry.packed, &entry.header};
  for (size_t at = 0; at + 4 <= extra.size();) {
    const uint64_t id = number(extra, at, 2), size = number(extra, at + 2, 2);
    at += 4;
    if (size > extra.size() - at) refuse(file, "record \"" + entry.name + "\" has an extra field that is cut off");
    size_t next = at;
    if (id == 1)
      for (uint64_t*& value : wide)
        if (value && *value == all_ones) {
          if (next + 8 > at + size) refuse(file, "record \"" + entry.name + "\" has a zip64 field that is cut off");
          *value = number(extra, next, 8);
          next += 8;
          value = nullptr;
        }
    at += size;
  }
  for (const uint64_t* value : wide)
    if (value && *value == all_ones) refuse(file, "record \"" + entry.name + "\" lacks its zip64 field");
}

/// Returns the entry at `at` of the directory, and advances `at` past it.
Entry entry_at(const RandomAccessFile& file, std::string_view directory, size_t& at) {
  if (directory.size() - at < static_cast<size_t>(entry_bytes) || number(directory, at, 4) != 0x02014b50)
    refuse(file, "has a directory with a broken entry");
  const uint64_t flags = number(directory, at + 8, 2), method = number(directory, at + 10, 2);
  const size_t name = number(directory, at + 28, 2), extra = number(directory, at + 30, 2),
               comment = number(directory, at + 32, 2);
  Entry entry{.packed = number(directory, at + 20, 4),
              .bytes = number(directory, at + 24, 4),
              .header = number(directory, at + 42, 4)};
  if (directory.size() - at - static_cast<size_t>(entry_bytes) < name + extra + comment)
    refuse(file, "has a directory with an entry that is cut off");
  const uint64_t disk = number(directory, at + 34, 2);
  at += static_cast<size_t>(entry_bytes);
  entry.name = directory.substr(at, name);
  if (name == 0 ||
      std::any_of(entry.name.begin(), entry.name.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; })) {
    refuse(file, "has a record whose name is empty or has a control character");
  }
  widen(file, directory.substr(at + name, extra), entry);
  at += name + extra + comment;
  if (method != 0)
    refuse(file, "record \"" + entry.name + "\" is compressed (method " + std::to_string(method) +
                     "), as in TorchScript and repacked archives; expected stored records as torch.save writes them");
  if ((flags & ~harmless_flags) != 0)
    refuse(file, "record \"" + entry.name + "\" is encrypted or of a kind that torch.save does not write (flags " +
                     std::to_string(flags) + ")");
  if (disk != 0) refuse(file, "record \"" + entry.name + "\" is on another disk");
  if (entry.packed != entry.bytes) refuse(file, "record \"" + entry.name + "\" has two sizes");
  return entry;
}

/// Returns the location of an entry's data, behind its local header. `end`: where the directory begins.
ZipRecord record_of(const RandomAccessFile& file, const Entry& entry, int64_t end) {
  const std::string what = "record \"" + entry.name + "\"";
  if (entry.header > static_cast<uint64_t>(end)) refuse(file, what + " lies outside of the file");
  const int64_t header = static_cast<int64_t>(entry.header);
  const std::string local = load(file, header, local_bytes + static_cast<int64_t>(entry.name.size()), what);
  if (number(local, 0, 4) != 0x04034b50 || number(local, 8, 2) != 0 || (number(local, 6, 2) & ~harmless_flags) != 0 ||
      number(local, 26, 2) != entry.name.size() || local.substr(static_cast<size_t>(local_bytes)) != entry.name) {
    refuse(file, what + " has a local header that contradicts the directory");
  }
  const int64_t data = header + local_bytes + static_cast<int64_t>(entry.name.size() + number(local, 28, 2));
  if (data > end || entry.bytes > static_cast<uint64_t>(end - data))
    refuse(file, what + " reaches past the place where the directory begins");
  return {entry.name, data, static_cast<int64_t>(entry.bytes)};
}

}  // namespace

std::vector<ZipRecord> read_zip(const RandomAccessFile& file) {
  const Directory directory = directory_of(file);
  const std::string text = load(file, directory.offset, directory.bytes, "the directory");
  std::vector<ZipRecord> records;
  std::vector<std::pair<int64_t, int64_t>> spans;  // from the local header to the end of the data
  std::set<std::string> names;
  size_t at = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const Entry entry = entry_at(file, text, at);
    if (!names.insert(entry.name).second) refuse(file, "has the record \"" + entry.name + "\" twice");
    records.push_back(record_of(file, entry, directory.offset));
    spans.emplace_back(static_cast<int64_t>(entry.header), records.back().offset + records.back().bytes);
  }
  if (at != text.size()) refuse(file, "has a directory with more bytes than entries");
  std::sort(spans.begin(), spans.end());
  for (size_t i = 1; i < spans.size(); ++i)
    if (spans[i].first < spans[i - 1].second)
      refuse(file, "has records that overlap at byte " + std::to_string(spans[i].first));
  return records;
}

}  // namespace pm::checkpoint
