// SPDX-License-Identifier: Apache-2.0
// Reads the JSON files of a model's folder.
#pragma once
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/base/error.h"

namespace pm::server {

/// Returns a JSON file; null if it is absent. Throws Error{ModelUnreadable} for anything but an object or an array.
inline nlohmann::json read_json_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return nullptr;
  nlohmann::json value = nlohmann::json::parse(in, nullptr, false);
  if (!value.is_object() && !value.is_array()) throw Error(Reason::ModelUnreadable, file.string() + " is not JSON");
  return value;
}

/// Returns object[key], or `absent` where it is null or missing, or `object` is no object. Throws
/// Error{ModelUnreadable} for another type.
template <class T>
T value_of(const nlohmann::json& object, const char* key, T absent) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || found->is_null()) return absent;
  try {
    return found->template get<T>();
  } catch (const nlohmann::json::exception&) {
    throw Error(Reason::ModelUnreadable,
                std::string(key) + " is " + found->dump().substr(0, 80) + ", which has the wrong type");
  }
}

/// Returns the folder `path` of modules.json below the model's. Throws Error{ModelUnreadable} for a path that leaves
/// it.
inline std::filesystem::path module_folder(const std::filesystem::path& model, const std::string& path) {
  if (path.find("..") != std::string::npos || path.starts_with('/'))
    throw Error(Reason::ModelUnreadable,
                "modules.json has the path " + path + ", which is not below the model's folder");
  return model / path;
}

}  // namespace pm::server
