// SPDX-License-Identifier: Apache-2.0
#include "controller/core/object.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace pm::k8s {
namespace {

const Json* member(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string text(const Json* value) { return value && value->is_string() ? value->get<std::string>() : std::string(); }

std::string meta(const Json& object, const char* name) {
  const Json* metadata = member(object, "metadata");
  return metadata ? text(member(*metadata, name)) : std::string();
}

bool is_true(const Json* value) { return value && value->is_boolean() && value->get<bool>(); }

/// Unescapes a part of a JSON pointer as RFC 6901 defines: "~1" is "/", "~0" is "~".
std::string unescaped(std::string_view part) {
  std::string out;
  for (size_t i = 0; i < part.size(); ++i) {
    const bool escape = part[i] == '~' && i + 1 < part.size();
    out += escape ? (part[++i] == '1' ? '/' : '~') : part[i];
  }
  return out;
}

const Json* element(const Json& array, std::string_view part) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  return error == std::errc() && end == part.data() + part.size() && index < array.size() ? &array[index] : nullptr;
}

bool decimal(const std::string& version) {
  return !version.empty() && std::all_of(version.begin(), version.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         (version[0] != '0' || version == "0");
}

}  // namespace

std::string to_string(const Key& key) { return key.ns.empty() ? key.name : key.ns + "/" + key.name; }

std::string api_version_of(const Resource& resource) {
  return resource.group.empty() ? resource.version : resource.group + "/" + resource.version;
}

const Json* find_at(const Json& object, std::string_view pointer) {
  const Json* at = &object;
  for (size_t begin = 1; at && begin <= pointer.size();) {
    const size_t end = std::min(pointer.find('/', begin), pointer.size());
    const std::string_view part = pointer.substr(begin, end - begin);
    if (at->is_array())
      at = element(*at, part);
    else
      at = part.find('~') == std::string_view::npos ? member(*at, part) : member(*at, unescaped(part));
    begin = end + 1;
  }
  return at;
}

std::string string_at(const Json& object, std::string_view pointer) { return text(find_at(object, pointer)); }

Key key_of(const Json& object) { return {meta(object, "namespace"), meta(object, "name")}; }
std::string uid_of(const Json& object) { return meta(object, "uid"); }
std::string version_of(const Json& object) { return meta(object, "resourceVersion"); }
bool being_deleted(const Json& object) { return !meta(object, "deletionTimestamp").empty(); }

std::string label_of(const Json& object, const std::string& name) {
  const Json* metadata = member(object, "metadata");
  const Json* labels = metadata ? member(*metadata, "labels") : nullptr;
  return labels ? text(member(*labels, name)) : std::string();
}

std::optional<OwnerReference> controller_of(const Json& object) {
  const Json* metadata = member(object, "metadata");
  const Json* owners = metadata ? member(*metadata, "ownerReferences") : nullptr;
  if (!owners || !owners->is_array()) return {};
  for (const Json& owner : *owners) {
    if (!is_true(member(owner, "controller"))) continue;
    return OwnerReference{text(member(owner, "apiVersion")), text(member(owner, "kind")), text(member(owner, "name")),
                          text(member(owner, "uid"))};
  }
  return {};
}

Json owner_reference(const Resource& resource, const Json& owner) {
  const std::string name = key_of(owner).name, uid = uid_of(owner);
  if (name.empty() || uid.empty())
    throw std::invalid_argument("an owner must have a name and a uid: found \"" + name + "\" and \"" + uid + "\"");
  return {{"apiVersion", api_version_of(resource)},
          {"kind", resource.kind},
          {"name", name},
          {"uid", uid},
          {"controller", true},
          {"blockOwnerDeletion", true}};
}

std::optional<int> compare_versions(const std::string& a, const std::string& b) {
  if (!decimal(a) || !decimal(b)) return {};
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  const int order = a.compare(b);
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

}  // namespace pm::k8s
