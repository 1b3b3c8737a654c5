// See special_ids.h.
#include "worker/tokenizer/special_ids.h"

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/base/error.h"

namespace pm {
namespace {

using nlohmann::json;
constexpr uintmax_t kLargestFile = uintmax_t{64} << 20;

struct Role {
  const char* key;
  std::optional<int32_t> SpecialIds::*id;
  std::array<std::string_view, 3> usual;   ///< spellings that mean this role wherever they occur
};
const std::array<Role, 7> kRoles{{{"bos_token", &SpecialIds::bos, {"<s>", "<|startoftext|>", ""}},
                                  {"eos_token", &SpecialIds::eos, {"</s>", "<|endoftext|>", ""}},
                                  {"unk_token", &SpecialIds::unk, {"<unk>", "[UNK]", ""}},
                                  {"sep_token", &SpecialIds::sep, {"[SEP]", "", ""}},
                                  {"pad_token", &SpecialIds::pad, {"[PAD]", "<pad>", ""}},
                                  {"cls_token", &SpecialIds::cls, {"[CLS]", "", ""}},
                                  {"mask_token", &SpecialIds::mask, {"[MASK]", "<mask>", ""}}}};

/// An absent file is an empty object.
json object_of(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return json::object();
  if (std::filesystem::file_size(file, error) > kLargestFile) throw Error(ErrorKind::Model, "ModelUnreadable", file.string() + " is larger than 64 MiB");
  std::ifstream in(file, std::ios::binary);
  json value = json::parse(in, nullptr, false);
  if (!value.is_object()) throw Error(ErrorKind::Model, "ModelUnreadable", file.string() + " is not a JSON object");
  return value;
}

/// The token that `key` names in one file; empty when the file does not say.
std::string named(const json& file, const char* key) {
  const auto found = file.find(key);
  if (found == file.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) return (*found)["content"].get<std::string>();
  return {};
}

}  // namespace

SpecialIds special_ids(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  const json config = object_of(folder / "tokenizer_config.json"), map = object_of(folder / "special_tokens_map.json");
  SpecialIds ids;
  for (const Role& role : kRoles) {
    std::string token = named(config, role.key);
    if (token.empty()) token = named(map, role.key);
    if (!token.empty()) {
      ids.*role.id = tokenizer.id_of(token);
      continue;
    }
    if (config.contains(role.key)) continue;   // null: the checkpoint says that there is none
    for (std::string_view usual : role.usual)
      if (!usual.empty() && !(ids.*role.id)) ids.*role.id = tokenizer.id_of(usual);
  }
  return ids;
}

}  // namespace pm
