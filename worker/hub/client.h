// SPDX-License-Identifier: Apache-2.0
// Implements the hub's HTTP protocol: revisions, ranged reads of files, redirects, and the classification of errors.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <stop_token>
#include <string>

#include "contract/reasons.h"
#include "worker/hub/address.h"
#include "worker/hub/listing.h"
#include "worker/hub/transport.h"

namespace pm::hub {

/// The endpoint of the hub and the token of the caller.
struct Access {
  Url endpoint;
  std::string token;  ///< "": anonymous. It is sent only to the endpoint's origin
};
/// Reads the token from a file, without surrounding white space; "" for no file name. Throws Error{AuthFailed}
/// for an unusable file; the message never contains its contents.
std::string read_token(const std::string& file);

/// The reason why a request failed.
struct FetchError {
  Reason reason = Reason::SourceUnreachable;  ///< or AuthFailed, RevisionNotFound, ChecksumMismatch
  std::string message;
  bool transient = false;         ///< a later attempt may succeed
  std::chrono::seconds pause{0};  ///< from the server's Retry-After
};

/// Exponential backoff with jitter: 1 s, 2, 4 ... 60 s, each shortened randomly by up to a half so that many clients do
/// not retry at once. A server may request longer pauses, up to 5 minutes. Progress resets the policy; it gives up when
/// `stall_timeout` has passed without progress.
class RetryPolicy {
 public:
  using Clock = std::chrono::steady_clock;
  explicit RetryPolicy(std::chrono::seconds stall_timeout) : stall_timeout_(stall_timeout) {}
  void progress() { tries_ = 0, since_.reset(); }
  /// Returns the pause before the next attempt, or nothing to give up.
  std::optional<std::chrono::milliseconds> next(Clock::time_point now, const FetchError&);

 private:
  const std::chrono::seconds stall_timeout_;
  int tries_ = 0;
  std::optional<Clock::time_point> since_;
  std::mt19937 random_{std::random_device{}()};
};

/// Observes failed attempts; it is called from any thread.
using OnError = std::function<void(const FetchError&, std::chrono::milliseconds pause)>;

/// A client of the hub. It is not thread-safe: each thread has a client of its own.
class Client {
 public:
  /// `stall_timeout` is the longest time without progress. `stop` ends pauses and transfers with Error{Interrupted}.
  Client(Access access, std::chrono::seconds stall_timeout, std::stop_token stop, OnError on_error = {},
         Environment environment = real_environment);

  /// Returns the commit that a revision currently names, and its files. Throws Error{SourceUnreachable |
  /// AuthFailed | RevisionNotFound}.
  Listing list(const Repository&);

  /// Streams `bytes` bytes of a file from `offset` on, without retries. `take` gets them in order and returns false
  /// when it has enough. Returns nothing on success, else the error. Throws Error{Interrupted}.
  std::optional<FetchError> stream(const std::string& id, const std::string& commit, const File&, int64_t offset,
                                   int64_t bytes, const std::function<bool(std::string_view)>& take);
  /// Returns `bytes` bytes from `offset` on, with retries. Throws the errors of list().
  std::string read(const std::string& id, const std::string& commit, const File&, int64_t offset, int64_t bytes);

  RetryPolicy retry_policy() const { return RetryPolicy(stall_timeout_); }
  /// Waits for the pause of the retry policy, or throws the error when it is permanent or the policy gives up.
  void wait(RetryPolicy&, const FetchError&);

 private:
  /// The current URL of a request that follows redirects.
  struct RedirectTarget {
    Url url;
    bool at_hub = true;  ///< no redirect has led to another host
  };
  Reply follow(RedirectTarget&, std::map<std::string, std::string> headers,
               const std::function<bool(const Reply&)>& wanted, const std::function<bool(std::string_view)>& take);

  const Access access_;
  const std::chrono::seconds stall_timeout_;
  const std::stop_token stop_;
  const OnError on_error_;
  Transport transport_;
};

}  // namespace pm::hub
