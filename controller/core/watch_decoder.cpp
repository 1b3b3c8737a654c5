// SPDX-License-Identifier: Apache-2.0
#include "controller/core/watch_decoder.h"

#include <optional>
#include <utility>

namespace pm::k8s {
namespace {

std::optional<WatchEvent::Type> type_of(const std::string& name) {
  using Type = WatchEvent::Type;
  if (name == "ADDED") return Type::Added;
  if (name == "MODIFIED") return Type::Modified;
  if (name == "DELETED") return Type::Deleted;
  if (name == "BOOKMARK") return Type::Bookmark;
  if (name == "ERROR") return Type::Error;
  return {};
}

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

bool WatchDecoder::feed(std::string_view bytes, const std::function<bool(WatchEvent&&)>& sink) {
  if (!error_.empty()) return false;
  while (true) {
    const size_t end = bytes.find('\n');
    const size_t length = end == std::string_view::npos ? bytes.size() : end;
    if (line_.size() + length > max_line_) {
      error_ = "a line of the watch is longer than " + std::to_string(max_line_) + " bytes";
      line_ = {};
      return false;
    }
    if (end == std::string_view::npos) {
      line_.append(bytes);
      return true;
    }
    bool more = true;
    if (line_.empty()) {
      more = take(bytes.substr(0, end), sink);
    } else {
      line_.append(bytes.substr(0, end));
      const std::string line = std::exchange(line_, {});
      more = take(line, sink);
    }
    if (!more) return false;
    bytes.remove_prefix(end + 1);
  }
}

bool WatchDecoder::take(std::string_view line, const std::function<bool(WatchEvent&&)>& sink) {
  if (blank(line)) return true;
  Json document = Json::parse(line.begin(), line.end(), nullptr, false);
  const bool shaped = document.is_object() && document.contains("type") && document["type"].is_string() &&
                      document.contains("object") && document["object"].is_object();
  const auto type = shaped ? type_of(document["type"].get_ref<const std::string&>()) : std::nullopt;
  if (!type) {
    error_ = "not a watch event: " + std::string(line.substr(0, 128));
    return false;
  }
  return sink(WatchEvent{*type, std::move(document["object"])});
}

}  // namespace pm::k8s
