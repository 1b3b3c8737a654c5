// SPDX-License-Identifier: Apache-2.0
#include "worker/launch/failure.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "contract/termination.h"

namespace pm::launch {
namespace {

constexpr size_t max_bytes = 1024;

}  // namespace

const Failure& cause_of(const std::vector<Failure>& failures) {
  const auto cause = std::find_if(failures.begin(), failures.end(),
                                  [](const Failure& f) { return f.reason != Reason::CommunicatorAborted; });
  return cause != failures.end() ? *cause : failures.front();
}

std::string termination_message(const Failure& failure) {
  return to_text({.reason = name_of(failure.reason),
                  .message = failure.message,
                  .rank = failure.rank,
                  .exit_code = failure.exit_code},
                 max_bytes);
}

bool write_termination_message(const std::string& path, const Failure& failure) {
  if (path.empty()) return false;
  const int file = open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (file < 0) return false;
  const std::string text = termination_message(failure);
  const bool whole = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(file);
  return whole;
}

}  // namespace pm::launch
