#include "controller/core/object.h"

#include <algorithm>
#include <stdexcept>

namespace pm::k8s {
namespace {

const Json* member(const Json& object, const char* name) {
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

/// RFC 6901: "~1" is "/", "~0" is "~".
std::string unescaped(std::string_view part) {
  std::string out;
  for (size_t i = 0; i < part.size(); ++i) {
    const bool escape = part[i] == '~' && i + 1 < part.size();
    out += escape ? (part[++i] == '1' ? '/' : '~') : part[i];
  }
  return out;
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

std::string string_at(const Json& object, const std::string& pointer) {
  const Json* at = &object;
  size_t begin = 1;
  while (at && begin <= pointer.size()) {
    const size_t end = std::min(pointer.find('/', begin), pointer.size());
    const std::string part = unescaped(std::string_view(pointer).substr(begin, end - begin));
    if (at->is_array()) {
      const bool number = !part.empty() && part.size() < 9 && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
      const size_t index = number ? std::stoul(part) : at->size();
      at = index < at->size() ? &(*at)[index] : nullptr;
    } else {
      at = member(*at, part.c_str());
    }
    begin = end + 1;
  }
  return text(at);
}

Key key_of(const Json& object) { return {meta(object, "namespace"), meta(object, "name")}; }
std::string uid_of(const Json& object) { return meta(object, "uid"); }
std::string version_of(const Json& object) { return meta(object, "resourceVersion"); }
bool being_deleted(const Json& object) { return !meta(object, "deletionTimestamp").empty(); }

std::string label_of(const Json& object, const std::string& name) {
  const Json* metadata = member(object, "metadata");
  const Json* labels = metadata ? member(*metadata, "labels") : nullptr;
  return labels ? text(member(*labels, name.c_str())) : std::string();
}

std::optional<OwnerReference> controller_of(const Json& object) {
  const Json* metadata = member(object, "metadata");
  const Json* owners = metadata ? member(*metadata, "ownerReferences") : nullptr;
  if (!owners || !owners->is_array()) return {};
  for (const Json& owner : *owners) {
    if (!is_true(member(owner, "controller"))) continue;
    return OwnerReference{text(member(owner, "apiVersion")), text(member(owner, "kind")), text(member(owner, "name")), text(member(owner, "uid"))};
  }
  return {};
}

Json owner_reference(const Resource& resource, const Json& owner) {
  const std::string name = key_of(owner).name, uid = uid_of(owner);
  if (name.empty() || uid.empty()) throw std::invalid_argument("an owner must have a name and a uid: found \"" + name + "\" and \"" + uid + "\"");
  return {{"apiVersion", api_version_of(resource)}, {"kind", resource.kind}, {"name", name}, {"uid", uid}, {"controller", true}, {"blockOwnerDeletion", true}};
}

std::optional<int> compare_versions(const std::string& a, const std::string& b) {
  if (!decimal(a) || !decimal(b)) return {};
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  const int order = a.compare(b);
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

}  // namespace pm::k8s
