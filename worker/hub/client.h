// The hub's protocol: revisions, files by range, redirects, and what each refusal means.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <stop_token>
#include <string>

#include "worker/hub/address.h"
#include "worker/hub/listing.h"
#include "worker/hub/transport.h"

namespace pm::hub {

/// Where the hub is and who asks.
struct Access {
  Url endpoint;
  std::string token;                    ///< "": nobody. Goes to the endpoint's origin and to no other
};
/// The token in a file, without the white space around it; "" for no file name. Throws Error{Model, "AuthFailed"} for a file of no use; the
/// message never has its contents.
std::string read_token(const std::string& file);

/// Why something did not come.
struct Trouble {
  std::string reason, message;          ///< SourceUnreachable, AuthFailed, RevisionNotFound, ChecksumMismatch
  bool passing = false;                 ///< may be better at the next try
  std::chrono::seconds pause{0};        ///< that the server asks for
};

/// When to try again: 1 s, 2, 4 ... 60 s, each made shorter by up to a half by chance so that many clients do not come at once; longer when the server
/// asks for it, but never above 5 minutes. Starts anew with every progress; gives up when `patience` has passed without one.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Patience(std::chrono::seconds patience) : patience_(patience) {}
  void progress() { tries_ = 0, since_.reset(); }
  /// The pause before the next try; nothing to give up.
  std::optional<std::chrono::milliseconds> next(Clock::time_point now, const Trouble&);

 private:
  const std::chrono::seconds patience_;
  int tries_ = 0;
  std::optional<Clock::time_point> since_;
  std::mt19937 random_{std::random_device{}()};
};

/// What people may watch of it: called from any thread.
using OnTrouble = std::function<void(const Trouble&, std::chrono::milliseconds pause)>;

/// Not for several threads at once: each has a client of its own.
class Client {
 public:
  /// `patience`: how long nothing may come before it is given up. `stop` ends pauses and transfers: Error{Interrupted}.
  Client(Access access, std::chrono::seconds patience, std::stop_token stop, OnTrouble on_trouble = {}, Environment environment = real_environment);

  /// The commit that a revision means now, and its files. Throws Error{Model, SourceUnreachable | AuthFailed | RevisionNotFound}.
  Listing list(const Repository&);

  /// The bytes of a file from `offset` on, once: `take` gets them in order and returns false when it has enough. Nothing when they came whole or were enough,
  /// else why not. Never retries. Throws Error{Interrupted}.
  std::optional<Trouble> stream(const std::string& id, const std::string& commit, const File&, int64_t offset, int64_t bytes, const std::function<bool(std::string_view)>& take);
  /// `bytes` bytes from `offset` on, with retries. Throws as list() does.
  std::string read(const std::string& id, const std::string& commit, const File&, int64_t offset, int64_t bytes);

  Patience patience() const { return Patience(patience_); }
  /// Waits as `patience` says, or throws what the trouble is.
  void wait(Patience&, const Trouble&);

 private:
  /// Where a request has got to.
  struct Place {
    Url url;
    bool at_hub = true;                 ///< no other host was asked on the way
  };
  Reply follow(Place&, std::map<std::string, std::string> headers, const std::function<bool(const Reply&)>& wanted, const std::function<bool(std::string_view)>& take);

  const Access access_;
  const std::chrono::seconds patience_;
  const std::stop_token stop_;
  const OnTrouble on_trouble_;
  Transport transport_;
};

}  // namespace pm::hub
