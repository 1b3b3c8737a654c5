// Opening a checkpoint folder: config.json, model.safetensors or the index of several files, and every header.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"

namespace pm::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr int64_t largest_header = 100'000'000;
constexpr uintmax_t largest_json = 256 << 20;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::Model, "ModelUnreadable", message); }

/// A JSON file that has to be an object, without a key twice in one object.
nlohmann::json read_json(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) refuse(path.string() + " is not there or is not a file");
  if (fs::file_size(path, error) > largest_json) refuse(path.string() + " is larger than 256 MiB");
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) refuse(path.string() + " cannot be read: " + std::strerror(errno));
  const std::string content = text.str();
  if (content.find('\0') != std::string::npos) refuse(path.string() + " has a zero byte, so it is not JSON");
  std::vector<std::set<std::string>> keys;
  auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    if (depth > 64) refuse(path.string() + " is nested deeper than 64");
    if (event == nlohmann::json::parse_event_t::object_start) keys.emplace_back();
    if (event == nlohmann::json::parse_event_t::object_end) keys.pop_back();
    if (event == nlohmann::json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      refuse(path.string() + " has the key \"" + value.get<std::string>() + "\" twice in one object");
    }
    return true;
  };
  try {
    nlohmann::json json = nlohmann::json::parse(content, watch);
    if (!json.is_object()) refuse(path.string() + " is not a JSON object");
    return json;
  } catch (const nlohmann::json::exception& problem) {
    refuse(path.string() + " is not JSON: " + problem.what());
  }
}

std::shared_ptr<const int> open_file(const fs::path& path) {
  // O_NONBLOCK: a FIFO in the folder must not block us; regular files do not care
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) refuse(path.string() + " cannot be opened: " + std::strerror(errno));
  return {new int(descriptor), [](const int* held) {
            ::close(*held);
            delete held;
          }};
}

void read_exactly(int descriptor, const fs::path& path, char* out, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor, out, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) refuse(path.string() + " cannot be read: " + (got < 0 ? std::strerror(errno) : "the file ended"));
    out += got;
    bytes -= got;
    offset += got;
  }
}

/// Length, bounds and text of a file's header.
Header read_header(int descriptor, const fs::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) refuse(path.string() + " cannot be read: " + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse(path.string() + " is not a regular file");
  if (status.st_size < 8) refuse(path.string() + " has " + std::to_string(status.st_size) + " bytes, too few for a safetensors header");
  unsigned char length[8];
  read_exactly(descriptor, path, reinterpret_cast<char*>(length), 8, 0);
  uint64_t bytes = 0;
  for (int i = 7; i >= 0; --i) bytes = bytes << 8 | length[i];
  if (bytes > static_cast<uint64_t>(largest_header)) {
    refuse(path.string() + " says that its header has " + std::to_string(bytes) + " bytes, at most 100000000 are allowed");
  }
  if (static_cast<int64_t>(bytes) > status.st_size - 8) {
    refuse(path.string() + " says that its header has " + std::to_string(bytes) + " bytes, but only " + std::to_string(status.st_size - 8) + " follow");
  }
  std::string json(bytes, '\0');
  read_exactly(descriptor, path, json.data(), static_cast<int64_t>(bytes), 8);
  return parse_header(json, status.st_size, path.string());
}

/// file -> the tensors that the index says it has.
std::map<std::string, std::set<std::string>> read_index(const fs::path& path) {
  const nlohmann::json index = read_json(path);
  if (!index.contains("weight_map") || !index["weight_map"].is_object()) refuse(path.string() + " has no object \"weight_map\"");
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) refuse(path.string() + ": weight_map[\"" + name + "\"] is not a string");
    const std::string text = file.get<std::string>();
    if (text.empty() || text == "." || text == ".." || text.find('/') != std::string::npos || text.find('\\') != std::string::npos ||
        text.find('\0') != std::string::npos) {
      refuse(path.string() + ": weight_map[\"" + name + "\"] is \"" + text + "\", expected the name of a file in the same folder");
    }
    files[text].insert(name);
  }
  if (files.empty()) refuse(path.string() + ": weight_map is empty");
  return files;
}

[[noreturn]] void refuse_other_formats(const fs::path& folder) {
  std::error_code error;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"}) {
    if (!fs::exists(folder / name, error)) continue;
    refuse(folder.string() + " has its weights in " + name + " only; this version reads safetensors. Convert it once: AutoModel.from_pretrained(\"" +
           folder.string() + "\").save_pretrained(\"" + folder.string() + "\", safe_serialization=True) with the architecture's class");
  }
  refuse(folder.string() + " has neither model.safetensors nor model.safetensors.index.json");
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) refuse("the model folder " + folder.string() + " is not there or is not a folder");
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.config_ = read_json(folder / "config.json");
  std::map<std::string, std::set<std::string>> files;
  const bool single = fs::exists(folder / "model.safetensors", error);
  if (single) files["model.safetensors"];
  else if (fs::exists(folder / "model.safetensors.index.json", error)) files = read_index(folder / "model.safetensors.index.json");
  else refuse_other_formats(folder);
  for (const auto& [file, names] : files) {
    const fs::path path = folder / file;
    checkpoint.descriptors_.push_back(open_file(path));
    checkpoint.files_.push_back(path);
    Header header = read_header(*checkpoint.descriptors_.back(), path);
    for (const std::string& name : names) {
      if (header.tensors.contains(name) || header.unserved.contains(name)) continue;
      refuse((folder / "model.safetensors.index.json").string() + " says that \"" + name + "\" is in " + file + ", which does not have it");
    }
    for (auto& [name, info] : header.tensors) {
      if (!single && !names.contains(name)) continue;
      info.file = static_cast<int>(checkpoint.files_.size()) - 1;
      checkpoint.tensors_[name] = std::move(info);
    }
    for (auto& [name, type] : header.unserved) {
      if (single || names.contains(name)) checkpoint.unserved_[name] = type;
    }
  }
  return checkpoint;
}

}  // namespace pm::checkpoint
