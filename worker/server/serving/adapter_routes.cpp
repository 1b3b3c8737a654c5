// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/adapter_routes.h"

#include <algorithm>

#include "worker/base/error.h"
#include "worker/server/http/api_error.h"
#include "worker/server/http/json_body.h"

#include "base/log.h"

namespace pm::server {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t max_name = 256;

std::string required_text(Fields& fields, const std::string& name) {
  const auto text = fields.text(name);
  if (!text || text->empty()) throw ApiError(400, "missing_field", name + " is missing; allowed: a text", name);
  return *text;
}

/// Returns the folder that a path below the root names, or one that lies below it. Links are followed first, so that
/// none leads out of the root.
fs::path folder_below(const fs::path& root, const std::string& path) {
  const auto refuse = [&] {
    throw ApiError(400, "invalid_value",
                   "lora_path is " + json_excerpt(path) + "; expected a folder below the one of --adapter-updates",
                   "lora_path");
  };
  std::error_code error;
  const fs::path base = fs::canonical(root, error);
  if (error || path.find('\0') != path.npos) refuse();
  const fs::path folder = fs::canonical(base / path, error);
  if (error || !fs::is_directory(folder, error)) refuse();
  const auto [end, other] = std::mismatch(base.begin(), base.end(), folder.begin(), folder.end());
  if (end != base.end() || folder == base) refuse();
  return folder;
}

json adapter_json(const engine::Adapter& adapter) {
  return {{"id", adapter.name}, {"object", "model"}, {"root", adapter.path}};
}

}  // namespace

http::Response load_lora_adapter(const ServerContext& context, const AdapterUpdates& updates,
                                 const RoutedRequest& call) {
  const auto admitted = context.admit();
  const json object = parse_object(call.request.body);
  Fields fields(object);
  const std::string name = required_text(fields, "lora_name"), path = required_text(fields, "lora_path");
  fields.refuse_others();
  if (name.size() > max_name)
    throw bad_field("lora_name", json_excerpt(name), "at most " + std::to_string(max_name) + " bytes");
  if (context.names.has(name))
    throw bad_field("lora_name", json_excerpt(name), "another name than those of the base model");
  const fs::path folder = folder_below(updates.root, path);
  try {
    const auto adapter = updates.pool->load(name, folder, path);
    LOG(INFO) << "adapter " << json_excerpt(name) << " of " << folder << " is loaded";
    return json_response(adapter_json(*adapter));
  } catch (const Error& error) {
    if (error.kind != ErrorKind::Model) throw;
    throw ApiError(400, "invalid_value", error.what(), "lora_path");
  }
}

http::Response unload_lora_adapter(const ServerContext& context, const AdapterUpdates& updates,
                                   const RoutedRequest& call) {
  const auto admitted = context.admit();
  const json object = parse_object(call.request.body);
  Fields fields(object);
  const std::string name = required_text(fields, "lora_name");
  fields.find("lora_int_id");  // vLLM's clients may send it; has no effect
  fields.refuse_others();
  if (!updates.pool->unload(name))
    throw ApiError(404, "model_not_found", "lora_name is " + json_excerpt(name) + "; no adapter has this name",
                   "lora_name");
  LOG(INFO) << "adapter " << json_excerpt(name) << " is unloaded";
  return json_response({{"id", name}, {"object", "model"}, {"deleted", true}});
}

namespace {

Operation described(std::string summary, const schema::Properties& body, const schema::Properties& reply,
                    json example) {
  Operation made;
  made.summary = std::move(summary);
  made.body = schema::object(body);
  made.reply = schema::object(reply);
  made.example = std::move(example);
  made.error_statuses = model_error_statuses;
  return made;
}

}  // namespace

Operation describe_load_lora_adapter() {
  return described(
      "Loads a LoRA adapter, which requests choose by its name",
      {{"lora_name", schema::text("Name in \"model\" of requests", 1), true},
       {"lora_path", schema::text("Folder below the one of --adapter-updates", 1), true}},
      {{"id", schema::text(), true}, {"object", schema::constant("model"), true}, {"root", schema::text(), true}},
      json());
}

Operation describe_unload_lora_adapter() {
  return described("Takes a LoRA adapter off; requests that run go on",
                   {{"lora_name", schema::text("Name of a loaded adapter", 1), true},
                    {"lora_int_id", schema::integer(0, INT32_MAX, "Has no effect")}},
                   {{"id", schema::text(), true},
                    {"object", schema::constant("model"), true},
                    {"deleted", schema::constant(true), true}},
                   json());
}

}  // namespace pm::server
