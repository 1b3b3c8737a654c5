// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/event_series.h"

#include <cstdio>

#include "base/utf8.h"
#include "controller/core/object.h"
#include "controller/core/time.h"

namespace pm::k8s {
namespace {

constexpr std::chrono::minutes series_lifetime{6};  // client-go's
constexpr std::chrono::seconds min_interval{60};
constexpr size_t max_series = 4096, max_note_bytes = 1024, max_word_bytes = 128;

bool power_of_two(int n) { return (n & (n - 1)) == 0; }

size_t identity(const Occurrence& o) {
  return std::hash<std::string>{}(
      Json{o.regarding, o.type, o.reason, o.action, o.note}.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

Json reference_to(const Json& object) {
  Json reference = {{"apiVersion", string_at(object, "/apiVersion")},
                    {"kind", string_at(object, "/kind")},
                    {"name", key_of(object).name},
                    {"uid", uid_of(object)}};
  if (!key_of(object).ns.empty()) reference["namespace"] = key_of(object).ns;
  return reference;
}

std::optional<Request> EventSeries::observe(const Occurrence& occurrence, Clock::Wall now) {
  expire(now);
  const size_t id = identity(occurrence);
  const auto found = known_.find(id);
  if (found == known_.end()) {
    if (known_.size() >= max_series) known_.clear();  // events are best effort; memory is not
    const std::string ns = string_at(occurrence.regarding, "/namespace");
    char suffix[48];
    std::snprintf(suffix, sizeof suffix, ".%llx%x", static_cast<unsigned long long>(now.time_since_epoch().count()),
                  serial_++);
    const std::string name = string_at(occurrence.regarding, "/name");
    const Series made{ns.empty() ? "default" : ns, std::string(base::truncate_utf8(name, 200)) + suffix, 1, now, now};
    known_.emplace(id, made);
    return create(occurrence, made, now);
  }
  Series& series = found->second;
  ++series.count;
  series.last = now;
  if (!power_of_two(series.count) && now - series.sent < min_interval) return {};
  series.sent = now;
  Request patch{Verb::MergePatch, events_resource, series.ns, series.name};
  patch.body = {{"series", {{"count", series.count}, {"lastObservedTime", format_micro_time(now)}}}};
  return patch;
}

Request EventSeries::create(const Occurrence& occurrence, const Series& series, Clock::Wall now) const {
  Request create{Verb::Create, events_resource, series.ns, series.name};
  create.body = {{"apiVersion", api_version_of(events_resource)},
                 {"kind", events_resource.kind},
                 {"metadata", {{"name", series.name}, {"namespace", series.ns}}},
                 {"eventTime", format_micro_time(now)},
                 {"reportingController", base::truncate_utf8(controller_, max_word_bytes)},
                 {"reportingInstance", base::truncate_utf8(instance_, max_word_bytes)},
                 {"regarding", occurrence.regarding},
                 {"type", occurrence.type},
                 {"reason", base::truncate_utf8(occurrence.reason, max_word_bytes)},
                 {"action", base::truncate_utf8(occurrence.action, max_word_bytes)},
                 {"note", base::truncate_utf8(occurrence.note, max_note_bytes)}};
  return create;
}

void EventSeries::expire(Clock::Wall now) {
  std::erase_if(known_, [&](const auto& entry) { return now - entry.second.last > series_lifetime; });
}

void EventSeries::lost(const std::string& ns, const std::string& name) {
  std::erase_if(known_, [&](const auto& entry) { return entry.second.ns == ns && entry.second.name == name; });
}

}  // namespace pm::k8s
