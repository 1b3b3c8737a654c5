// SPDX-License-Identifier: Apache-2.0
#include "worker/launch/child.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/base/error.h"

namespace pm::launch {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (const std::string& s : strings)
    out.push_back(const_cast<char*>(s.c_str()));  // exec's types are older than const
  out.push_back(nullptr);
  return out;
}

/// Runs between fork and exec. Nothing here may allocate or lock: locks of other threads are copied in their state.
[[noreturn]] void become_rank(pid_t launcher, char* const* argv, char* const* environment, bool ignore_signals) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(127);  // the launcher ended before the line above
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, ignore_signals ? SIG_IGN : SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve("/proc/self/exe", argv, environment);
  _exit(127);
}

}  // namespace

Exit exit_of(int status) { return WIFSIGNALED(status) ? Exit{0, WTERMSIG(status)} : Exit{WEXITSTATUS(status), 0}; }

std::string Exit::text() const {
  if (signal != 0) return "died of signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  return "ended with exit code " + std::to_string(code);
}

Child::Child(const std::vector<std::string>& argv, const std::vector<std::string>& environment, bool ignore_signals) {
  const auto argument_pointers = pointers(argv), environment_pointers = pointers(environment);
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ == 0) become_rank(launcher, argument_pointers.data(), environment_pointers.data(), ignore_signals);
  if (pid_ < 0) throw Error(Reason::RankLost, std::string("cannot start a rank: fork: ") + std::strerror(errno));
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));  // close-on-exec by itself
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      exit_(std::exchange(other.exit_, std::nullopt)) {}

Child::~Child() {
  if (running()) {
    send(SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (pidfd_ >= 0) close(pidfd_);
}

bool Child::reap() {
  int status = 0;
  if (!running() || waitpid(pid_, &status, WNOHANG) != pid_) return false;
  ended(status);
  return true;
}

void Child::send(int signal) const {
  if (running()) kill(pid_, signal);  // the process is not reaped yet, so the id is still its own
}

}  // namespace pm::launch
