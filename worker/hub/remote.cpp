// SPDX-License-Identifier: Apache-2.0
#include "worker/hub/remote.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <list>

namespace pm::hub {

namespace fs = std::filesystem;

namespace {

constexpr int64_t block_bytes = 64 << 10;  ///< bytes per request for a small read; headers have about this size
constexpr size_t most_blocks = 64;

/// A random-access file on the hub with a cache of recently read blocks.
class Window {
 public:
  Window(Client& client, std::string id, std::string commit, File file)
      : client_(client), id_(std::move(id)), commit_(std::move(commit)), file_(std::move(file)) {}

  void read(int64_t offset, std::span<char> out) {
    while (!out.empty()) {
      const int64_t begin = offset / block_bytes * block_bytes;
      if (static_cast<int64_t>(out.size()) >= block_bytes && !kept(begin)) {  // read in one request and not cached
        const std::string bytes = client_.read(id_, commit_, file_, offset, static_cast<int64_t>(out.size()));
        std::memcpy(out.data(), bytes.data(), bytes.size());
        return;
      }
      const std::string& block = block_at(begin);
      const auto from = static_cast<size_t>(offset - begin), bytes = std::min(out.size(), block.size() - from);
      std::memcpy(out.data(), block.data() + from, bytes);
      out = out.subspan(bytes);
      offset += static_cast<int64_t>(bytes);
    }
  }

 private:
  struct Block {
    int64_t begin;
    std::string bytes;
  };

  bool kept(int64_t begin) const {
    return std::any_of(blocks_.begin(), blocks_.end(), [&](const Block& block) { return block.begin == begin; });
  }
  const std::string& block_at(int64_t begin) {
    const auto found =
        std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) { return block.begin == begin; });
    if (found != blocks_.end()) {
      blocks_.splice(blocks_.begin(), blocks_, found);
    } else {
      blocks_.push_front({begin, client_.read(id_, commit_, file_, begin, std::min(block_bytes, file_.size - begin))});
      if (blocks_.size() > most_blocks) blocks_.pop_back();
    }
    return blocks_.front().bytes;
  }

  Client& client_;
  const std::string id_, commit_;
  const File file_;
  std::list<Block> blocks_;  ///< most recently used first
};

/// Returns the files that opening and resolving read completely.
bool is_read(const std::string& path) {
  return path == "config.json" || path == "generation_config.json" || path.ends_with(".bin.index.json") ||
         path.ends_with(".safetensors.index.json");
}

}  // namespace

RemoteCheckpoint::RemoteCheckpoint(Client& client, const Repository& repository, const fs::path& scratch)
    : client_(client), id_(repository.id), listing_(client.list(repository)) {
  std::string name = (scratch / "hub-XXXXXX").string();
  if (!::mkdtemp(name.data()))
    throw Error(Reason::InspectFailed, "no folder can be made in " + scratch.string() + ": " + std::strerror(errno));
  folder_ = name;
  try {
    for (const File& file : listing_.files) {
      if (file.path.find('/') != std::string::npos) continue;
      std::ofstream out(folder_ / file.path, std::ios::binary);
      if (is_read(file.path)) {
        if (file.size > int64_t{128} << 20)
          throw Error(Reason::ModelUnreadable, id_ + ": " + file.path + " has " + std::to_string(file.size) +
                                                   " bytes, at most 128 MiB are read");
        out << client_.read(id_, listing_.commit, file, 0, file.size);
      }
      if (!out.flush())
        throw Error(Reason::InspectFailed,
                    (folder_ / file.path).string() + " cannot be written: " + std::strerror(errno));
    }
    checkpoint_ = checkpoint::Checkpoint::open(folder_, [this](const std::string& file) { return open(file); });
  } catch (const Error& error) {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    throw with_hub_name(error);
  }
}

Error RemoteCheckpoint::with_hub_name(const Error& error) const {
  std::string text = error.what();
  const std::string ours = folder_.string();
  for (size_t at; (at = text.find(ours)) != std::string::npos;) text.replace(at, ours.size(), "hf://" + id_);
  return Error(error.reason, text);
}

RemoteCheckpoint::~RemoteCheckpoint() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

checkpoint::RandomAccessFile RemoteCheckpoint::open(const std::string& name) {
  const File* file = listing_.find(name);
  if (!file) throw Error(Reason::ModelUnreadable, id_ + " has no file " + name + " at " + listing_.commit);
  const auto window = std::make_shared<Window>(client_, id_, listing_.commit, *file);
  return {.name = id_ + "/" + name, .size = file->size, .read = [window](int64_t offset, std::span<char> out) {
            window->read(offset, out);
          }};
}

}  // namespace pm::hub
