// SPDX-License-Identifier: Apache-2.0
// Remembers replies of POST /v1/responses, for previous_response_id, GET /v1/responses/{id} and its input_items.
#pragma once
#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace pm::server {

struct StoredResponse {
  std::string body;          ///< the response object, JSON
  std::string conversation;  ///< the messages of the chat that led to it and its answer, JSON
  std::string items;         ///< the items of its input, those of earlier turns included, JSON
};

/// A store in this process's memory. The responses that were used least recently make room for new ones. Thread-safe.
class ResponseStore {
 public:
  static constexpr size_t max_responses = 1024, max_bytes = size_t{64} << 20;

  explicit ResponseStore(size_t responses = max_responses, size_t bytes = max_bytes)
      : max_responses_(responses), max_bytes_(bytes) {}
  /// Returns false, and stores nothing, for a response that is larger than the whole store.
  bool put(const std::string& id, StoredResponse response);
  std::optional<StoredResponse> get(const std::string& id);
  /// Returns whether there was one.
  bool remove(const std::string& id);
  size_t size() const;

 private:
  struct Entry {
    std::string id;
    StoredResponse response;
    size_t bytes() const {
      return id.size() + response.body.size() + response.conversation.size() + response.items.size();
    }
  };
  using Entries = std::list<Entry>;
  void erase(Entries::iterator entry);

  const size_t max_responses_, max_bytes_;
  mutable std::mutex mutex_;
  Entries entries_;  ///< the most recently used first
  std::unordered_map<std::string, Entries::iterator> by_id_;
  size_t bytes_ = 0;
};

}  // namespace pm::server
