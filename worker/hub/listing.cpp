// SPDX-License-Identifier: Apache-2.0
#include "worker/hub/listing.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "worker/base/error.h"
#include "worker/checkpoint/gguf/gguf_files.h"
#include "worker/hub/address.h"

namespace pm::hub {

namespace {

using nlohmann::json;

constexpr int64_t largest_small = int64_t{128} << 20, largest_file = int64_t{1} << 50;
constexpr size_t most_files = 100'000;
/// Suffixes of files that configure a model or its tokenizer, at the root of the repository.
constexpr std::array<std::string_view, 9> small_endings{
    ".json", ".txt", ".model", ".spm", ".jinja", ".codes", "vocab.pkl", "prophetnet.tokenizer", "sparse_linear.pt"};

[[noreturn]] void unreachable(const std::string& message) { throw Error(Reason::SourceUnreachable, message); }
[[noreturn]] void unreadable(const std::string& message) { throw Error(Reason::ModelUnreadable, message); }

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Returns true for a path that stays below its folder.
bool safe_path(std::string_view path) {
  if (path.empty() || path.size() > 1024 || path.front() == '/' || path.back() == '/' ||
      path.find('\\') != std::string_view::npos)
    return false;
  if (std::any_of(path.begin(), path.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }))
    return false;
  while (!path.empty()) {
    const std::string_view part = path.substr(0, path.find('/'));
    if (part.empty() || part == "." || part == "..") return false;
    path.remove_prefix(std::min(part.size() + 1, path.size()));
  }
  return true;
}

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t size_at(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return -1;
  if (found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(largest_file)) return -1;
  return found->get<int64_t>();
}

bool is_index(std::string_view path) { return path.ends_with(".index.json"); }

/// Returns whether a file is the weights of a module of sentence-transformers: those of 2_Dense, in the form that is
/// read first.
bool is_module_weights(const Listing& listing, const std::string& path) {
  const size_t slash = path.find('/'), digits = path.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string::npos || path[digits] != '_') return false;
  const std::string folder = path.substr(0, slash + 1), name = path.substr(slash + 1);
  return name == "model.safetensors" || (name == "pytorch_model.bin" && !listing.find(folder + "model.safetensors"));
}

bool wanted(const Listing& listing, const File& file, bool sentence_transformer) {
  if (file.size > largest_small || is_index(file.path)) return false;
  const size_t slash = file.path.find('/');
  if (slash == std::string::npos) {
    return std::any_of(small_endings.begin(), small_endings.end(),
                       [&](std::string_view ending) { return file.path.ends_with(ending); });
  }
  if (file.path.find('/', slash + 1) != std::string::npos) return false;
  if (file.path.starts_with("additional_chat_templates/")) return file.path.ends_with(".jinja");
  return sentence_transformer && (file.path.substr(slash + 1) == "config.json" ||  // 1_Pooling/config.json
                                  is_module_weights(listing, file.path));
}

}  // namespace

const File* Listing::find(std::string_view path) const {
  const auto found = std::find_if(files.begin(), files.end(), [&](const File& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

Listing listing_of(const std::string& text, const std::string& url) {
  const json answer = json::parse(text, nullptr, false);
  if (!answer.is_object()) unreachable(url + " answers no JSON object; is it a hub?");
  Listing out{text_at(answer, "sha"), {}};
  const auto siblings = answer.find("siblings");
  if (!is_commit(out.commit) || siblings == answer.end() || !siblings->is_array()) {
    unreachable(url + " answers without \"sha\" (a commit) or \"siblings\" (files); is it a hub?");
  }
  if (siblings->size() > most_files)
    unreachable(url + " names " + std::to_string(siblings->size()) + " files, at most 100000 are read");
  std::set<std::string> paths;
  for (const json& entry : *siblings) {
    if (!entry.is_object()) unreachable(url + " has an entry in \"siblings\" that is no object");
    File file{text_at(entry, "rfilename"), size_at(entry, "size"), "", text_at(entry, "blobId")};
    if (!safe_path(file.path) || !paths.insert(file.path).second) continue;  // unusable and possibly malicious
    if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) {
      file.sha256 = text_at(*lfs, "sha256");
      file.size = size_at(*lfs, "size");
      if (!is_hex(file.sha256, 64)) unreachable(url + ": \"" + file.path + "\" has no sha256 under \"lfs\"");
    }
    if (file.size < 0 || !is_hex(file.blob, 40))
      unreachable(url + ": \"" + file.path +
                  "\" comes without size and blobId, which blobs=true asks for; is it a hub?");
    out.files.push_back(std::move(file));
  }
  return out;
}

std::vector<File> small_files(const Listing& listing) {
  const bool sentence_transformer = listing.find("modules.json") != nullptr;
  std::vector<File> out;
  for (const File& file : listing.files) {
    if (wanted(listing, file, sentence_transformer)) out.push_back(file);
  }
  return out;
}

WeightFiles weight_files(const Listing& listing, const std::string& id) {
  for (const std::string name : {"model.safetensors", "pytorch_model.bin"}) {
    if (const File* file = listing.find(name)) return {std::nullopt, {*file}};
    if (const File* index = listing.find(name + ".index.json")) {
      if (index->size > largest_small)
        unreadable(id + ": " + index->path + " has " + std::to_string(index->size) +
                   " bytes, at most 128 MiB are read");
      return {*index, {}};
    }
  }
  std::vector<std::string> names;
  for (const File& file : listing.files)
    if (file.path.find('/') == std::string::npos) names.push_back(file.path);
  if (const std::vector<std::string> parts = checkpoint::choose_gguf_files(names, id + " at " + listing.commit);
      !parts.empty()) {
    WeightFiles weights;
    for (const std::string& part : parts) weights.files.push_back(*listing.find(part));
    return weights;
  }
  std::string others;
  for (const File& file : listing.files) {
    for (const std::string_view ending :
         {".gguf", ".safetensors", ".bin", ".h5", ".msgpack", ".onnx", ".pth", ".ckpt"}) {
      if (file.path.ends_with(ending) && others.size() < 300) others += (others.empty() ? "" : ", ") + file.path;
    }
  }
  unreadable(
      id + " at " + listing.commit +
      " has no weights that are read: neither model.safetensors, model.safetensors.index.json, pytorch_model.bin, "
      "pytorch_model.bin.index.json nor a .gguf file" +
      (others.empty() ? "" : "; it has " + others) +
      "; take the original checkpoint of this model, or save it once with save_pretrained");
}

std::vector<File> indexed_files(const Listing& listing, const File& index, const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object() || !object.contains("weight_map") || !object["weight_map"].is_object())
    unreadable(index.path + " has no object \"weight_map\"");
  std::set<std::string> names;
  for (const auto& [tensor, file] : object["weight_map"].items()) {
    if (!file.is_string()) unreadable(index.path + ": weight_map[\"" + tensor + "\"] is not a string");
    names.insert(file.get<std::string>());
  }
  std::vector<File> out;
  for (const std::string& name : names) {
    const File* file = listing.find(name);
    if (!file || name.find('/') != std::string::npos)
      unreadable(index.path + " names the file \"" + name + "\", which is not in the repository at " + listing.commit);
    out.push_back(*file);
  }
  if (out.empty()) unreadable(index.path + ": weight_map is empty");
  return out;
}

}  // namespace pm::hub
