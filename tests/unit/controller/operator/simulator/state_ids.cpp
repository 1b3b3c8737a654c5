// SPDX-License-Identifier: Apache-2.0
#include "state_ids.h"

#include <algorithm>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "fake_pods.h"

namespace pm::op::test {

namespace {

/// The length of the output of k8s::format_time().
constexpr size_t time_size = 20;

/// Returns where the next time in a text begins; npos without one.
size_t find_time(std::string_view text, size_t from) {
  for (size_t t = text.find('T', from + 10); t != text.npos && t + 9 < text.size(); t = text.find('T', t + 1)) {
    if (text[t + 9] == 'Z' && text[t - 3] == '-' && text[t - 6] == '-' && text[t + 3] == ':' && text[t + 6] == ':')
      return t - 10;
  }
  return text.npos;
}

/// Calls `visit` for each piece of the text between times.
template <class Visit>
void pieces(std::string_view text, Visit visit, std::vector<int64_t>* times = nullptr) {
  size_t from = 0;
  for (size_t at = find_time(text, 0); at != text.npos; at = find_time(text, from)) {
    visit(text.substr(from, at - from));
    from = at + time_size;
    const auto time = k8s::parse_time(std::string(text.substr(at, time_size)));
    if (times)
      times->push_back(time ? std::chrono::duration_cast<std::chrono::seconds>(time->time_since_epoch()).count() : 0);
  }
  visit(text.substr(from));
}

bool same_text(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  if (a == b) return true;
  std::string parts_of_a, parts_of_b;
  pieces(a, [&](std::string_view part) { parts_of_a.append(part).push_back('\0'); });
  pieces(b, [&](std::string_view part) { parts_of_b.append(part).push_back('\0'); });
  return parts_of_a == parts_of_b;
}

/// Selects the members of an object that do not count.
class Reading {
 public:
  Reading(const std::string& plural, const Json& object)
      : model_(plural == "parallelmodels"),
        settled_(plural == "pods" && running(object) && !k8s::being_deleted(object) &&
                 annotation_of(object, annotation::nodes) == "1" &&
                 k8s::condition_is_true(op::at(object, "/status/conditions"), "Ready")) {}
  bool operator==(const Reading&) const = default;

  size_t hash(const Json& value, const std::string& in, std::vector<int64_t>& times) const {
    size_t out = value.is_number() ? 7 : static_cast<size_t>(value.type());  // 1 is 1u
    const auto mix = [&](size_t more) { out = (out ^ more) * 1099511628211u; };
    if (value.is_object()) {
      for (auto member = value.begin(); member != value.end(); ++member) {
        mix(std::hash<std::string>{}(member.key()));
        if (!ignored(in, member.key())) mix(hash(*member, member.key(), times));
      }
    } else if (value.is_array()) {
      for (const Json& one : value) mix(hash(one, in, times));
    } else if (value.is_string()) {
      pieces(
          value.get_ref<const std::string&>(), [&](std::string_view part) { mix(std::hash<std::string_view>{}(part)); },
          &times);
    } else if (value.is_number()) {
      mix(std::hash<double>{}(value.get<double>()));
    } else if (value.is_boolean()) {
      mix(value.get<bool>() ? 1 : 2);
    }
    return out;
  }

  bool same(const Json& a, const Json& b, const std::string& in) const {
    if (a.is_string() && b.is_string())
      return same_text(a.get_ref<const std::string&>(), b.get_ref<const std::string&>());
    if (a.is_array() && b.is_array())
      return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                        [&](const Json& left, const Json& right) { return same(left, right, in); });
    if (!a.is_object() || !b.is_object()) return a == b;
    if (a.size() != b.size()) return false;
    for (auto left = a.begin(), right = b.begin(); left != a.end(); ++left, ++right) {
      if (left.key() != right.key() || (!ignored(in, left.key()) && !same(*left, *right, left.key()))) return false;
    }
    return true;
  }

 private:
  /// Visits a member of the object named `in`.
  bool ignored(const std::string& in, const std::string& key) const {
    if (in == "annotations" && key == annotation::fetch_seconds) return true;
    if (in == "metadata") return key == "resourceVersion" || key == "creationTimestamp" || (key == "uid" && !model_);
    if (model_)
      return key == "lastTransitionTime" || key == "loadSeconds" || key == "startupSeconds" || key == "startup" ||
             key == "fetchSeconds" || (in == "lastFailure" && key == "time");
    return settled_ && (key == "lastTransitionTime" || key == "startedAt");
  }

  bool model_, settled_;
};

}  // namespace

uint32_t StateIds::of(const std::string& plural, const k8s::ObjectPtr& object, std::vector<int64_t>& times) {
  const Reading reading(plural, *object);
  const size_t hash = reading.hash(*object, plural, times);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto one = begin; one != end; ++one) {
    const One& known = ones_[one->second - 1];
    if (known.object == object || (known.plural == plural && Reading(plural, *known.object) == reading &&
                                   reading.same(*known.object, *object, plural)))
      return one->second;
  }
  ones_.push_back({plural, object});
  by_hash_.emplace(hash, static_cast<uint32_t>(ones_.size()));
  return static_cast<uint32_t>(ones_.size());
}

}  // namespace pm::op::test
