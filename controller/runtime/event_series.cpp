#include "controller/runtime/event_series.h"

#include <cstdio>

#include "controller/core/object.h"
#include "controller/core/time.h"

namespace pm::k8s {
namespace {

constexpr std::chrono::minutes Lifetime{6};       // client-go's
constexpr std::chrono::seconds Between{60};
constexpr size_t MaxSeries = 4096, MaxNote = 1024, MaxWord = 128;

bool power_of_two(int n) { return (n & (n - 1)) == 0; }

size_t identity(const Occurrence& o) { return std::hash<std::string>{}(Json{o.regarding, o.type, o.reason, o.action, o.note}.dump(-1, ' ', false, Json::error_handler_t::replace)); }

}  // namespace

Json reference_to(const Json& object) {
  Json reference = {{"apiVersion", string_at(object, "/apiVersion")}, {"kind", string_at(object, "/kind")}, {"name", key_of(object).name}, {"uid", uid_of(object)}};
  if (!key_of(object).ns.empty()) reference["namespace"] = key_of(object).ns;
  return reference;
}

std::string cut(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;   // a continuation byte of UTF-8
  return text.substr(0, bytes);
}

std::optional<Request> EventSeries::observe(const Occurrence& occurrence, Clock::Wall now) {
  expire(now);
  const size_t id = identity(occurrence);
  const auto found = known_.find(id);
  if (found == known_.end()) {
    if (known_.size() >= MaxSeries) known_.clear();   // events are best effort; memory is not
    const std::string ns = string_at(occurrence.regarding, "/namespace");
    char suffix[48];
    std::snprintf(suffix, sizeof suffix, ".%llx%x", static_cast<unsigned long long>(now.time_since_epoch().count()), serial_++);
    const Series made{ns.empty() ? "default" : ns, cut(string_at(occurrence.regarding, "/name"), 200) + suffix, 1, now, now};
    known_.emplace(id, made);
    return create(occurrence, made, now);
  }
  Series& series = found->second;
  ++series.count;
  series.last = now;
  if (!power_of_two(series.count) && now - series.sent < Between) return {};
  series.sent = now;
  Request patch{Verb::MergePatch, Events, series.ns, series.name};
  patch.body = {{"series", {{"count", series.count}, {"lastObservedTime", format_micro_time(now)}}}};
  return patch;
}

Request EventSeries::create(const Occurrence& occurrence, const Series& series, Clock::Wall now) const {
  Request create{Verb::Create, Events, series.ns, series.name};
  create.body = {{"apiVersion", api_version_of(Events)},
                 {"kind", Events.kind},
                 {"metadata", {{"name", series.name}, {"namespace", series.ns}}},
                 {"eventTime", format_micro_time(now)},
                 {"reportingController", cut(controller_, MaxWord)},
                 {"reportingInstance", cut(instance_, MaxWord)},
                 {"regarding", occurrence.regarding},
                 {"type", occurrence.type},
                 {"reason", cut(occurrence.reason, MaxWord)},
                 {"action", cut(occurrence.action, MaxWord)},
                 {"note", cut(occurrence.note, MaxNote)}};
  return create;
}

void EventSeries::expire(Clock::Wall now) {
  std::erase_if(known_, [&](const auto& entry) { return now - entry.second.last > Lifetime; });
}

void EventSeries::lost(const std::string& ns, const std::string& name) {
  std::erase_if(known_, [&](const auto& entry) { return entry.second.ns == ns && entry.second.name == name; });
}

}  // namespace pm::k8s
