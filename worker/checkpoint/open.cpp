// SPDX-License-Identifier: Apache-2.0
// Opens a checkpoint folder: config.json, the file of weights or the index of several, and the tensor table of each
// file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "worker/base/error.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/gguf/gguf_files.h"
#include "worker/checkpoint/gguf/gguf_model.h"
#include "worker/checkpoint/passage_index.h"
#include "worker/checkpoint/quantized/formats.h"
#include "worker/checkpoint/random_access_file.h"
#include "worker/checkpoint/torch_file.h"
#include "worker/checkpoint/unsupported_format.h"

namespace pm::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr int64_t max_header_bytes = 100'000'000;
constexpr uintmax_t max_json_bytes = 256 << 20;

[[noreturn]] void refuse(const std::string& message) { throw Error(Reason::ModelUnreadable, message); }

/// Returns the text of JSON with the numbers that Python writes and JSON lacks as transformers has them now:
/// {"__float__": "Infinity"}.
std::string with_named_numbers(const std::string& text) {
  std::string made;
  bool quoted = false;
  for (size_t i = 0; i < text.size();) {
    std::string_view found;
    for (const std::string_view number : {"Infinity", "-Infinity", "NaN"})
      if (!quoted && std::string_view(text).substr(i).starts_with(number)) found = number;
    if (!found.empty()) {
      made += R"({"__float__": ")" + std::string(found) + "\"}";
      i += found.size();
      continue;
    }
    if (text[i] == '"') quoted = !quoted;
    if (quoted && text[i] == '\\' && i + 1 < text.size()) made += text[i++];
    made += text[i++];
  }
  return made;
}

/// Reads a JSON file that must be an object without duplicate keys.
nlohmann::json read_json(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) refuse(path.string() + " does not exist or is not a regular file");
  if (fs::file_size(path, error) > max_json_bytes) refuse(path.string() + " is larger than 256 MiB");
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) refuse(path.string() + " cannot be read: " + std::strerror(errno));
  const std::string content = text.str();
  if (content.find('\0') != std::string::npos) refuse(path.string() + " has a zero byte, so it is not JSON");
  const bool is_python = content.find("Infinity") != std::string::npos || content.find("NaN") != std::string::npos;
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
    nlohmann::json json = nlohmann::json::parse(is_python ? with_named_numbers(content) : content, watch);
    if (!json.is_object()) refuse(path.string() + " is not a JSON object");
    return json;
  } catch (const nlohmann::json::exception& problem) {
    refuse(path.string() + " is not JSON: " + problem.what());
  }
}

/// Returns, for each file of the index, the tensors that it has.
std::map<std::string, std::set<std::string>> read_index(const fs::path& path) {
  const nlohmann::json index = read_json(path);
  if (!index.contains("weight_map") || !index["weight_map"].is_object())
    refuse(path.string() + " has no object \"weight_map\"");
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) refuse(path.string() + ": weight_map[\"" + name + "\"] is not a string");
    const std::string text = file.get<std::string>();
    if (text.empty() || text == "." || text == ".." || text.find('/') != std::string::npos ||
        text.find('\\') != std::string::npos || text.find('\0') != std::string::npos) {
      refuse(path.string() + ": weight_map[\"" + name + "\"] is \"" + text +
             "\", expected the name of a file in the same folder");
    }
    files[text].insert(name);
  }
  if (files.empty()) refuse(path.string() + ": weight_map is empty");
  return files;
}

/// The weight files of a folder, with the tensor names that an index lists for each; or one file without index.
struct Weights {
  std::string index;   ///< empty: one file without index
  bool torch = false;  ///< PyTorch's .bin
  std::map<std::string, std::set<std::string>> files;
};

std::optional<Weights> find_weights(const fs::path& folder) {
  std::error_code error;
  for (const bool torch : {false, true}) {
    const std::string file = torch ? "pytorch_model.bin" : "model.safetensors", index = file + ".index.json";
    if (fs::exists(folder / file, error)) return Weights{.torch = torch, .files = {{file, {}}}};
    if (!fs::exists(folder / index, error)) continue;
    Weights weights{.index = index, .torch = torch, .files = read_index(folder / index)};
    for (const auto& [shard, names] : weights.files) {
      if (fs::exists(folder / shard, error)) continue;
      refuse((folder / index).string() + " says that \"" + *names.begin() + "\" and " +
             std::to_string(names.size() - 1) + " more are in " + shard + ", which is not in the folder: copy all " +
             std::to_string(weights.files.size()) + " files of the checkpoint");
    }
    return weights;
  }
  return std::nullopt;
}

}  // namespace

RandomAccessFile open_file(const fs::path& path) {
  // With O_NONBLOCK a FIFO in the folder does not block; regular files ignore the flag.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) refuse(path.string() + " cannot be opened: " + std::strerror(errno));
  const std::shared_ptr<const int> held(new int(descriptor), [](const int* opened) {
    ::close(*opened);
    delete opened;
  });
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) refuse(path.string() + " cannot be read: " + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse(path.string() + " is not a regular file");
  return {.name = path.string(), .size = status.st_size, .read = [held, path](int64_t offset, std::span<char> out) {
            while (!out.empty()) {
              const ssize_t got = ::pread(*held, out.data(), out.size(), offset);
              if (got < 0 && errno == EINTR) continue;
              if (got <= 0) {
                refuse(path.string() + ": " + std::to_string(out.size()) + " bytes at " + std::to_string(offset) +
                       " cannot be read: " +
                       (got < 0 ? std::strerror(errno) : "the file has become shorter than its header says"));
              }
              out = out.subspan(static_cast<size_t>(got));
              offset += got;
            }
          }};
}

std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  return text;
}

void refuse(const RandomAccessFile& file, const std::string& what) { refuse(file.name + ": " + printable(what)); }

std::string how_to_convert() {
  return "save the model once with safetensors: AutoModel.from_pretrained(folder).save_pretrained(folder), with the "
         "architecture's class";
}

Header read_safetensors(const RandomAccessFile& file) {
  if (file.size < 8) refuse(file, "has " + std::to_string(file.size) + " bytes, too few for a safetensors header");
  char length[8];
  file.read(0, length);
  uint64_t bytes = 0;
  for (int i = 7; i >= 0; --i) bytes = bytes << 8 | static_cast<unsigned char>(length[i]);
  if (bytes > static_cast<uint64_t>(max_header_bytes))
    refuse(file, "says that its header has " + std::to_string(bytes) + " bytes, at most 100000000 are allowed");
  if (static_cast<int64_t>(bytes) > file.size - 8) {
    refuse(file, "says that its header has " + std::to_string(bytes) + " bytes, but only " +
                     std::to_string(file.size - 8) + " follow");
  }
  std::string json(bytes, '\0');
  file.read(8, {json.data(), json.size()});
  return parse_header(json, file.size, file.name);
}

Checkpoint Checkpoint::open(const fs::path& folder) {
  return open(folder, [&](const std::string& file) { return open_file(folder / file); });
}

Checkpoint Checkpoint::open(const fs::path& folder, const Remote& remote) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    refuse("the model folder " + folder.string() + " does not exist or is not a folder");
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  const bool has_config = fs::exists(folder / "config.json", error);
  if (has_config) checkpoint.config_ = read_json(folder / "config.json");
  const ReadStored read = [&](const TensorInfo& tensor, std::span<const Strip> strips, std::span<std::byte> out) {
    checkpoint.read_stored(tensor, strips, out);
  };
  const std::optional<Weights> weights = find_weights(folder);
  if (const std::vector<std::string> files = gguf_files_in(folder); !files.empty()) {
    for (const std::string& file : files) {
      checkpoint.bytes_.push_back(remote(file));
      checkpoint.files_.push_back(folder / file);
    }
    GgufModel model = read_gguf_model(checkpoint.bytes_, checkpoint.config_, read);
    checkpoint.config_ = std::move(model.config);
    checkpoint.tensors_ = std::move(model.tensors);
    return checkpoint;
  }
  // An adapter has no config.json; its format is the better message.
  if (!has_config) refuse_unsupported_format(folder), checkpoint.config_ = read_json(folder / "config.json");
  if (!weights) refuse_missing_weights(folder);
  for (const auto& [file, names] : weights->files) {
    const RandomAccessFile& bytes = checkpoint.bytes_.emplace_back(remote(file));
    checkpoint.files_.push_back(folder / file);
    Header header = weights->torch ? read_torch_file(bytes) : read_safetensors(bytes);
    for (const std::string& name : names) {
      if (header.tensors.contains(name) || header.unsupported.contains(name)) continue;
      refuse((folder / weights->index).string() + " says that \"" + name + "\" is in " + file +
             ", which does not have it");
    }
    for (auto& [name, info] : header.tensors) {
      if (!weights->index.empty() && !names.contains(name)) continue;
      info.file = static_cast<int>(checkpoint.files_.size()) - 1;
      checkpoint.tensors_[name] = std::move(info);
    }
    for (auto& [name, tensor] : header.unsupported) {
      if (!weights->index.empty() && !names.contains(name)) continue;
      tensor.bytes.file = static_cast<int>(checkpoint.files_.size()) - 1;
      checkpoint.unsupported_[name] = std::move(tensor);
    }
  }
  if (!assemble_quantized(checkpoint.folder_, checkpoint.config_, checkpoint.tensors_, checkpoint.unsupported_, read))
    refuse_quantized(checkpoint);
  checkpoint.open_index(remote);
  return checkpoint;
}

/// Adds the embeddings of the folder's index as tensors, one for each of its files; nothing without an index.
void Checkpoint::open_index(const Remote& remote) {
  const fs::path folder = folder_ / index_folder;
  const TensorInfo* first = nullptr;
  int64_t number = 0;
  for (const std::string& name : find_shards(folder, "embeddings", ".safetensors")) {
    const RandomAccessFile& file = bytes_.emplace_back(remote((fs::path(index_folder) / name).string()));
    files_.push_back(folder / name);
    TensorInfo info = read_embeddings(file);
    if (first && (info.shape[1] != first->shape[1] || info.dtype != first->dtype))
      checkpoint::refuse(file, "has embeddings of the width " + std::to_string(info.shape[1]) +
                                   " and the element type " + std::string(name_of(info.dtype)) +
                                   ", the first file of the index has " + std::to_string(first->shape[1]) + " and " +
                                   std::string(name_of(first->dtype)));
    info.name = std::string(embeddings_prefix) + std::to_string(number++);
    info.file = static_cast<int>(files_.size()) - 1;
    const auto [added, fresh] = tensors_.emplace(info.name, std::move(info));
    if (!fresh) checkpoint::refuse(file, "the weights have a tensor \"" + added->first + "\", a name of the index's");
    if (!first) first = &added->second;
  }
}

}  // namespace pm::checkpoint
