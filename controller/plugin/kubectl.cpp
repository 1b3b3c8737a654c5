// SPDX-License-Identifier: Apache-2.0
#include "controller/plugin/kubectl.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves its declaration to the program

namespace pm::plugin {
namespace {

constexpr int command_not_found = 127;  // as shells have it

std::vector<char*> pointers_of(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

KubectlFailed not_started(int error) {
  return {"kubectl cannot be started: " + std::string(std::strerror(error)) + "; it has to be in PATH",
          command_not_found};
}

std::string read_all(int fd) {
  std::string out;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n > 0) out.append(buffer.data(), static_cast<size_t>(n));
    if (n == 0 || (n < 0 && errno != EINTR)) return out;
  }
}

}  // namespace

std::vector<std::string> Kubectl::words_of(const Arguments& arguments) const {
  std::vector<std::string> words{"kubectl"};
  words.insert(words.end(), global_.begin(), global_.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

std::string Kubectl::output(const Arguments& arguments, bool quiet) const {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw not_started(errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  if (quiet) posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<std::string> words = words_of(arguments);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, "kubectl", &actions, nullptr, pointers_of(words).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  const std::string out = error == 0 ? read_all(ends[0]) : "";
  close(ends[0]);
  if (error != 0) throw not_started(error);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code != 0)
    throw KubectlFailed("kubectl " + arguments.front() + " ended with status " + std::to_string(code), code);
  return out;
}

k8s::Json Kubectl::json(Arguments arguments) const {
  arguments.insert(arguments.end(), {"-o", "json"});
  k8s::Json value = k8s::Json::parse(output(arguments), nullptr, false);
  if (value.is_discarded()) throw KubectlFailed("kubectl " + arguments.front() + " printed no JSON", 1);
  return value;
}

void Kubectl::become(const Arguments& arguments) const {
  std::vector<std::string> words = words_of(arguments);
  execvp("kubectl", pointers_of(words).data());
  throw not_started(errno);
}

}  // namespace pm::plugin
