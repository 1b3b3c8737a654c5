// SPDX-License-Identifier: Apache-2.0
// The subcommands and flags of the worker that the controller passes to pods, each with the type of its value. The
// controller writes them and the worker declares its options with the same names.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace pm {

/// A host name or IP address and a port, written HOST:PORT; an IPv6 address stands in brackets.
struct Address {
  std::string host;
  int port = 0;
  bool operator==(const Address&) const = default;
};
std::string to_text(const Address&);
/// Returns nullopt unless the text has a host and a port from 1 to 65535.
std::optional<Address> parse_address(const std::string& text);

/// A LoRA adapter and the folder that it is in, written NAME=FOLDER.
struct NamedAdapter {
  std::string name, folder;
};
std::string to_text(const NamedAdapter&);

/// A flag whose value has the type `Value`.
template <typename Value>
struct Flag {
  const char* name;
};

namespace subcommand {
inline constexpr const char *serve = "serve", *fetch = "fetch", *inspect = "inspect";
}  // namespace subcommand

namespace flag {
// the checkpoint; all subcommands
inline constexpr Flag<std::string> model{"--model"}, policy{"--policy"};
inline constexpr Flag<NamedAdapter> adapter{"--adapter"};         // inspect and serve, once for each
inline constexpr Flag<std::string> draft_model{"--draft-model"};  // inspect and serve: its folder
// the hub; inspect and fetch
inline constexpr Flag<std::string> revision{"--revision"}, token_file{"--token-file"}, cache{"--cache"},
    termination_message{"--termination-message"};
// a replica pod
inline constexpr Flag<std::string> plan{"--plan"}, served_model_name{"--served-model-name"}, device{"--device"},
    speculation{"--speculation"};
inline constexpr Flag<int64_t> nodes{"--nodes"}, node_rank{"--node-rank"}, replica_generation{"--replica-generation"};
inline constexpr Flag<Address> rendezvous{"--rendezvous"};
inline constexpr Flag<int64_t> port{"--port"}, admin_port{"--admin-port"};
inline constexpr Flag<int64_t> max_sequence_length{"--max-sequence-length"}, max_concurrency{"--max-concurrency"},
    max_queue{"--max-queue"};
inline constexpr Flag<std::chrono::seconds> hang_timeout{"--hang-timeout"}, drain{"--drain-seconds"};
inline constexpr Flag<std::string> api_keys_dir{"--api-keys-dir"}, tls_cert{"--tls-cert"}, tls_key{"--tls-key"};
}  // namespace flag

/// Builds the arguments of a worker, in the order of the calls.
class WorkerArguments {
 public:
  explicit WorkerArguments(const char* subcommand) : list_{subcommand} {}
  template <typename Value>
  WorkerArguments& add(Flag<Value> flag, const std::type_identity_t<Value>& value) {
    list_.insert(list_.end(), {flag.name, written(value)});
    return *this;
  }
  /// Appends an argument of the user as it is.
  WorkerArguments& add(const std::string& argument) {
    list_.push_back(argument);
    return *this;
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  static std::string written(const std::string& text) { return text; }
  static std::string written(int64_t number) { return std::to_string(number); }
  static std::string written(std::chrono::seconds time) { return std::to_string(time.count()); }
  static std::string written(const Address& address) { return to_text(address); }
  static std::string written(const NamedAdapter& adapter) { return to_text(adapter); }

  std::vector<std::string> list_;
};

}  // namespace pm
