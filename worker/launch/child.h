// One rank as a child process of the launcher.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace pm::launch {

/// How a process ended.
struct Exit {
  int code = 0;     ///< when it exited
  int signal = 0;   ///< not 0 when a signal ended it
  bool well() const { return code == 0 && signal == 0; }
  std::string text() const;   ///< "died of signal 9 (Killed)", "ended with exit code 3"
};
Exit exit_of(int wait_status);

/// Killed and reaped when destroyed while it runs.
class Child {
 public:
  /// Forks and executes /proc/self/exe in a process group of its own, so that a terminal's Ctrl-C reaches the launcher alone. The child gets SIGKILL when the
  /// thread that called this ends. `deaf`: SIGTERM and SIGINT are ignored, across exec. `environment`: NAME=VALUE, the whole of it.
  Child(const std::vector<std::string>& argv, const std::vector<std::string>& environment, bool deaf);
  ~Child();
  Child(Child&&) noexcept;
  Child& operator=(Child&&) = delete;

  pid_t pid() const { return pid_; }
  /// Readable when the process ends; -1 when the kernel has no pidfd.
  int descriptor() const { return pidfd_; }
  bool running() const { return pid_ > 0 && !exit_; }
  const std::optional<Exit>& exit() const { return exit_; }
  /// Reaps it if it has ended; true when this call saw the end.
  bool reap();
  /// Somebody else's waitpid saw the end.
  void ended(int wait_status) { exit_ = exit_of(wait_status); }
  void send(int signal) const;

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
  std::optional<Exit> exit_;
};

}  // namespace pm::launch
