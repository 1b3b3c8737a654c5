// SPDX-License-Identifier: Apache-2.0
// Runs one rank as a child process of the launcher.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace pm::launch {

/// The exit code or the signal that ended a process.
struct Exit {
  int code = 0;    ///< exit code, when it exited
  int signal = 0;  ///< signal that ended it, else 0
  bool is_success() const { return code == 0 && signal == 0; }
  std::string text() const;  ///< "died of signal 9 (Killed)", "ended with exit code 3"
};
Exit exit_of(int wait_status);

/// A child process. It is killed and reaped when this is destroyed while it runs.
class Child {
 public:
  /// Forks and executes /proc/self/exe in a process group of its own, so that Ctrl-C in a terminal reaches only the
  /// launcher. The child gets SIGKILL when the thread that called this ends. With `ignore_signals` it ignores SIGTERM
  /// and SIGINT, also after exec. `environment` is the whole environment as NAME=VALUE.
  Child(const std::vector<std::string>& argv, const std::vector<std::string>& environment, bool ignore_signals);
  ~Child();
  Child(Child&&) noexcept;
  Child& operator=(Child&&) = delete;

  pid_t pid() const { return pid_; }
  /// Returns a descriptor that is readable when the process ends; -1 when the kernel has no pidfd.
  int descriptor() const { return pidfd_; }
  bool running() const { return pid_ > 0 && !exit_; }
  const std::optional<Exit>& exit() const { return exit_; }
  /// Reaps the process if it has ended; returns true when this call saw the end.
  bool reap();
  /// Records an end that another waitpid() saw.
  void ended(int wait_status) { exit_ = exit_of(wait_status); }
  void send(int signal) const;

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
  std::optional<Exit> exit_;
};

}  // namespace pm::launch
