#include "numbers.h"

namespace pm::op::test {

namespace {

bool names(const std::string& plural, const std::string& key) { return key == "resourceVersion" || (key == "uid" && plural != "parallelmodels"); }

/// Calls `visit(key, value)` for the members that count, those of metadata one by one.
template <class Visit>
void members(const std::string& plural, const Json& object, Visit visit) {
  for (const auto& [key, value] : object.items()) {
    if (key != "metadata") {
      visit(key, value);
      continue;
    }
    for (const auto& [field, inner] : value.items()) {
      if (!names(plural, field)) visit(field, inner);
    }
  }
}

size_t hash_of(const std::string& plural, const Json& object) {
  size_t out = std::hash<std::string>{}(plural);
  members(plural, object, [&](const std::string& key, const Json& value) { out = (out * 1099511628211u) ^ std::hash<std::string>{}(key) ^ (std::hash<Json>{}(value) * 31); });
  return out;
}

bool same_metadata(const std::string& plural, const Json& a, const Json& b) {
  size_t of_a = 0, of_b = 0;
  for (const auto& [key, value] : b.items()) of_b += names(plural, key) ? 0 : 1;
  for (const auto& [key, value] : a.items()) {
    if (names(plural, key)) continue;
    ++of_a;
    const auto other = b.find(key);
    if (other == b.end() || *other != value) return false;
  }
  return of_a == of_b;
}

bool same(const std::string& plural, const Json& a, const Json& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.items()) {
    const auto other = b.find(key);
    if (other == b.end() || !(key == "metadata" ? same_metadata(plural, value, *other) : value == *other)) return false;
  }
  return true;
}

}  // namespace

uint32_t Numbers::of(const std::string& plural, const k8s::ObjectPtr& object) {
  const size_t hash = hash_of(plural, *object);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto one = begin; one != end; ++one) {
    const One& known = ones_[one->second - 1];
    if (known.object == object || (known.plural == plural && same(plural, *known.object, *object))) return one->second;
  }
  ones_.push_back({plural, object});
  by_hash_.emplace(hash, static_cast<uint32_t>(ones_.size()));
  return static_cast<uint32_t>(ones_.size());
}

}  // namespace pm::op::test
