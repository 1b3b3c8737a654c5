// SPDX-License-Identifier: Apache-2.0
#include "worker/hub/lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <sstream>

#include "worker/base/error.h"

#include "base/log.h"

namespace pm::hub {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

/// Returns HOST:PID. In a pod the host name is the pod's name: a recreated pod of the same name and process id is the
/// successor of a dead one.
std::string own_name() {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  return std::string(host) + ":" + std::to_string(::getpid());
}

std::string random_word() {
  std::random_device device;
  std::ostringstream out;
  out << std::hex << device() << device() << device();
  return out.str();
}

/// Reads the lock file, which is reopened each time: only then does an NFS client ask the server.
std::optional<std::string> read_file(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  char bytes[1024];
  const ssize_t got = ::read(descriptor, bytes, sizeof bytes);
  ::close(descriptor);
  return got < 0 ? std::nullopt : std::optional(std::string(bytes, static_cast<size_t>(got)));
}

bool write_file(const fs::path& path, const std::string& text, int flags) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0664);
  if (descriptor < 0) return false;
  const bool good = ::pwrite(descriptor, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
                    ::fsync(descriptor) == 0;
  const int problem = errno;
  ::close(descriptor);
  errno = problem;
  return good;
}

/// "nonce owner beats what"
struct Held {
  std::string nonce, owner, what;
};
Held parse_held(const std::string& text) {
  std::istringstream in(text);
  Held out;
  std::string beats;
  in >> out.nonce >> out.owner >> beats;
  std::getline(in >> std::ws, out.what);
  for (std::string* word : {&out.owner, &out.what})
    for (char& c : *word)
      if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  return out;
}

void pause(std::stop_token stop, std::chrono::milliseconds time) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, time, [] { return false; });
}

}  // namespace

std::string VolumeLock::contents(long beats) const {
  std::ostringstream out;
  out << nonce_ << ' ' << owner_ << ' ';
  out.width(12);
  out.fill('0');
  out << beats << ' ' << what_ << '\n';
  return out.str();
}

VolumeLock::VolumeLock(fs::path file, const std::string& what, LockOptions options, std::stop_token stop,
                       const std::function<void(const std::string&)>& waiting)
    : file_(std::move(file)),
      owner_(options.owner.empty() ? own_name() : options.owner),
      nonce_(random_word()),
      what_(what) {
  std::string seen;
  for (auto since = Clock::now(); !take(); pause(stop, options.look)) {
    if (stop.stop_requested())
      throw Error(Reason::Interrupted, "stopped while another download held " + file_.string());
    const auto present = read_file(file_);
    if (!present) continue;
    if (*present != seen) seen = *present, since = Clock::now();
    const Held held = parse_held(*present);
    if (held.owner == owner_ || Clock::now() - since >= options.lease) {
      break_lock(*present);
      continue;
    }
    if (waiting) waiting(held.owner + (held.what.empty() ? "" : " (" + held.what + ")"));
  }
  beats_ = std::jthread([this, every = options.beat](std::stop_token end) { beat(end, every); });
}

bool VolumeLock::take() {
  if (write_file(file_, contents(0), O_CREAT | O_EXCL)) return true;
  if (errno == EEXIST) return false;
  const bool full = errno == ENOSPC || errno == EDQUOT;
  const std::string why = std::strerror(errno);
  if (full && ours()) ::unlink(file_.c_str());
  throw Error(full ? Reason::InsufficientStorage : Reason::VolumeNotWritable,
              file_.string() + " cannot be made: " + why +
                  (full ? "; give the volume more room"
                        : "; the volume must be writable by user " + std::to_string(::geteuid()) + " or group " +
                              std::to_string(::getegid())));
}

bool VolumeLock::ours() const {
  const auto present = read_file(file_);
  return present && parse_held(*present).nonce == nonce_;
}

/// Moves the dead holder's file aside. When the file has changed meanwhile, it is moved back, unless another lock has
/// been created.
void VolumeLock::break_lock(const std::string& judged) {
  const fs::path aside = file_.string() + "." + nonce_;
  if (::rename(file_.c_str(), aside.c_str()) != 0) return;
  LOG(WARNING) << "taking over " << file_.string() << " from " << parse_held(judged).owner
               << ", which has ended or is cut off";
  const auto moved = read_file(aside);
  if (moved && parse_held(*moved).nonce != parse_held(judged).nonce && ::link(aside.c_str(), file_.c_str()) != 0)
    LOG(WARNING) << "two downloads may run at once below " << file_.parent_path().string();
  ::unlink(aside.c_str());
}

void VolumeLock::beat(std::stop_token end, std::chrono::milliseconds every) {
  for (long beats = 1; !end.stop_requested(); ++beats) {
    pause(end, every);
    if (end.stop_requested()) return;
    if (!ours()) {
      LOG(WARNING) << file_.string()
                   << " was taken over: two downloads run at once, which costs traffic and nothing else";
      return;
    }
    write_file(file_, contents(beats), 0);
  }
}

VolumeLock::~VolumeLock() {
  beats_.request_stop();
  if (beats_.joinable()) beats_.join();
  if (ours()) ::unlink(file_.c_str());
}

}  // namespace pm::hub
